//! What is remembered between reconciles: of each load balancer its graph, for as long as no other
//! program changes it.
//!
//! Octavia moves a load balancer's `updated_at` with every change of it or of what belongs to it.
//! As long as it stands where it stood when the graph was read, or when our own last change was
//! done, the graph is as it was.

mod attempts;
pub(crate) mod lists;
mod pace;
mod phase;
mod timing;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::rows::Family;
use landfall_model::{Reason, Uid};
use tokio::time::Instant;

use crate::fares::Troubles;
use crate::graph::Graph;
use crate::names::service_of;
use crate::objects::{Id, LoadBalancer, Pool, PoolAlgorithm, Provisioning, Subnet};
use crate::observed::Attempts;
use crate::settings::OVN;
use crate::step::Step;
use crate::target::WantedListener;
use attempts::AttemptLog;
use pace::Pace;
use phase::Phase;
use timing::ChangeTiming;

/// Returns the moment after what was just done: a list that was requested in the same instant need
/// not contain it.
pub(crate) fn afterwards() -> Instant {
    Instant::now() + Duration::from_nanos(1)
}

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) balancers: HashMap<Id, Known>,
    /// Which load balancer a Service has.
    pub(crate) of: HashMap<Uid, Id>,
    /// The id that a Service names and that is ignored: another load balancer serves it, by the
    /// marks on that one.
    pub(crate) in_vain: HashMap<Uid, String>,
    /// What load balancers of Services were created with, or were seen with.
    pub(crate) expected: HashMap<Uid, ExpectedGraph>,
    /// When a load balancer was last requested, whatever became of it.
    pub(crate) requested: HashMap<Uid, Instant>,
    /// Until when a load balancer may come of a request whose answer was lost.
    pub(crate) unanswered: HashMap<Uid, Instant>,
    /// Services whose last plan was refused.
    refused: HashSet<Uid>,
    /// Services of which something is kept for others that use it.
    kept: HashSet<Uid>,
    /// The tags of Services that are being removed.
    leaving: HashMap<Uid, String>,
    /// The floating IP that was last seen attached to a load balancer.
    floating: HashMap<Id, Option<IpAddr>>,
    /// Lists older than this lack our own last writes to floating IPs.
    pub(crate) floating_written: Option<Instant>,
    /// The ports of the nodes of each Service whose rules are in the group that nodes share, by the
    /// UID in its rules.
    pub(crate) guarded: HashMap<String, HashSet<Id>>,
    /// Load balancers without marks of which more than a name shows that they are a Service's.
    pub(crate) proven: HashMap<Uid, Id>,
    /// Servers whose port at this address was seen with port security.
    pub(crate) secure_nodes: HashSet<(String, IpAddr)>,
    /// Groups that the nodes shared under another name of the cluster.
    pub(crate) former_groups: HashSet<Id>,
    /// How often Services were observed whose nodes get their group only once an address is
    /// published.
    pub(crate) looks_before_groups: HashMap<String, u8>,
    /// What other programs had changed of the load balancers of Services, until it is put right.
    pub(crate) drift: HashMap<Uid, Reason>,
    /// What carries no traffic in load balancers, as the last audit saw it.
    pub(crate) troubles: HashMap<Id, Troubles>,
    /// Services that have certificates of Secrets in Barbican.
    pub(crate) certified: HashSet<Uid>,
    /// Lists older than this lack our own last writes to Barbican.
    pub(crate) containers_written: Option<Instant>,
    /// Lists older than this lack our own last writes to groups and ports.
    pub(crate) groups_written: Option<Instant>,
    /// What the last audit saw, by kind of object.
    pub(crate) audited: HashMap<&'static str, u64>,
    pub(crate) attempts: AttemptLog,
    pub(crate) timing: ChangeTiming,
    pub(crate) pace: Pace,
    pub(crate) caches: Caches,
}

/// What hardly ever changes in a cloud, and is read once.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) subnets: HashMap<Id, Subnet>,
    /// The subnet of a node's address.
    pub(crate) node_subnets: HashMap<(Arc<str>, IpAddr), Id>,
    /// The subnet of a family in a network, or where a server has an address of it; and when that
    /// was seen.
    pub(crate) family_subnets: HashMap<(Arc<str>, Family), (Instant, Option<Id>)>,
    /// Octavia providers that give a load balancer no further VIP, and Services that were refused
    /// one for an unknown reason.
    pub(crate) one_vip_only: HashSet<String>,
    /// Certificates that were seen in Barbican, and when.
    pub(crate) certificates: HashMap<String, Instant>,
    /// Whether OVN's driver takes the algorithm `SOURCE_IP`, once that was seen: no version of the
    /// API states it.
    pub(crate) ovn_takes_source_ip: Option<bool>,
}

/// What is remembered of a load balancer.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) row: LoadBalancer,
    pub(crate) graph: Option<Arc<Graph>>,
    /// Our last change of it.
    pub(crate) phase: Phase,
    /// The graph is not as it was read, but as our changes have made it if none of them failed.
    pub(crate) changed: bool,
    /// Its `updated_at` when the graph was as it is.
    pub(crate) token: Option<String>,
    /// No record of it is believed until it is read.
    pub(crate) unread: bool,
    /// It has the address that its Service publishes, by which it was found.
    pub(crate) publishes: bool,
    /// When `row` was requested: what is in the load balancer must not be older.
    pub(crate) seen_at: Option<Instant>,
    /// How often Octavia was too busy for a change since it last took one.
    refusals: u32,
    /// Since when something in it is seen to be busy although it is not.
    settling_since: Option<Instant>,
    /// Since when it is seen to be busy, with nothing of ours accepted since.
    pending_since: Option<Instant>,
}

/// What a load balancer was created with, or was seen with: as wanted then, with no ids.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedGraph {
    pub(crate) balancer: Id,
    pub(crate) token: Option<String>,
    pub(crate) listeners: Vec<WantedListener>,
}

/// So often Octavia may be too busy for a change of a load balancer that is not seen to be busy,
/// until that counts as a failure: something in it is in ERROR, and takes no change.
const REFUSALS: u32 = 10;
/// How long something in a load balancer may be busy after the load balancer.
const SETTLING: Duration = Duration::from_secs(30);

// === impl Memory ===

impl Memory {
    fn known(&mut self, id: &Id) -> &mut Known {
        self.balancers.entry(id.clone()).or_default()
    }

    /// Notes that a change of a load balancer was accepted.
    pub(crate) fn changed(&mut self, id: &Id, now: Instant) {
        let known = self.known(id);
        known.phase = Phase::accepted(now);
        known.changed = true;
        known.refusals = 0;
        known.pending_since = None;
    }

    /// Notes that the last change is not one of the usual ones: it is waited for, and its time says
    /// nothing of others.
    pub(crate) fn unusual(&mut self, id: &Id) {
        if let Some(known) = self.balancers.get_mut(id) {
            known.phase.wait_for();
        }
    }

    /// Notes that a load balancer is busy although it was taken to be done.
    pub(crate) fn stop_assuming_done(&mut self, id: &Id) {
        if let Some(known) = self.balancers.get_mut(id) {
            known.phase.stop_assuming();
        }
    }

    /// Notes that the outcome of a change is not known: the graph is read again.
    pub(crate) fn invalidate(&mut self, id: &Id, now: Instant) {
        let known = self.known(id);
        known.phase = Phase::Unverified { since: now };
        known.graph = None;
        known.token = None;
        known.unread = true;
        self.expected.retain(|_, it| it.balancer != *id);
    }

    /// Notes whether Octavia took a write, where it depends on OVN's driver: whether it knows the
    /// algorithm `SOURCE_IP`. Returns whether the write is such a one.
    pub(crate) fn note_source_ip(&mut self, step: &Step, taken: bool) -> bool {
        let algorithm = match step {
            Step::CreatePool { pool, .. } => Some(&pool.algorithm),
            Step::UpdatePool { changes, .. } => changes.lb_algorithm.as_ref(),
            _ => None,
        };
        let row = step.locks().and_then(|id| self.balancers.get(id));
        let by_ovn = row.is_some_and(|known| known.row.provider == OVN);
        let is_such = by_ovn && algorithm == Some(&PoolAlgorithm::SourceIp);
        if is_such {
            self.caches.ovn_takes_source_ip = Some(taken);
        }
        is_such
    }

    /// Notes what was read of a load balancer.
    pub(crate) fn has_read(&mut self, balancer: &LoadBalancer, graph: &Arc<Graph>) {
        let by_source = |pool: &Pool| pool.lb_algorithm == PoolAlgorithm::SourceIp;
        if balancer.provider == OVN && graph.pools.iter().any(by_source) {
            self.caches.ovn_takes_source_ip = Some(true);
        }
        let known = self.known(&balancer.id);
        known.row = balancer.clone();
        known.graph = Some(graph.clone());
        known.changed = false;
        known.unread = false;
        known.token.clone_from(&balancer.updated_at);
    }

    /// Notes that a failover was accepted. It is not taken to have helped.
    pub(crate) fn failed_over(&mut self, id: &Id, now: Instant) {
        self.unusual(id);
        self.attempts.failed_over(id, now);
    }

    /// Forgets a graph that is not as it was read, and returns whether there was one.
    pub(crate) fn unread(&mut self, id: &Id) -> bool {
        let Some(known) = self.balancers.get_mut(id).filter(|it| it.changed) else {
            return false;
        };
        known.graph = None;
        known.token = None;
        true
    }

    /// Returns the graph of a load balancer, if it is known to be current.
    pub(crate) fn graph(&self, balancer: &LoadBalancer) -> Option<Arc<Graph>> {
        let known = self.balancers.get(&balancer.id)?;
        let current = !known.phase.is_settled() || known.token == balancer.updated_at;
        known.graph.clone().filter(|_| current)
    }

    /// Returns what is expected in the load balancer of a Service, if it was not changed since.
    pub(crate) fn expected(
        &self,
        service: &Uid,
        balancer: &LoadBalancer,
    ) -> Option<&Vec<WantedListener>> {
        let expected = self.expected.get(service);
        let current =
            expected.filter(|it| it.balancer == balancer.id && it.token == balancer.updated_at);
        current.map(|it| &it.listeners)
    }

    /// Whether what was read of a load balancer is about to change, and is to be read again. What
    /// never comes to an end is taken as it is.
    pub(crate) fn is_settling(&mut self, id: &Id, graph: &Graph, now: Instant) -> bool {
        let known = self.known(id);
        if !graph.is_settling() {
            known.settling_since = None;
            return false;
        }
        let since = *known.settling_since.get_or_insert(now);
        let settling = now.saturating_duration_since(since) < SETTLING;
        if settling {
            self.invalidate(id, now);
        }
        settling
    }

    /// Notes that Octavia was too busy for a change of a load balancer, and returns whether that is
    /// all there is to it.
    pub(crate) fn is_merely_busy(&mut self, id: &Id, now: Instant) -> bool {
        let known = self.known(id);
        known.refusals += 1;
        let often = known.refusals > REFUSALS;
        if often {
            // The next write is another one.
            known.refusals = 0;
        }
        if known.phase.is_settled() {
            known.phase = Phase::Unverified { since: now };
        }
        self.assumed_too_early(id, now);
        !often
    }

    /// Notes that the last change of a load balancer is not done yet. Returns whether it was taken
    /// to be.
    pub(crate) fn assumed_too_early(&mut self, id: &Id, now: Instant) -> bool {
        let was_assumed = self.known(id).phase.stop_assuming();
        if was_assumed {
            self.timing.guessed_wrong(now);
        }
        was_assumed
    }

    /// Whether a load balancer may yet come of a request whose answer was lost.
    pub(crate) fn is_unanswered(&self, service: &Uid, now: Instant) -> bool {
        let until = self.unanswered.get(service);
        until.is_some_and(|until| *until > now)
    }

    /// Returns what became of earlier attempts for a Service. As long as a load balancer may yet
    /// come of a request, the next look reads the cloud.
    pub(crate) fn attempts_for(
        &mut self,
        service: &Uid,
        balancer: Option<&Id>,
        none_found: bool,
        now: Instant,
    ) -> Attempts {
        let create_is_unanswered = none_found && self.is_unanswered(service, now);
        if create_is_unanswered {
            self.requested.insert(service.clone(), afterwards());
        } else {
            self.unanswered.remove(service);
        }
        let attempts = balancer.map(|id| self.attempts.of(id, now));
        Attempts {
            create_is_unanswered,
            ..attempts.unwrap_or_default()
        }
    }

    /// Notes whether the plan of a Service was refused, so that each audit finds it: what could not
    /// be had may be there by then.
    pub(crate) fn set_refused(&mut self, service: &Uid, refused: bool) {
        set(&mut self.refused, service, refused);
    }

    /// Notes whether something of a Service is kept for others, so that each audit finds it until
    /// they are gone.
    pub(crate) fn set_kept(&mut self, service: &Uid, kept: bool) {
        set(&mut self.kept, service, kept);
    }

    /// The Services that each audit finds, whatever the cloud has.
    pub(crate) fn always_audited(&self) -> impl Iterator<Item = &Uid> {
        self.refused.union(&self.kept)
    }

    /// Whether a load balancer is taken to be done with our last change, without a look.
    pub(crate) fn is_assumed_done(&self, known: &Known, now: Instant) -> bool {
        known.graph.is_some() && self.timing.is_over(known.phase, now)
    }

    /// How many load balancers Octavia is taken to be working on.
    pub(crate) fn busy(&self) -> usize {
        let all = self.balancers.values();
        all.filter(|it| !it.phase.is_settled()).count()
    }

    /// Whether a load balancer is the only one that Octavia is taken to be working on.
    pub(crate) fn is_only_busy(&self, id: &Id) -> bool {
        let is_busy =
            |it: &Known| !it.phase.is_settled() || it.row.provisioning_status.is_pending();
        let mut busy = self.balancers.iter().filter(|(_, it)| is_busy(it));
        matches!((busy.next(), busy.next()), (Some((one, _)), None) if one == id)
    }

    /// How long Octavia has been busy with our last change of a load balancer, or with another's.
    pub(crate) fn busy_for(&self, id: &Id, now: Instant) -> Duration {
        let known = self.balancers.get(id);
        let since = known.and_then(|known| known.phase.since().or(known.pending_since));
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// How long Octavia has been busy with a load balancer.
    pub(crate) fn pending_for(&self, id: &Id, now: Instant) -> Duration {
        let since = self.balancers.get(id).and_then(|known| known.pending_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Notes what the roster says of a load balancer that is ours.
    pub(crate) fn seen(&mut self, row: &LoadBalancer, at: Instant) {
        let known = self.known(&row.id);
        known.row = row.clone();
        known.seen_at = Some(at);
        if row.provisioning_status.is_pending() {
            known.pending_since.get_or_insert(at);
            known.phase.seen_busy(at);
            return;
        }
        known.pending_since = None;
        let done = known.phase.since().filter(|since| at >= *since);
        let phase = known.phase;
        if done.is_some() {
            known.phase = Phase::Settled;
            known.token.clone_from(&row.updated_at);
        }
        if row.provisioning_status == Provisioning::Active {
            let works = |service: &Uid| self.of.get(service) == Some(&row.id);
            self.attempts.works(&row.id, works);
        }
        if done.is_none() {
            return;
        }
        for expected in self.expected.values_mut() {
            if expected.balancer == row.id && expected.token.is_none() {
                expected.token.clone_from(&row.updated_at);
            }
        }
        self.timing.took(phase, at);
    }

    /// Notes which floating IP is attached to a load balancer, as a reconcile of a Service has seen
    /// it. If it is another one than before: which other Services use the load balancer.
    pub(crate) fn note_floating(
        &mut self,
        id: &Id,
        address: Option<IpAddr>,
        seen_by: &Uid,
    ) -> Vec<Uid> {
        let before = self.floating.insert(id.clone(), address);
        if before.is_none_or(|before| before == address) {
            return Vec::new();
        }
        let users = self.of.iter().filter(|(_, used)| *used == id);
        let mut users: Vec<Uid> = users.map(|(service, _)| service_of(service)).collect();
        users.retain(|service| *service != service_of(seen_by));
        users.sort();
        users.dedup();
        users
    }

    /// Notes that a Service with this tag is being removed, and returns the tags of all that are.
    pub(crate) fn mark_removing(&mut self, service: &Uid, tag: &str) -> HashSet<String> {
        self.leaving.insert(service.clone(), tag.to_owned());
        self.leaving()
    }

    /// The tags of Services that are being removed.
    pub(crate) fn leaving(&self) -> HashSet<String> {
        self.leaving.values().cloned().collect()
    }

    /// Notes that the Service with this tag is to stay.
    pub(crate) fn mark_staying(&mut self, tag: &str) {
        self.leaving.retain(|_, leaving| leaving != tag);
    }

    /// Forgets a Service, and its load balancer with it.
    pub(crate) fn forget(&mut self, service: &Uid) {
        if let Some(id) = self.of.remove(service) {
            if !self.of.values().any(|used| *used == id) {
                self.floating.remove(&id);
            }
            self.balancers.remove(&id);
            self.attempts.forget_balancer(&id);
        }
        self.attempts.forget_service(service);
        self.in_vain.remove(service);
        self.proven.remove(service);
        self.requested.remove(service);
        self.leaving.remove(service);
        self.refused.remove(service);
        self.kept.remove(service);
        self.certified.remove(service);
        self.expected.remove(service);
        self.drift.remove(service);
        self.guarded.remove(service.as_str());
        self.looks_before_groups.remove(service.as_str());
    }
}

fn set(services: &mut HashSet<Uid>, service: &Uid, member: bool) {
    if member {
        services.insert(service.clone());
    } else {
        services.remove(service);
    }
}
