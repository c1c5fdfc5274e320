//! What is remembered of the cloud between reconciles: all NLBs as they were read last, with what
//! our own changes have made of them since; operations in flight; what was refused.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall_model::{Reason, Uid};
use landfall_rest::Operation;
use tokio::time::Instant;

use crate::live::Port;
use crate::objects::{Id, LoadBalancer, Protocol};
use crate::observed::Refused;
use crate::ownership::Owner;
use crate::step::{Change, Step};

pub(crate) use rows::{Certainty, Row, Rows};

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub rows: Rows,
    pub operations: BTreeMap<Key, InFlight>,
    /// NLBs that others change, and since when.
    pub busy: BTreeMap<Id, Instant>,
    /// NLBs that refuse changes because of another one, and since when.
    pub conflicts: BTreeMap<Id, Instant>,
    refused: BTreeMap<Id, Vec<(Refused, Instant)>>,
    /// The instance pools that removed NLB services had, by NLB, port and protocol.
    removed: BTreeMap<(Id, u16, String), Id>,
    /// Services whose NLB may still be created by a request without an answer, until when.
    pub unanswered: BTreeMap<Uid, Instant>,
    /// What each Service had when it was observed last.
    pub seen: BTreeMap<Uid, Seen>,
    pub instances: Instances,
    /// Instance pools that exist.
    pub pools: BTreeSet<Id>,
}

/// What takes one change at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// An NLB.
    LoadBalancer(Id),
    /// The NLB of a Service, which is being created.
    Creating(Uid),
}

/// A change in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub change: Change,
    /// `None`: the request is being sent.
    pub operation: Option<Operation>,
}

/// What a Service had.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub load_balancer: Option<LoadBalancer>,
    /// Its instance pool follows its nodes.
    pub infers: bool,
    /// As the owner of its objects.
    pub owner: Owner,
    /// The ports that it asked for.
    pub ports: Vec<Port>,
}

/// Which instance is of which pool.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    pub listed_at: Option<Instant>,
    /// By id and by name; `None`: of no pool.
    pub pools: BTreeMap<String, Option<Id>>,
    /// The pools of the nodes, as they were taken to be.
    pub used: BTreeMap<String, Option<Id>>,
}

/// The time after which a refused change is tried again.
const REFUSED: Duration = Duration::from_secs(300);
/// The same for a change of the instance pool, for which the NLB service goes each time.
const POOL_REFUSED: Duration = Duration::from_secs(3600);

// === impl Memory ===

impl Memory {
    /// Forgets what concerns one Service.
    pub fn forget(&mut self, service: &Uid) {
        self.seen.remove(service);
        self.unanswered.remove(service);
    }

    /// Returns the changes of an NLB that are not tried again yet.
    pub fn refused(&self, load_balancer: &Id, now: Instant) -> Vec<Refused> {
        let all = self.refused.get(load_balancer).into_iter().flatten();
        let current = all.filter(|(_, until)| *until > now);
        current.map(|(refused, _)| refused.clone()).collect()
    }

    /// Notes that the cloud refused a change.
    pub fn refuse(&mut self, change: &Change, reason: &Reason, now: Instant) {
        let Some(load_balancer) = change.load_balancer() else {
            return;
        };
        let all = self.refused.entry(load_balancer.clone()).or_default();
        all.retain(|(refused, until)| refused.change != *change && *until > now);
        let before = match change {
            Change::CreateService { body, .. } => {
                let place = place(load_balancer, body.port, &body.protocol);
                let before = self.removed.get(&place);
                before.filter(|it| **it != body.instance_pool.id).cloned()
            }
            _ => None,
        };
        let pause = if before.is_some() {
            POOL_REFUSED
        } else {
            REFUSED
        };
        let refused = Refused {
            change: change.clone(),
            reason: reason.clone(),
            before,
        };
        all.push((refused, now + pause));
    }

    /// Notes which instance pool an NLB service has that is about to be removed.
    pub fn removing(&mut self, change: &Change) {
        let Change::DeleteService { load_balancer, id } = change else {
            return;
        };
        let row = self.rows.get(load_balancer);
        let mut services = row.into_iter().flat_map(|row| &row.load_balancer.services);
        let Some(service) = services.find(|it| it.id == *id) else {
            return;
        };
        if let Some(pool) = &service.instance_pool {
            let place = place(load_balancer, service.port, &service.protocol);
            self.removed.insert(place, pool.id.clone());
        }
    }

    /// Returns the NLBs with refused changes that may be tried again.
    pub fn due(&mut self, now: Instant) -> BTreeSet<Id> {
        let mut due = BTreeSet::new();
        self.refused.retain(|id, all| {
            let before = all.len();
            all.retain(|(_, until)| *until > now);
            if all.len() < before {
                due.insert(id.clone());
            }
            !all.is_empty()
        });
        due
    }

    /// Takes the end of a change that was carried out. `id`: what it was about, where the cloud
    /// says so.
    pub fn finish(&mut self, key: &Key, change: &Change, id: Option<Id>, now: Instant) {
        self.operations.remove(key);
        if let Some(load_balancer) = change.load_balancer() {
            self.busy.remove(load_balancer);
            self.conflicts.remove(load_balancer);
            if let Some(all) = self.refused.get_mut(load_balancer) {
                all.retain(|(refused, _)| refused.change != *change);
            }
        }
        if let Key::Creating(service) = key {
            self.unanswered.remove(service);
        }
        match change {
            Change::CreateService {
                load_balancer,
                body,
            } => {
                let place = place(load_balancer, body.port, &body.protocol);
                self.removed.remove(&place);
            }
            Change::DeleteLoadBalancer { load_balancer } => {
                self.removed.retain(|(id, ..), _| id != load_balancer);
            }
            _ => {}
        }
        self.rows.apply(change, id, now);
    }

    /// Takes the end of a change of which it is not known what it led to.
    pub fn end_unknown(&mut self, key: &Key) {
        self.operations.remove(key);
        match key {
            Key::LoadBalancer(id) => self.rows.invalidate(id),
            Key::Creating(_) => self.rows.listed_at = None,
        }
    }
}

fn place(load_balancer: &Id, port: u16, protocol: &Protocol) -> (Id, u16, String) {
    (load_balancer.clone(), port, protocol.as_str().to_owned())
}

// === impl Key ===

impl Key {
    pub fn of(step: &Step) -> Self {
        match step.change.load_balancer() {
            Some(id) => Self::LoadBalancer(id.clone()),
            None => Self::Creating(step.service.clone()),
        }
    }
}
