//! What would be taken over from MetalLB, Service by Service, and what stands in the way: decided
//! from what was read, without a request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::select::{Classes, Ownership};
use landfall_engine::{World, resolve};
use landfall_files::Loaded;
use landfall_l2::election::Rules;
use landfall_model::ServiceKey;
use landfall_model::dialect::metallb::ALLOCATED_FROM_POOL;
use landfall_model::plan::PlannedStep;
use landfall_model::provider::Provider as _;
use landfall_model::reason::{Reason, Severity};
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{ConditionType, IngressAddress};
use landfall_speaker::comparison::Electorate;
use serde::Serialize;

use super::installed::Installed;
use super::obstacles::{self, Obstacle};
use crate::backend::Backend;
use crate::dry_run;
use crate::instances::Instances;

/// What is taken over.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// What is wrong with resources or with the cluster as a whole.
    pub problems: Vec<Reason>,
    /// What has to change before.
    pub first: Vec<Obstacle>,
    /// Pools whose Services share addresses across namespaces already, by namespace and name: they
    /// get the annotation that allows it.
    pub pools: Vec<ServiceKey>,
    /// The Services of MetalLB.
    pub services: Vec<Takeover>,
    /// What is to be done afterwards.
    pub next: Vec<Obstacle>,
}

/// What is taken over for one Service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Takeover {
    pub service: ServiceKey,
    /// The instance that would serve it.
    pub instance: String,
    /// What it has now.
    pub addresses: Vec<Kept>,
    /// What it would have.
    pub after: Vec<IpAddr>,
    /// Whether the two differ.
    pub moves: bool,
    /// The nodes that say now that they announce it.
    pub announced_by: BTreeSet<String>,
    /// Whether it was taken over already.
    pub taken_over: bool,
    pub steps: Vec<PlannedStep>,
    pub reasons: Vec<Reason>,
}

/// An address of a Service, and which node is elected for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub address: IpAddr,
    /// The pool that has it.
    pub pool: Option<String>,
    /// The node that MetalLB elects.
    pub metallb_elects: Option<String>,
    /// The node that Landfall's speakers elect.
    pub landfall_elects: Option<String>,
}

/// The annotation that lets Services of different namespaces share addresses of a pool.
pub const SHARES: &str = "landfall.dev/share-across-namespaces";

/// Decides what would be taken over.
pub async fn survey(instances: &Instances, loaded: Loaded, installed: &Installed) -> Survey {
    let (world, providers) = dry_run::recalled(instances, loaded.facts);
    let classes = instances.classes();
    let mut problems = loaded.reasons;
    problems.extend(resource_problems(&providers));
    let mut services = Vec::new();
    let mut unserved = Vec::new();
    for row in world.services() {
        match instance_of(&row, &world, &classes, &providers) {
            Some((provider, name)) => {
                let mut takeover = Takeover::of(&row, name);
                takeover.look(&row, &world, provider).await;
                services.push(takeover);
            }
            None if row.annotations.contains_key(ALLOCATED_FROM_POOL) => unserved.push(row),
            None => {}
        }
    }
    let rules = Rules {
        ignore_exclude_label: installed.ignores_exclude_label,
        ..Rules::default()
    };
    let alive = installed.speaking();
    let now = Electorate::new(&world, alive.as_ref(), rules);
    let then = Electorate::new(&taken(&world, &services), alive.as_ref(), rules);
    let (before, after) = (now.metallb(), then.landfall());
    for takeover in &mut services {
        takeover.elect(&now, &before, &after);
        let nodes = installed.announcers.get(&takeover.service);
        takeover.announced_by = nodes.cloned().unwrap_or_default();
    }
    let rows: Vec<Arc<ServiceRow>> = services
        .iter()
        .filter_map(|it| world.service(&it.service))
        .collect();
    let pools = sharing_pools(&rows, &now, &world);
    let first = obstacles::first(installed, &rows, &unserved, &now, !pools.is_empty());
    Survey {
        problems,
        first,
        pools,
        services,
        next: obstacles::next(installed),
    }
}

/// Returns the provider of a Service that an instance on bare metal serves, with the name of the
/// instance.
pub(super) fn instance_of<'a>(
    row: &ServiceRow,
    world: &World,
    classes: &Classes,
    providers: &'a [Backend],
) -> Option<(&'a Backend, String)> {
    let namespace = world.namespace(row.key.namespace());
    let Ownership::Ours(instance) = classes.validate(row, namespace.map(AsRef::as_ref)) else {
        return None;
    };
    let provider = instance.of(providers).filter(|it| it.is_metal())?;
    let name = classes.name(instance).map(str::to_owned);
    row.wants_load_balancer
        .then(|| (provider, name.unwrap_or_default()))
}

fn resource_problems(providers: &[Backend]) -> Vec<Reason> {
    let problems = providers.iter().flat_map(Backend::resource_problems);
    let named = problems.map(|problem| {
        let object = if problem.key.namespace().is_empty() {
            problem.key.name().to_owned()
        } else {
            problem.key.to_string()
        };
        let message = format!("{} {object}: {}", problem.kind, problem.reason.message);
        Reason {
            message,
            ..problem.reason
        }
    });
    named.collect()
}

/// Returns the World once every Service has what it would have.
fn taken(world: &World, services: &[Takeover]) -> World {
    let mut taken = world.clone();
    for takeover in services {
        let Some(row) = world.service(&takeover.service) else {
            continue;
        };
        let mut row = (*row).clone();
        let entry = |address: &IpAddr| IngressAddress {
            ip: Some(*address),
            ..IngressAddress::default()
        };
        row.status.ingress = takeover.after.iter().map(entry).collect();
        taken.apply(Fact::Service(Arc::new(row)));
    }
    taken
}

/// Returns the pools with an address that Services of several namespaces share and that the pool
/// does not allow.
fn sharing_pools(
    rows: &[Arc<ServiceRow>],
    electorate: &Electorate,
    world: &World,
) -> Vec<ServiceKey> {
    let mut namespaces: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        for address in row.status.addresses() {
            let of = namespaces.entry(address).or_default();
            of.insert(row.key.namespace());
        }
    }
    let shared = namespaces.into_iter().filter(|(_, all)| all.len() > 1);
    let pools = shared.filter_map(|(address, _)| electorate.config().pools().pool_of(address));
    let pools = pools.filter(|pool| !pool.shares_across_namespaces());
    let names: BTreeSet<String> = pools.map(|pool| pool.name().to_string()).collect();
    let objects = world.pools().iter().filter(|row| names.contains(&row.name));
    objects
        .filter_map(|row| Some(row.resource.as_ref()?.key.clone()))
        .collect()
}

// === impl Survey ===

impl Survey {
    /// Whether nothing but MetalLB itself is in the way, and no address moves.
    pub fn is_sound(&self) -> bool {
        !self.problems.iter().any(is_error)
            && self.first.iter().all(|it| it.of_metallb || !it.blocks)
            && !self.services.iter().any(|it| it.moves || it.is_refused())
    }

    /// The Services that can be taken over.
    pub fn takes(&self) -> Vec<ServiceKey> {
        let held = self.services.iter().filter(|it| !it.addresses.is_empty());
        let held = held.filter(|it| !it.is_refused());
        held.map(|it| it.service.clone()).collect()
    }
}

fn is_error(reason: &Reason) -> bool {
    reason.severity == Severity::Error
}

// === impl Takeover ===

impl Takeover {
    fn of(row: &ServiceRow, instance: String) -> Self {
        let kept = |address| Kept {
            address,
            pool: None,
            metallb_elects: None,
            landfall_elects: None,
        };
        let met = row.status.condition(ConditionType::Addressed);
        Self {
            service: row.key.clone(),
            instance,
            addresses: row.status.addresses().map(kept).collect(),
            after: Vec::new(),
            moves: false,
            announced_by: BTreeSet::new(),
            taken_over: row.finalized && met.is_some_and(|it| it.status),
            steps: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Plans what a controller would do that started now.
    async fn look(&mut self, row: &ServiceRow, world: &World, provider: &Backend) {
        let held: Vec<IpAddr> = row.status.addresses().collect();
        self.after.clone_from(&held);
        let intent = match resolve(row, world, provider.profile()) {
            Ok(intent) => intent,
            Err(reasons) => return self.reasons.extend(reasons),
        };
        self.reasons.extend(intent.remarks.clone());
        let observed = match provider.observe(&intent).await {
            Ok(observed) => observed,
            Err(error) => return self.reasons.push(error.reason),
        };
        let status = provider.status(&intent, &observed);
        self.after = status.ingress.iter().filter_map(|it| it.ip).collect();
        for reason in status.waiting.into_iter().chain(status.remarks) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
        match provider.plan(&intent, &observed) {
            Ok(plan) => {
                self.steps = plan.describe();
                if let Some(target) = self.steps.iter().filter_map(target).next_back() {
                    self.after = target;
                }
            }
            Err(reasons) => self.reasons.extend(reasons),
        }
        let sorted = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<_>>();
        self.moves = !held.is_empty() && sorted(&held) != sorted(&self.after);
    }

    fn elect(
        &mut self,
        now: &Electorate,
        before: &BTreeMap<ServiceKey, Option<String>>,
        after: &BTreeMap<IpAddr, Option<String>>,
    ) {
        for kept in &mut self.addresses {
            let pool = now.config().pools().pool_of(kept.address);
            kept.pool = pool.map(|pool| pool.name().to_string());
            kept.metallb_elects = before.get(&self.service).cloned().flatten();
            kept.landfall_elects = after.get(&kept.address).cloned().flatten();
        }
    }

    /// Whether it can't be served as it stands.
    pub fn is_refused(&self) -> bool {
        self.reasons.iter().any(is_error)
    }

    /// Whether another node would announce an address of it.
    pub fn changes_node(&self) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|it| it.metallb_elects != it.landfall_elects)
    }
}

/// Returns the addresses that a Service holds after a step; `None`: the step changes none.
fn target(step: &PlannedStep) -> Option<Vec<IpAddr>> {
    match step.detail.get("kind")?.as_str()? {
        "claim" | "record" => serde_json::from_value(step.detail.get("addresses")?.clone()).ok(),
        "withdraw" => Some(Vec::new()),
        _ => None,
    }
}
