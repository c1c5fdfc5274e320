//! Decides whether a replica is the first that ever leads: pure.
//!
//! A record that is not there says nothing about leaders, because it may have been deleted. A
//! second object, the *marker*, is made once, and is neither changed nor removed. No replica leads
//! before it exists, and a replica that makes it after it made the record is the first:
//!
//! ```text
//!  first     make the record ── make the marker ── renew the record, and lead
//!  another                                       └─ find the marker ── wait, or lead
//! ```
//!
//! One that leads has found the marker, or made it, before its last write to the record. If that
//! write came before the first one made the record, then so did the marker, and the first one did
//! not make it. If it came after, it replaced the record that the first one made, whose renewal is
//! then refused. Two replicas can't both make the marker, so no two skip the wait.
//!
//! People can delete the marker together with the record. So Services are read, too: one that
//! serves has put its finalizer on each Service that has an address.

/// What came of an attempt to make the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// This replica made it: there was none.
    Made,
    /// It exists, or this replica can't make it.
    NotMade,
}

// === impl Marker ===

impl Marker {
    /// Returns whether no replica led before the one that made the record and then this attempt;
    /// `held`: whether any Service has the finalizer, or `None` where that is not known.
    pub fn is_first(self, held: Option<bool>) -> bool {
        match self {
            Self::Made => held == Some(false),
            Self::NotMade => false,
        }
    }
}
