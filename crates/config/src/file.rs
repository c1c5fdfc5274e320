//! `landfall.yaml`: the provider instances of a process.
//!
//! The types that parse the file are the ones that its JSON schema is made from, so the two can't
//! disagree. What is well-formed and makes no sense (two instances of one name, two defaults) is
//! found by [`parse`].

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use landfall_model::dialect::cidr;
use landfall_model::limits::Limits;
use landfall_model::reach::{MemberRules, Setting};
use landfall_model::rows::{METALLB_NAMESPACE, PoolAllocation, PoolOrigin, PoolRow, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access_log::AccessLogConfig;
use crate::openstack::OpenStack;

/// The contents of `landfall.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "landfall.yaml")]
pub struct Config {
    /// The provider instances of this process; at least one.
    #[schemars(length(min = 1))]
    pub instances: Vec<Instance>,
    /// Limits of one Service or one namespace.
    #[serde(default, skip_serializing_if = "LimitsConfig::is_default")]
    pub limits: LimitsConfig,
    /// The access log of `up` and `controller`; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<AccessLogConfig>,
    /// The namespace of `IPAddressPool` objects of MetalLB; default: `metallb-system`.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metallb_namespace: Option<String>,
}

/// Limits of one Service or one namespace. New objects beyond a limit are refused with
/// `LimitReached`; existing ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Ports of one Service; default: 1000.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_service: Option<u32>,
    /// Members of one Service, of all its ports together; default: 10000.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members_per_service: Option<u32>,
    /// Secrets with certificates that one Service names; default: 64.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_service: Option<u32>,
    /// Open listeners of the Services of one namespace. Default: any number with manifests, in a
    /// cluster half of what the file descriptors of the process allow.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_namespace: Option<u32>,
    /// Secrets that are watched for the Services of one namespace; default: 256.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_per_namespace: Option<u32>,
    /// Secrets that are watched in all; default: 4096, and at most an eighth of the file
    /// descriptors that the process may open.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<u32>,
}

/// One provider instance: it serves the class `landfall.dev/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Instance {
    /// Its name: lower-case letters, digits and `-`; unique.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// The provider of its load balancers.
    pub provider: ProviderKind,
    /// Whether it also serves Services without a class. At most one instance may.
    #[serde(default)]
    pub default: bool,
    /// Address pools of this instance only, besides the `IPAddressPool` objects of the default
    /// instance.
    #[serde(default)]
    pub pools: Vec<PoolConfig>,
    /// Which addresses may be members, if members are pods. Link-local, unspecified, multicast and
    /// broadcast addresses, those of address pools and the admin endpoint are never members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MembersConfig>,
}

/// Which addresses may be members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MembersConfig {
    /// Prefixes that `landfall.dev/endpoints` may name. Default: none in a cluster, any with
    /// manifests. In a cluster, loopback needs a prefix within 127.0.0.0/8 or `::1/128`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Vec<String>>,
    /// Prefixes that `EndpointSlice` objects may name. Default: any, in a cluster without loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<String>>,
}

/// The kinds of providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum ProviderKind {
    /// Addresses of this machine, traffic through this process. `provider: local` is short for it.
    Local,
    /// Load balancers of OpenStack's Octavia.
    OpenStack(OpenStack),
}

/// An address pool: the `spec` of MetalLB's `IPAddressPool`, with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name, unique over all instances.
    pub name: String,
    /// Prefixes (`192.0.2.0/28`) and ranges (`192.0.2.1-192.0.2.9`).
    #[schemars(length(min = 1))]
    pub addresses: Vec<String>,
    /// False: only for Services that request the pool or an address in it.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Exclude IPv4 addresses that end in .0 or .255.
    #[serde(rename = "avoidBuggyIPs", default)]
    pub avoid_buggy_ips: bool,
    /// Whether Services of different namespaces may share an address, by equal sharing keys. On an
    /// `IPAddressPool`: the annotation `landfall.dev/share-across-namespaces: "true"`.
    #[serde(default)]
    pub share_across_namespaces: bool,
    /// The addresses of each family that the Services of one namespace may hold; existing claims
    /// stay. Default: all. On an `IPAddressPool` use the annotation
    /// `landfall.dev/addresses-per-namespace`.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses_per_namespace: Option<NonZeroU32>,
    /// The Services that it serves, and its priority.
    #[serde(default)]
    pub service_allocation: Option<AllocationConfig>,
}

/// The Services that a pool serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AllocationConfig {
    /// Lower is first; 0 is last.
    pub priority: i64,
    /// Exact names.
    pub namespaces: Vec<String>,
    /// Selectors on namespace labels; any may match.
    pub namespace_selectors: Vec<SelectorConfig>,
    /// Selectors on Service labels; any may match.
    pub service_selectors: Vec<SelectorConfig>,
}

/// A Kubernetes label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SelectorConfig {
    /// Labels that must have these values.
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// Requirements for single labels.
    pub match_expressions: Vec<ExpressionConfig>,
}

/// One requirement for a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpressionConfig {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for the first two.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A file that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no YAML, or a key is unknown, missing or of the wrong type.
    #[error("{file}{at}: {why}", at = place(*line))]
    Syntax {
        /// The file.
        file: String,
        /// The line, if it is known.
        line: Option<u64>,
        /// What is wrong.
        why: String,
    },
    /// It is well-formed and makes no sense.
    #[error("{file}: {key}: {value:?}: {why}")]
    Meaning {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What stands there.
        value: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}

/// Reads the text of a file; `file` is how errors name it.
pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    let config: Config = serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax {
        file: file.to_owned(),
        line: error.location().map(|location| location.line()),
        why: first_line(&error.to_string()),
    })?;
    let refuse = |key: String, value: &str, why: &str| {
        Err(ConfigError::Meaning {
            file: file.to_owned(),
            key,
            value: value.to_owned(),
            why: why.to_owned(),
        })
    };
    if config.instances.is_empty() {
        return refuse("instances".to_owned(), "[]", "name at least one instance");
    }
    if let Some(key) = config.limits.nothing() {
        let why = "write a number of at least 1, or leave it out";
        return refuse(format!("limits.{key}"), "0", why);
    }
    let namespace = config.metallb_namespace();
    if !is_label(namespace) {
        let why = "not the name of a namespace; use lower-case letters, digits and -, at most 63";
        return refuse("metallbNamespace".to_owned(), namespace, why);
    }
    let log = config.access_log.as_ref();
    if log.is_some_and(|log| log.file.as_os_str().is_empty()) {
        let why = "name a file, or - for standard output";
        return refuse("accessLog.file".to_owned(), "", why);
    }
    let (mut names, mut pools) = (BTreeSet::new(), BTreeSet::new());
    let mut default: Option<&str> = None;
    for (index, instance) in config.instances.iter().enumerate() {
        let at = |key: &str| format!("instances[{index}].{key}");
        if !is_label(&instance.name) {
            let why = "not a name; use lower-case letters, digits and -, at most 63";
            return refuse(at("name"), &instance.name, why);
        }
        if !names.insert(&instance.name) {
            return refuse(
                at("name"),
                &instance.name,
                "there is another instance of this name",
            );
        }
        if let (true, Some(other)) = (instance.default, default) {
            let why = format!("{other} is already the default; only one can be");
            return refuse(at("default"), "true", &why);
        }
        if instance.default {
            default = Some(&instance.name);
        }
        if let ProviderKind::OpenStack(openstack) = &instance.provider {
            if let Some((key, value, why)) = openstack.complaint() {
                return refuse(at(&format!("provider.{key}")), &value, why);
            }
            // Addresses come from the cloud; a pool here would never be used.
            if let Some(pool) = instance.pools.first() {
                let why = "an OpenStack instance has no pools; its addresses come from the cloud";
                return refuse(at("pools"), &pool.name, why);
            }
        }
        for (list, prefixes) in instance.members.iter().flat_map(MembersConfig::lists) {
            for (position, text) in prefixes.iter().flatten().enumerate() {
                if let Err(refusal) = cidr(text) {
                    let key = at(&format!("members.{list}[{position}]"));
                    return refuse(key, text, &refusal.remedy);
                }
            }
        }
        for (position, pool) in instance.pools.iter().enumerate() {
            if !pools.insert(&pool.name) {
                let key = at(&format!("pools[{position}].name"));
                return refuse(key, &pool.name, "there is another pool of this name");
            }
        }
    }
    Ok(config)
}

/// The JSON schema of the file (draft 2020-12).
pub fn schema() -> String {
    let schema = schemars::schema_for!(Config);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

// === impl Config ===

impl Config {
    /// One instance of the given name that serves everything.
    pub fn only(name: &str) -> Self {
        let instance = Instance {
            name: name.to_owned(),
            provider: ProviderKind::Local,
            default: true,
            pools: Vec::new(),
            members: None,
        };
        Self {
            instances: vec![instance],
            limits: LimitsConfig::default(),
            access_log: None,
            metallb_namespace: None,
        }
    }

    /// Where a cluster has MetalLB's `IPAddressPool` objects.
    pub fn metallb_namespace(&self) -> &str {
        self.metallb_namespace
            .as_deref()
            .unwrap_or(METALLB_NAMESPACE)
    }

    /// The names of the instances, and that of the default one.
    pub fn names(&self) -> (Vec<String>, Option<&str>) {
        let names = self
            .instances
            .iter()
            .map(|instance| instance.name.clone())
            .collect();
        let default = self.instances.iter().find(|instance| instance.default);
        (names, default.map(|instance| instance.name.as_str()))
    }

    /// The pools of all instances.
    pub fn pools(&self) -> Vec<PoolRow> {
        let rows = self
            .instances
            .iter()
            .flat_map(|instance| instance.pools.iter().map(|pool| pool.row(&instance.name)));
        rows.collect()
    }
}

// === impl LimitsConfig ===

impl LimitsConfig {
    /// The limits; `listeners` is how many a namespace may have where nothing is said.
    pub fn limits(&self, listeners: Option<usize>) -> Limits {
        let usual = Limits::default();
        let or = |given: Option<u32>, usual: usize| {
            given.map_or(usual, |given| usize::try_from(given).unwrap_or(usize::MAX))
        };
        Limits {
            ports_per_service: or(self.ports_per_service, usual.ports_per_service),
            members_per_service: or(self.members_per_service, usual.members_per_service),
            certificates_per_service: or(
                self.certificates_per_service,
                usual.certificates_per_service,
            ),
            ports_per_namespace: match self.ports_per_namespace {
                Some(_) => Some(or(self.ports_per_namespace, usize::MAX)),
                None => listeners,
            },
            secrets_per_namespace: or(self.secrets_per_namespace, usual.secrets_per_namespace),
            secrets: or(self.secrets, usual.secrets),
        }
    }

    /// The key of a limit that would let nothing be.
    fn nothing(&self) -> Option<&'static str> {
        let all = [
            ("portsPerService", self.ports_per_service),
            ("membersPerService", self.members_per_service),
            ("certificatesPerService", self.certificates_per_service),
            ("portsPerNamespace", self.ports_per_namespace),
            ("secretsPerNamespace", self.secrets_per_namespace),
            ("secrets", self.secrets),
        ];
        let found = all.into_iter().find(|(_, given)| *given == Some(0));
        found.map(|(key, _)| key)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Instance ===

impl Instance {
    /// What may be a member, with Services of this setting.
    pub fn member_rules(&self, setting: Setting) -> MemberRules {
        let [annotations, slices] = match &self.members {
            Some(members) => members.lists().map(|(_, texts)| {
                let texts = texts.as_deref()?;
                // Those that can't be read were refused with the file.
                Some(texts.iter().filter_map(|text| cidr(text).ok()).collect())
            }),
            None => [None, None],
        };
        MemberRules {
            setting,
            annotations,
            slices,
            ..MemberRules::default()
        }
    }
}

impl MembersConfig {
    fn lists(&self) -> [(&'static str, &Option<Vec<String>>); 2] {
        [("annotations", &self.annotations), ("slices", &self.slices)]
    }
}

// === impl PoolConfig ===

impl PoolConfig {
    fn row(&self, instance: &str) -> PoolRow {
        PoolRow {
            name: self.name.clone(),
            instance: Some(instance.to_owned()),
            addresses: self.addresses.clone(),
            auto_assign: self.auto_assign,
            avoid_buggy: self.avoid_buggy_ips,
            share_across_namespaces: self.share_across_namespaces,
            addresses_per_namespace: self.addresses_per_namespace.map(NonZeroU32::get),
            allocation: self.service_allocation.as_ref().map(AllocationConfig::row),
            origin: PoolOrigin::Configured,
            ..PoolRow::default()
        }
    }
}

impl AllocationConfig {
    fn row(&self) -> PoolAllocation {
        let selectors = |all: &[SelectorConfig]| all.iter().map(SelectorConfig::row).collect();
        PoolAllocation {
            priority: self.priority,
            namespaces: self.namespaces.clone(),
            namespace_selectors: selectors(&self.namespace_selectors),
            service_selectors: selectors(&self.service_selectors),
        }
    }
}

impl SelectorConfig {
    fn row(&self) -> Selector {
        let expressions = self.match_expressions.iter();
        Selector {
            match_labels: self.match_labels.clone(),
            match_expressions: expressions
                .map(|it| (it.key.clone(), it.operator.clone(), it.values.clone()))
                .collect(),
        }
    }
}

fn yes() -> bool {
    true
}

fn place(line: Option<u64>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

/// The parser adds a picture of the place; a log line wants the sentence.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or(text).to_owned()
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-' && inner(*byte));
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clouds_yaml::Surroundings;
    use crate::openstack::SecurityGroups;

    const GOOD: &str = "\
instances:
- name: edge
  provider: local
  default: true
  pools:
  - name: public
    addresses: [192.0.2.0/28]
    avoidBuggyIPs: true
    serviceAllocation: {priority: 10, namespaces: [shop]}
- name: inner
  provider: local
";

    fn refused(text: &str) -> String {
        parse("landfall.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn pools_of_metallb_are_where_it_is_installed() {
        let read = |line: &str| {
            let instances = "instances: [{name: edge, provider: local}]\n";
            parse("landfall.yaml", &format!("{line}{instances}"))
        };
        assert_eq!(read("").unwrap().metallb_namespace(), "metallb-system");
        let config = read("metallbNamespace: networking\n").unwrap();
        assert_eq!(config.metallb_namespace(), "networking");
        let error = read("metallbNamespace: Net.work\n")
            .unwrap_err()
            .to_string();
        let begin = "landfall.yaml: metallbNamespace: \"Net.work\": not the name of a namespace";
        assert!(error.starts_with(begin), "{error}");
    }

    #[test]
    fn instances_and_their_pools_are_read() {
        let config = parse("landfall.yaml", GOOD).unwrap();
        assert_eq!(
            config.names(),
            (vec!["edge".to_owned(), "inner".to_owned()], Some("edge"))
        );
        let pools = config.pools();
        assert_eq!(pools.len(), 1);
        assert_eq!(pools[0].instance.as_deref(), Some("edge"));
        assert!(pools[0].auto_assign && pools[0].avoid_buggy);
        assert_eq!(pools[0].allocation.as_ref().unwrap().priority, 10);
    }

    #[test]
    fn how_much_of_a_pool_one_namespace_may_hold_is_read_and_nothing_is_no_number() {
        let of = |most: &str| GOOD.replace("avoidBuggyIPs: true", most);
        let config = parse("landfall.yaml", &of("addressesPerNamespace: 4")).unwrap();
        assert_eq!(config.pools()[0].addresses_per_namespace, Some(4));
        let config = parse("landfall.yaml", GOOD).unwrap();
        assert_eq!(config.pools()[0].addresses_per_namespace, None);
        assert!(refused(&of("addressesPerNamespace: 0")).contains("nonzero"));
    }

    #[test]
    fn the_prefixes_of_members_become_rules_and_a_bad_one_is_told_with_its_place() {
        let of = |members: &str| format!("{GOOD}  members: {members}\n");
        let text = of("{annotations: [10.1.2.3/16, '::ffff:10.2.0.0/112'], slices: []}");
        let config = parse("landfall.yaml", &text).unwrap();
        let rules = config.instances[1].member_rules(Setting::Cluster);
        let shown = |nets: Option<Vec<_>>| -> Option<Vec<String>> {
            Some(nets?.iter().map(ToString::to_string).collect())
        };
        assert_eq!(
            shown(rules.annotations).unwrap(),
            ["10.1.0.0/16", "10.2.0.0/16"]
        );
        assert_eq!(shown(rules.slices), Some(Vec::new()));
        let plain = config.instances[0].member_rules(Setting::Machine);
        assert_eq!(plain, MemberRules::default());
        assert_eq!(
            refused(&of("{slices: [10.0.0.0/8, 10.0.0.1]}")),
            "landfall.yaml: instances[1].members.slices[1]: \"10.0.0.1\": write 10.0.0.1/32 for \
             this one address"
        );
        assert!(refused(&of("{endpoints: []}")).contains("endpoints"));
    }

    #[test]
    fn limits_that_are_given_replace_the_usual_ones_and_none_is_nothing() {
        let text = format!("{GOOD}limits: {{portsPerService: 7, portsPerNamespace: 9}}\n");
        let limits = parse("landfall.yaml", &text).unwrap().limits;
        let expected = Limits {
            ports_per_service: 7,
            ports_per_namespace: Some(9),
            ..Limits::default()
        };
        assert_eq!(limits.limits(Some(100)), expected);
        let usual = LimitsConfig::default();
        assert_eq!(usual.limits(None), Limits::default());
        assert_eq!(usual.limits(Some(100)).ports_per_namespace, Some(100));
        assert_eq!(
            refused(&format!("{GOOD}limits: {{secrets: 0}}\n")),
            "landfall.yaml: limits.secrets: \"0\": write a number of at least 1, or leave it out"
        );
    }

    #[test]
    fn a_typo_is_told_with_its_line() {
        let text = GOOD.replace("  default: true", "  defualt: true");
        let error = refused(&text);
        assert!(
            error.starts_with("landfall.yaml:4") && error.contains("defualt"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_type_is_told_with_its_line() {
        let error = refused(&GOOD.replace("priority: 10", "priority: high"));
        assert!(error.starts_with("landfall.yaml:9"), "{error}");
    }

    #[test]
    fn contradictions_name_key_and_value() {
        for (from, to, key) in [
            ("name: inner", "name: edge", "instances[1].name: \"edge\""),
            ("name: inner", "name: Inner", "instances[1].name: \"Inner\""),
            (
                "name: inner",
                "default: true\n  name: inner",
                "instances[1].default: \"true\"",
            ),
        ] {
            let error = refused(&GOOD.replace(from, to));
            assert!(error.contains(key), "{error}");
        }
        assert!(refused("instances: []").contains("at least one"));
    }

    fn openstack(provider: &str) -> OpenStack {
        let text = format!("instances:\n- name: cloud\n  provider: {provider}\n");
        let config = parse("landfall.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        let ProviderKind::OpenStack(openstack) = config.instances[0].provider.clone() else {
            panic!("{config:?}");
        };
        openstack
    }

    #[test]
    fn an_openstack_instance_has_its_cloud_and_defaults() {
        let plain = openstack("{kind: openstack, cloudConf: /etc/kubernetes/cloud.conf}");
        assert_eq!(
            plain.cloud_conf.as_deref().unwrap().to_str(),
            Some("/etc/kubernetes/cloud.conf")
        );
        assert_eq!(plain.cluster_name, "kubernetes");
        assert!(plain.strict_source_ranges);
        assert_eq!(plain.security_groups, SecurityGroups::PerCluster);

        let full = openstack(
            "{kind: openstack, clouds: {file: a.yaml, cloud: b}, clusterName: c1, \
             strictSourceRanges: false, securityGroups: perService}",
        );
        let clouds = full.clouds.unwrap();
        assert_eq!(
            (clouds.file.is_some(), clouds.cloud.as_deref()),
            (true, Some("b"))
        );
        assert_eq!(full.cluster_name, "c1");
        assert!(!full.strict_source_ranges);
        assert_eq!(full.security_groups, SecurityGroups::PerService);
    }

    #[test]
    fn local_may_be_written_as_a_map() {
        let text = GOOD.replace("provider: local", "provider: {kind: local}");
        let short = parse("landfall.yaml", GOOD).unwrap();
        assert_eq!(parse("landfall.yaml", &text).unwrap(), short);
        // What is written is read.
        let written = serde_json::to_string(&short).unwrap();
        assert_eq!(parse("landfall.yaml", &written).unwrap(), short);
    }

    #[test]
    fn an_openstack_instance_without_a_clear_cloud_is_refused() {
        for (provider, expected) in [
            ("openstack", "landfall.yaml:3: "),
            ("cloud", "landfall.yaml:3: "),
            ("[local]", "landfall.yaml:3: "),
            ("{kind: openstack, cloudConfig: x}", "landfall.yaml:3: "),
            ("{kind: local, clusterName: x}", "landfall.yaml:3: "),
            ("{cloudConf: x}", "landfall.yaml:3: "),
            (
                "{kind: openstack}",
                "landfall.yaml: instances[0].provider.cloudConf: \"\": which cloud? ",
            ),
            (
                "{kind: openstack, cloudConf: x, clouds: {}}",
                "landfall.yaml: instances[0].provider.cloudConf: \"x\": give cloudConf or clouds",
            ),
            (
                "{kind: openstack, cloudConf: x, clusterName: ''}",
                "landfall.yaml: instances[0].provider.clusterName: \"\": ",
            ),
            (
                "{kind: openstack, cloudConf: x}\n  pools: [{name: p, addresses: [192.0.2.0/28]}]",
                "landfall.yaml: instances[0].pools: \"p\": an OpenStack instance has no pools",
            ),
        ] {
            let error = refused(&format!(
                "instances:\n- name: cloud\n  provider: {provider}\n"
            ));
            assert!(error.starts_with(expected), "{provider}: {error}");
        }
        let error =
            refused("instances:\n- name: c\n  provider:\n    kind: openstack\n    cloudCnf: x\n");
        assert!(
            error.starts_with("landfall.yaml:5") && error.contains("cloudCnf"),
            "{error}"
        );
    }

    #[test]
    fn the_files_of_an_openstack_instance_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (conf, clouds) = (folder.path().join("c.conf"), folder.path().join("c.yaml"));
        std::fs::write(
            &conf,
            "[Global]\nregion = A\n[LoadBalancer]\nlb-provider = ovn\n",
        )
        .unwrap();
        std::fs::write(&clouds, "clouds: {b: {region_name: B}}").unwrap();
        let nowhere = Surroundings::default();
        let from_conf = openstack(&format!(
            "{{kind: openstack, cloudConf: {}}}",
            conf.display()
        ));
        let read = from_conf.read(&nowhere).unwrap();
        assert_eq!(read.global.region.as_deref(), Some("A"));
        assert!(read.load_balancer.is_ovn());
        let file = clouds.display();
        let from_clouds = openstack(&format!("{{kind: openstack, clouds: {{file: {file}}}}}"));
        let read = from_clouds.read(&nowhere).unwrap();
        assert_eq!(read.global.region.as_deref(), Some("B"));
        assert!(!read.load_balancer.is_ovn());
    }

    #[test]
    fn broken_yaml_is_an_error_and_no_panic() {
        for text in ["", "{", "instances: 5", "- a", "instances: [{}]", "\t"] {
            assert!(parse("landfall.yaml", text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_schema_knows_every_key() {
        let schema = schema();
        for key in [
            "instances",
            "provider",
            "avoidBuggyIPs",
            "serviceAllocation",
            "matchLabels",
            "cloudConf",
            "securityGroups",
        ] {
            assert!(schema.contains(&format!("\"{key}\"")), "{key}");
        }
    }

    #[test]
    fn the_published_schema_is_the_one_of_these_types() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/landfall.schema.json"
        );
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            published,
            schema(),
            "docs/landfall.schema.json is behind: run the test again with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn the_example_of_the_manual_is_valid() {
        let manual = include_str!("../../../docs/configuration.md");
        let example = manual
            .split("```yaml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let config = parse("docs/configuration.md", example.unwrap()).unwrap();
        assert_eq!(config.names().1, Some("edge"));
    }
}
