//! `cloud.conf`: the configuration file of cloud-provider-openstack, as far as it concerns load
//! balancers, with its keys, types and defaults.
//!
//! [`parse`] is pure: text in, value out. [`read`] adds the files: it reads `cloud.conf` and, where
//! that says `use-clouds`, `clouds.yaml`.
//!
//! What the reference refuses at start is an error with file, line and key; so is what it would
//! only fail with later. What it ignores is ignored, too, with a warning.

mod global;
mod keys;
mod load_balancer;
mod value;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::dialect::closest;
use landfall_model::reason::{Code, Reason};

pub use load_balancer::{ClassConf, ContainerStore, FloatingConf, LoadBalancerConf};

use crate::cloud::{ConfError, Global, origin};
use crate::clouds_yaml::{self, Surroundings};
use crate::gcfg::{self, Document, Section};
use keys::Keys;

/// What `cloud.conf` says.
#[derive(Clone, Debug)]
pub struct CloudConf {
    /// `[Global]`: the cloud and the account.
    pub global: Global,
    /// `[LoadBalancer]`.
    pub load_balancer: LoadBalancerConf,
    /// `[LoadBalancerClass "NAME"]`, by name.
    pub classes: BTreeMap<String, ClassConf>,
    /// `[Networking]`.
    pub networking: Networking,
    /// `[Metadata] request-timeout`: how long any single call may take. Never zero.
    pub request_timeout: Duration,
    /// What is ignored, or is not what it seems.
    pub warnings: Vec<Reason>,
}

/// `[Networking]`: which of a node's addresses comes first. The node controller acts on it; here it
/// only explains the addresses of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networking {
    /// Whether nodes have no IPv6 addresses.
    pub ipv6_support_disabled: bool,
    /// Networks with external addresses.
    pub public_network_names: Vec<String>,
    /// Networks with internal addresses.
    pub internal_network_names: Vec<String>,
    /// Prefixes, the preferred one first.
    pub address_sort_order: Vec<String>,
}

/// How long a call may take unless the file says otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Sections that are read here.
const SECTIONS: [&str; 4] = ["Global", "LoadBalancer", "LoadBalancerClass", "Networking"];
/// Sections of other parts of cloud-provider-openstack, which often share the file.
const ELSEWHERE: [&str; 6] = [
    "BlockStorage",
    "KeyManager",
    "Manila",
    "Metadata",
    "Route",
    "Snapshot",
];

/// Reads the text of a `cloud.conf`; `file` is how messages name it.
pub fn parse(file: &str, text: &str) -> Result<CloudConf, ConfError> {
    let file: Arc<str> = file.into();
    let document = gcfg::parse(text).map_err(|error| ConfError::syntax(&file, &error))?;
    let mut warnings = Vec::new();
    about_sections(&file, &document, &mut warnings);

    let global = plain(&file, &document, "Global", &mut warnings);
    let global = global::read(&file, global)?;
    let load_balancer = plain(&file, &document, "LoadBalancer", &mut warnings);
    let load_balancer = LoadBalancerConf::read(load_balancer)?;
    let networking = plain(&file, &document, "Networking", &mut warnings);
    let networking = Networking::read(networking)?;
    let mut metadata = plain(&file, &document, "Metadata", &mut warnings);
    let request_timeout = request_timeout(&mut metadata)?;

    let mut classes = BTreeMap::new();
    for section in &document.sections {
        let (true, Some(name)) = (section.is("LoadBalancerClass"), &section.subsection) else {
            continue;
        };
        if classes.contains_key(name) {
            continue;
        }
        let label = format!("[LoadBalancerClass {name:?}]");
        let parts = document.sections.iter();
        let parts = parts
            .filter(|part| part.is("LoadBalancerClass") && part.subsection.as_ref() == Some(name));
        let entries = parts.flat_map(|part| &part.entries).collect();
        let keys = Keys::new(&file, label, entries, &mut warnings);
        classes.insert(name.clone(), ClassConf::read(keys)?);
    }
    Ok(CloudConf {
        global,
        load_balancer,
        classes,
        networking,
        request_timeout,
        warnings,
    })
}

/// The reference puts its default in place of zero.
fn request_timeout(metadata: &mut Keys<'_>) -> Result<Duration, ConfError> {
    let given = metadata.duration("request-timeout")?;
    if given.is_some_and(|time| time.is_zero()) {
        let holds = REQUEST_TIMEOUT.as_secs();
        let message = format!("a timeout of 0 is not possible; {holds}s is used instead");
        let remedy = "remove it, or write a time such as 120s";
        metadata.warn(
            "request-timeout",
            Code::OptionNotSupported,
            &message,
            remedy,
        );
    }
    Ok(given
        .filter(|time| !time.is_zero())
        .unwrap_or(REQUEST_TIMEOUT))
}

/// Reads a `cloud.conf` and, where it says `use-clouds`, fills it up from `clouds.yaml`.
pub fn read(path: &Path, surroundings: &Surroundings) -> Result<CloudConf, ConfError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| ConfError::Unreadable {
        file: file.clone(),
        source,
    })?;
    let mut conf = parse(&file, &text)?;
    if conf.global.use_clouds {
        let (file, cloud) = (conf.global.clouds_file.clone(), conf.global.cloud.clone());
        let mut found = clouds_yaml::read(file.as_deref(), cloud.as_deref(), surroundings)?;
        conf.global.fill(&found.global);
        conf.warnings.append(&mut found.warnings);
    }
    Ok(conf)
}

/// The keys of a section without a name beside it.
fn plain<'a>(
    file: &'a Arc<str>,
    document: &'a Document,
    name: &str,
    warnings: &'a mut Vec<Reason>,
) -> Keys<'a> {
    let sections = document.sections.iter();
    let sections = sections.filter(|section| section.is(name) && section.subsection.is_none());
    let entries = sections.flat_map(|section| &section.entries).collect();
    Keys::new(file, format!("[{name}]"), entries, warnings)
}

/// Warns about sections that are not read.
fn about_sections(file: &Arc<str>, document: &Document, warnings: &mut Vec<Reason>) {
    for section in &document.sections {
        let class = section.is("LoadBalancerClass");
        let known = SECTIONS.iter().any(|name| section.is(name));
        let elsewhere = ELSEWHERE.iter().any(|name| section.is(name));
        let (message, remedy) = match (known, &section.subsection) {
            (true, None) if class => (
                "a class without a name; it is ignored",
                "write [LoadBalancerClass \"name\"]".to_owned(),
            ),
            (true, Some(_)) if !class => (
                "this section takes no name; it is ignored",
                format!("write [{}]", section.name),
            ),
            (true, _) => continue,
            (false, _) if elsewhere => continue,
            (false, _) => ("no such section; it is ignored", suggestion(section)),
        };
        let shown = match &section.subsection {
            Some(name) => format!("[{} {name:?}]", section.name),
            None => format!("[{}]", section.name),
        };
        let reason = Reason::warning(Code::OptionNotApplicable, message)
            .at(shown)
            .remedy(remedy);
        warnings.push(reason.origin(Some(origin(file, section.line))));
    }
}

fn suggestion(section: &Section) -> String {
    let lower = section.name.to_ascii_lowercase();
    let names = SECTIONS.map(str::to_ascii_lowercase);
    let near = closest(&lower, names.iter().map(String::as_str));
    let near = near.and_then(|near| SECTIONS.iter().find(|name| name.eq_ignore_ascii_case(near)));
    near.map(|near| format!("did you mean [{near}]"))
        .unwrap_or_default()
}

// === impl CloudConf ===

impl CloudConf {
    /// What holds without a `cloud.conf`, for a cloud that is known from elsewhere.
    pub fn of(global: Global) -> Self {
        Self {
            global,
            load_balancer: LoadBalancerConf::default(),
            classes: BTreeMap::new(),
            networking: Networking::default(),
            request_timeout: REQUEST_TIMEOUT,
            warnings: Vec::new(),
        }
    }
}

// === impl Networking ===

impl Networking {
    fn read(mut keys: Keys<'_>) -> Result<Self, ConfError> {
        let order = |text: String| {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        let networking = Self {
            ipv6_support_disabled: keys.flag("ipv6-support-disabled")?.unwrap_or(false),
            public_network_names: keys.list("public-network-name"),
            internal_network_names: keys.list("internal-network-name"),
            address_sort_order: keys
                .text("address-sort-order")?
                .map(order)
                .unwrap_or_default(),
        };
        keys.finish();
        Ok(networking)
    }
}

#[cfg(test)]
mod tests;
