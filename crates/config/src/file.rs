//! `landfall.yaml`: the provider instances of a process.
//!
//! The types that parse the file are the ones that its JSON schema is made from, so the two can't
//! disagree. What is well-formed and makes no sense (two instances of one name, two defaults) is
//! found by [`parse`].

use std::collections::BTreeSet;

use landfall_model::rows::{METALLB_NAMESPACE, PoolRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access_log::AccessLogConfig;
use crate::instance::Instance;
use crate::limits::LimitsConfig;
use crate::provider::local::Local;
use crate::provider::{Complaint, ProviderConfig};

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
    match config.complaint() {
        None => Ok(config),
        Some(Complaint { key, value, why }) => Err(ConfigError::Meaning {
            file: file.to_owned(),
            key,
            value,
            why,
        }),
    }
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
            provider: ProviderConfig::Local(Local::default()),
            default: true,
            class_names: Vec::new(),
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

    /// Returns the first thing that makes no sense.
    fn complaint(&self) -> Option<Complaint> {
        if self.instances.is_empty() {
            let why = "name at least one instance";
            return Some(Complaint::new("instances", "[]", why));
        }
        if let Some(key) = self.limits.zero() {
            let why = "write a number of at least 1, or leave it out";
            return Some(Complaint::new(key, "0", why).within("limits"));
        }
        let namespace = self.metallb_namespace();
        if !is_label(namespace) {
            let why =
                "not the name of a namespace; use lower-case letters, digits and -, at most 63";
            return Some(Complaint::new("metallbNamespace", namespace, why));
        }
        let log = self.access_log.as_ref();
        if log.is_some_and(|log| log.file.as_os_str().is_empty()) {
            let why = "name a file, or - for standard output";
            return Some(Complaint::new("accessLog.file", "", why));
        }
        let mut before = Names::default();
        let mut instances = self.instances.iter().enumerate();
        instances.find_map(|(index, instance)| {
            let complaint = before.complaint(instance).or_else(|| instance.complaint());
            Some(complaint?.within(&format!("instances[{index}]")))
        })
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

    /// The further classes of each instance.
    pub fn class_names(&self) -> Vec<Vec<String>> {
        let instances = self.instances.iter();
        instances
            .map(|instance| instance.class_names.clone())
            .collect()
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

/// The names of the instances so far, and of their pools.
#[derive(Default)]
struct Names<'a> {
    instances: BTreeSet<&'a str>,
    default: Option<&'a str>,
    classes: BTreeSet<&'a str>,
    pools: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    /// Adds an instance; returns what is taken already.
    fn complaint(&mut self, instance: &'a Instance) -> Option<Complaint> {
        let name = &instance.name;
        if !is_label(name) {
            let why = "not a name; use lower-case letters, digits and -, at most 63";
            return Some(Complaint::new("name", name, why));
        }
        if !self.instances.insert(name) {
            return Some(Complaint::new(
                "name",
                name,
                "there is another instance of this name",
            ));
        }
        if let (true, Some(other)) = (instance.default, self.default) {
            let why = format!("{other} is already the default; only one can be");
            return Some(Complaint::new("default", "true", why));
        }
        if instance.default {
            self.default = Some(name);
        }
        let mut classes = instance.class_names.iter().enumerate();
        let complaint = classes.find_map(|(position, class)| {
            let why = if class.starts_with("landfall.dev/") {
                "classes of this domain are named by instances; name another class"
            } else if !is_class(class) {
                "not the name of a class; write a name such as metallb or example.org/metallb"
            } else if !self.classes.insert(class) {
                "another instance serves this class, or it is listed twice"
            } else {
                return None;
            };
            let key = format!("classNames[{position}]");
            Some(Complaint::new(key, class, why))
        });
        if complaint.is_some() {
            return complaint;
        }
        let mut pools = instance.pools.iter().enumerate();
        pools.find_map(|(position, pool)| {
            let is_taken = !self.pools.insert(&pool.name);
            let key = format!("pools[{position}].name");
            let why = "there is another pool of this name";
            is_taken.then(|| Complaint::new(key, &pool.name, why))
        })
    }
}

fn place(line: Option<u64>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

/// The parser adds a picture of the place; a log line wants the sentence.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or(text).to_owned()
}

/// Whether it is a qualified name, as `spec.loadBalancerClass` must be.
fn is_class(name: &str) -> bool {
    let (domain, name) = match name.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, name),
    };
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(is_label))
        && bytes.len() <= 63
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
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
mod tests;
