//! Plans without doing: what manifests would cause, on a running instance or from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use landfall_config::pools;
use landfall_engine::driver::hand_out_pools;
use landfall_engine::dry_run::{ServicePlan, dry_run};
use landfall_engine::select::Ownership;
use landfall_engine::{Classes, World};
use landfall_files::Loaded;
use landfall_model::provider::Provider as _;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, NodeRow, PoolRow, ServicePort, ServiceRow};
use landfall_model::status::ConditionType;
use landfall_model::{ServiceKey, Uid};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Mode};
use crate::instances::Instances;
use crate::routers;

/// A path on the command line that can't be checked.
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
pub struct DryRunReport {
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

/// Plans manifests from nothing on this machine, by providers of the instances.
pub async fn from_nothing(
    instances: &Instances,
    providers: &[Backend],
    loaded: Loaded,
    ranges: &[String],
) -> DryRunReport {
    let mut world = World::default();
    let has_nodes = loaded.facts.iter().any(|it| matches!(it, Fact::Node(_)));
    for fact in loaded.facts {
        world.apply(fact);
    }
    if !has_nodes {
        world.apply(Fact::Node(Arc::new(any_node())));
    }
    for pool in instances.pools() {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let flagged = flag_pools(ranges);
    for pool in flagged.into_iter().chain([pools::fallback()]) {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let classes = instances.classes();
    let mut problems = loaded.reasons;
    problems.extend(set_pools(providers, &classes, &mut world));
    let plans = dry_run(providers, &world, &classes, &[]).await;
    DryRunReport {
        against: Against::Nothing,
        problems,
        plans,
    }
}

/// The node of manifests that have none: without it, nothing of a Service would be validated whose
/// members are nodes. Its addresses are for documentation (RFC 5737, RFC 3849).
fn any_node() -> NodeRow {
    NodeRow {
        name: "a-node".into(),
        labels: BTreeMap::new(),
        addresses: vec![
            IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)),
            IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        ],
        provider_id: None,
        deleting: false,
        leaving: false,
        cordoned: false,
        ready: true,
        network_unavailable: false,
        pod_prefixes: Vec::new(),
    }
}

/// Plans manifests on top of what a cluster says: what a controller that started now would do.
pub async fn on_cluster(
    instances: &Instances,
    cluster: Loaded,
    loaded: Loaded,
    prune: bool,
) -> DryRunReport {
    let (world, providers) = recalled(instances, cluster.facts);
    let classes = instances.classes();
    let moved = take_as_open(&world, &providers, &classes).await;
    let mut outlook = on_top(world, &providers, &classes, loaded, prune).await;
    outlook.against = Against::Cluster;
    for mut plan in moved {
        let of_it = |other: &&mut ServicePlan| other.service == plan.service;
        match outlook.plans.iter_mut().find(of_it) {
            Some(other) => drop(other.steps.splice(0..0, plan.steps.drain(..))),
            None => outlook.plans.push(plan),
        }
    }
    outlook.problems.splice(0..0, cluster.reasons);
    outlook
}

/// Has the providers on this machine hold open what their Services say is served: which listeners a
/// controller has can't be seen from outside of its process, and without them an edit would be lost
/// among steps that nothing has to do. Returns what a controller of this configuration would do
/// beside opening.
async fn take_as_open(world: &World, providers: &[Backend], classes: &Classes) -> Vec<ServicePlan> {
    let mut served = world.clone();
    for row in world.services() {
        let namespace = world.namespace(row.key.namespace());
        let is_here = match classes.validate(&row, namespace.map(AsRef::as_ref)) {
            Ownership::Ours(instance) => instance.of(providers).is_some_and(Backend::is_in_process),
            Ownership::NotOurs | Ownership::SwitchedOff | Ownership::UnknownClass => false,
        };
        let programmed = row.status.condition(ConditionType::Programmed);
        if !is_here || !programmed.is_some_and(|condition| condition.status) {
            served.apply(Fact::ServiceGone(row.key.clone()));
        }
    }
    let mut plans = dry_run(providers, &served, classes, &[]).await;
    for plan in &mut plans {
        // Reasons come once more with the plan that follows.
        plan.reasons.clear();
        plan.steps
            .retain(|planned| !planned.step.starts_with("open "));
    }
    plans.retain(|plan| !plan.steps.is_empty());
    plans
}

/// Plans one Service of a cluster as it is, if a cloud has its load balancer: what a controller
/// that started now would do for it. What this machine holds is not known from outside of its
/// process.
pub async fn in_the_cloud(
    instances: &Instances,
    facts: Vec<Fact>,
    key: &ServiceKey,
) -> Option<ServicePlan> {
    let (mut world, providers) = recalled(instances, facts);
    let row = world.service(key)?;
    let namespace = world.namespace(key.namespace());
    let belongs = instances
        .classes()
        .validate(&row, namespace.map(AsRef::as_ref));
    let Ownership::Ours(instance) = belongs else {
        return None;
    };
    if !instance.of(&providers)?.reads_a_cloud() {
        return None;
    }
    let others: Vec<ServiceKey> = world.keys().filter(|other| other != key).collect();
    for other in others {
        world.apply(Fact::ServiceGone(other));
    }
    let plans = dry_run(&providers, &world, &instances.classes(), &[]).await;
    plans.into_iter().find(|plan| plan.service == *key)
}

/// What a cluster says, and providers that know what is on record there.
pub(crate) fn recalled(instances: &Instances, facts: Vec<Fact>) -> (World, Vec<Backend>) {
    let mut world = World::default();
    for fact in facts {
        world.apply(fact);
    }
    for pool in instances.pools() {
        world.apply(Fact::Pool(Arc::new(pool)));
    }
    let (classes, providers) = (instances.classes(), instances.detached(Mode::ReadOnly));
    set_pools(&providers, &classes, &mut world);
    let references: Vec<&Backend> = providers.iter().collect();
    let claims = landfall_engine::claims(&world, &classes, &references);
    for (provider, claims) in providers.iter().zip(claims) {
        provider.restore_claims(&claims);
    }
    let rows: Vec<Arc<ServiceRow>> = world.services().collect();
    for claim in landfall_engine::foreign_claims(rows.iter(), &world, &classes).into_values() {
        for provider in &providers {
            provider.set_foreign_claim(&claim.uid, Some(&claim));
        }
    }
    (world, providers)
}

/// Plans manifests on top of what a running instance knows. With `prune`, Services that are not
/// among them are taken as deleted.
pub async fn on_top(
    mut world: World,
    sandboxes: &[Backend],
    classes: &Classes,
    loaded: Loaded,
    prune: bool,
) -> DryRunReport {
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
    DryRunReport {
        against: Against::Instance,
        problems,
        plans,
    }
}

fn set_pools(providers: &[Backend], classes: &Classes, world: &mut World) -> Vec<Reason> {
    let own = providers.iter().any(Backend::is_in_process);
    let providers: Vec<&Backend> = providers.iter().collect();
    let mut problems = hand_out_pools(world, classes, &providers);
    if own {
        // An instance on bare metal has reported them.
        let others = routers::problems(world).into_iter();
        let others: Vec<Reason> = others.filter(|it| !problems.contains(it)).collect();
        problems.extend(others);
    }
    problems
}

/// A manifest knows neither the identity nor the status of the Service that it would change, nor
/// what an API server has allocated for it and would keep.
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

#[cfg(test)]
mod tests {
    use landfall_model::reason::Code;
    use landfall_model::status::Condition;
    use landfall_testkit::build::ServiceBuilder;
    use landfall_testkit::svc;

    use super::*;

    fn served(name: &str, address: &str) -> ServiceBuilder {
        let met = Condition::met(
            ConditionType::Programmed,
            Code::Ready,
            "traffic flows",
            jiff::Timestamp::UNIX_EPOCH,
        );
        let service = svc(name).port(80).holding(address);
        service.with(move |row| {
            row.finalized = true;
            row.status.conditions = vec![met];
        })
    }

    fn facts(rows: Vec<Arc<ServiceRow>>) -> Loaded {
        let pool = pools::from_flags(&["192.0.2.0/28".to_owned()]);
        let services = rows.into_iter().map(Fact::Service);
        Loaded {
            facts: services.chain([Fact::Pool(Arc::new(pool))]).collect(),
            ..Loaded::default()
        }
    }

    #[tokio::test]
    async fn a_plan_on_a_cluster_lists_what_the_edit_changes_and_nothing_that_is_served() {
        let (web, still) = (served("web", "192.0.2.1"), served("still", "192.0.2.2"));
        let waiting = svc("waiting").port(80).row();
        let cluster = facts(vec![web.row(), still.row(), waiting]);
        let edit = facts(vec![svc("web").port(81).row(), svc("new").port(80).row()]);
        let outlook = on_cluster(&Instances::local(), cluster, edit, false).await;
        let listed: Vec<String> = outlook
            .plans
            .iter()
            .flat_map(|plan| {
                let steps = plan.steps.iter().map(|planned| planned.step.as_str());
                let name = plan.service.name();
                steps.map(move |step| format!("{name}: {}", step.split(" (").next().unwrap()))
            })
            .collect();
        let claimed = |step: &&String| step.contains("192.0.2.1:") || step.contains("192.0.2.2");
        let about_served: Vec<&String> = listed.iter().filter(claimed).collect();
        assert_eq!(
            about_served,
            ["web: open 192.0.2.1:81/TCP", "web: close 192.0.2.1:80/TCP"]
        );
        // What is not served yet is not taken for open.
        for name in ["new", "waiting"] {
            let opens = format!("{name}: open ");
            assert!(
                listed.iter().any(|step| step.starts_with(&opens)),
                "{listed:?}"
            );
        }
    }
}
