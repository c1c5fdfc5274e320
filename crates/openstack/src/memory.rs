//! What is remembered between passes: of each load balancer its graph, for as long as nobody touches it.
//!
//! Octavia moves a load balancer's `updated_at` with every change of it or of what belongs to it. As long as it
//! stands where it stood when the graph was read, or when our own last change was done, the graph is as it was.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_model::Uid;
use tokio::time::Instant;

use crate::graph::Graph;
use crate::objects::{Id, LoadBalancer, Subnet};
use crate::wanted::WantedListener;

/// The moment after what was just done: a list that was asked for in the same instant need not tell of it.
pub(crate) fn afterwards() -> Instant {
    Instant::now() + Duration::from_nanos(1)
}

/// What is remembered.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) balancers: HashMap<Id, Known>,
    /// Which load balancer a Service has.
    pub(crate) of: HashMap<Uid, Id>,
    /// When a load balancer was last asked for, whatever became of it.
    pub(crate) attempts: HashMap<Uid, Instant>,
    pub(crate) sketches: HashMap<Uid, Sketch>,
    /// How long Octavia takes for a change.
    pub(crate) settle: Duration,
    pub(crate) subnets: HashMap<Id, Subnet>,
    /// The subnet of a node's address.
    pub(crate) node_subnets: HashMap<Arc<str>, Id>,
    /// Certificates that were seen in Barbican.
    pub(crate) certificates: HashSet<String>,
    /// Lists older than this do not tell of our own last writes to floating IPs, and to groups and ports.
    pub(crate) floating_written: Option<Instant>,
    pub(crate) groups_written: Option<Instant>,
    /// What the last audit saw, by kind of object.
    pub(crate) audited: HashMap<&'static str, u64>,
    /// Failovers that the cloud does not let us ask for.
    pub(crate) no_failover: HashSet<Id>,
    /// What Octavia said of an algorithm that it refused.
    pub(crate) refused_methods: HashMap<Id, String>,
}

/// What is remembered of a load balancer.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) row: LoadBalancer,
    pub(crate) graph: Option<Arc<Graph>>,
    /// Its `updated_at` when the graph was as it is.
    pub(crate) token: Option<String>,
    /// When we last changed it, until it is seen to be done.
    pub(crate) dirty: Option<Instant>,
    /// Whether it may be taken to be done once the time is over that it usually takes.
    pub(crate) assume: bool,
}

/// What a load balancer was made with, or was seen with: as wanted then, with no ids.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    pub(crate) balancer: Id,
    pub(crate) token: Option<String>,
    pub(crate) listeners: Vec<WantedListener>,
}

/// What a change is taken to last before any was seen.
const FIRST_GUESS: Duration = Duration::from_secs(1);
/// The longest that is ever waited before looking.
const LONGEST_GUESS: Duration = Duration::from_secs(10);

impl Default for Memory {
    fn default() -> Self {
        Self {
            balancers: HashMap::new(),
            of: HashMap::new(),
            attempts: HashMap::new(),
            sketches: HashMap::new(),
            settle: FIRST_GUESS,
            subnets: HashMap::new(),
            node_subnets: HashMap::new(),
            certificates: HashSet::new(),
            floating_written: None,
            groups_written: None,
            audited: HashMap::new(),
            no_failover: HashSet::new(),
            refused_methods: HashMap::new(),
        }
    }
}

// === impl Memory ===

impl Memory {
    /// A change of a load balancer was accepted.
    pub(crate) fn changed(&mut self, id: &Id, now: Instant) {
        let known = self.balancers.entry(id.clone()).or_default();
        known.dirty = Some(now);
        known.assume = true;
    }

    /// What became of a change is not known: the graph is read anew.
    pub(crate) fn doubt(&mut self, id: &Id, now: Instant) {
        let known = self.balancers.entry(id.clone()).or_default();
        known.dirty = Some(now);
        known.assume = false;
        known.graph = None;
        known.token = None;
        self.sketches.retain(|_, sketch| sketch.balancer != *id);
    }

    /// A load balancer is busy although it was taken to be done.
    pub(crate) fn surprise(&mut self, id: &Id) {
        if let Some(known) = self.balancers.get_mut(id) {
            known.assume = false;
        }
    }

    /// What the roster says of a load balancer that is ours.
    pub(crate) fn seen(&mut self, row: &LoadBalancer, at: Instant) {
        let known = self.balancers.entry(row.id.clone()).or_default();
        known.row = row.clone();
        if row.provisioning_status.is_pending() {
            return;
        }
        let Some(dirty) = known.dirty else { return };
        if at < dirty {
            return;
        }
        // Done. What it took is only known to lie between two looks.
        let took = at.saturating_duration_since(dirty);
        known.dirty = None;
        known.token.clone_from(&row.updated_at);
        for sketch in self.sketches.values_mut() {
            if sketch.balancer == row.id && sketch.token.is_none() {
                sketch.token.clone_from(&row.updated_at);
            }
        }
        let settle = self.settle.mul_f64(0.7) + took.mul_f64(0.3);
        self.settle = settle.clamp(FIRST_GUESS / 2, LONGEST_GUESS);
    }

    /// Forgets a Service, and its load balancer with it.
    pub(crate) fn forget(&mut self, service: &Uid) {
        if let Some(id) = self.of.remove(service) {
            self.balancers.remove(&id);
        }
        self.attempts.remove(service);
        self.sketches.remove(service);
    }
}
