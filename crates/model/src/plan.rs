//! A plan: the ordered steps that turn what is into what is wanted, each with the reason it exists;
//! what has to end before more can be planned, and what follows after that.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Ordered steps toward one Service's intent. Equal states give an empty plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<S> {
    /// To be applied in this order; a failed step ends the reconcile.
    pub steps: Vec<Planned<S>>,
    /// What has to end outside before more can be planned.
    pub waits: Vec<Wait>,
    /// What follows, and can't be planned yet.
    pub upcoming: Vec<Upcoming>,
}

/// A step and why it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned<S> {
    /// What would be done.
    pub step: S,
    /// Why: one clause without a full stop.
    pub because: String,
    /// Whether it only follows the members: a node came or went.
    pub members_only: bool,
    /// Whether it makes nothing outside this process until the address that it is answered with is
    /// on record.
    pub claims: bool,
}

/// An object outside that is busy. A reconcile applies the steps, and is then taken up again when
/// [`Provider::on_waiting`](crate::provider::Provider::on_waiting) says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The kind of the object: `load balancer`.
    pub object: &'static str,
    /// Its id.
    pub id: String,
    /// What it is doing: `being deleted`.
    pub doing: &'static str,
    /// Why that has to end first: one clause without a full stop.
    pub because: &'static str,
    /// Whether it is being created. Any other change was announced when it began.
    pub creates: bool,
}

/// What follows once something else is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// One clause.
    pub what: String,
    /// Why it will be needed: one clause without a full stop.
    pub because: &'static str,
}

/// A line of a plan as people and programs read it, with the provider's own type gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// One line.
    pub step: String,
    /// Why it is needed.
    pub because: String,
    /// Whether it changes something.
    #[serde(default, skip_serializing_if = "PlannedKind::is_change")]
    pub kind: PlannedKind,
    /// The step as data.
    pub detail: serde_json::Value,
}

/// Hashes what is written.
struct Hashing(DefaultHasher);

/// What a line of a plan is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlannedKind {
    /// A step.
    #[default]
    Change,
    /// A [`Wait`].
    Wait,
    /// An [`Upcoming`].
    Upcoming,
}

// === impl Plan ===

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            waits: Vec::new(),
            upcoming: Vec::new(),
        }
    }
}

impl<S> Plan<S> {
    /// Appends a step.
    pub fn push(&mut self, step: S, because: impl Into<String>) {
        self.steps.push(Planned {
            step,
            because: because.into(),
            members_only: false,
            claims: false,
        });
    }

    /// Appends a step that makes nothing outside this process until the address that it is answered
    /// with is on record.
    pub fn push_claim(&mut self, step: S, because: impl Into<String>) {
        self.steps.push(Planned {
            step,
            because: because.into(),
            members_only: false,
            claims: true,
        });
    }

    /// Appends a step that only follows the members.
    pub fn push_members(&mut self, step: S, because: impl Into<String>) {
        self.steps.push(Planned {
            step,
            because: because.into(),
            members_only: true,
            claims: false,
        });
    }

    /// Appends all of another plan.
    pub fn append(&mut self, mut other: Self) {
        self.steps.append(&mut other.steps);
        self.waits.append(&mut other.waits);
        self.upcoming.append(&mut other.upcoming);
    }

    /// Whether nothing needs doing, and nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.waits.is_empty() && self.upcoming.is_empty()
    }
}

impl<S: fmt::Display + Serialize> Plan<S> {
    /// The plan as text and data: the steps, what follows, and what is waited for.
    pub fn describe(&self) -> Vec<PlannedStep> {
        self.describe_after(0)
    }

    /// Describes the plan without its first steps, which were `tried`.
    pub fn describe_after(&self, tried: usize) -> Vec<PlannedStep> {
        let steps = self.steps.iter().skip(tried).map(|planned| PlannedStep {
            step: planned.step.to_string(),
            because: planned.because.clone(),
            kind: PlannedKind::Change,
            detail: serde_json::to_value(&planned.step).unwrap_or_default(),
        });
        let upcoming = self.upcoming.iter().map(|upcoming| PlannedStep {
            step: upcoming.what.clone(),
            because: upcoming.because.to_owned(),
            kind: PlannedKind::Upcoming,
            detail: json!({"step": "upcoming", "what": upcoming.what}),
        });
        let waits = self.waits.iter().map(|wait| PlannedStep {
            step: wait.to_string(),
            because: wait.because.to_owned(),
            kind: PlannedKind::Wait,
            detail: json!({
                "step": "await",
                "object": wait.object,
                "id": wait.id,
                "doing": wait.doing,
            }),
        });
        steps.chain(upcoming).chain(waits).collect()
    }
}

// === impl Planned ===

impl<S: fmt::Display + Serialize> Planned<S> {
    /// Distinguishes steps by all that they would write, within this process.
    pub fn fingerprint(&self) -> u64 {
        let mut hashing = Hashing(DefaultHasher::new());
        // Nothing that is hashed fails to be written.
        let _ = write!(hashing, "{}", self.step);
        let _ = serde_json::to_writer(&mut hashing, &self.step);
        hashing.0.finish()
    }
}

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl Wait ===

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object, id, doing, ..
        } = self;
        write!(f, "wait for {object} {id}, which is {doing}")
    }
}

// === impl PlannedKind ===

impl PlannedKind {
    /// Whether it is a step, which changes something.
    pub fn is_change(&self) -> bool {
        *self == Self::Change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_only_follows_the_members_says_so() {
        let mut plan = Plan::default();
        assert!(plan.is_empty());
        plan.push_members("add n2", "a node was added");
        plan.push("open 80", "it is wanted");
        let reported: Vec<bool> = plan.steps.iter().map(|step| step.members_only).collect();
        assert_eq!(reported, [true, false]);
        let described = plan.describe();
        assert_eq!(described[0].step, "add n2");
        assert_eq!(described[0].because, "a node was added");
    }

    #[test]
    fn what_is_waited_for_and_what_follows_are_listed_after_the_steps() {
        let mut plan = Plan::<&str>::default();
        plan.waits.push(Wait {
            object: "load balancer",
            id: "7".to_owned(),
            doing: "being deleted",
            because: "it holds the address",
            creates: false,
        });
        assert!(!plan.is_empty());
        plan.upcoming.push(Upcoming {
            what: "then attach it".to_owned(),
            because: "it is wanted",
        });
        plan.push("open 80", "it is wanted");
        let described = plan.describe();
        let lines: Vec<(&str, PlannedKind)> = described
            .iter()
            .map(|line| (line.step.as_str(), line.kind))
            .collect();
        assert_eq!(
            lines,
            [
                ("open 80", PlannedKind::Change),
                ("then attach it", PlannedKind::Upcoming),
                (
                    "wait for load balancer 7, which is being deleted",
                    PlannedKind::Wait
                ),
            ]
        );
        // Programs that know steps alone read these as before.
        let written = serde_json::to_value(&described).unwrap();
        assert_eq!(written[0].get("kind"), None);
        assert_eq!(written[2]["kind"], "wait");
        let read: Vec<PlannedStep> = serde_json::from_value(written).unwrap();
        assert_eq!(read, described);
    }
}
