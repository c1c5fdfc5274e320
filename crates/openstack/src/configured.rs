//! Whether what the operator has configured is in the cloud: `landfall check --connect`. Reads
//! only.

use std::collections::{BTreeMap, BTreeSet};

use landfall_config::cloud_conf::FloatingConf;
use landfall_model::{Code, Reason};

use crate::client::{ApiError, Cloud};
use crate::objects::Id;
use crate::settings::{OVN, Settings};

/// Networks and subnets that the configuration names: each with its key.
#[derive(Default)]
struct NamedIds<'a> {
    networks: Vec<(String, &'a str)>,
    subnets: Vec<(String, &'a str)>,
}

/// Finds ids in the configuration of which the cloud has no object that this project can see, and
/// an algorithm that the configured provider of Octavia lacks.
///
/// # Errors
/// The cloud can't be asked.
pub async fn unknown(cloud: &Cloud, settings: &Settings) -> Result<Vec<Reason>, ApiError> {
    let named = NamedIds::of(settings);
    let mut reasons: Vec<Reason> = lacking_algorithm(settings).into_iter().collect();
    if !named.networks.is_empty() {
        let networks = cloud.networks(&[]).await?;
        let known: BTreeSet<&str> = networks.iter().map(|it| it.id.as_str()).collect();
        let unknown = named.networks.iter().filter(|(_, id)| !known.contains(id));
        reasons.extend(unknown.map(|(key, id)| missing("network", key, id)));
    }
    let mut known: BTreeMap<&str, bool> = BTreeMap::new();
    for (key, text) in &named.subnets {
        if !known.contains_key(text) {
            let id = Id::new(text);
            let is_there = id.is_uuid() && cloud.subnet(&id).await?.is_some();
            known.insert(text, is_there);
        }
        if known.get(text) != Some(&true) {
            reasons.push(missing("subnet", key, text));
        }
    }
    Ok(reasons)
}

fn missing(kind: &str, key: &str, id: &str) -> Reason {
    Reason::error(
        Code::CloudObjectNotFound,
        format!("the cloud has no {kind} of this id that the project can see"),
    )
    .at(key)
    .value(id)
    .remedy(format!(
        "`openstack {kind} list` shows those that there are"
    ))
}

/// That the configured algorithm is none of the configured provider.
fn lacking_algorithm(settings: &Settings) -> Option<Reason> {
    let method = settings.conf.lb_method.as_deref()?;
    let provider = settings.conf.lb_provider.as_str();
    let lacks = match provider {
        OVN => !matches!(method, "SOURCE_IP_PORT" | "SOURCE_IP"),
        "amphora" | "amphorav2" | "octavia" => method == "SOURCE_IP_PORT",
        _ => false,
    };
    let reason = Reason::warning(
        Code::OptionNotSupported,
        format!("the provider {provider} does not support this algorithm, and gets another one"),
    );
    let other = if provider == OVN {
        "SOURCE_IP_PORT"
    } else {
        "SOURCE_IP"
    };
    lacks.then(|| {
        reason
            .at("[LoadBalancer] lb-method")
            .value(method)
            .remedy(format!("write {other}, or choose another lb-provider"))
    })
}

// === impl NamedIds ===

impl<'a> NamedIds<'a> {
    fn of(settings: &'a Settings) -> Self {
        let mut named = Self::default();
        let conf = &settings.conf;
        let section = "[LoadBalancer]";
        named.add_floating(section, &conf.floating);
        named.add(
            section,
            conf.network_id.as_deref(),
            conf.subnet_id.as_deref(),
            conf.member_subnet_id.as_deref(),
        );
        for (name, class) in &settings.classes {
            let section = format!("[LoadBalancerClass \"{name}\"]");
            named.add_floating(&section, &class.floating);
            named.add(
                &section,
                class.network_id.as_deref(),
                class.subnet_id.as_deref(),
                class.member_subnet_id.as_deref(),
            );
        }
        named
    }

    fn add_floating(&mut self, section: &str, conf: &'a FloatingConf) {
        let network = conf.network_id.as_deref();
        add(&mut self.networks, section, "floating-network-id", network);
        let subnet = conf.subnet_id.as_deref();
        add(&mut self.subnets, section, "floating-subnet-id", subnet);
    }

    fn add(
        &mut self,
        section: &str,
        network: Option<&'a str>,
        subnet: Option<&'a str>,
        members: Option<&'a str>,
    ) {
        add(&mut self.networks, section, "network-id", network);
        add(&mut self.subnets, section, "subnet-id", subnet);
        add(&mut self.subnets, section, "member-subnet-id", members);
    }
}

/// Adds an id that is named, with its key.
fn add<'a>(all: &mut Vec<(String, &'a str)>, section: &str, key: &str, id: Option<&'a str>) {
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        all.push((format!("{section} {key}"), id));
    }
}
