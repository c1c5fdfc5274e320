//! The changes of a claim.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::Uid;
use landfall_model::provider::{ProviderStep, Published};
use serde::Serialize;

use crate::decide::Change;

/// One change of a claim.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum AddressStep {
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
        /// Requests to the allocator and its answers: checked again when it is carried out.
        #[serde(skip)]
        grant: Arc<Change>,
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
    /// Ends parts of the claim of a Service that keeps others, and records what is left.
    Reduce {
        /// Identity of the Service.
        uid: Uid,
        /// What it holds from then on.
        addresses: Vec<IpAddr>,
        /// What is recorded before the next step.
        #[serde(skip)]
        publish: Published,
        /// The parts, as the allocator knows them.
        #[serde(skip)]
        parts: Vec<Uid>,
    },
    /// Ends the claim of a Service that can't keep its addresses, and records that.
    Withdraw {
        /// Identity of the Service.
        uid: Uid,
        /// What it held.
        addresses: Vec<IpAddr>,
    },
    /// Releases addresses of a Service. Other Services get them once no record names them.
    Release {
        /// Identity of the Service.
        uid: Uid,
        /// What it releases.
        addresses: Vec<IpAddr>,
    },
}

impl AddressStep {
    /// Returns the Service of the claim.
    pub fn service(&self) -> &Uid {
        match self {
            Self::Claim { uid, .. }
            | Self::Record { uid, .. }
            | Self::Reduce { uid, .. }
            | Self::Withdraw { uid, .. }
            | Self::Release { uid, .. } => uid,
        }
    }
}

impl ProviderStep for AddressStep {
    fn kind(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Record { .. } => "record",
            Self::Reduce { .. } => "reduce",
            Self::Withdraw { .. } => "withdraw",
            Self::Release { .. } => "release",
        }
    }
}

impl fmt::Display for AddressStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim {
                addresses, pool, ..
            } if pool.is_empty() => write!(f, "claim {}", list(addresses)),
            Self::Claim {
                addresses, pool, ..
            } => write!(f, "claim {} from pool {pool}", list(addresses)),
            Self::Record { addresses, .. } if addresses.is_empty() => {
                f.write_str("record that it has no address")
            }
            Self::Record { addresses, .. } => write!(f, "record {}", list(addresses)),
            Self::Reduce { addresses, .. } => write!(f, "keep {} alone", list(addresses)),
            Self::Withdraw { addresses, .. } => write!(f, "withdraw {}", list(addresses)),
            Self::Release { addresses, .. } => write!(f, "release {}", list(addresses)),
        }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
