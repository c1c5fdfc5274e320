//! Plans without doing: what manifests would cause, on a running instance or from nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use landfall_config::pools;
use landfall_engine::driver::hand_out_pools;
use landfall_engine::dry_run::{ServicePlan, dry_run};
use landfall_engine::select::Belongs;
use landfall_engine::{Classes, World};
use landfall_files::Loaded;
use landfall_model::provider::Provider as _;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, PoolRow, ServicePort, ServiceRow};
use landfall_model::{ServiceKey, Uid};
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::platform::Platform;

/// A path on the command line that can't be looked at.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct NoSuchPath {
    path: PathBuf,
    why: String,
}

/// What a plan starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Against {
    /// What a running instance holds.
    Instance,
    /// What a cluster's Services say that they hold.
    Cluster,
    /// Nothing at all.
    #[default]
    Nothing,
}

/// What manifests would cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// What it was planned on top of.
    pub against: Against,
    /// What is wrong with the manifests and the pools.
    pub problems: Vec<Reason>,
    /// Per Service what would be done, and why not.
    pub plans: Vec<ServicePlan>,
}

/// The pools of a command line: those given, or none.
pub fn flag_pools(ranges: &[String]) -> Option<PoolRow> {
    (!ranges.is_empty()).then(|| pools::from_flags(ranges))
}

/// Plans manifests from nothing on this machine, by providers of the fleet.
pub async fn from_nothing(
    fleet: &Fleet,
    providers: &[Platform],
    loaded: Loaded,
    ranges: &[String],
) -> Outlook {
    let mut world = World::default();
    for fact in loaded.facts {
        world.apply(fact);
    }
    for pool in fleet.pools() {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let flagged = flag_pools(ranges);
    for pool in flagged.into_iter().chain([pools::fallback()]) {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let classes = fleet.classes();
    let mut problems = loaded.reasons;
    problems.extend(set_pools(providers, &classes, &mut world));
    let plans = dry_run(providers, &world, &classes, &[]).await;
    Outlook {
        against: Against::Nothing,
        problems,
        plans,
    }
}

/// Plans manifests on top of what a cluster says: what a controller that started now would do.
pub async fn on_cluster(fleet: &Fleet, cluster: Loaded, loaded: Loaded, prune: bool) -> Outlook {
    let (world, providers) = recalled(fleet, cluster.facts);
    let mut outlook = on_top(world, &providers, &fleet.classes(), loaded, prune).await;
    outlook.against = Against::Cluster;
    outlook.problems.splice(0..0, cluster.reasons);
    outlook
}

/// Plans one Service of a cluster as it is, if a cloud has its load balancer: what a controller that
/// started now would do for it. What this machine holds is not known from outside of its process.
pub async fn in_the_cloud(
    fleet: &Fleet,
    facts: Vec<Fact>,
    key: &ServiceKey,
) -> Option<ServicePlan> {
    let (mut world, providers) = recalled(fleet, facts);
    let row = world.service(key)?;
    let namespace = world.namespace(key.namespace());
    let belongs = fleet.classes().judge(&row, namespace.map(AsRef::as_ref));
    let Belongs::Ours(instance) = belongs else {
        return None;
    };
    if !matches!(providers.get(instance), Some(Platform::Glimpse(_))) {
        return None;
    }
    let others: Vec<ServiceKey> = world.keys().filter(|other| other != key).collect();
    for other in others {
        world.apply(Fact::ServiceGone(other));
    }
    let plans = dry_run(&providers, &world, &fleet.classes(), &[]).await;
    plans.into_iter().find(|plan| plan.service == *key)
}

/// What a cluster says, and providers that know what is on record there.
fn recalled(fleet: &Fleet, facts: Vec<Fact>) -> (World, Vec<Platform>) {
    let mut world = World::default();
    for fact in facts {
        world.apply(fact);
    }
    for pool in fleet.pools() {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let (classes, providers) = (fleet.classes(), fleet.sandboxes());
    set_pools(&providers, &classes, &mut world);
    let references: Vec<&Platform> = providers.iter().collect();
    let claims = landfall_engine::claims(&world, &classes, &references);
    for (provider, claims) in providers.iter().zip(claims) {
        provider.recall(&claims);
    }
    (world, providers)
}

/// Plans manifests on top of what a running instance knows. With `prune`, Services that are not
/// among them are taken as deleted.
pub async fn on_top(
    mut world: World,
    sandboxes: &[Platform],
    classes: &Classes,
    loaded: Loaded,
    prune: bool,
) -> Outlook {
    let mut posted = BTreeSet::new();
    for fact in loaded.facts {
        match fact {
            Fact::Service(row) => {
                posted.insert(row.key.clone());
                let row = continuing(&row, world.service(&row.key).as_deref());
                world.apply(Fact::Service(row));
            }
            other => drop(world.apply(other)),
        }
    }
    let gone: Vec<(ServiceKey, Uid)> = world
        .services()
        .filter(|row| prune && !posted.contains(&row.key) && row.finalized)
        .map(|row| (row.key.clone(), row.uid.clone()))
        .collect();
    for (key, _) in &gone {
        world.apply(Fact::ServiceGone(key.clone()));
    }
    let mut problems = loaded.reasons;
    problems.extend(set_pools(sandboxes, classes, &mut world));
    let mut plans = dry_run(sandboxes, &world, classes, &gone).await;
    plans.retain(|plan| posted.contains(&plan.service) || !plan.steps.is_empty());
    Outlook {
        against: Against::Instance,
        problems,
        plans,
    }
}

fn set_pools(providers: &[Platform], classes: &Classes, world: &mut World) -> Vec<Reason> {
    let providers: Vec<&Platform> = providers.iter().collect();
    hand_out_pools(world, classes, &providers)
}

/// A manifest knows neither the identity nor the status of the Service that it would change, nor what
/// an API server has allocated for it and would keep.
fn continuing(row: &Arc<ServiceRow>, known: Option<&ServiceRow>) -> Arc<ServiceRow> {
    let Some(known) = known else {
        return row.clone();
    };
    let mut row = ServiceRow {
        uid: known.uid.clone(),
        finalized: known.finalized,
        status: known.status.clone(),
        ..(**row).clone()
    };
    let of_a_cluster = known.source.is_none();
    if of_a_cluster {
        for port in &mut row.ports {
            let same = |it: &&ServicePort| (it.protocol, it.port) == (port.protocol, port.port);
            let before = known.ports.iter().find(same);
            port.node_port = port.node_port.or(before.and_then(|it| it.node_port));
        }
        let check = row.health_check_node_port;
        row.health_check_node_port = check.or(known.health_check_node_port);
    }
    Arc::new(row)
}

/// Reads the manifests of a command. Standard input is read to its end.
///
/// # Errors
/// [`NoSuchPath`]: the command line names a path that is not there.
pub async fn read(paths: Vec<PathBuf>, recursive: bool) -> anyhow::Result<Loaded> {
    for path in paths.iter().filter(|path| path.as_os_str() != "-") {
        if let Err(source) = std::fs::metadata(path) {
            return Err(NoSuchPath {
                path: path.clone(),
                why: source.to_string(),
            }
            .into());
        }
    }
    Ok(tokio::task::spawn_blocking(move || landfall_files::load(&paths, recursive)).await?)
}
