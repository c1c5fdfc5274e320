//! What the cloud has for a Service.

use landfall_model::Reason;
use landfall_model::plan::Wait;

use crate::objects::{Id, LoadBalancer};
use crate::ownership::Owner;
use crate::step::Change;

/// What the cloud has for one Service.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Service as an owner.
    pub(crate) owner: Owner,
    /// Its NLB.
    pub(crate) found: Option<LoadBalancer>,
    /// Why the NLB that it names can't be used.
    pub(crate) missing: Option<Reason>,
    /// Further NLBs with objects of the Service. They go with it.
    pub(crate) surplus: Vec<LoadBalancer>,
    /// The instance pool, or why none is known.
    pub(crate) pool: Result<Id, Box<Reason>>,
    /// The pool was inferred: it may be another one later.
    pub(crate) inferred: bool,
    /// Changes that the cloud refused, and that are not tried again yet.
    pub(crate) refused: Vec<Refused>,
    /// What has to end before anything is changed.
    pub(crate) pending: Option<Wait>,
}

// === impl Observed ===

impl Observed {
    /// Returns the NLB of the Service, if there is one.
    pub fn load_balancer(&self) -> Option<&LoadBalancer> {
        self.found.as_ref()
    }
}

/// A change that the cloud refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub change: Change,
    pub reason: Reason,
    /// The instance pool that the port had before, if the change was to give it another one.
    pub before: Option<Id>,
}
