//! Two that write the same status: without a pause between the answers they would do nothing else.
//! Pure.

use std::time::{Duration, Instant};

use landfall_model::reason::{Code, Reason};
use landfall_model::status::ServiceStatus;

/// How often what we wrote on a Service was recently overwritten, and what follows.
#[derive(Debug, Default)]
pub(super) struct StatusConflicts {
    /// When.
    rewrites: Vec<Instant>,
    fight: Option<Box<StatusConflict>>,
}

/// A fight that goes on until the other one stops.
#[derive(Debug)]
struct StatusConflict {
    /// What we said last.
    said: ServiceStatus,
    /// It is not said again before then.
    until: Instant,
    pause: Duration,
}

/// So many rewrites within the time are a fight.
const REWRITES: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);

/// The first pause in a fight. It doubles with each rewrite that follows one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

// === impl StatusConflicts ===

impl StatusConflicts {
    /// Takes a rewrite; returns whether it is to be answered at once. `said` is what we wrote.
    pub(super) fn rewritten(&mut self, said: &ServiceStatus, now: Instant) -> bool {
        match &mut self.fight {
            Some(fight) if now < fight.until => false,
            Some(fight) => {
                fight.pause = (fight.pause * 2).min(LONGEST_PAUSE);
                fight.until = now + fight.pause;
                fight.said.clone_from(said);
                false
            }
            None => {
                self.rewrites.push(now);
                self.rewrites
                    .retain(|then| now.saturating_duration_since(*then) < WITHIN);
                if self.rewrites.len() < REWRITES {
                    return true;
                }
                self.rewrites = Vec::new();
                self.fight = Some(Box::new(StatusConflict {
                    said: said.clone(),
                    until: now + FIRST_PAUSE,
                    pause: FIRST_PAUSE,
                }));
                false
            }
        }
    }

    /// Ends a fight in which the other one has stopped.
    pub(super) fn review(&mut self, now: Instant) {
        let over = |fight: &StatusConflict| now >= fight.ends();
        if self.fight.as_deref().is_some_and(over) {
            self.fight = None;
        }
    }

    /// What is taken for the status while nothing is said again: what we said last.
    pub(super) fn stands_in(&self, now: Instant) -> Option<&ServiceStatus> {
        let fight = self.fight.as_ref()?;
        (now < fight.until).then_some(&fight.said)
    }

    /// Takes what we wrote although there is a fight.
    pub(super) fn say(&mut self, status: &ServiceStatus) {
        if let Some(fight) = &mut self.fight {
            fight.said.clone_from(status);
        }
    }

    /// How long until the next look; `None`: there is no fight.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let fight = self.fight.as_ref()?;
        let at = if now < fight.until {
            fight.until
        } else {
            fight.ends()
        };
        Some(at.saturating_duration_since(now))
    }

    /// Returns what is reported while it lasts.
    pub(super) fn remark(&self) -> Option<Reason> {
        self.fight.as_ref()?;
        let reason = Reason::warning(
            Code::StatusContested,
            "another program keeps rewriting the status of this Service, so it is corrected with \
            backoff only",
        );
        Some(reason.remedy(
            "let only one controller serve the Service: `kubectl get service \
            --show-managed-fields` names the writers; spec.loadBalancerClass selects the \
            controller",
        ))
    }
}

// === impl StatusConflict ===

impl StatusConflict {
    /// When it is over, unless there is another rewrite.
    fn ends(&self) -> Instant {
        self.until + self.pause.max(WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fight(now: Instant) -> StatusConflicts {
        let mut status_conflicts = StatusConflicts::default();
        for answered in [true, true, true, true, false] {
            assert_eq!(
                status_conflicts.rewritten(&ServiceStatus::default(), now),
                answered
            );
        }
        status_conflicts
    }

    #[test]
    fn five_rewrites_in_a_minute_are_a_fight_and_five_in_an_hour_are_not() {
        let mut now = Instant::now();
        let status_conflicts = fight(now);
        assert_eq!(status_conflicts.wait(now), Some(FIRST_PAUSE));
        assert!(status_conflicts.stands_in(now).is_some());
        let mut calm = StatusConflicts::default();
        for _ in 0..100 {
            now += Duration::from_secs(15);
            assert!(calm.rewritten(&ServiceStatus::default(), now));
        }
        assert!(calm.remark().is_none());
    }

    #[test]
    fn pauses_grow_to_minutes_while_it_goes_on() {
        let mut now = Instant::now();
        let mut status_conflicts = fight(now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = status_conflicts.wait(now).unwrap();
            let early = status_conflicts.rewritten(&ServiceStatus::default(), now + pause / 2);
            assert!(!early);
            now += pause;
            assert!(
                status_conflicts.stands_in(now).is_none(),
                "it is said again"
            );
            status_conflicts.rewritten(&ServiceStatus::default(), now);
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn it_ends_when_the_other_one_stops() {
        let now = Instant::now();
        let mut status_conflicts = fight(now);
        let said_again = now + FIRST_PAUSE;
        status_conflicts.review(said_again);
        assert_eq!(status_conflicts.wait(said_again), Some(WITHIN));
        assert!(status_conflicts.remark().is_some());
        status_conflicts.review(said_again + WITHIN);
        assert_eq!(status_conflicts.wait(said_again + WITHIN), None);
        assert!(status_conflicts.remark().is_none());
    }
}
