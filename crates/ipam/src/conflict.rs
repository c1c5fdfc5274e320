//! Every way in which an address that other Services hold can't be shared with one more.

use std::fmt;
use std::net::IpAddr;

use landfall_model::{Code, ListenerKey, ServiceKey};

use crate::sharing::{BackendKey, SharingKey};

/// Why a Service can't hold an address together with those that do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another Service holds the address.
    #[error("{address} is held by {holder}")]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// The holder.
        holder: ServiceKey,
    },
    /// A Service of another namespace holds the address. Which one and on what terms is not
    /// disclosed to the asking Service: its author may not look there.
    #[error("{address} is held by a Service of another namespace")]
    AddressOfOthers {
        /// The address.
        address: IpAddr,
    },
    /// A Service of another namespace shares the address by the same key, and the two don't fit.
    #[error(
        "{address} is held by a Service of another namespace with the same sharing key, and its \
        ports or its traffic policy conflict with those here"
    )]
    SharingWithOthersClashes {
        /// The address.
        address: IpAddr,
    },
    /// Another Service holds the address with another sharing key or none.
    #[error(
        "{address} is held by {holder} {}, and the sharing key here is {key:?}",
        SharedBy(holder_key.as_ref()),
        key = key.to_string(),
    )]
    SharingKeyDiffers {
        /// The address.
        address: IpAddr,
        /// The holder.
        holder: ServiceKey,
        /// The holder's key.
        holder_key: Option<SharingKey>,
        /// The key of the Service that asks.
        key: SharingKey,
    },
    /// The holder shares, but its traffic must reach other backends.
    #[error(
        "{address} is held by {holder} with the same sharing key, whose traffic policy is \
         {holder_backend} while here it is {backend}"
    )]
    SharingBackendDiffers {
        /// The address.
        address: IpAddr,
        /// The holder.
        holder: ServiceKey,
        /// The holder's backends.
        holder_backend: BackendKey,
        /// The backends of the Service that asks.
        backend: BackendKey,
    },
    /// Both Services are `Local` without a selector.
    #[error(
        "{address} is held by {holder} with the same sharing key, and with traffic policy Local \
        both Services need the same selector"
    )]
    SharingNeedsSelector {
        /// The address.
        address: IpAddr,
        /// The holder.
        holder: ServiceKey,
    },
    /// The holder shares, but has the same ports.
    #[error(
        "{address} is held by {holder} with the same sharing key, and both use {}",
        list(ports)
    )]
    SharingPortsClash {
        /// The address.
        address: IpAddr,
        /// The holder of the ports there.
        holder: ServiceKey,
        /// The ports.
        ports: Vec<ListenerKey>,
    },
}

// === impl Conflict ===

impl Conflict {
    /// The stable code.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::AddressTaken { .. } | Self::AddressOfOthers { .. } => Code::AddressInUse,
            Self::SharingKeyDiffers { .. }
            | Self::SharingBackendDiffers { .. }
            | Self::SharingNeedsSelector { .. }
            | Self::SharingPortsClash { .. }
            | Self::SharingWithOthersClashes { .. } => Code::AddressNotShareable,
        }
    }

    /// What the reader can do about it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::AddressTaken { holder, .. } => format!(
                "request another address, delete {holder}, or give both Services the same sharing \
                key and different ports"
            ),
            Self::AddressOfOthers { .. } => {
                "request another address, or none to get a free one".to_owned()
            }
            Self::SharingWithOthersClashes { .. } => {
                "use other ports, set the external traffic policy to Cluster, or use another \
                address"
                    .to_owned()
            }
            Self::SharingKeyDiffers { holder, key, .. } => {
                format!(
                    "give {holder} the sharing key {:?} too, or use another address",
                    key.0
                )
            }
            Self::SharingBackendDiffers { holder, .. } => format!(
                "give both Services the same external traffic policy and, with Local, the same \
                selector, or remove the sharing key of {holder} here"
            ),
            Self::SharingNeedsSelector { .. } => {
                "set the external traffic policy of both Services to Cluster, or use another \
                 address"
                    .to_owned()
            }
            Self::SharingPortsClash { holder, ports, .. } => {
                format!(
                    "move {} here or in {holder}, or use another address",
                    list(ports)
                )
            }
        }
    }
}

/// "with the sharing key ..." of the holder.
struct SharedBy<'a>(Option<&'a SharingKey>);

impl fmt::Display for SharedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(f, "with the sharing key {:?}", key.0),
            None => f.write_str("without a sharing key"),
        }
    }
}

/// Returns the items with commas between.
pub(crate) fn list<T: fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
