//! The changes that this provider can make.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{Proposal, Request};
use landfall_model::listener::Listener;
use landfall_model::provider::Published;
use landfall_model::{ServiceKey, Uid};
use landfall_proxy::ListenerId;
use serde::{Serialize, Serializer};

/// One change.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Step {
    /// Takes addresses for a Service, in place of those that it holds.
    Claim {
        /// Identity of the Service.
        uid: Uid,
        /// What it holds from then on.
        addresses: Vec<IpAddr>,
        /// The pool they come from.
        pool: String,
        /// What is recorded before the next step.
        #[serde(skip)]
        publish: Published,
        /// What the allocator was asked, and what it answered: checked again when it is carried
        /// out.
        #[serde(skip)]
        grant: Arc<(Request, Proposal)>,
    },
    /// Records what a Service holds: an earlier attempt to write it failed.
    Record {
        /// Identity of the Service.
        uid: Uid,
        /// What it holds.
        addresses: Vec<IpAddr>,
        /// What is recorded before the next step.
        #[serde(skip)]
        publish: Published,
    },
    /// Ends the claim of a Service that can't keep its addresses, and records that.
    Withdraw {
        /// Identity of the Service.
        uid: Uid,
        /// What it held.
        addresses: Vec<IpAddr>,
    },
    /// Opens a listener.
    Open {
        /// Identity of the Service.
        uid: Uid,
        /// The Service, for messages of the data plane.
        service: ServiceKey,
        /// Address, protocol and port.
        #[serde(serialize_with = "as_text")]
        id: ListenerId,
        /// How it is to be.
        listener: Arc<Listener>,
    },
    /// Changes an open listener in place.
    Change {
        /// Identity of the Service.
        uid: Uid,
        /// The Service, for messages of the data plane.
        service: ServiceKey,
        /// Address, protocol and port.
        #[serde(serialize_with = "as_text")]
        id: ListenerId,
        /// What differs, one clause each.
        changes: Vec<String>,
        /// How it is to be.
        listener: Arc<Listener>,
    },
    /// Closes a listener: nothing new is accepted, open connections drain.
    Close {
        /// Identity of the Service.
        uid: Uid,
        /// Address, protocol and port.
        #[serde(serialize_with = "as_text")]
        id: ListenerId,
    },
    /// Gives addresses of a Service back. Other Services get them once no record names them.
    Release {
        /// Identity of the Service.
        uid: Uid,
        /// What it gives back.
        addresses: Vec<IpAddr>,
    },
}

impl Step {
    /// Whose it is.
    pub(crate) fn service(&self) -> &Uid {
        match self {
            Self::Claim { uid, .. }
            | Self::Record { uid, .. }
            | Self::Withdraw { uid, .. }
            | Self::Open { uid, .. }
            | Self::Change { uid, .. }
            | Self::Close { uid, .. }
            | Self::Release { uid, .. } => uid,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim {
                addresses, pool, ..
            } => {
                write!(f, "claim {} from pool {pool}", list(addresses))
            }
            Self::Record { addresses, .. } if addresses.is_empty() => {
                f.write_str("record that it has no address")
            }
            Self::Record { addresses, .. } => write!(f, "record {}", list(addresses)),
            Self::Withdraw { addresses, .. } => write!(f, "withdraw {}", list(addresses)),
            Self::Open { id, listener, .. } => {
                let members = match listener.pool.members.len() {
                    1 => "1 member".to_owned(),
                    count => format!("{count} members"),
                };
                write!(f, "open {id} ({}, {members})", listener.mode.as_str())
            }
            Self::Change { id, changes, .. } => write!(f, "change {id}: {}", changes.join("; ")),
            Self::Close { id, .. } => write!(f, "close {id}"),
            Self::Release { addresses, .. } => write!(f, "release {}", list(addresses)),
        }
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn as_text<S: Serializer>(id: &ListenerId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
