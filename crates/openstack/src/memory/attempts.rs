//! What the cloud refused, and when it is tried again.

use std::collections::HashMap;
use std::time::Duration;

use landfall_model::{Code, Reason, Uid};
use tokio::time::Instant;

use crate::client::ApiError;
use crate::objects::{Id, PoolAlgorithm};
use crate::observed::{Attempts, Failover};
use crate::refusal::{Key, Refusal, Refusals, follows_nodes, pool_of_members};
use crate::step::Step;

/// What the cloud refused.
#[derive(Debug, Default)]
pub(crate) struct AttemptLog {
    /// Writes, until they are accepted or long over.
    writes: HashMap<Key, RefusedWrite>,
    /// Writes at which the cloud failed, how often in a row, and when last.
    failed: HashMap<Key, (u32, Instant)>,
    /// Algorithms, by pool.
    algorithms: HashMap<Id, RefusedAlgorithm>,
    /// Load balancers of which the cloud takes no failover, or that none has repaired.
    no_failover: HashMap<Id, NoFailover>,
    /// Failovers since the load balancer was last in order.
    failovers: HashMap<Id, u32>,
    /// Floating IPs that could not be attached to a port, what Neutron said of it, and when.
    unattachable: HashMap<(Id, Id), (String, Instant)>,
    /// How many load balancers were requested for Services that have none yet that works, and when
    /// the last one was.
    creations: HashMap<Uid, (u32, Instant)>,
}

/// A write that was refused, how often, and when last.
#[derive(Debug)]
struct RefusedWrite {
    balancer: Id,
    reason: Reason,
    times: u32,
    at: Instant,
    /// The cloud may be well again at any time: the pauses don't grow.
    is_failure: bool,
}

/// An algorithm that Octavia refused to a pool.
#[derive(Debug)]
struct RefusedAlgorithm {
    balancer: Id,
    algorithm: PoolAlgorithm,
    message: String,
}

/// That failovers are of no use: how often that was seen, and when last.
#[derive(Clone, Copy, Debug)]
struct NoFailover {
    times: u32,
    at: Instant,
}

/// After a write that was refused, until it is tried again. Each refusal more doubles it.
const REFUSED: Duration = Duration::from_secs(300);
/// The longest such pause.
const LONGEST_REFUSED: Duration = Duration::from_secs(6 * 3600);
/// So long after its last refusal a write is not wanted any more: the Service asks for something
/// else.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// So many refused writes of the members of a pool are remembered.
const MOST_OF_POOL: usize = 64;
/// For so long a floating IP is not tried again that could not be attached: each attempt cuts the
/// one that serves.
const UNATTACHABLE: Duration = Duration::from_secs(3600);
/// After a load balancer that came to nothing, until the next one is requested. Each one more
/// doubles it.
const REST: Duration = Duration::from_secs(5);
/// The longest such pause.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// So often in a row the cloud may fail at a write before it counts as refused: drivers answer 500
/// for what they never take.
const FAILURES: u32 = 4;
/// Failures that are further apart are none in a row.
const APART: Duration = Duration::from_secs(3600);
/// So many failovers of a load balancer may fail before it is recreated.
const FAILOVERS: u32 = 3;

// === impl AttemptLog ===

impl AttemptLog {
    /// Returns what became of earlier attempts at a load balancer.
    pub(super) fn of(&self, balancer: &Id, now: Instant) -> Attempts {
        let algorithms = self.algorithms.iter();
        let algorithms = algorithms.filter(|(_, it)| it.balancer == *balancer);
        let algorithms =
            algorithms.map(|(pool, it)| (pool.clone(), (it.algorithm.clone(), it.message.clone())));
        let failover = match self.no_failover.get(balancer) {
            None => Failover::Possible,
            Some(it) => Failover::Useless {
                due: is_due(it.times, it.at, now),
            },
        };
        Attempts {
            refusals: self.refusals(balancer, now),
            refused_algorithms: algorithms.collect(),
            failover,
            create_is_unanswered: false,
        }
    }

    /// Notes that a write was refused.
    pub(crate) fn refuse(
        &mut self,
        balancer: &Id,
        key: Key,
        (reason, is_failure): (Reason, bool),
        now: Instant,
    ) {
        let fresh = |it: &RefusedWrite| now.saturating_duration_since(it.at) < FORGOTTEN;
        self.writes.retain(|_, it| fresh(it));
        let times = self.writes.get(&key).map_or(0, |it| it.times);
        let refused = RefusedWrite {
            balancer: balancer.clone(),
            reason,
            times: times.saturating_add(1),
            at: now,
            is_failure,
        };
        let pool = pool_of_members(&key).map(str::to_owned);
        self.writes.insert(key, refused);
        if let Some(pool) = pool {
            self.forget_oldest(&pool);
        }
    }

    /// Each change of the endpoints makes another write of members: only the newest refusals of a
    /// pool are kept.
    fn forget_oldest(&mut self, pool: &str) {
        let of_pool = self.writes.iter();
        let of_pool = of_pool.filter(|(key, _)| pool_of_members(key) == Some(pool));
        let mut refused: Vec<(Instant, Key)> =
            of_pool.map(|(key, it)| (it.at, key.clone())).collect();
        let surplus = refused.len().saturating_sub(MOST_OF_POOL);
        if surplus > 0 {
            refused.sort();
            for (_, key) in refused.iter().take(surplus) {
                self.writes.remove(key);
            }
        }
    }

    /// Notes that the cloud failed at a write. Returns whether it does so again and again.
    pub(crate) fn fail(&mut self, key: &Key, now: Instant) -> bool {
        self.failed
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < APART);
        let (times, at) = self.failed.entry(key.clone()).or_insert((0, now));
        (*times, *at) = (times.saturating_add(1), now);
        *times >= FAILURES
    }

    /// Notes that a write was accepted.
    pub(crate) fn accept(&mut self, key: &Key) {
        self.writes.remove(key);
        self.failed.remove(key);
    }

    /// Returns what was refused of a load balancer, and whether it is time to try it again.
    fn refusals(&self, balancer: &Id, now: Instant) -> Refusals {
        let of = self.writes.iter();
        let of = of.filter(|(_, it)| it.balancer == *balancer);
        let times = |key: &Key, it: &RefusedWrite| {
            // A quota is raised, or something else deleted, at any time.
            let is_quota = it.reason.code == Code::QuotaExceeded;
            if it.is_failure || is_quota || follows_nodes(key) {
                1
            } else {
                it.times
            }
        };
        let refusals = of.map(|(key, it)| {
            let refusal = Refusal {
                reason: it.reason.clone(),
                due: is_due(times(key, it), it.at, now),
            };
            (key.clone(), refusal)
        });
        Refusals(refusals.collect())
    }

    /// Notes that Octavia refused an algorithm: the pool keeps its own.
    pub(crate) fn refuse_algorithm(&mut self, step: &Step, error: &ApiError) {
        if let Step::UpdatePool {
            load_balancer,
            pool,
            changes,
            ..
        } = step
            && let Some(algorithm) = &changes.lb_algorithm
        {
            let refused = RefusedAlgorithm {
                balancer: load_balancer.clone(),
                algorithm: algorithm.clone(),
                message: error.message.clone(),
            };
            self.algorithms.insert(pool.clone(), refused);
        }
    }

    /// Notes that Neutron does not attach a floating IP to a port.
    pub(crate) fn refuse_floating_ip(
        &mut self,
        floating_ip: &Id,
        port: &Id,
        why: &str,
        now: Instant,
    ) {
        let pair = (floating_ip.clone(), port.clone());
        self.unattachable.insert(pair, (why.to_owned(), now));
    }

    /// Returns why a floating IP is not attached to a port for now.
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

    /// Notes that a load balancer was requested.
    pub(crate) fn created(&mut self, service: &Uid, now: Instant) {
        let (count, last) = self.creations.entry(service.clone()).or_insert((0, now));
        *count += 1;
        *last = now;
    }

    /// Returns how many load balancers of a Service came to nothing, and how long to wait before
    /// the next one.
    pub(crate) fn rest(&self, service: &Uid, now: Instant) -> Option<(u32, Duration)> {
        let (count, last) = self.creations.get(service)?;
        let pause = REST * 2_u32.saturating_pow(count.saturating_sub(1));
        let left = pause
            .min(LONGEST_REST)
            .checked_sub(now.saturating_duration_since(*last))?;
        (!left.is_zero()).then_some((*count, left))
    }

    /// Notes that a failover was accepted.
    pub(super) fn failed_over(&mut self, id: &Id, now: Instant) {
        let count = self.failovers.entry(id.clone()).or_default();
        *count += 1;
        if *count >= FAILOVERS {
            self.not_failed_over(id, now);
        }
    }

    /// Notes that a failover was refused, or is one of many.
    pub(crate) fn not_failed_over(&mut self, id: &Id, now: Instant) {
        let times = self.no_failover.get(id).map_or(0, |it| it.times);
        let times = times.saturating_add(1);
        let useless = NoFailover { times, at: now };
        self.no_failover.insert(id.clone(), useless);
    }

    /// Notes that a load balancer works, which these Services have.
    pub(super) fn works(&mut self, id: &Id, of: impl Fn(&Uid) -> bool) {
        self.failovers.remove(id);
        self.no_failover.remove(id);
        self.creations.retain(|service, _| !of(service));
    }

    pub(super) fn forget_balancer(&mut self, id: &Id) {
        self.writes.retain(|_, it| it.balancer != *id);
        self.algorithms.retain(|_, it| it.balancer != *id);
    }

    pub(super) fn forget_service(&mut self, service: &Uid) {
        self.creations.remove(service);
    }
}

/// Whether it is time to try again what was refused so often, and then last.
fn is_due(times: u32, last: Instant, now: Instant) -> bool {
    let pause = REFUSED * 2_u32.saturating_pow(times.saturating_sub(1));
    now.saturating_duration_since(last) >= pause.min(LONGEST_REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_refused_by_quota_is_tried_again_soon_however_often_it_was_refused() {
        let balancer = Id::new("lb");
        let now = Instant::now();
        let is_due = |code: Code| {
            let mut log = AttemptLog::default();
            for _ in 0..10 {
                let reason = Reason::error(code, "no");
                log.refuse(&balancer, "write pool {}".to_owned(), (reason, false), now);
            }
            log.refusals(&balancer, now + REFUSED).0["write pool {}"].due
        };
        assert!(is_due(Code::QuotaExceeded));
        assert!(!is_due(Code::OptionNotSupported));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_newest_refused_writes_of_members_are_remembered() {
        let mut log = AttemptLog::default();
        let balancer = Id::new("lb");
        let mut refuse = |key: String| {
            let reason = Reason::error(Code::OptionNotSupported, "no");
            log.refuse(&balancer, key, (reason, false), Instant::now());
        };
        refuse("write pool {}".to_owned());
        refuse("members other 0".to_owned());
        let now = Instant::now();
        for write in 0..1000 {
            let reason = Reason::error(Code::OptionNotSupported, "no");
            let at = now + Duration::from_secs(write);
            let key = format!("members pool {write}");
            log.refuse(&balancer, key, (reason, false), at);
        }
        assert_eq!(log.writes.len(), MOST_OF_POOL + 2);
        assert!(log.writes.contains_key("members pool 999"));
        assert!(!log.writes.contains_key("members pool 0"));
    }
}
