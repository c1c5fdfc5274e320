//! Whether what the operator has configured is in the cloud: `landfall check --connect`. Reads
//! only.

use std::collections::BTreeSet;

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
    let mut asked: Vec<(&str, bool)> = Vec::new();
    for (key, text) in &named.subnets {
        let known = asked.iter().find(|(it, _)| it == text);
        let known = match known {
            Some((_, known)) => *known,
            None => {
                let id = Id::new(text);
                let known = id.is_uuid() && cloud.subnet(&id).await?.is_some();
                asked.push((text, known));
                known
            }
        };
        if !known {
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
        named.add(
            "[LoadBalancer]",
            &conf.floating,
            &conf.network_id,
            [
                ("subnet-id", &conf.subnet_id),
                ("member-subnet-id", &conf.member_subnet_id),
            ],
        );
        for (name, class) in &settings.classes {
            let section = format!("[LoadBalancerClass \"{name}\"]");
            named.add(
                &section,
                &class.floating,
                &class.network_id,
                [
                    ("subnet-id", &class.subnet_id),
                    ("member-subnet-id", &class.member_subnet_id),
                ],
            );
        }
        named
    }

    fn add(
        &mut self,
        section: &str,
        floating: &'a FloatingConf,
        network: &'a Option<String>,
        subnets: [(&str, &'a Option<String>); 2],
    ) {
        let key = |key: &str| format!("{section} {key}");
        let some = |id: &'a Option<String>| id.as_deref().filter(|id| !id.is_empty());
        let networks = [
            ("floating-network-id", &floating.network_id),
            ("network-id", network),
        ];
        let found = networks.into_iter();
        let found = found.filter_map(|(it, id)| Some((key(it), some(id)?)));
        self.networks.extend(found);
        let floating = ("floating-subnet-id", &floating.subnet_id);
        let found = subnets.into_iter().chain([floating]);
        let found = found.filter_map(|(it, id)| Some((key(it), some(id)?)));
        self.subnets.extend(found);
    }
}
