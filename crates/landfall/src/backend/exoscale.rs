//! Instances on Exoscale.

use anyhow::Context as _;
use landfall_config::clouds_yaml::Surroundings;
use landfall_config::provider::exoscale::{self as config, LocalHealthCheck};
use landfall_exoscale::client::{ApiError, Cloud, ErrorKind, Given};
use landfall_exoscale::objects::Id;
use landfall_exoscale::{Exoscale as ExoscaleProvider, Observed, Settings, orphans, profile};
use landfall_model::dialect::exoscale::LOAD_BALANCER_ID;
use landfall_model::provider::ProviderProfile;
use landfall_model::view::MetricsView;
use landfall_model::{Code, Reason};
use serde_json::Map;

use super::{
    Adopted, Answer, Bounds, CloudReport, FoundOrphans, Kind, Orphan, Owners, Unusable, cloud_calls,
};
use crate::cli::InstancesArgs;

/// What an orphan is.
const LOAD_BALANCER: &str = "load balancer";

/// The name of a cluster that has no other, as with the other providers.
const CLUSTER_NAME: &str = "kubernetes";

/// A zone, an account in it, and how it is to be used.
#[derive(Clone, Debug)]
pub struct Exoscale {
    instance: String,
    /// The address that is asked for the zones, for messages.
    endpoint: String,
    cloud: Cloud,
    settings: Settings,
}

impl Kind for Exoscale {
    type Config = config::Exoscale;
    type Provider = ExoscaleProvider;

    fn override_with(config: &mut config::Exoscale, args: &InstancesArgs) {
        if let Some(name) = &args.cluster_name {
            config.cluster_name = Some(name.clone());
        }
    }

    fn read(
        instance: &str,
        config: &config::Exoscale,
        _surroundings: &Surroundings,
        args: &InstancesArgs,
    ) -> anyhow::Result<Self> {
        let given = Given {
            api_credentials_file: config.credentials_file.clone(),
            api_endpoint: config.api_endpoint.clone(),
            zone: config.zone.clone(),
            ..Given::default()
        };
        let given = given.with_environment(|name| std::env::var(name).ok());
        let of_instance = || format!("instance {instance}");
        let config_of_cloud = given
            .complete(user_agent(&args.user_agent))
            .with_context(of_instance)?;
        let instance_pool = config.instance_pool.as_deref().map(|text| {
            Id::parse(text).with_context(|| format!("instancePool: {text:?} is not a UUID"))
        });
        let endpoint = config_of_cloud.endpoint.clone();
        let cluster = config.cluster_name.as_deref().unwrap_or(CLUSTER_NAME);
        Ok(Self {
            instance: instance.to_owned(),
            cloud: Cloud::new(config_of_cloud).with_context(of_instance)?,
            endpoint,
            settings: Settings {
                local_http_checks: config.local_health_check == LocalHealthCheck::Http,
                instance_pool: instance_pool.transpose().with_context(of_instance)?,
                ..Settings::new(cluster)
            },
        })
    }

    fn outline(_config: &config::Exoscale, _bounds: Bounds) -> ProviderProfile {
        profile()
    }

    fn set_cluster_id(&mut self, id: Option<&str>) {
        if let Some(id) = id {
            id.clone_into(&mut self.settings.cluster);
        }
    }

    fn detached(&self, _bounds: Bounds) -> ExoscaleProvider {
        ExoscaleProvider::new(self.cloud.clone(), self.settings.clone())
    }

    /// Finds the zone, and proves the credentials with a signed request.
    async fn check(&self) -> Result<Answer, Unusable> {
        match self.cloud.check().await {
            Ok(()) => Ok(Answer {
                endpoint: self.endpoint.clone(),
                version: "2".to_owned(),
            }),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    async fn survey(&self) -> CloudReport {
        let zone = self.cloud.zone();
        let mut report = CloudReport {
            instance: self.instance.clone(),
            facts: Map::from_iter([
                ("apiEndpoint".to_owned(), self.endpoint.clone().into()),
                ("zone".to_owned(), zone.into()),
            ]),
            ..CloudReport::default()
        };
        match self.check().await {
            Ok(answer) => {
                let (instance, endpoint) = (&self.instance, &answer.endpoint);
                report.text =
                    format!("instance {instance}: zone {zone} of Exoscale at {endpoint} answers");
            }
            Err(why) => {
                let message = format!("instance {}: {why}", self.instance);
                report.problem = Some(Reason::error(Code::ProviderFailed, message));
            }
        }
        report
    }

    async fn find_orphans(&self, owners: &Owners) -> anyhow::Result<FoundOrphans> {
        let found = orphans::find(&self.cloud, &self.settings.cluster, &owned(owners)).await;
        let (orphans, count) =
            found.with_context(|| format!("reading the cloud at {}", self.endpoint))?;
        let orphans = orphans.into_iter().map(|it| Orphan {
            kind: LOAD_BALANCER,
            id: it.id.to_string(),
            name: it.name,
            whose: it.whose,
            unproven: false,
        });
        Ok(FoundOrphans {
            orphans: orphans.collect(),
            read: vec![(LOAD_BALANCER, count)],
        })
    }

    async fn delete_orphan(&self, owners: &Owners, orphan: &Orphan) -> anyhow::Result<bool> {
        let id = Id::parse(&orphan.id).context("the id of an orphan is not a UUID")?;
        let cluster = &self.settings.cluster;
        Ok(orphans::delete(&self.cloud, cluster, &owned(owners), &id).await?)
    }

    fn sandbox(provider: &ExoscaleProvider) -> ExoscaleProvider {
        ExoscaleProvider::new(provider.cloud().clone(), provider.settings().clone())
    }

    fn adopted(have: &Observed) -> Vec<Adopted> {
        let adopted = have.load_balancer().map(|it| Adopted {
            kind: LOAD_BALANCER,
            id: it.id.to_string(),
            name: it.name.clone(),
        });
        adopted.into_iter().collect()
    }

    fn metrics(provider: &ExoscaleProvider, instance: &str, metrics: &mut MetricsView) {
        let calls = cloud_calls(instance, provider.cloud().calls());
        metrics.cloud_calls.extend(calls);
    }
}

impl Exoscale {
    /// Returns why the cloud can't be used, with a remedy.
    fn unusable(&self, error: &ApiError) -> Unusable {
        let (zone, endpoint) = (self.cloud.zone(), &self.endpoint);
        if error.is_transient() {
            let why = format!("Exoscale at {endpoint} does not answer correctly: {error}");
            return Unusable::NoAnswer(why);
        }
        let remedy = match error.kind {
            ErrorKind::Unauthorized => {
                "; check the API key and its secret, and the clock of this machine"
            }
            ErrorKind::Forbidden => {
                "; check the API key, its IAM role, and the clock of this machine"
            }
            ErrorKind::NoService => "; check the zone",
            _ => "",
        };
        Unusable::Refused(format!(
            "zone {zone} of Exoscale can't be used: {error}{remedy}"
        ))
    }
}

/// Returns what may own an NLB. Manifests without UIDs own by namespace and name.
fn owned(owners: &Owners) -> orphans::Owners {
    let services = &owners.services;
    let named = services
        .iter()
        .filter_map(|row| row.annotations.get(LOAD_BALANCER_ID));
    let keys = services.iter().map(|row| &row.key);
    let keys = keys.map(|key| (key.namespace().to_owned(), key.name().to_owned()));
    orphans::Owners {
        uids: services.iter().map(|row| row.uid.clone()).collect(),
        named: named.cloned().collect(),
        services: keys.filter(|_| !owners.have_uids).collect(),
    }
}

/// Each goes before those so far, as with other clouds.
fn user_agent(given: &[String]) -> String {
    let own = format!("landfall/{}", env!("CARGO_PKG_VERSION"));
    let words: Vec<&str> = given
        .iter()
        .rev()
        .map(String::as_str)
        .chain([&*own])
        .collect();
    words.join(" ")
}
