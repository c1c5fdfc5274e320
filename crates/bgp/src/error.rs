//! Why a session ended or does not come up.

use std::time::Duration;

use crate::notification::{Notification, cease, code, open};
use crate::peer::RemoteAsn;

/// Why a session ended or does not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No TCP connection.
    #[error("cannot connect: {why}")]
    Connect {
        /// What kind of problem it is.
        kind: ConnectProblem,
        /// The words of the system.
        why: String,
        /// Whether a password is configured.
        password: bool,
    },
    /// The TCP connection ended without a NOTIFICATION.
    #[error("the router ended the connection without a NOTIFICATION{}", after_open(*.open_sent))]
    Closed {
        /// Whether that was before the session was established.
        open_sent: bool,
    },
    /// The TCP connection failed.
    #[error("the connection failed: {0}")]
    Broken(String),
    /// The router ended the session.
    #[error("the router sent a NOTIFICATION: {0}")]
    Received(Notification),
    /// No message came for as long as was agreed.
    #[error("nothing was received from the router for {0:?}")]
    HoldTimer(Duration),
    /// The router takes nothing more.
    #[error("the router took nothing of what was sent for {0:?}")]
    SendHoldTimer(Duration),
    /// The router is of another AS.
    #[error("the router says that it is of AS {got}, but is configured as {}", expected(*.want))]
    WrongAs {
        /// What is configured.
        want: RemoteAsn,
        /// What it says.
        got: u32,
    },
    /// Nothing that is offered is offered by the router as well.
    #[error("the router offers no family of prefixes that is configured for it")]
    NoFamily,
    /// The router sent what is against the protocol.
    #[error("the router sent what is invalid: {0}")]
    Invalid(Notification),
    /// The path to the router was reported down.
    #[error("BFD reports that the path to the router is down")]
    BfdDown,
    /// It was ended on purpose.
    #[error("ended by this side: {0}")]
    Ended(Notification),
}

/// What keeps a TCP connection from coming up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProblem {
    /// The router's machine answers, but nothing listens there.
    Refused,
    /// No answer.
    Timeout,
    /// No route, or a router on the way says that there is none.
    Unreachable,
    /// The source address is not one of this node's.
    Source,
    /// The interface or VRF is not there, or has no address.
    Interface,
    /// No router advertisement was received on the interface.
    NoNeighbor,
    /// A missing right of this process.
    Permission,
    /// Anything else.
    Other,
}

// === impl SessionError ===

impl SessionError {
    /// Returns a stable name, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connect { kind, .. } => kind.reason(),
            Self::Closed { .. } => "ConnectionClosed",
            Self::Broken(_) => "ConnectionFailed",
            Self::Received(_) => "NotificationReceived",
            Self::HoldTimer(_) => "HoldTimerExpired",
            Self::SendHoldTimer(_) => "SendHoldTimerExpired",
            Self::WrongAs { .. } => "BadPeerAS",
            Self::NoFamily => "NoCommonFamily",
            Self::Invalid(_) => "InvalidMessage",
            Self::BfdDown => "BFDDown",
            Self::Ended(_) => "Ended",
        }
    }

    /// Returns what an operator can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Connect { kind, password, .. } => kind.remedy(*password),
            Self::Closed { open_sent: true } => {
                "check on the router that this node is configured as its neighbor, with the AS and \
                the address that this node connects from"
            }
            Self::Closed { open_sent: false } | Self::Broken(_) => {
                "read the router's log; the session is attempted again"
            }
            Self::Received(notification) => remedy_of(notification),
            Self::HoldTimer(_) | Self::BfdDown => {
                "check the link to the router, and that it is not overloaded"
            }
            Self::SendHoldTimer(_) => "check that the router is not overloaded",
            Self::WrongAs { .. } => {
                "write the AS that the router has in peerASN, or correct the router"
            }
            Self::NoFamily => {
                "activate the family of the addresses for this neighbor on the router, or set \
                dualStackAddressFamily"
            }
            Self::Invalid(_) => "read the router's log, and report what it sent",
            Self::Ended(_) => "nothing; the session comes up again if it is configured",
        }
    }
}

/// Returns what can be done about what a router complained about.
fn remedy_of(notification: &Notification) -> &'static str {
    match (notification.code, notification.subcode) {
        (code::OPEN, open::BAD_PEER_AS) => {
            "make myASN (or localASN) equal to the AS that the router expects of this node"
        }
        (code::OPEN, open::BAD_IDENTIFIER) => "write a routerID that no other router has",
        (code::OPEN, open::HOLD_TIME) => "write a longer holdTime",
        (code::OPEN, open::CAPABILITY) => {
            "activate the same families of addresses on both sides; the data names the capability"
        }
        (code::CEASE, cease::ADMINISTRATIVE_SHUTDOWN) => {
            "an operator of the router has shut the session down; enable it there"
        }
        (code::CEASE, cease::PEER_DECONFIGURED | cease::CONNECTION_REJECTED) => {
            "configure this node as a neighbor on the router"
        }
        (code::CEASE, 1) => "raise the limit of prefixes on the router",
        (code::HOLD_TIMER, _) => {
            "check the link to the router, and that this node is not overloaded"
        }
        _ => "read the router's log; the session is attempted again",
    }
}

fn after_open(open_sent: bool) -> &'static str {
    if open_sent {
        " before the session was established"
    } else {
        ""
    }
}

fn expected(want: RemoteAsn) -> String {
    match want {
        RemoteAsn::Number(number) => format!("AS {number}"),
        RemoteAsn::Internal => "of this side's AS (dynamicASN: internal)".to_owned(),
        RemoteAsn::External => "of another AS than this side (dynamicASN: external)".to_owned(),
    }
}

// === impl ConnectProblem ===

impl ConnectProblem {
    fn reason(self) -> &'static str {
        match self {
            Self::Refused => "ConnectionRefused",
            Self::Timeout => "ConnectTimeout",
            Self::Unreachable => "Unreachable",
            Self::Source => "SourceAddressMissing",
            Self::Interface => "InterfaceMissing",
            Self::NoNeighbor => "NoNeighbor",
            Self::Permission => "PermissionDenied",
            Self::Other => "ConnectFailed",
        }
    }

    fn remedy(self, password: bool) -> &'static str {
        match self {
            Self::Refused => {
                "start BGP on the router, and let it listen on this address and port; check its \
                access lists"
            }
            Self::Timeout if password => {
                "check that the router has the same password for this node; also check \
                peerAddress, firewalls, and ebgpMultiHop if the router is not on the same link"
            }
            Self::Timeout => {
                "check peerAddress and firewalls, ebgpMultiHop if the router is not on the same \
                link, and whether the router asks for a password"
            }
            Self::Unreachable => "check the routes of this node to the router",
            Self::Source => "write a sourceAddress that this node has",
            Self::Interface => {
                "write the name of an interface or VRF that this node has, with an \
                address"
            }
            Self::NoNeighbor => {
                "let the router send router advertisements on the link (`ipv6 nd` or an \
                unnumbered neighbor), and check the name of the interface"
            }
            Self::Permission => "give this process the capability NET_RAW or NET_ADMIN",
            Self::Other => "read the words of the system; the session is attempted again",
        }
    }
}
