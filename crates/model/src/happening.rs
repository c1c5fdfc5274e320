//! What events report of a Service, and what they are called.

use crate::reason::Code;

/// Something that happened to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The load balancer is as the Service asks.
    Ensured,
    /// The Service got an address.
    Assigned,
    /// The Service lost an address.
    Cleared,
    /// The Service gets no address.
    Refused,
    /// What the Service asks for failed, and it keeps its address.
    Failed,
    /// A warning holds from now on.
    Warned(Code),
}

impl Happening {
    /// Returns the reason of its event, in the words of the service controller of Kubernetes;
    /// `None` if it has no event of its own.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ensured => Some("EnsuredLoadBalancer"),
            Self::Assigned | Self::Cleared => None,
            Self::Refused | Self::Failed => Some("SyncLoadBalancerFailed"),
            Self::Warned(code) => Some(code.as_str()),
        }
    }
}
