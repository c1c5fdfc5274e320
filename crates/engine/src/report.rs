//! What the engine writes back, as a seam: the Kubernetes API and the manifest store implement it.

use std::future::Future;

use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use serde::Serialize;

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
    fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Sends an event about an object of its own. Best effort: a lost event changes nothing.
    fn own_event(&self, object: &OwnObject, event: &Event) -> impl Future<Output = ()> + Send;
}

/// An object that one process alone writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnObject {
    /// Group and version: `landfall.dev/v1alpha1`.
    pub api_version: &'static str,
    /// The kind in CamelCase.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The name of the object: that of the node.
    pub name: String,
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
    /// Another program changed the Service meanwhile; it is read again.
    #[error("the Service changed while its {what} was written")]
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
}
