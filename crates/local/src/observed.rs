//! The observed state of one Service: its addresses, listeners and members.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_addressing::Holdings;
use landfall_model::listener::{Listener, ListenerKey};
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;
use landfall_proxy::pool::Reach;

use crate::shortage::Shared;

/// What is held for one Service, and what the allocator would assign to it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its addresses.
    pub addresses: Holdings,
    /// Its listeners.
    pub listeners: BTreeMap<ListenerId, Arc<Opened>>,
    /// Its members, per listener.
    pub members: BTreeMap<ListenerKey, Reach>,
    /// The share of the data plane that the Service exceeds, so that its clients are refused.
    pub short_of: Option<Shared>,
}

/// A listener that was opened, or that should be and could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// How it is.
    pub listener: Arc<Listener>,
    /// Why it does not serve.
    pub problem: Option<Reason>,
    /// A newer version that the data plane did not take as it is, and why. Until it changes it is
    /// not tried again, and `listener` goes on serving.
    pub refused: Option<(Arc<Listener>, Reason)>,
}
