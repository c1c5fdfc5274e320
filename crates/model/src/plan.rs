//! A plan: the ordered steps that turn what is into what is wanted, each with the reason it exists.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ordered steps toward one Service's intent. Equal states give an empty plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<S> {
    /// To be applied in this order; a failed step ends the pass.
    pub steps: Vec<Planned<S>>,
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

/// A step as people and programs read it, with the provider's own type gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// One line.
    pub step: String,
    /// Why it is needed.
    pub because: String,
    /// The step as data.
    pub detail: serde_json::Value,
}

// === impl Plan ===

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Self { steps: Vec::new() }
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

    /// Whether nothing needs doing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl<S: fmt::Display + Serialize> Plan<S> {
    /// The plan as text and data.
    pub fn describe(&self) -> Vec<PlannedStep> {
        self.steps
            .iter()
            .map(|planned| PlannedStep {
                step: planned.step.to_string(),
                because: planned.because.clone(),
                detail: serde_json::to_value(&planned.step).unwrap_or_default(),
            })
            .collect()
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
}
