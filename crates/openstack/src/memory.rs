//! What is remembered between passes: of each load balancer its graph, for as long as nobody
//! touches it.
//!
//! Octavia moves a load balancer's `updated_at` with every change of it or of what belongs to it.
//! As long as it stands where it stood when the graph was read, or when our own last change was
//! done, the graph is as it was.

pub(crate) mod lists;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::rows::Family;
use landfall_model::{Reason, Uid};
use serde_json::Value;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::graph::Graph;
use crate::names::service_of;
use crate::objects::{Id, LoadBalancer, Provisioning, Subnet};
use crate::observed::{Attempts, Failover};
use crate::refusal::{Key, Refusal, Refusals, follows_nodes};
use crate::step::Step;
use crate::target::WantedListener;

/// The moment after what was just done: a list that was asked for in the same instant need not tell
/// of it.
pub(crate) fn afterwards() -> Instant {
    Instant::now() + Duration::from_nanos(1)
}

/// What is remembered.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) balancers: HashMap<Id, Known>,
    /// Which load balancer a Service has.
    pub(crate) of: HashMap<Uid, Id>,
    /// The id that a Service names in vain: another load balancer serves it, by the marks on that
    /// one.
    pub(crate) in_vain: HashMap<Uid, String>,
    /// The floating IP that was last seen to lead to a load balancer.
    floating: HashMap<Id, Option<IpAddr>>,
    /// When a load balancer was last asked for, whatever became of it.
    pub(crate) attempts: HashMap<Uid, Instant>,
    /// Until when a load balancer may come of a request whose answer was lost.
    pub(crate) expected: HashMap<Uid, Instant>,
    pub(crate) sketches: HashMap<Uid, ExpectedGraph>,
    /// How long Octavia takes for a change.
    pub(crate) settle: Duration,
    /// When it was last looked earlier than usual, in case that Octavia has become quicker.
    hurried_at: Option<Instant>,
    /// Until then nothing is taken to be done: a guess was wrong a moment ago.
    pub(crate) cautious_until: Option<Instant>,
    pub(crate) subnets: HashMap<Id, Subnet>,
    /// The subnet of a node's address.
    pub(crate) node_subnets: HashMap<(Arc<str>, IpAddr), Id>,
    /// The subnet of a family in a network, or where a server has an address of it; and when that
    /// was seen.
    pub(crate) family_subnets: HashMap<(Arc<str>, Family), (Instant, Option<Id>)>,
    /// Providers that give a load balancer no further VIP, and Services that were refused one for
    /// who knows what.
    pub(crate) one_vip_only: HashSet<String>,
    /// How many load balancers were asked for, for Services that have none yet that works; and when
    /// the last one was.
    makings: HashMap<Uid, (u32, Instant)>,
    /// Certificates that were seen in Barbican.
    pub(crate) certificates: HashSet<String>,
    /// Lists older than this do not tell of our own last writes to floating IPs, and to groups and
    /// ports.
    pub(crate) floating_written: Option<Instant>,
    pub(crate) groups_written: Option<Instant>,
    /// What the last audit saw, by kind of object.
    pub(crate) audited: HashMap<&'static str, u64>,
    /// Load balancers of which no record is believed until they are read.
    pub(crate) doubted: HashSet<Id>,
    /// Services whose spec could not be had when it was last looked at.
    pub(crate) refused: HashSet<Uid>,
    /// The tags of Services that are on their way out.
    leaving: HashMap<Uid, String>,
    /// Load balancers of which the cloud takes no failover, or that none has mended.
    no_failover: HashMap<Id, NoFailover>,
    /// Failovers since the load balancer was last well.
    failovers: HashMap<Id, u32>,
    /// Floating IPs that could not be led to a port, what Neutron said of it, and when.
    unattachable: HashMap<(Id, Id), (String, Instant)>,
    /// Algorithms that Octavia refused, by pool.
    refused_algorithms: HashMap<Id, RefusedAlgorithm>,
    /// Writes that were refused, until they are accepted or long over.
    refused_writes: HashMap<Key, RefusedWrite>,
}

/// A write that was refused, how often, and when last.
#[derive(Debug)]
struct RefusedWrite {
    balancer: Id,
    reason: Reason,
    times: u32,
    at: Instant,
}

/// An algorithm that Octavia refused to a pool.
#[derive(Debug)]
struct RefusedAlgorithm {
    balancer: Id,
    algorithm: Value,
    message: String,
}

/// That failovers are of no use: how often that was seen, and when last.
#[derive(Clone, Copy, Debug)]
struct NoFailover {
    times: u32,
    at: Instant,
}

/// What is remembered of a load balancer.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) row: LoadBalancer,
    pub(crate) graph: Option<Arc<Graph>>,
    /// The graph is not as it was read, but as our changes have made it if none of them failed.
    pub(crate) changed: bool,
    /// Its `updated_at` when the graph was as it is.
    pub(crate) token: Option<String>,
    /// How often Octavia was too busy for a change since it last took one.
    pub(crate) refusals: u32,
    /// Since when something in it is seen to be busy although it is not.
    settling_since: Option<Instant>,
    /// It has the address that its Service publishes, by which it was found.
    pub(crate) publishes: bool,
    /// When we last changed it, until it is seen to be done.
    pub(crate) dirty: Option<Instant>,
    /// The last change was no usual one: its time tells nothing of others.
    unusual: bool,
    /// When it was last seen to be busy with our last change.
    busy_at: Option<Instant>,
    /// Whether it may be taken to be done once the time is over that it usually takes.
    pub(crate) assume: bool,
    /// Since when it is seen to be busy, with nothing of ours accepted since.
    pub(crate) pending_since: Option<Instant>,
    /// When `row` was asked for: what is in the load balancer must not be older.
    pub(crate) seen_at: Option<Instant>,
}

/// What a load balancer was made with, or was seen with: as wanted then, with no ids.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedGraph {
    pub(crate) balancer: Id,
    pub(crate) token: Option<String>,
    pub(crate) listeners: Vec<WantedListener>,
}

/// After a write that was refused, until it is tried again. Each refusal more doubles it.
const REFUSED: Duration = Duration::from_secs(300);
/// The longest such pause.
const LONGEST_REFUSED: Duration = Duration::from_secs(6 * 3600);
/// So long after its last refusal a write is not wanted any more: the Service asks for something
/// else.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// What a change is taken to last before any was seen.
const FIRST_GUESS: Duration = Duration::from_secs(1);
/// For so long a floating IP is not tried again that could not be attached: each attempt cuts the
/// one that serves.
const UNATTACHABLE: Duration = Duration::from_secs(3600);
/// After a load balancer that came to nothing, until the next one is asked for. Each one more
/// doubles it.
const REST: Duration = Duration::from_secs(5);
/// The longest such rest.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// From one early look to the next.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// How long nothing is guessed after a wrong guess.
const PESSIMISTIC_PERIOD: Duration = Duration::from_secs(30);
/// The longest that is ever waited before looking.
const LONGEST_GUESS: Duration = Duration::from_secs(10);
/// A change that took longer than so many usual ones counts as so many.
const OUTLIER: u32 = 4;
/// So often Octavia may be too busy for a change of a load balancer that is not seen to be busy,
/// until that counts as a failure: something in it is in ERROR, and takes no change.
const REFUSALS: u32 = 10;
/// How long something in a load balancer may be busy after the load balancer.
const SETTLING: Duration = Duration::from_secs(30);
/// So many failovers of a load balancer may fail before it is made anew.
const FAILOVERS: u32 = 3;

impl Default for Memory {
    fn default() -> Self {
        Self {
            balancers: HashMap::new(),
            of: HashMap::new(),
            in_vain: HashMap::new(),
            floating: HashMap::new(),
            attempts: HashMap::new(),
            expected: HashMap::new(),
            sketches: HashMap::new(),
            settle: FIRST_GUESS,
            hurried_at: None,
            cautious_until: None,
            subnets: HashMap::new(),
            node_subnets: HashMap::new(),
            family_subnets: HashMap::new(),
            one_vip_only: HashSet::new(),
            makings: HashMap::new(),
            certificates: HashSet::new(),
            floating_written: None,
            groups_written: None,
            audited: HashMap::new(),
            doubted: HashSet::new(),
            refused: HashSet::new(),
            leaving: HashMap::new(),
            no_failover: HashMap::new(),
            failovers: HashMap::new(),
            unattachable: HashMap::new(),
            refused_algorithms: HashMap::new(),
            refused_writes: HashMap::new(),
        }
    }
}

// === impl Memory ===

impl Memory {
    /// A change of a load balancer was accepted.
    pub(crate) fn changed(&mut self, id: &Id, now: Instant) {
        let known = self.balancers.entry(id.clone()).or_default();
        known.dirty = Some(now);
        known.busy_at = None;
        known.unusual = false;
        known.assume = true;
        known.changed = true;
        known.refusals = 0;
        known.pending_since = None;
    }

    /// Notes that a write was refused.
    pub(crate) fn refuse(&mut self, balancer: &Id, key: Key, reason: Reason, now: Instant) {
        let fresh = |it: &RefusedWrite| now.saturating_duration_since(it.at) < FORGOTTEN;
        self.refused_writes.retain(|_, it| fresh(it));
        let times = self.refused_writes.get(&key).map_or(0, |it| it.times);
        let refused = RefusedWrite {
            balancer: balancer.clone(),
            reason,
            times: times.saturating_add(1),
            at: now,
        };
        self.refused_writes.insert(key, refused);
    }

    /// Notes that a write was accepted.
    pub(crate) fn accept(&mut self, key: &Key) {
        self.refused_writes.remove(key);
    }

    /// Returns what was refused of a load balancer, and whether it is time to try it again.
    fn refusals(&self, balancer: &Id, now: Instant) -> Refusals {
        let of = self.refused_writes.iter();
        let of = of.filter(|(_, it)| it.balancer == *balancer);
        let times = |key: &Key, it: &RefusedWrite| if follows_nodes(key) { 1 } else { it.times };
        let refusals = of.map(|(key, it)| {
            let refusal = Refusal {
                reason: it.reason.clone(),
                due: is_due(times(key, it), it.at, now),
            };
            (key.clone(), refusal)
        });
        Refusals(refusals.collect())
    }

    /// Neutron does not lead a floating IP to a port.
    pub(crate) fn is_unattachable(&mut self, floating_ip: &Id, port: &Id, why: &str, now: Instant) {
        let pair = (floating_ip.clone(), port.clone());
        self.unattachable.insert(pair, (why.to_owned(), now));
    }

    /// Why a floating IP is not led to a port for now.
    pub(crate) fn why_unattachable(
        &self,
        floating_ip: &Id,
        port: &Id,
        now: Instant,
    ) -> Option<&str> {
        let pair = (floating_ip.clone(), port.clone());
        let (why, at) = self.unattachable.get(&pair)?;
        (now.saturating_duration_since(*at) < UNATTACHABLE).then_some(why)
    }

    /// A load balancer was asked for.
    pub(crate) fn making(&mut self, service: &Uid, now: Instant) {
        let (count, last) = self.makings.entry(service.clone()).or_insert((0, now));
        *count += 1;
        *last = now;
    }

    /// How many load balancers of a Service came to nothing, and how long to wait before the next.
    pub(crate) fn rest(&self, service: &Uid, now: Instant) -> Option<(u32, Duration)> {
        let (count, last) = self.makings.get(service)?;
        let pause = REST * 2_u32.saturating_pow(count.saturating_sub(1));
        let left = pause
            .min(LONGEST_REST)
            .checked_sub(now.saturating_duration_since(*last))?;
        (!left.is_zero()).then_some((*count, left))
    }

    /// The last change is none of the usual ones: it is waited for, and its time tells nothing of
    /// others.
    pub(crate) fn unusual(&mut self, id: &Id) {
        self.stop_assuming_done(id);
        if let Some(known) = self.balancers.get_mut(id) {
            known.unusual = true;
        }
    }

    /// How long to wait after a change. Who always waits as long as it once took never sees that it
    /// takes less.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let hurried = self.hurried_at;
        let rested = hurried.is_none_or(|at| now.saturating_duration_since(at) >= PROBE_INTERVAL);
        if self.settle <= FIRST_GUESS * 2 || !rested {
            return self.settle;
        }
        self.hurried_at = Some(now);
        self.settle / 2
    }

    /// Forgets a graph that is not as it was read. Was there one?
    pub(crate) fn unread(&mut self, id: &Id) -> bool {
        let Some(known) = self.balancers.get_mut(id).filter(|it| it.changed) else {
            return false;
        };
        known.graph = None;
        known.token = None;
        true
    }

    /// Whether what was read of a load balancer is about to change, and is to be read again. What
    /// never comes to an end is taken as it is.
    pub(crate) fn is_settling(&mut self, id: &Id, graph: &Graph, now: Instant) -> bool {
        let known = self.balancers.entry(id.clone()).or_default();
        if !graph.is_settling() {
            known.settling_since = None;
            return false;
        }
        let since = *known.settling_since.get_or_insert(now);
        let settling = now.saturating_duration_since(since) < SETTLING;
        if settling {
            self.doubt(id, now);
        }
        settling
    }

    /// Octavia was too busy for a change of a load balancer. Is that all there is to it?
    pub(crate) fn is_merely_busy(&mut self, id: &Id, now: Instant) -> bool {
        let known = self.balancers.entry(id.clone()).or_default();
        if known.dirty.is_none() {
            known.dirty = Some(now);
            known.unusual = true;
        }
        known.refusals += 1;
        let often = known.refusals > REFUSALS;
        if std::mem::take(&mut known.assume) {
            self.guessed_wrong(now);
        }
        !often
    }

    /// A failover was accepted. It is not taken to have helped.
    pub(crate) fn failed_over(&mut self, id: &Id, now: Instant) {
        self.unusual(id);
        let count = self.failovers.entry(id.clone()).or_default();
        *count += 1;
        if *count >= FAILOVERS {
            self.not_failed_over(id, now);
        }
    }

    /// A failover was refused, or is one of many.
    pub(crate) fn not_failed_over(&mut self, id: &Id, now: Instant) {
        let times = self.no_failover.get(id).map_or(0, |it| it.times);
        let times = times.saturating_add(1);
        self.no_failover
            .insert(id.clone(), NoFailover { times, at: now });
    }

    /// Notes that Octavia refused an algorithm: the pool keeps its own.
    pub(crate) fn refuse_algorithm(&mut self, step: &Step, error: &ApiError) {
        if let Step::UpdatePool {
            load_balancer,
            pool,
            changes,
            ..
        } = step
            && let Some(algorithm) = changes.get("lb_algorithm")
        {
            let refused = RefusedAlgorithm {
                balancer: load_balancer.clone(),
                algorithm: algorithm.clone(),
                message: error.message.clone(),
            };
            self.refused_algorithms.insert(pool.clone(), refused);
        }
    }

    /// Whether a load balancer may yet come of a request whose answer was lost.
    pub(crate) fn is_unanswered(&self, service: &Uid, now: Instant) -> bool {
        let until = self.expected.get(service);
        until.is_some_and(|until| *until > now)
    }

    /// What became of earlier attempts at a load balancer.
    pub(crate) fn attempts_at(&self, id: &Id, now: Instant) -> Attempts {
        let refused = self.refused_algorithms.iter();
        let refused = refused.filter(|(_, it)| it.balancer == *id);
        let refused =
            refused.map(|(pool, it)| (pool.clone(), (it.algorithm.clone(), it.message.clone())));
        let failover = match self.no_failover.get(id) {
            None => Failover::Possible,
            Some(it) => Failover::Useless {
                due: is_due(it.times, it.at, now),
            },
        };
        Attempts {
            refusals: self.refusals(id, now),
            refused_algorithms: refused.collect(),
            failover,
            create_is_unanswered: false,
        }
    }

    /// Notes whether the spec of a Service can't be had, so that each audit finds it.
    pub(crate) fn set_refused(&mut self, service: &Uid, refused: bool) {
        if refused {
            self.refused.insert(service.clone());
        } else {
            self.refused.remove(service);
        }
    }

    /// Whether a load balancer is taken to be done with our last change, without a look.
    pub(crate) fn is_assumed_done(&self, known: &Known, now: Instant) -> bool {
        let guessing = self.cautious_until.is_none_or(|until| now >= until);
        let over = known.dirty.is_some_and(|at| now >= at + self.settle);
        guessing && known.assume && over && known.graph.is_some()
    }

    /// How long Octavia has been busy with a load balancer.
    pub(crate) fn pending_for(&self, id: &Id, now: Instant) -> Duration {
        let since = self.balancers.get(id).and_then(|known| known.pending_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// What became of a change is not known: the graph is read anew.
    pub(crate) fn doubt(&mut self, id: &Id, now: Instant) {
        let known = self.balancers.entry(id.clone()).or_default();
        known.dirty = Some(now);
        known.unusual = true;
        known.assume = false;
        known.graph = None;
        known.token = None;
        self.sketches.retain(|_, sketch| sketch.balancer != *id);
        self.doubted.insert(id.clone());
    }

    /// A guess was wrong. Many load balancers that are changed at the same time queue up in
    /// Octavia: for a while it is looked at how far they are.
    pub(crate) fn guessed_wrong(&mut self, now: Instant) {
        self.cautious_until = Some(now + PESSIMISTIC_PERIOD);
    }

    /// A load balancer is busy although it was taken to be done.
    pub(crate) fn stop_assuming_done(&mut self, id: &Id) {
        if let Some(known) = self.balancers.get_mut(id) {
            known.assume = false;
        }
    }

    /// What the roster says of a load balancer that is ours.
    pub(crate) fn seen(&mut self, row: &LoadBalancer, at: Instant) {
        let known = self.balancers.entry(row.id.clone()).or_default();
        known.row = row.clone();
        known.seen_at = Some(at);
        if row.provisioning_status.is_pending() {
            known.pending_since.get_or_insert(at);
            known.busy_at = Some(at);
            return;
        }
        known.pending_since = None;
        if row.provisioning_status == Provisioning::Active {
            self.failovers.remove(&row.id);
            self.no_failover.remove(&row.id);
            let works = |service: &Uid| self.of.get(service) == Some(&row.id);
            self.makings.retain(|service, _| !works(service));
        }
        let Some(dirty) = known.dirty else { return };
        if at < dirty {
            return;
        }
        let most = at.saturating_duration_since(dirty);
        let busy_at = known.busy_at.take().filter(|_| !known.unusual);
        let least = busy_at.map(|busy| busy.saturating_duration_since(dirty));
        let usual = !known.unusual;
        known.dirty = None;
        known.token.clone_from(&row.updated_at);
        for sketch in self.sketches.values_mut() {
            if sketch.balancer == row.id && sketch.token.is_none() {
                sketch.token.clone_from(&row.updated_at);
            }
        }
        if usual {
            self.took(least.unwrap_or_default(), most);
        }
    }

    /// A change was done between two looks, so long after it was asked for.
    fn took(&mut self, least: Duration, most: Duration) {
        // A guess that is too short costs a refused request each time; one that is too long, only a
        // moment.
        if least >= self.settle {
            // One that was stuck does not tell how long the others take.
            self.settle = most.min(self.settle * OUTLIER);
        } else if most < self.settle {
            self.settle = (self.settle + most) / 2;
        }
        self.settle = self.settle.clamp(FIRST_GUESS / 2, LONGEST_GUESS);
    }

    /// Notes which floating IP leads to a load balancer, as a Service's pass has seen it. If it is
    /// another one than before: which other Services use the load balancer.
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

    /// Notes that a Service with this tag is on its way out. Which are?
    pub(crate) fn leaves(&mut self, service: &Uid, tag: &str) -> HashSet<String> {
        self.leaving.insert(service.clone(), tag.to_owned());
        self.leaving()
    }

    /// The tags of Services that are on their way out.
    pub(crate) fn leaving(&self) -> HashSet<String> {
        self.leaving.values().cloned().collect()
    }

    /// Notes that the Service with this tag is to stay.
    pub(crate) fn stays(&mut self, tag: &str) {
        self.leaving.retain(|_, leaving| leaving != tag);
    }

    /// Forgets a Service, and its load balancer with it.
    pub(crate) fn forget(&mut self, service: &Uid) {
        if let Some(id) = self.of.remove(service) {
            if !self.of.values().any(|used| *used == id) {
                self.floating.remove(&id);
            }
            self.balancers.remove(&id);
            self.refused_writes.retain(|_, it| it.balancer != id);
            self.refused_algorithms.retain(|_, it| it.balancer != id);
            self.doubted.remove(&id);
        }
        self.in_vain.remove(service);
        self.attempts.remove(service);
        self.makings.remove(service);
        self.leaving.remove(service);
        self.refused.remove(service);
        self.sketches.remove(service);
    }
}

/// Whether it is time to try again what was refused so often, and then last.
fn is_due(times: u32, last: Instant, now: Instant) -> bool {
    let pause = REFUSED * 2_u32.saturating_pow(times.saturating_sub(1));
    now.saturating_duration_since(last) >= pause.min(LONGEST_REFUSED)
}
