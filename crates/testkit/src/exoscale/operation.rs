//! An operation: what is done, and how it ends.

use serde_json::{Map, Value};
use tokio::time::Instant;

/// How a change ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The end.
    pub end: End,
    /// It is carried out, whatever the end says.
    pub carried_out: bool,
    /// The first answer is final already.
    pub at_once: bool,
    /// The operation names the NLB.
    pub has_reference: bool,
}

/// What an operation says in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It succeeded.
    Success,
    /// It failed: a reason and a message.
    Failure(String, String),
    /// The cloud gave it up.
    Timeout,
    /// It has no end.
    Never,
}

/// A change in progress, or its end.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub load_balancer: String,
    pub change: Change,
    pub fate: Fate,
    pub polls_left: u32,
    pub ends_at: Instant,
    pub ended: bool,
}

/// What is done in the end.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The NLB gets its address.
    Create,
    /// The NLB has these fields.
    Update(Map<String, Value>),
    /// The NLB loses a field.
    Reset(String),
    /// The NLB goes.
    Delete,
    /// The service begins to work.
    CreateService(String),
    /// The service has these fields.
    UpdateService(String, Map<String, Value>),
    /// The service loses its description.
    ResetService(String),
    /// The service goes.
    DeleteService(String),
}

impl Default for Fate {
    fn default() -> Self {
        Self {
            end: End::Success,
            carried_out: true,
            at_once: false,
            has_reference: true,
        }
    }
}

// === impl Fate ===

impl Fate {
    /// Makes the one of a change that fails and is not carried out.
    pub fn failure(reason: &str, message: &str) -> Self {
        Self {
            end: End::Failure(reason.to_owned(), message.to_owned()),
            carried_out: false,
            ..Self::default()
        }
    }

    /// Makes the one of a change that is carried out, of which the operation stays pending.
    pub fn stuck() -> Self {
        Self {
            end: End::Never,
            ..Self::default()
        }
    }

    /// Makes the first answer final.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self {
            at_once: true,
            ..self
        }
    }
}
