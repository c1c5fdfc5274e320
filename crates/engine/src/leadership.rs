//! Who of several replicas may write: pure.
//!
//! One record, the Lease, names a holder and for how long. Replicas change it only if it is still
//! as they last saw it. Nobody's clock is trusted but one's own: a replica counts a holder's time
//! from when it saw the record change itself, and its own from before it asked to renew. Since the
//! latter is always earlier, and shorter, a leader has stopped before anybody else begins:
//!
//! ```text
//!  leader     ask──────────────────renew deadline│ writes nothing more
//!  record         └─renewed
//!  follower             └─seen──────────────────────lease duration│ may acquire
//! ```

use std::time::{Duration, Instant};

/// The times of an election. Equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// For how long a renewal holds in the eyes of others.
    pub lease: Duration,
    /// For how long it holds in the leader's own. Well below `lease`.
    pub renew_deadline: Duration,
    /// From one renewal to the next.
    pub retry: Duration,
}

/// The record, as far as it decides anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The holder's identity; empty: nobody's.
    pub holder: String,
    /// For how long the holder asked it to hold.
    pub lease: Duration,
}

/// What a replica does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Try to become the holder.
    Acquire,
    /// Try to stay the holder.
    Renew,
    /// Nothing before then, unless the record changes.
    Wait(Instant),
    /// Stop writing: another replica may lead, or soon.
    StepDown,
}

/// What a replica knows.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// Its own identity. It belongs to one life of one process: no two ever have the same.
    pub identity: &'a str,
    /// The record as it was last seen; `None`: there is none.
    pub record: Option<&'a Record>,
    /// When the record was first seen as it is.
    pub seen_at: Instant,
    /// If it leads: when it asked for the renewal that succeeded last.
    pub renewed_at: Option<Instant>,
}

// === impl Times ===

impl Default for Times {
    /// Those of Kubernetes' own controllers.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// What to do now.
pub fn decide(standing: &Standing<'_>, times: &Times, now: Instant) -> Decision {
    if let Some(renewed_at) = standing.renewed_at {
        let still_ours = standing
            .record
            .is_some_and(|record| record.holder == standing.identity);
        let renew_at = renewed_at + times.retry;
        return if !still_ours || now >= renewed_at + times.renew_deadline {
            Decision::StepDown
        } else if now >= renew_at {
            Decision::Renew
        } else {
            Decision::Wait(renew_at)
        };
    }
    match standing.record {
        None => Decision::Acquire,
        // Ours without our knowing: the answer to an earlier attempt was lost.
        Some(record) if record.holder.is_empty() || record.holder == standing.identity => {
            Decision::Acquire
        }
        Some(record) => {
            let ends = standing.seen_at + record.lease.max(times.lease);
            if now >= ends {
                Decision::Acquire
            } else {
                Decision::Wait(ends)
            }
        }
    }
}

#[cfg(test)]
mod tests;
