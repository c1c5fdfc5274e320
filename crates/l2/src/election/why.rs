//! Why a node does not announce an address.

use std::fmt;

/// A reason of an election. The names are those that MetalLB logs, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotAnnounced {
    /// Another node is the owner.
    NotOwner,
    /// No endpoint of the Service serves.
    NoEndpoints,
    /// Traffic stays on the node, and none of its endpoints serves.
    NoLocalEndpoints,
    /// No advertisement selects the node, or there is none at all.
    NoMatchingAdvertisement,
    /// The Service may share its address, and an advertisement selects Services: another Service
    /// of the address might be elected elsewhere.
    SharedAddressWithServiceSelector,
    /// The speaker of the node is not alive.
    NotAMember,
    /// The network of the node is not available.
    NodeNetworkUnavailable,
    /// The node has the label that excludes it.
    NodeLabeledExcludeBalancers,
    /// The node could not answer, or is being drained.
    NotAbleToServe,
}

// === impl NotAnnounced ===

impl NotAnnounced {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotOwner => "notOwner",
            Self::NoEndpoints => "noEndpoints",
            Self::NoLocalEndpoints => "noLocalEndpoints",
            Self::NoMatchingAdvertisement => "noMatchingAdvertisement",
            Self::SharedAddressWithServiceSelector => "sharedIPWithServiceSelector",
            Self::NotAMember => "notAMember",
            Self::NodeNetworkUnavailable => "nodeNetworkUnavailable",
            Self::NodeLabeledExcludeBalancers => "nodeLabeledExcludeBalancers",
            Self::NotAbleToServe => "notAbleToServe",
        }
    }
}

impl fmt::Display for NotAnnounced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}
