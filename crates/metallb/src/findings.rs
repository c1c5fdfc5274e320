//! What is wrong with objects, by object.

use std::collections::BTreeMap;
use std::fmt;

use landfall_model::ServiceKey;
use landfall_model::reason::{Reason, Severity};
use landfall_model::rows::{ResourceKind, ResourceRow};

/// An object by kind and name, shown as `BGPPeer metallb-system/tor`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its kind.
    pub kind: ResourceKind,
    /// Namespace and name. The namespace is empty for pools, whose rows have none.
    pub key: ServiceKey,
}

/// Reasons, each with the field and the value that it is about, for each object that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    by_object: BTreeMap<ObjectName, Vec<Reason>>,
}

// === impl ObjectName ===

impl From<&ResourceRow> for ObjectName {
    fn from(row: &ResourceRow) -> Self {
        Self {
            kind: row.kind,
            key: row.key.clone(),
        }
    }
}

// === impl Findings ===

impl Findings {
    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }

    /// Returns what was found about one object.
    pub fn of(&self, object: &ObjectName) -> &[Reason] {
        self.by_object.get(object).map_or(&[], Vec::as_slice)
    }

    /// Iterates over the objects with their reasons, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &[Reason])> {
        let all = self.by_object.iter();
        all.map(|(object, reasons)| (object, reasons.as_slice()))
    }

    /// Returns whether any object is refused, in whole or in part.
    pub fn has_errors(&self) -> bool {
        let mut all = self.by_object.values().flatten();
        all.any(|reason| reason.severity == Severity::Error)
    }

    /// Returns all reasons with the object named in the message, for places that list them without
    /// it.
    pub fn reasons(&self) -> Vec<Reason> {
        let all = self.by_object.iter();
        all.flat_map(|(object, reasons)| reasons.iter().map(move |it| named(object, it)))
            .collect()
    }

    pub(crate) fn add(&mut self, object: &ObjectName, reasons: impl IntoIterator<Item = Reason>) {
        let mut reasons = reasons.into_iter().peekable();
        if reasons.peek().is_some() {
            let all = self.by_object.entry(object.clone()).or_default();
            for reason in reasons {
                if !all.contains(&reason) {
                    all.push(reason);
                }
            }
        }
    }
}

fn named(object: &ObjectName, reason: &Reason) -> Reason {
    Reason {
        message: format!("{object}: {}", reason.message),
        ..reason.clone()
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.namespace().is_empty() {
            write!(f, "{} {}", self.kind, self.key.name())
        } else {
            write!(f, "{} {}", self.kind, self.key)
        }
    }
}
