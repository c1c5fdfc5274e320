//! Commands on a cluster: facts read from the API server with the caller's own rights.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_config::file::Config;
use landfall_engine::select::Ownership;
use landfall_engine::{Classes, World, resolve};
use landfall_files::Loaded;
use landfall_kube::{Connection, CustomResources, Origin, SourceConfig, Sources, access};
use landfall_model::ServiceKey;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::listener::Listener;
use landfall_model::provider::{Provider as _, ProviderProfile};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::view::{Health, InstanceView, ListenerView, MemberView, ServiceView};
use landfall_model::wire::service_list;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Mode;
use crate::cli::ClusterArgs;
use crate::dry_run;
use crate::instances::{self, Instances, announced};

/// The longest that reading a whole cluster may take.
const TIMEOUT: Duration = Duration::from_secs(60);

// === impl ClusterArgs ===

impl ClusterArgs {
    /// Whether the API server is meant rather than a running instance: a kubeconfig or a context
    /// was named, or the program was called as a kubectl plugin.
    pub fn is_meant(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || is_plugin()
    }

    /// Where the way to the API server is described.
    pub fn origin(&self) -> Origin {
        Origin::Kubeconfig {
            path: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }

    /// A connection under the caller's identity.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let agent = format!("kubectl-landfall/{}", env!("CARGO_PKG_VERSION"));
        Ok(Connection::new(self.origin(), &agent).await?)
    }

    /// Everything that the API server has about Services and what they need, with these custom
    /// resources.
    pub async fn load(&self, resources: &CustomResources) -> anyhow::Result<Loaded> {
        let connection = self.connect().await?;
        validate_rights(&connection).await?;
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let (sender, mut facts) = mpsc::channel(1024);
        let sources = Sources::start(
            &connection,
            SourceConfig {
                resources: resources.clone(),
                ..SourceConfig::default()
            },
            sender,
            None,
            &tasks,
            &cancel,
        );
        let mut loaded = Loaded::default();
        let read = async {
            while let Some(fact) = facts.recv().await {
                match fact {
                    Fact::Synced => return true,
                    Fact::SourceProblems { reasons, .. } => loaded.reasons.extend(reasons),
                    fact => loaded.facts.push(fact),
                }
            }
            false
        };
        let in_time = tokio::time::timeout(TIMEOUT, read).await.unwrap_or(false);
        let health = sources.health().borrow().clone();
        let failing: Vec<String> = health
            .failing()
            .map(|(what, why)| format!("{what}: {why}"))
            .collect();
        cancel.cancel();
        drop(facts);
        tasks.close();
        tasks.wait().await;
        if in_time {
            return Ok(loaded);
        }
        Err(anyhow::anyhow!("{}", failing.join("\n")))
            .with_context(|| format!("reading {} took too long", connection.server()))
    }

    /// The cluster as a view: what is specified and what was reported. Traffic and health are
    /// known to the instances that carry it, not to the API server.
    pub async fn view(&self, known: &Known) -> anyhow::Result<InstanceView> {
        Ok(view(known, self.load(&known.resources).await?))
    }

    /// The Services as a Kubernetes `v1` `List`.
    pub async fn services_json(&self, known: &Known) -> anyhow::Result<serde_json::Value> {
        let mut world = World::default();
        for fact in self.load(&known.resources).await?.facts {
            world.apply(fact);
        }
        let ours = world.services().filter(|row| {
            let namespace = world.namespace(row.key.namespace());
            let belongs = known.classes.validate(row, namespace.map(AsRef::as_ref));
            !matches!(belongs, Ownership::NotOurs | Ownership::SwitchedOff)
        });
        let ours: Vec<_> = ours.collect();
        let owned = |row: &Arc<ServiceRow>| (ServiceRow::clone(row), row.status.clone());
        Ok(service_list(ours.iter().map(owned)))
    }

    /// One Service of the picture. For one on a cloud, what is there is checked: which steps a
    /// controller would do that started now.
    pub async fn service(
        &self,
        mut instances: Instances,
        key: &ServiceKey,
    ) -> anyhow::Result<ServiceView> {
        instances
            .learn_cluster(&self.connect().await?, &self.origin())
            .await?;
        let loaded = self.load(&instances.resources()).await?;
        let facts = loaded.facts.clone();
        let explained = announced::announced(&instances, &facts, key);
        let view = view(&Known::of(&instances), loaded);
        let found = view
            .services
            .into_iter()
            .find(|service| service.key == *key);
        let mut found = found.with_context(|| {
            format!("there is no Service {key} of type LoadBalancer for Landfall")
        })?;
        if let Some(explained) = explained {
            found.reasons.extend(explained.reasons);
            found.announcements = explained.announcements;
        }
        if let Some(plan) = dry_run::in_the_cloud(&instances, facts, key).await {
            found.pending = plan.steps;
            for reason in plan.reasons {
                if !found.reasons.contains(&reason) {
                    found.reasons.push(reason);
                }
            }
        }
        Ok(found)
    }
}

/// The classes of a controller, and what the instances behind them can do.
#[derive(Clone, Debug)]
pub struct Known {
    /// The classes.
    pub classes: Classes,
    /// In the order of the classes.
    pub abilities: Vec<ProviderProfile>,
    /// The custom resources that they read.
    pub resources: CustomResources,
}

// === impl Known ===

impl Known {
    /// By the files that a configuration names.
    pub fn of(instances: &Instances) -> Self {
        let abilities = instances.detached(Mode::Offline);
        let abilities = abilities.iter().map(|it| it.profile().clone());
        Self {
            classes: instances.classes(),
            abilities: abilities.collect(),
            resources: instances.resources(),
        }
    }

    /// By a configuration alone: what it names may lie on another machine.
    pub fn outline(config: &Config) -> Self {
        Self {
            classes: instances::classes(config),
            abilities: instances::outline(config),
            resources: instances::resources(config),
        }
    }
}

fn view(known: &Known, loaded: Loaded) -> InstanceView {
    let mut world = World::default();
    for fact in loaded.facts {
        world.apply(fact);
    }
    let services = world
        .services()
        .filter_map(|row| service(&world, known, &row))
        .collect();
    InstanceView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: true,
        problems: loaded.reasons,
        services,
        ..InstanceView::default()
    }
}

/// Returns an error for missing rights at once: a watch waits for rights that may come, a command
/// does not.
async fn validate_rights(connection: &Connection) -> anyhow::Result<()> {
    let missing = access::missing(connection, access::to_watch())
        .await
        .with_context(|| format!("asking {}", connection.server()))?;
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        missing.is_empty(),
        "this identity may not: {}; request a role that permits it",
        missing.join(", ")
    );
    Ok(())
}

/// Whether the program was called as `kubectl landfall`.
pub fn is_plugin() -> bool {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    called
        .as_deref()
        .and_then(|path| path.file_stem())
        .is_some_and(|name| name.to_string_lossy().starts_with("kubectl-"))
}

fn service(world: &World, known: &Known, row: &ServiceRow) -> Option<ServiceView> {
    let namespace = world.namespace(row.key.namespace());
    let mut reasons = Vec::new();
    let intent = match known.classes.validate(row, namespace.map(AsRef::as_ref)) {
        Ownership::NotOurs | Ownership::SwitchedOff => return None,
        Ownership::UnknownClass => {
            let class = row.class.as_deref().unwrap_or_default();
            reasons.push(
                Reason::warning(
                    Code::UnknownClass,
                    "no instance of this configuration serves it",
                )
                .at("spec.loadBalancerClass")
                .value(class)
                .remedy("name the configuration of the controller with --config"),
            );
            resolve(row, world, &ProviderProfile::default()).ok()
        }
        Ownership::Ours(instance) => {
            let abilities = instance.of(&known.abilities).cloned().unwrap_or_default();
            match resolve(row, world, &abilities) {
                Ok(intent) => Some(intent),
                Err(errors) => {
                    reasons.extend(errors);
                    None
                }
            }
        }
    };
    reasons.extend(
        intent
            .iter()
            .flat_map(|intent: &Intent| intent.remarks.clone()),
    );
    let spec = intent.and_then(|intent| intent.load_balancer);
    Some(ServiceView {
        key: row.key.clone(),
        uid: row.uid.clone(),
        class: row.class.as_ref().map(ToString::to_string),
        origin: None,
        status: row.status.clone(),
        reasons,
        address: spec.as_ref().map(|spec| spec.address.clone()),
        announcements: Vec::new(),
        listeners: spec
            .as_ref()
            .map(|spec| listeners(row, spec))
            .unwrap_or_default(),
        left_out: spec.map(|spec| spec.left_out).unwrap_or_default(),
        pending: Vec::new(),
        removing: row.deleting,
    })
}

fn listeners(row: &ServiceRow, spec: &LoadBalancerSpec) -> Vec<ListenerView> {
    let view = |listener: &Listener| ListenerView {
        addresses: row.status.addresses().collect(),
        key: listener.key,
        name: listener.name.clone(),
        mode: listener.mode.as_str().to_owned(),
        problem: None,
        traffic: landfall_model::view::TrafficView::default(),
        measured: None,
        algorithm: listener.pool.algorithm,
        proxy_protocol: listener.pool.proxy_protocol,
        monitor: listener.pool.monitor.clone(),
        allowed: listener.allowed.clone(),
        connection_limit: listener.connection_limit,
        affinity: listener.pool.affinity,
        members: listener.pool.members.iter().map(member).collect(),
    };
    spec.listeners.iter().map(view).collect()
}

fn member(member: &landfall_model::Member) -> MemberView {
    let health = if member.draining {
        Health::Draining
    } else {
        Health::Unknown
    };
    MemberView {
        address: member.address,
        name: member.name.as_ref().map(ToString::to_string),
        node: member.node.as_ref().map(ToString::to_string),
        weight: member.weight,
        backup: member.backup,
        health,
        detail: String::new(),
        traffic: landfall_model::view::TrafficView::default(),
    }
}
