//! What the engine writes back, as a seam: the Kubernetes API and the manifest store implement it.

use std::collections::BTreeMap;
use std::future::Future;

use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Where reports go.
pub trait Report: Send + Sync + 'static {
    /// Puts the finalizer on a Service, and in the same write replaces our part of its status,
    /// where one is given: the finalizer is shared by all controllers, and the status shows after a
    /// crash that it came from us. Returns when it is durable.
    fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Takes the finalizer off, and our part of the status in the same write: no address may stay
    /// published that is given back. A Service that is gone already is a success.
    fn remove_finalizer(
        &self,
        service: &ServiceRow,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Replaces our part of a Service's status. Returns when it is durable.
    fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Sends an event. Best effort: a lost event changes nothing.
    fn event(&self, service: &ServiceRow, event: &Event) -> impl Future<Output = ()> + Send;

    /// Returns how many writes it takes at the same time without making any of them wait long.
    fn at_once(&self) -> usize {
        16
    }

    /// Returns how many events did not become events of their own since the start.
    fn event_counts(&self) -> EventCounts {
        EventCounts::default()
    }
}

/// Where a process reports on itself: on objects of its own, never on a Service, so that it needs
/// no Lease.
pub trait OwnReport: Send + Sync + 'static {
    /// Replaces the status of an object of its own, and creates the object if it is missing.
    /// Returns what became of the object.
    fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> impl Future<Output = Result<Version, ReportError>> + Send;

    /// Deletes an object that has this version. One that is gone already is a success, and one
    /// that was written since stays: [`ReportError::Conflict`].
    fn delete_own(
        &self,
        object: &OwnObject,
        version: &Version,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Deletes all objects of a kind whose labels a selector matches, also those of others: of a
    /// process that ended without deleting them. One that is written meanwhile stays.
    fn delete_matching(
        &self,
        kind: &OwnKind,
        selector: &str,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Returns all objects of a kind whose labels a selector matches.
    fn list_own<S: DeserializeOwned + Send>(
        &self,
        kind: &OwnKind,
        selector: &str,
    ) -> impl Future<Output = Result<Vec<Found<S>>, ReportError>> + Send;

    /// Sends an event about a Service. Best effort: a lost event changes nothing.
    fn own_event(
        &self,
        service: &ServiceKey,
        uid: &Uid,
        event: &Event,
    ) -> impl Future<Output = ()> + Send;
}

/// An object as it was at some time: its `uid` and `resourceVersion`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Differs for an object of the same name that is created later.
    pub uid: String,
    /// Differs after each write.
    pub resource_version: String,
}

/// An object that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<S> {
    /// Its name.
    pub name: String,
    /// What it was when it was found.
    pub version: Version,
    /// What it says; `None`: it cannot be read.
    pub status: Option<S>,
}

/// A kind of objects that processes write about themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnKind {
    /// Group and version: `landfall.dev/v1alpha1`.
    pub api_version: &'static str,
    /// The kind in CamelCase.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// Group and version in which the status is a field like any other, so that an object is
    /// created together with it in one write. A cluster may lack it.
    pub whole: Option<&'static str>,
    /// The namespace of all of them; `None`: the kind has none.
    pub namespace: Option<String>,
}

/// An object that one process alone writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnObject {
    /// What it is.
    pub kind: OwnKind,
    /// The name of the object.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it disappears with.
    pub owner: Option<Owner>,
}

/// The object that owns another one: the garbage collector deletes what is owned after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Group and version.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Events that did not become events of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Those that were aggregated into the count of another one.
    pub aggregated: u64,
    /// Those that are only in the log.
    pub dropped: u64,
}

/// Something that happened to a Service, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// CamelCase; the reasons that users of other controllers already alert on.
    pub reason: &'static str,
    /// Whether it is `Warning` rather than `Normal`.
    pub warning: bool,
    /// A sentence.
    pub message: String,
}

/// A report that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Another program changed the object meanwhile; it is read again.
    #[error("another program changed the object whose {what} was to be written")]
    Conflict {
        /// What was written.
        what: &'static str,
    },
    /// It failed for another reason, and is tried again.
    #[error("the {what} could not be written: {why}")]
    Failed {
        /// What was written.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// Nothing can be written at this time, whichever object it is: a full disk, an API server that
    /// does not answer. It is tried again at the latest when another write succeeds.
    #[error("the {what} could not be written: {why}")]
    Unavailable {
        /// What was written.
        what: &'static str,
        /// Why.
        why: String,
        /// Whether it may have been written all the same.
        unanswered: bool,
    },
}

// === impl ReportError ===

impl ReportError {
    /// Returns whether nothing was written, for certain.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Conflict { .. } => true,
            Self::Failed { .. } => false,
            Self::Unavailable { unanswered, .. } => !unanswered,
        }
    }
}
