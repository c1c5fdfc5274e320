//! Operations: the answer to every change.

use serde::Deserialize;

use super::words::{OperationReason, OperationStatus};
use super::{Id, or_empty};

/// A change in progress, or its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Operation {
    /// The id under which it is asked for.
    #[serde(default)]
    pub id: Option<Id>,
    /// How far it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub state: OperationStatus,
    /// Why it failed, in a word.
    #[serde(default)]
    pub reason: Option<OperationReason>,
    /// Why it failed, in a sentence.
    #[serde(default)]
    pub message: Option<String>,
    /// What it is about. Not every operation says so.
    #[serde(default)]
    pub reference: Option<OperationReference>,
}

/// What an operation is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct OperationReference {
    /// The object: for an NLB service, its NLB.
    #[serde(default)]
    pub id: Option<Id>,
}
