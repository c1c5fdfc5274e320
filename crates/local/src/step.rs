//! The changes that this provider can make.

use std::fmt;
use std::sync::Arc;

use landfall_addressing::AddressStep;
use landfall_model::listener::Listener;
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
    /// Changes the claim of a Service.
    #[serde(untagged)]
    Address(AddressStep),
}

impl From<AddressStep> for Step {
    fn from(step: AddressStep) -> Self {
        Self::Address(step)
    }
}

impl Step {
    /// Returns the Service that it belongs to.
    pub(crate) fn service(&self) -> &Uid {
        match self {
            Self::Address(step) => step.service(),
            Self::Open { uid, .. } | Self::Change { uid, .. } | Self::Close { uid, .. } => uid,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(step) => step.fmt(f),
            Self::Open { id, listener, .. } => {
                let members = match listener.pool.members.len() {
                    1 => "1 member".to_owned(),
                    count => format!("{count} members"),
                };
                write!(f, "open {id} ({}, {members})", listener.mode.as_str())
            }
            Self::Change { id, changes, .. } => write!(f, "change {id}: {}", changes.join("; ")),
            Self::Close { id, .. } => write!(f, "close {id}"),
        }
    }
}

fn as_text<S: Serializer>(id: &ListenerId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
