//! Whether the reconciles of a Service make progress. Pure.
//!
//! A provider's plans are to end: each step brings the state nearer to what is wanted. Where they
//! do not (two wants that exclude each other, or a cloud that stores something else than it was
//! sent), the same writes would be repeated without end. Here they are counted from one settled
//! state to the next; a step that was carried out too often is not tried again before a long pause.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::intent::Intent;
use landfall_model::plan::Planned;
use landfall_model::reason::{Code, Reason};
use serde::Serialize;

/// What was carried out for a Service since it was last as wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What it was carried out for.
    wanted: Option<Arc<Intent>>,
    /// How often each step was.
    done: BTreeMap<u64, u32>,
    /// What the last reconcile failed of, if any did.
    failure: Option<String>,
    /// How often this came to a stop, and when it may go on.
    stops: u32,
    resumes: Option<Instant>,
}

/// How often one and the same step may be carried out until the Service is settled.
const REPEATS: u32 = 5;

/// Steps that are counted; a plan of more ends some other way.
const MOST: usize = 4096;

/// Steps that are named.
const NAMED: usize = 3;

/// The pause after the first stop. It doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

// === impl Progress ===

impl Progress {
    /// Starts over where something else is wanted than before.
    pub fn begin(&mut self, intent: &Intent) {
        if let Some(before) = &self.wanted
            && **before != essence(intent)
        {
            *self = Self::default();
        }
    }

    /// Counts a step that was carried out.
    pub fn count<S: fmt::Display + Serialize>(&mut self, planned: &Planned<S>) {
        if self.done.len() >= MOST {
            self.done.clear();
        }
        *self.done.entry(planned.fingerprint()).or_default() += 1;
    }

    /// Notes what the steps that are counted were carried out for.
    pub fn end(&mut self, intent: &Intent) {
        if self.wanted.is_none() && !self.done.is_empty() {
            self.wanted = Some(Arc::new(essence(intent)));
        }
    }

    /// Why a plan is not to be carried out; `None`: it is.
    pub fn objection<S: fmt::Display + Serialize>(&self, plan: &[Planned<S>]) -> Option<Reason> {
        if self.done.values().all(|times| *times < REPEATS) {
            return None;
        }
        let repeated = |planned: &&Planned<S>| {
            let times = self.done.get(&planned.fingerprint());
            times.is_some_and(|times| *times >= REPEATS)
        };
        let mut names: Vec<String> = plan
            .iter()
            .filter(repeated)
            .map(|planned| planned.step.to_string())
            .collect();
        if names.is_empty() {
            return None;
        }
        let more = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        let mut steps = names.join("; ");
        if more > 0 {
            steps = format!("{steps} (and {more} more)");
        }
        let failure = self.failure.as_ref();
        let failure = failure.map(|failure| format!("; the last failure: {failure}"));
        let message = format!(
            "the same changes were applied {REPEATS} times without converging, so they are \
            suspended: {steps}{}",
            failure.unwrap_or_default()
        );
        let remedy = "check whether another program changes the same objects, or whether two ports \
                     of the Service contradict each other; a change of the Service is applied at \
                     once";
        Some(Reason::error(Code::NotConverging, message).remedy(remedy))
    }

    /// Notes what a reconcile failed of.
    pub fn fail(&mut self, failure: Option<&str>) {
        self.failure = failure.map(str::to_owned);
    }

    /// Notes a stop; returns how long it lasts from now on. One that lasts already goes on.
    pub fn stop(&mut self, now: Instant) -> Duration {
        if let Some(resumes) = self.resumes.filter(|resumes| *resumes > now) {
            return resumes - now;
        }
        let doublings = self.stops.min(10);
        let pause = FIRST_PAUSE
            .saturating_mul(1 << doublings)
            .min(LONGEST_PAUSE);
        self.stops += 1;
        self.resumes = Some(now + pause);
        pause
    }

    /// Allows every step once more where the pause after a stop is over.
    #[must_use]
    pub fn at(mut self, now: Instant) -> Self {
        if self.resumes.is_some_and(|resumes| resumes <= now) {
            self.resumes = None;
            for times in self.done.values_mut() {
                *times = (*times).min(REPEATS - 1);
            }
        }
        self
    }
}

/// What is wanted, without what we write back and read again.
fn essence(intent: &Intent) -> Intent {
    let mut essence = intent.clone();
    essence.marks.clear();
    essence.remarks.clear();
    if let Some(spec) = &mut essence.load_balancer {
        spec.address.held.clear();
        spec.left_out.clear();
    }
    essence
}

#[cfg(test)]
mod tests {
    use landfall_model::{ServiceKey, Uid};

    use super::*;

    fn intent() -> Intent {
        Intent::removal(ServiceKey::new("default", "web"), Uid::new("u"))
    }

    /// A step with a name, and what it writes.
    #[derive(Serialize)]
    struct Step(&'static str, u32);

    impl fmt::Display for Step {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    fn step(name: &'static str) -> Planned<Step> {
        Planned {
            step: Step(name, 0),
            because: String::new(),
            members_only: false,
            claims: false,
        }
    }

    /// Carries a step out so many times, as far as that is let.
    fn repeat(progress: &mut Progress, name: &'static str, times: usize) -> usize {
        let allowed = (0..times).take_while(|_| {
            let allowed = progress.objection(&[step(name)]).is_none();
            if allowed {
                progress.count(&step(name));
            }
            allowed
        });
        let count = allowed.count();
        progress.end(&intent());
        count
    }

    #[test]
    fn a_step_is_carried_out_five_times_and_then_named() {
        let mut progress = Progress::default();
        assert_eq!(repeat(&mut progress, "make monitor", 9), 5);
        let plan = [step("rename pool"), step("make monitor")];
        let reason = progress.objection(&plan).unwrap();
        assert_eq!(reason.code, Code::NotConverging);
        assert!(reason.message.ends_with(": make monitor"), "{reason}");
        assert!(progress.objection(&[step("rename pool")]).is_none());
    }

    #[test]
    fn steps_of_one_name_that_write_different_things_are_different_steps() {
        let mut progress = Progress::default();
        for number in 0..30 {
            let planned = Planned {
                step: Step("set members", number),
                ..step("set members")
            };
            assert!(progress.objection(std::slice::from_ref(&planned)).is_none());
            progress.count(&planned);
        }
    }

    #[test]
    fn something_else_that_is_wanted_starts_over_and_what_we_write_back_does_not() {
        let mut progress = Progress::default();
        repeat(&mut progress, "make monitor", 9);
        let mut written = intent();
        written.marks.insert("record".into(), "2".into());
        progress.begin(&written);
        assert!(progress.objection(&[step("make monitor")]).is_some());
        written.uid = Uid::new("another");
        progress.begin(&written);
        assert!(progress.objection(&[step("make monitor")]).is_none());
    }

    #[test]
    fn after_a_pause_each_step_is_allowed_once_and_the_next_pause_is_longer() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        repeat(&mut progress, "make monitor", 9);
        assert_eq!(progress.stop(now), FIRST_PAUSE);
        assert_eq!(progress.stop(now + FIRST_PAUSE / 2), FIRST_PAUSE / 2);
        let mut early = progress.clone().at(now + FIRST_PAUSE / 2);
        assert_eq!(repeat(&mut early, "make monitor", 9), 0);
        let mut later = progress.at(now + FIRST_PAUSE);
        assert_eq!(repeat(&mut later, "make monitor", 9), 1);
        assert_eq!(later.stop(now + FIRST_PAUSE), FIRST_PAUSE * 2);
        for _ in 0..20 {
            later.resumes = None;
            later.stop(now);
        }
        later.resumes = None;
        assert_eq!(later.stop(now), LONGEST_PAUSE);
    }
}
