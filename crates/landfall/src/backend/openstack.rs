//! Instances on OpenStack.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use landfall_config::cloud::Global;
use landfall_config::cloud_conf::CloudConf;
use landfall_config::clouds_yaml::Surroundings;
use landfall_config::file::Config;
use landfall_config::instance::Instance;
use landfall_config::limits::LimitsConfig;
use landfall_config::provider::ProviderConfig;
use landfall_config::provider::openstack::{self as config, SecurityGroups, TargetType};
use landfall_model::Uid;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::provider::ProviderProfile;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::view::MetricsView;
use landfall_openstack::client::{ApiError, ErrorKind};
use landfall_openstack::objects::Id;
use landfall_openstack::orphans::{self, OrphanKind, Owner};
use landfall_openstack::{Observed, OpenStack as OpenStackProvider, Settings, configured};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{
    Adopted, Answer, Bounds, CloudReport, Disabled, FoundOrphans, Kind, Orphan, Owners, Unusable,
    cloud_calls,
};
use crate::cli::InstancesArgs;
use crate::lifetime::Lifetime;

mod setup;

pub use setup::OpenStack;

/// The name of the instance that `--cloud-config` stands for.
const INSTANCE: &str = "openstack";
/// The default name of a cluster, as with cloud-provider-openstack.
const CLUSTER_NAME: &str = "kubernetes";

impl Kind for OpenStack {
    type Config = config::OpenStack;
    type Provider = OpenStackProvider;

    fn override_with(config: &mut config::OpenStack, args: &InstancesArgs) {
        if let Some(name) = &args.cluster_name {
            config.cluster_name.clone_from(name);
        }
        if let Some(layout) = args.security_groups {
            config.security_groups = layout;
        }
        if let Some(strict) = args.strict_source_ranges {
            config.strict_source_ranges = strict;
        }
    }

    fn read(
        instance: &str,
        config: &config::OpenStack,
        surroundings: &Surroundings,
        args: &InstancesArgs,
    ) -> anyhow::Result<Self> {
        Self::read_files(instance, config, surroundings, &args.user_agent)
    }

    fn outline(config: &config::OpenStack, bounds: Bounds) -> ProviderProfile {
        let conf = CloudConf::of(Global::default());
        let settings = Settings {
            target: setup::target(config),
            ..Settings::new(&conf, &config.cluster_name)
        };
        settings.within(bounds.members, bounds.limits).profile()
    }

    fn warnings(&self) -> &[Reason] {
        &self.warnings
    }

    fn disabled(&self) -> Option<Disabled> {
        let file = self.cloud_conf.as_ref();
        let file = file.map_or_else(
            || "cloud.conf".to_owned(),
            |path| path.display().to_string(),
        );
        let instance = &self.instance;
        (!self.settings.conf.enabled).then(|| Disabled {
            why: format!(
                "[LoadBalancer] enabled = false in {file} switches the instance {instance} off"
            ),
            remedy: "give Landfall a copy of the file without that line, which is meant for \
                     cloud-provider-openstack only",
        })
    }

    fn set_cluster_id(&mut self, id: Option<&str>) {
        self.settings.cluster_id = id.map(str::to_owned);
    }

    fn detached(&self, bounds: Bounds) -> OpenStackProvider {
        let settings = self.settings.clone();
        let settings = settings.within(bounds.members, bounds.limits);
        OpenStackProvider::new(self.cloud.clone(), settings)
    }

    /// Authenticates, reads the catalog and Octavia's version.
    async fn check(&self) -> Result<Answer, Unusable> {
        match self.cloud.check().await {
            Ok(version) => Ok(Answer {
                endpoint: self.auth_url.clone(),
                version: version.to_string(),
            }),
            Err(error) => Err(unusable(&self.auth_url, &error)),
        }
    }

    async fn survey(&self) -> CloudReport {
        let mut report = CloudReport {
            instance: self.instance.clone(),
            facts: Map::from_iter([
                ("authUrl".to_owned(), self.auth_url.clone().into()),
                ("providers".to_owned(), Value::Array(Vec::new())),
            ]),
            ..CloudReport::default()
        };
        if let Err(why) = self.describe(&mut report).await {
            let message = format!("instance {}: {why}", self.instance);
            report.problem = Some(Reason::error(Code::ProviderFailed, message));
        }
        report
    }

    async fn find_orphans(&self, owners: &Owners) -> anyhow::Result<FoundOrphans> {
        let services = owned(owners);
        let found = orphans::find(&self.cloud, &self.settings, &services).await;
        let found = found.with_context(|| {
            let (instance, auth_url) = (&self.instance, &self.auth_url);
            format!("instance {instance}: reading the cloud at {auth_url}")
        })?;
        let read = vec![
            (words(OrphanKind::LoadBalancer), found.load_balancers),
            (words(OrphanKind::FloatingIp), found.floating_ips),
            (words(OrphanKind::SecurityGroup), found.security_groups),
        ];
        let is_certain = |it: &orphans::Orphan| owners.have_uids || !is_owned_by_uid(it, &services);
        let orphans = found.orphans.into_iter().filter(is_certain);
        Ok(FoundOrphans {
            orphans: orphans.map(orphan).collect(),
            read,
        })
    }

    async fn delete_orphan(&self, owners: &Owners, orphan: &Orphan) -> anyhow::Result<bool> {
        let kind = KINDS.into_iter().find(|kind| words(*kind) == orphan.kind);
        let orphan = orphans::Orphan {
            kind: kind.with_context(|| format!("{} is no kind of OpenStack", orphan.kind))?,
            id: Id::new(&orphan.id),
            name: orphan.name.clone(),
            whose: orphan.whose.clone(),
            unproven: orphan.unproven,
        };
        Ok(orphans::delete(&self.cloud, &self.settings, &owned(owners), &orphan).await?)
    }

    fn sandbox(provider: &OpenStackProvider) -> OpenStackProvider {
        OpenStackProvider::new(provider.cloud().clone(), provider.settings().clone())
    }

    fn start(provider: &Arc<OpenStackProvider>, wakes: &mpsc::Sender<Uid>, _lifetime: &Lifetime) {
        provider.wake_through(wakes.clone());
    }

    fn metrics(provider: &OpenStackProvider, instance: &str, metrics: &mut MetricsView) {
        let calls = cloud_calls(instance, provider.cloud().calls());
        metrics.cloud_calls.extend(calls);
    }

    fn problem(provider: &OpenStackProvider) -> Option<Reason> {
        let problem = provider.cloud().credentials_problem()?;
        let message = format!("{problem}; those from before stay in use");
        Some(Reason::warning(Code::ProviderFailed, message))
    }

    fn adopted(have: &Observed) -> Vec<Adopted> {
        let adopted = have.adopted().into_iter();
        let adopted = adopted.map(|it| Adopted {
            kind: it.kind,
            id: it.id,
            name: it.name,
        });
        adopted.collect()
    }
}

// === impl OpenStack ===

impl OpenStack {
    /// Connects, and adds what the cloud says about itself.
    ///
    /// # Errors
    /// Why the cloud can't be used.
    async fn describe(&self, report: &mut CloudReport) -> Result<(), String> {
        let said = |error: ApiError| error.to_string();
        let octavia = self
            .check()
            .await
            .map_err(|error| error.to_string())?
            .version;
        report
            .facts
            .insert("octavia".to_owned(), octavia.clone().into());
        let project = self.cloud.project_id().await.map_err(said)?;
        let project = project.map(|id| id.as_str().to_owned());
        if let Some(project) = &project {
            report
                .facts
                .insert("project".to_owned(), project.clone().into());
        }
        let offered = self.cloud.providers().await.map_err(said)?;
        let offered: Vec<String> = offered.into_iter().map(|it| it.name).collect();
        report
            .facts
            .insert("providers".to_owned(), offered.clone().into());
        let wanted = &self.settings.conf.lb_provider;
        let listed = offered.join(", ");
        if !wanted.is_empty() && !offered.contains(wanted) {
            return Err(format!(
                "[LoadBalancer] lb-provider: {wanted:?}: Octavia here has {listed}"
            ));
        }
        let findings = configured::unknown(&self.cloud, &self.settings).await;
        report.findings = findings.map_err(said)?;
        let (instance, auth_url) = (&self.instance, &self.auth_url);
        let project = project.as_deref().unwrap_or("none");
        report.text = format!(
            "instance {instance}: the cloud at {auth_url} answers: project {project}, Octavia API \
            {octavia}, providers {listed}"
        );
        Ok(())
    }
}

/// Returns the configuration that a `cloud.conf` stands for, as with cloud-provider-openstack: one
/// instance for everything.
pub fn of_cloud_conf(path: PathBuf) -> Config {
    let openstack = config::OpenStack {
        cloud_conf: Some(path),
        clouds: None,
        cluster_name: CLUSTER_NAME.to_owned(),
        strict_source_ranges: true,
        security_groups: SecurityGroups::default(),
        prefer_dual_stack: true,
        target_type: TargetType::Node,
    };
    Config {
        instances: vec![Instance {
            name: INSTANCE.to_owned(),
            provider: ProviderConfig::OpenStack(openstack),
            default: true,
            class_names: Vec::new(),
            pools: Vec::new(),
            members: None,
        }],
        limits: LimitsConfig::default(),
        access_log: None,
        metallb_namespace: None,
    }
}

/// Returns why the cloud can't be used, with a remedy.
fn unusable(auth_url: &str, error: &ApiError) -> Unusable {
    // The TLS library's refusal of a certificate comes as a connection that could not be made. It
    // is no outage: a person has to renew it, or to name another authority.
    let certificate = error.message.contains("certificate");
    if error.is_transient() && !certificate {
        let why = format!("the cloud at {auth_url} does not answer correctly: {error}");
        return Unusable::NoAnswer(why);
    }
    let remedy = match error.kind {
        ErrorKind::Unauthorized => {
            "; check user, password, domain and project in the cloud configuration"
        }
        ErrorKind::NoService => "; check region and os-endpoint-type, and the project",
        _ if certificate => "; renew it, or name its authority with ca-file",
        _ => "",
    };
    Unusable::Refused(format!(
        "the cloud at {auth_url} can't be used: {error}{remedy}"
    ))
}

const KINDS: [OrphanKind; 5] = [
    OrphanKind::FloatingIp,
    OrphanKind::LoadBalancer,
    OrphanKind::SecurityGroupRule,
    OrphanKind::SecurityGroup,
    OrphanKind::Certificate,
];

fn words(kind: OrphanKind) -> &'static str {
    match kind {
        OrphanKind::FloatingIp => "floating IP",
        OrphanKind::LoadBalancer => "load balancer",
        OrphanKind::SecurityGroupRule => "security group rule",
        OrphanKind::SecurityGroup => "security group",
        OrphanKind::Certificate => "certificate",
    }
}

fn owned(owners: &Owners) -> Vec<Owner> {
    let owner = |row: &Arc<ServiceRow>| Owner {
        service: row.key.clone(),
        uid: row.uid.clone(),
        load_balancer: row.annotations.get(LOAD_BALANCER_ID).cloned(),
    };
    owners.services.iter().map(owner).collect()
}

fn orphan(orphan: orphans::Orphan) -> Orphan {
    Orphan {
        kind: words(orphan.kind),
        id: orphan.id.to_string(),
        name: orphan.name,
        whose: if orphan.unproven {
            format!("{}, by its name only", orphan.whose)
        } else {
            orphan.whose
        },
        unproven: orphan.unproven,
    }
}

/// Returns whether only a UID could show that an object has an owner.
fn is_owned_by_uid(orphan: &orphans::Orphan, owners: &[Owner]) -> bool {
    let is_for = |owner: &Owner| {
        let (namespace, name) = (owner.service.namespace(), owner.service.name());
        orphan.name.ends_with(&format!("-{namespace}-{name}"))
    };
    match orphan.kind {
        OrphanKind::SecurityGroupRule | OrphanKind::Certificate => true,
        OrphanKind::SecurityGroup => owners.iter().any(is_for),
        OrphanKind::FloatingIp | OrphanKind::LoadBalancer => false,
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::ServiceKey;

    use super::*;

    #[test]
    fn without_uids_a_group_is_recognized_by_the_name_of_its_service() {
        let owners = [Owner {
            service: ServiceKey::new("shop", "web"),
            uid: Uid::new("made-up"),
            load_balancer: None,
        }];
        let orphan = |kind, name: &str| orphans::Orphan {
            kind,
            id: Id::new("1"),
            name: name.to_owned(),
            whose: String::new(),
            unproven: false,
        };
        let group = |name| is_owned_by_uid(&orphan(OrphanKind::SecurityGroup, name), &owners);
        assert!(group("lb-sg-real-shop-web"));
        assert!(!group("lb-sg-real-shop-old"));
        assert!(is_owned_by_uid(
            &orphan(OrphanKind::SecurityGroupRule, "port 1"),
            &owners
        ));
    }
}
