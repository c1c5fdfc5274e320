//! `[LoadBalancer]` and `[LoadBalancerClass "x"]`.

use std::time::Duration;

use landfall_model::dialect::{NodeSelector, Refusal, closest};
use landfall_model::reason::Code;

use super::keys::Keys;
use super::value;
use crate::cloud::ConfError;
use crate::patterns::{NamePattern, TagExpression};

/// `[LoadBalancer]`: what holds for Services that don't say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerConf {
    /// False: no Service is touched at all.
    pub enabled: bool,
    /// The Octavia provider driver; empty: not sent, so that Octavia's default holds.
    pub lb_provider: String,
    /// The pool algorithm, if given. [`DEFAULT_METHOD`](Self::DEFAULT_METHOD) holds otherwise.
    pub lb_method: Option<String>,
    /// Subnet of the VIP, and of members unless `member_subnet_id` says otherwise.
    pub subnet_id: Option<String>,
    /// Network of the VIP.
    pub network_id: Option<String>,
    /// Subnet of the members.
    pub member_subnet_id: Option<String>,
    /// Where floating IPs come from.
    pub floating: FloatingConf,
    /// True: no Service gets a floating IP, whatever it says.
    pub internal_lb: bool,
    /// Which nodes are members.
    pub node_selector: NodeSelector,
    /// Whether security groups let the load balancer through to the nodes.
    pub manage_security_groups: bool,
    /// Whether pools get a monitor, if given; false holds otherwise.
    pub create_monitor: Option<bool>,
    /// Time between health checks, in whole seconds.
    pub monitor_delay: Duration,
    /// Time after which a health check has failed, in whole seconds.
    pub monitor_timeout: Duration,
    /// Successes until a member is up.
    pub monitor_max_retries: u32,
    /// Failures until a member is down.
    pub monitor_max_retries_down: u32,
    /// Whether a load balancer is deleted with all that belongs to it by one call.
    pub cascade_delete: bool,
    /// Octavia flavor.
    pub flavor_id: Option<String>,
    /// Octavia availability zone.
    pub availability_zone: Option<String>,
    /// Whether PROXY protocol Services show a host name instead of an address.
    pub enable_ingress_hostname: bool,
    /// What follows the address in that host name.
    pub ingress_hostname_suffix: String,
    /// The certificate of every Service that names none.
    pub default_tls_container_ref: Option<String>,
    /// Where certificates are.
    pub container_store: ContainerStore,
    /// Services on one load balancer at most, the owner included. Below 2, none is shared.
    pub max_shared_lb: u32,
    /// Whether the driver needs one call per object.
    pub provider_requires_serial_api_calls: bool,
}

/// Where floating IPs come from. An id beats the other two, which both have to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloatingConf {
    /// Network; none: it is searched for.
    pub network_id: Option<String>,
    /// Subnet.
    pub subnet_id: Option<String>,
    /// Subnets by name.
    pub subnet: Option<NamePattern>,
    /// Subnets by tags.
    pub subnet_tags: Option<TagExpression>,
}

/// `[LoadBalancerClass "x"]`: what Services choose by `loadbalancer.openstack.org/class`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassConf {
    /// Where floating IPs come from.
    pub floating: FloatingConf,
    /// Network of the VIP.
    pub network_id: Option<String>,
    /// Subnet of the VIP.
    pub subnet_id: Option<String>,
    /// Subnet of the members.
    pub member_subnet_id: Option<String>,
}

/// Where the certificates are that `default-tls-container-ref` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerStore {
    /// In Barbican: they must exist there.
    #[default]
    Barbican,
    /// Elsewhere: nothing is checked.
    External,
}

/// Drivers that the reference knows.
const PROVIDERS: [&str; 5] = ["amphora", "octavia", "ovn", "f5", "amphorav2"];

/// Algorithms of Octavia, which cares about case.
const METHODS: [&str; 4] = [
    "ROUND_ROBIN",
    "LEAST_CONNECTIONS",
    "SOURCE_IP",
    "SOURCE_IP_PORT",
];

// === impl LoadBalancerConf ===

impl LoadBalancerConf {
    /// The pool algorithm unless a Service names one.
    pub const DEFAULT_METHOD: &'static str = "ROUND_ROBIN";

    /// Whether the driver is OVN's, which can less.
    pub fn is_ovn(&self) -> bool {
        self.lb_provider == "ovn"
    }

    pub(super) fn read(mut keys: Keys<'_>) -> Result<Self, ConfError> {
        let default = Self::default();
        keys.parsed("lb-version", |version| match version {
            "" | "v2" => Ok(()),
            _ => Err("there is only v2; write that, or nothing".to_owned()),
        })?;
        let conf = Self {
            enabled: keys.flag("enabled")?.unwrap_or(default.enabled),
            lb_provider: keys.raw("lb-provider")?.unwrap_or(default.lb_provider),
            lb_method: keys.text("lb-method")?,
            subnet_id: keys.text("subnet-id")?,
            network_id: keys.text("network-id")?,
            member_subnet_id: keys.text("member-subnet-id")?,
            floating: FloatingConf::read(&mut keys)?,
            internal_lb: keys.flag("internal-lb")?.unwrap_or(default.internal_lb),
            node_selector: keys
                .parsed("node-selector", |text| {
                    NodeSelector::parse(text).map_err(
                        |Refusal {
                             message, remedy, ..
                         }| format!("{message}; {remedy}"),
                    )
                })?
                .unwrap_or_default(),
            manage_security_groups: keys
                .flag("manage-security-groups")?
                .unwrap_or(default.manage_security_groups),
            create_monitor: keys.flag("create-monitor")?,
            monitor_delay: seconds(&mut keys, "monitor-delay")?.unwrap_or(default.monitor_delay),
            monitor_timeout: seconds(&mut keys, "monitor-timeout")?
                .unwrap_or(default.monitor_timeout),
            monitor_max_retries: keys
                .count("monitor-max-retries")?
                .unwrap_or(default.monitor_max_retries),
            monitor_max_retries_down: keys
                .count("monitor-max-retries-down")?
                .unwrap_or(default.monitor_max_retries_down),
            cascade_delete: keys
                .flag("cascade-delete")?
                .unwrap_or(default.cascade_delete),
            flavor_id: keys.text("flavor-id")?,
            availability_zone: keys.text("availability-zone")?,
            enable_ingress_hostname: keys
                .flag("enable-ingress-hostname")?
                .unwrap_or(default.enable_ingress_hostname),
            ingress_hostname_suffix: keys
                .raw("ingress-hostname-suffix")?
                .unwrap_or(default.ingress_hostname_suffix),
            default_tls_container_ref: keys.text("default-tls-container-ref")?,
            container_store: container_store(&mut keys)?,
            max_shared_lb: keys
                .parsed("max-shared-lb", value::at_least_none)?
                .unwrap_or(default.max_shared_lb),
            provider_requires_serial_api_calls: keys
                .flag("provider-requires-serial-api-calls")?
                .unwrap_or(default.provider_requires_serial_api_calls),
        };
        if !conf.lb_provider.is_empty() && !PROVIDERS.contains(&conf.lb_provider.as_str()) {
            keys.warn(
                "lb-provider",
                Code::OptionNotSupported,
                "an unknown driver; it is treated like amphora",
                "known are amphora, octavia, ovn, f5 and amphorav2",
            );
        }
        about_method(&mut keys, conf.lb_method.as_deref());
        keys.historic(&["use-octavia", "secret-name", "secret-namespace"]);
        keys.finish();
        Ok(conf)
    }
}

impl Default for LoadBalancerConf {
    fn default() -> Self {
        Self {
            enabled: true,
            lb_provider: "amphora".to_owned(),
            lb_method: None,
            subnet_id: None,
            network_id: None,
            member_subnet_id: None,
            floating: FloatingConf::default(),
            internal_lb: false,
            node_selector: NodeSelector::default(),
            manage_security_groups: false,
            create_monitor: None,
            monitor_delay: Duration::from_secs(5),
            monitor_timeout: Duration::from_secs(3),
            monitor_max_retries: 1,
            monitor_max_retries_down: 3,
            cascade_delete: true,
            flavor_id: None,
            availability_zone: None,
            enable_ingress_hostname: false,
            ingress_hostname_suffix: "nip.io".to_owned(),
            default_tls_container_ref: None,
            container_store: ContainerStore::Barbican,
            max_shared_lb: 2,
            provider_requires_serial_api_calls: false,
        }
    }
}

// === impl ClassConf ===

impl ClassConf {
    pub(super) fn read(mut keys: Keys<'_>) -> Result<Self, ConfError> {
        let class = Self {
            floating: FloatingConf::read(&mut keys)?,
            network_id: keys.text("network-id")?,
            subnet_id: keys.text("subnet-id")?,
            member_subnet_id: keys.text("member-subnet-id")?,
        };
        keys.finish();
        Ok(class)
    }
}

impl FloatingConf {
    fn read(keys: &mut Keys<'_>) -> Result<Self, ConfError> {
        Ok(Self {
            network_id: keys.text("floating-network-id")?,
            subnet_id: keys.text("floating-subnet-id")?,
            subnet: keys.parsed_unless_empty("floating-subnet", |text| {
                NamePattern::parse(text).map_err(|error| error.why)
            })?,
            subnet_tags: keys.parsed_unless_empty("floating-subnet-tags", |text| {
                TagExpression::parse(text).map_err(|error| error.why)
            })?,
        })
    }

    /// Whether it says anything about subnets.
    pub fn names_subnets(&self) -> bool {
        self.subnet_id.is_some() || self.subnet.is_some() || self.subnet_tags.is_some()
    }
}

fn container_store(keys: &mut Keys<'_>) -> Result<ContainerStore, ConfError> {
    match keys.raw("container-store")?.as_deref() {
        None | Some("barbican") => Ok(ContainerStore::Barbican),
        Some("external") => Ok(ContainerStore::External),
        Some(_) => {
            let message = "an unknown store; whether certificates exist is not checked";
            let remedy = "write barbican or external";
            keys.warn("container-store", Code::OptionNotSupported, message, remedy);
            Ok(ContainerStore::External)
        }
    }
}

/// The reference sends any word, and Octavia refuses each load balancer for it. Here the Services
/// are served all the same, so a warning says so.
fn about_method(keys: &mut Keys<'_>, method: Option<&str>) {
    let Some(method) = method.filter(|method| !METHODS.contains(method)) else {
        return;
    };
    let holds = LoadBalancerConf::DEFAULT_METHOD;
    let message = format!("no such algorithm; {holds} is used instead");
    let near = closest(&method.to_ascii_uppercase(), METHODS);
    let remedy = match near {
        Some(near) => format!("did you mean {near}"),
        None => format!("write one of {}", METHODS.join(", ")),
    };
    keys.warn("lb-method", Code::OptionNotSupported, &message, &remedy);
}

/// Octavia counts in seconds, from one up. The reference drops the rest of them, too.
fn seconds(keys: &mut Keys<'_>, key: &'static str) -> Result<Option<Duration>, ConfError> {
    let given = keys.parsed(key, |text| match value::duration(text)? {
        time if time < Duration::from_secs(1) => {
            Err("Octavia counts in whole seconds, from 1 up; write a time such as 5s".to_owned())
        }
        time => Ok(time),
    })?;
    let whole = given.map(|time| Duration::from_secs(time.as_secs()));
    if let Some(whole) = whole
        && given != Some(whole)
    {
        let holds = whole.as_secs();
        let message = format!("Octavia counts in whole seconds; {holds}s is used instead");
        let remedy = format!("write {holds}s or {}s", holds.saturating_add(1));
        keys.warn(key, Code::OptionNotSupported, &message, &remedy);
    }
    Ok(whole)
}
