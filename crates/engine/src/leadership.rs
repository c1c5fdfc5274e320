//! Decides which of several replicas may write, and what a replica does with the traffic meanwhile:
//! pure.
//!
//! One record, the Lease, names a holder and for how long. Replicas change it only if it is still
//! as they last saw it. No clock is trusted but one's own: a replica counts a holder's time from
//! when it saw the record change itself, and its own from before it asked to renew. Since the
//! latter is always earlier, and shorter, a leader has stopped before another one begins:
//!
//! ```text
//!  leader     ask──────────────────renew deadline│ writes nothing more
//!  record         └─renewed
//!  follower             └─seen──────────────────────lease duration│ may acquire
//! ```
//!
//! A record that was deleted says nothing: its holder may not have noticed yet, and puts it back. A
//! replica that has never seen one makes it at once. Each that makes one and did not lead before
//! has to hold it before it leads, until a leader of before would have stopped, unless it is the
//! first that ever leads ([`Marker`]). Time during which a replica saw nothing of the record counts
//! for no one: after an outage of the API server the leader of before goes on.
//!
//! To lead is to work. A replica that can't, because it has not started or knows too little,
//! neither takes the record nor keeps it ([`Candidacy`]).
//!
//! Writing and serving are two things. A replica that may not write any more carries its traffic on
//! until another one is seen to serve ([`Course`]).

use std::time::{Duration, Instant};

pub use candidacy::Candidacy;
pub use marker::Marker;

mod candidacy;
mod marker;

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
    /// The holder's identity; empty: it was given up.
    pub holder: String,
    /// For how long the holder asked it to hold.
    pub lease: Duration,
    /// Whether the holder says that it has opened its listeners.
    pub serving: bool,
    /// Whether the holder says at all whether it has.
    pub declares: bool,
    /// Whether its holder made it, and did not renew it since.
    pub unproven: bool,
}

/// What a replica does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Try to become the holder.
    Acquire,
    /// Try to stay the holder.
    Renew,
    /// Make the marker, without which no replica may lead.
    Mark,
    /// Nothing before then, unless the record changes.
    Wait(Instant),
    /// Stop writing: another replica may lead, or soon.
    StepDown,
    /// Stop writing, and let another replica lead.
    GiveUp,
}

/// What a replica knows.
#[derive(Clone, Debug)]
pub struct ReplicaView<'a> {
    /// Its own identity. It belongs to one life of one process: no two ever have the same.
    pub identity: &'a str,
    /// The record as it was last seen; `None`: it does not exist.
    pub record: Option<&'a Record>,
    /// When the record was first seen as it is.
    pub seen_at: Instant,
    /// Whether there was no record whenever this process looked.
    pub never_seen: bool,
    /// Whether it knows that the marker exists, or that it can't make it.
    pub marked: bool,
    /// Whether it made this version of the record, and no replica led before ([`Marker`]).
    pub first: bool,
    /// If it leads: when it asked for the renewal that succeeded last.
    pub renewed_at: Option<Instant>,
    /// Whether the last check of the record came to nothing.
    pub blind: bool,
    /// Whether it could do what a leader does.
    pub able: bool,
}

/// What was seen of the record, and since when it is so.
#[derive(Clone, Debug)]
pub struct Observation<T> {
    seen: Option<T>,
    seen_at: Instant,
    /// When the last look was answered; `None`: the last one was not, or there was none.
    answered_at: Option<Instant>,
    blind: bool,
    never_seen: bool,
}

/// What a replica does with the Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It follows facts, and holds nothing.
    Standby,
    /// It writes and serves.
    Leading {
        /// Another number than before if another replica may have led in between.
        term: u64,
    },
    /// It led, and must not write now. What it serves goes on being served.
    Carrying,
}

/// The role of a replica over time.
#[derive(Clone, Debug)]
pub struct Course {
    role: Role,
    term: u64,
    /// Whether another replica may have led since this one did.
    foreign: bool,
    rival: Option<Rival>,
    /// Whether what is carried is from before this life of the process: the record may still name
    /// the life before, as one that serves.
    inherited: bool,
}

/// Another holder.
#[derive(Clone, Debug)]
struct Rival {
    holder: String,
    since: Instant,
    renewals: u32,
}

/// The longest that a holder is waited for, whatever it asked for.
pub const LONGEST_LEASE: Duration = Duration::from_secs(300);

/// A holder that renews for so long without a word about whether it serves is taken to serve:
/// versions of before said nothing. One that says that it does not is believed.
const UNDECLARED: Duration = Duration::from_secs(30);

/// The longest that a replica which gave the record up waits for the next one to serve.
const LONGEST_HAND_OVER: Duration = Duration::from_secs(15);

// === impl Times ===

impl Default for Times {
    /// A leader that is gone without a word is replaced within 5 s, at one write a second.
    fn default() -> Self {
        Self::of_lease(Duration::from_secs(4))
    }
}

impl Times {
    /// The usual times for a Lease of this duration.
    pub fn of_lease(lease: Duration) -> Self {
        Self {
            lease,
            renew_deadline: lease * 5 / 8,
            retry: lease / 4,
        }
    }

    /// How long another replica may still lead whose record is gone: its renew deadline, with
    /// clocks that run unevenly by a tenth each way.
    fn foreign_deadline(&self) -> Duration {
        self.renew_deadline * 5 / 4
    }

    /// Says what is wrong with these times.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn validate(&self) -> Result<(), String> {
        let seconds = |time: Duration| time.as_secs_f64();
        let Self {
            lease,
            renew_deadline,
            retry,
        } = *self;
        if lease.subsec_nanos() != 0 || lease < Duration::from_secs(2) || lease > LONGEST_LEASE {
            return Err(format!(
                "the lease duration must be a whole number of seconds from 2 to {}, not {}",
                LONGEST_LEASE.as_secs(),
                seconds(lease)
            ));
        }
        // Clocks may run unevenly by a tenth each way.
        if renew_deadline > lease * 4 / 5 {
            return Err(format!(
                "a renew deadline of {} s is more than four fifths of the lease duration of {} s: \
                with clock drift two replicas could write",
                seconds(renew_deadline),
                seconds(lease)
            ));
        }
        if retry < Duration::from_millis(100) {
            return Err(format!(
                "a retry period of {} s is shorter than 0.1 s",
                seconds(retry)
            ));
        }
        if retry * 2 > renew_deadline {
            return Err(format!(
                "a retry period of {} s is more than half of the renew deadline of {} s: a single \
                lost answer would end the leadership",
                seconds(retry),
                seconds(renew_deadline)
            ));
        }
        Ok(())
    }
}

/// Decides what to do now.
pub fn decide(standing: &ReplicaView<'_>, times: &Times, now: Instant) -> Decision {
    if let Some(renewed_at) = standing.renewed_at {
        let taken = standing
            .record
            .is_some_and(|record| record.holder != standing.identity);
        let renew_at = renewed_at + times.retry;
        return if taken || now >= renewed_at + times.renew_deadline {
            Decision::StepDown
        } else if !standing.able {
            Decision::GiveUp
        } else if now >= renew_at || standing.record.is_none() {
            // Where it was deleted it is put back at once.
            Decision::Renew
        } else {
            Decision::Wait(renew_at)
        };
    }
    if !standing.able {
        // It looks on: another one may serve what this one carries.
        return Decision::Wait(now + times.retry);
    }
    // The marker comes first wherever the next step would be to lead.
    let acquire = if standing.marked || standing.record.is_none() {
        Decision::Acquire
    } else {
        Decision::Mark
    };
    let ends = match standing.record {
        Some(record) if record.holder.is_empty() => return acquire,
        // Ours without our knowing: the answer to an earlier attempt was lost.
        Some(record) if record.holder == standing.identity && !record.unproven => return acquire,
        Some(record) if record.holder == standing.identity => {
            if standing.first || !standing.marked {
                return acquire;
            }
            standing.seen_at + times.foreign_deadline()
        }
        Some(record) => standing.seen_at + record.lease.min(LONGEST_LEASE).max(times.lease),
        None if standing.never_seen => now,
        // Its holder may not have noticed yet.
        None => standing.seen_at + times.renew_deadline,
    };
    if now < ends {
        Decision::Wait(ends)
    } else if standing.blind {
        Decision::Wait(now + times.retry)
    } else {
        acquire
    }
}

/// Says whether a replica that gave the record up still waits for another one to serve.
pub fn awaits_successor(
    record: Option<&Record>,
    identity: &str,
    released_at: Instant,
    times: &Times,
    now: Instant,
) -> bool {
    let waited = now.saturating_duration_since(released_at);
    let held = record.is_some_and(|it| !it.holder.is_empty() && it.holder != identity);
    // A replica that stands by takes it within one look.
    waited
        < if held {
            LONGEST_HAND_OVER
        } else {
            times.retry * 3
        }
}

// === impl Observation ===

impl<T> Observation<T> {
    /// Nothing was seen yet.
    pub fn new(now: Instant) -> Self {
        Self {
            seen: None,
            seen_at: now,
            answered_at: None,
            blind: true,
            never_seen: true,
        }
    }

    /// What was seen last; `None`: nothing.
    pub fn seen(&self) -> Option<&T> {
        self.seen.as_ref()
    }

    /// Since when it is as it was seen, as far as that was watched.
    pub fn since(&self) -> Instant {
        self.seen_at
    }

    /// Whether no look found anything.
    pub fn has_never_seen(&self) -> bool {
        self.never_seen
    }

    /// Whether the last look came to nothing.
    pub fn is_blind(&self) -> bool {
        self.blind
    }

    /// Takes what a look found. What was not checked for longer than a leader needs to renew may
    /// have been renewed meanwhile, so its time begins now.
    pub fn take(&mut self, found: Option<T>, same: bool, times: &Times, now: Instant) {
        let watched = self
            .answered_at
            .is_some_and(|at| now.saturating_duration_since(at) <= times.renew_deadline);
        if !same || !watched {
            self.seen_at = now;
        }
        self.never_seen &= found.is_none();
        self.seen = found;
        self.answered_at = Some(now);
        self.blind = false;
    }

    /// Notes that a look came to nothing.
    pub fn fail(&mut self) {
        self.blind = true;
    }
}

// === impl Course ===

impl Default for Course {
    fn default() -> Self {
        Self {
            role: Role::Standby,
            term: 0,
            foreign: true,
            rival: None,
            inherited: false,
        }
    }
}

impl Course {
    /// The course of a replica that goes on with what it served before it was started, and has seen
    /// nothing of the record yet.
    pub fn carrying() -> Self {
        Self {
            role: Role::Carrying,
            inherited: true,
            ..Self::default()
        }
    }

    /// The role as of now.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Notes that this replica leads by what it wrote into the record.
    pub fn lead(&mut self) {
        self.term += u64::from(std::mem::take(&mut self.foreign));
        self.rival = None;
        self.inherited = false;
        self.role = Role::Leading { term: self.term };
    }

    /// Notes that this replica must not write any more.
    pub fn lose(&mut self) {
        if matches!(self.role, Role::Leading { .. }) {
            self.role = Role::Carrying;
        }
    }

    /// Notes what was seen of the record; `renewed`: it is another version than before.
    pub fn see(&mut self, record: Option<&Record>, identity: &str, renewed: bool, now: Instant) {
        if matches!(self.role, Role::Leading { .. }) {
            return;
        }
        let Some(record) = record else {
            self.foreign = true;
            self.rival = None;
            return;
        };
        if record.holder.is_empty() || record.holder == identity {
            self.foreign |= record.holder.is_empty() || record.unproven;
            self.rival = None;
            return;
        }
        self.foreign = true;
        let rival = match &mut self.rival {
            Some(rival) if rival.holder == record.holder => {
                rival.renewals = rival.renewals.saturating_add(renewed.into());
                rival
            }
            other => other.insert(Rival {
                holder: record.holder.clone(),
                since: now,
                renewals: 0,
            }),
        };
        let presumed = !record.declares
            && rival.renewals >= 2
            && now.duration_since(rival.since) >= UNDECLARED;
        let lives = rival.renewals >= 1 || !self.inherited;
        if record.serving && lives || presumed {
            self.role = Role::Standby;
            self.inherited = false;
        }
    }
}

#[cfg(test)]
mod tests;
