//! What a Service should hold now, and why that differs from what it holds.

use std::fmt;
use std::net::IpAddr;

use landfall_model::Code;
use landfall_model::rows::Family;

use crate::family::Addresses;
use crate::pool_name::PoolName;
use crate::refusal::Refusal;

/// The outcome of [`Allocator::propose`](crate::Allocator::propose): what the Service should hold
/// now. Nothing is taken until it is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What the Service should hold; none only with [`Decision::GiveUp`].
    pub addresses: Addresses,
    /// The pool they are in; none when nothing is held, or held without a pool.
    pub pool: Option<PoolName>,
    /// How that differs from what it holds.
    pub decision: Decision,
    /// The part of the request that can't be had, while the rest can.
    pub unmet: Option<Refusal>,
}

/// How a proposal differs from what the Service holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not at all.
    Keep,
    /// It held nothing.
    Claim,
    /// It keeps what it has and gains an address of its missing family.
    Gain {
        /// What is new.
        gained: Addresses,
    },
    /// It keeps one of its addresses and loses the other.
    Drop {
        /// What goes.
        dropped: Addresses,
        /// Why.
        why: Why,
    },
    /// It gets other addresses, at least for one of those it has.
    Move {
        /// What it has.
        from: Addresses,
        /// Why it can't or shall not keep that.
        why: Why,
    },
    /// It loses what it has and gets nothing.
    GiveUp {
        /// What it has.
        from: Addresses,
        /// Why it can't keep that.
        why: Why,
    },
}

/// Why a Service does not keep an address that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pool the address came from is gone, and no other has the address.
    PoolGone {
        /// The address.
        address: IpAddr,
        /// The pool, where known.
        pool: Option<PoolName>,
    },
    /// The pool the address came from does not have it any more.
    PoolShrunk {
        /// The address.
        address: IpAddr,
        /// The pool.
        pool: PoolName,
    },
    /// The pool's selectors do not match any more, the pool avoids the address now, or the
    /// Service can't share it any more.
    NotAllowed(Refusal),
    /// The Service is not of this family any more.
    FamilyNotWanted {
        /// The address.
        address: IpAddr,
    },
    /// Its two addresses have come to lie in two pools.
    PoolsSplit {
        /// The address that leaves.
        address: IpAddr,
        /// Its pool.
        pool: PoolName,
        /// The pool of the address that stays.
        home: PoolName,
    },
    /// Both families are wanted, and the pool of the one it has can't give the other.
    NeedsBothFamilies {
        /// The pool it is in.
        pool: PoolName,
        /// The family that is missing there.
        missing: Family,
    },
    /// The Service asks for another pool.
    PoolRequested {
        /// Where it is.
        from: PoolName,
        /// Where it asks to be.
        to: PoolName,
    },
    /// Its record names these addresses, and never named what it holds.
    StillRecorded {
        /// The addresses.
        addresses: Addresses,
    },
    /// The Service asks for other addresses.
    AddressesRequested {
        /// Those it asks for.
        addresses: Addresses,
    },
}

// === impl Proposal ===

impl Proposal {
    /// Whether claiming it would change what the Service holds.
    pub fn changes_addresses(&self) -> bool {
        self.decision != Decision::Keep
    }
}

// === impl Decision ===

impl Decision {
    /// Why the Service loses an address, if it does.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Keep | Self::Claim | Self::Gain { .. } => None,
            Self::Drop { why, .. } | Self::Move { why, .. } | Self::GiveUp { why, .. } => Some(why),
        }
    }
}

// === impl Why ===

impl Why {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::NotAllowed(refusal) => refusal.code(),
            Self::FamilyNotWanted { .. } => Code::AddressFamilyMismatch,
            Self::PoolGone { .. }
            | Self::PoolShrunk { .. }
            | Self::PoolsSplit { .. }
            | Self::NeedsBothFamilies { .. }
            | Self::PoolRequested { .. }
            | Self::StillRecorded { .. }
            | Self::AddressesRequested { .. } => Code::AddressMoved,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolGone {
                address,
                pool: Some(pool),
            } => {
                write!(f, "pool {pool}, from which {address} was taken, is gone")
            }
            Self::PoolGone {
                address,
                pool: None,
            } => write!(f, "{address} is in no address pool"),
            Self::PoolShrunk { address, pool } => {
                write!(f, "pool {pool} does not contain {address} any more")
            }
            Self::NotAllowed(refusal) => write!(f, "{refusal}"),
            Self::FamilyNotWanted { address } => {
                write!(
                    f,
                    "{} is not a family of the Service, so {address} is released",
                    Family::of(*address)
                )
            }
            Self::PoolsSplit {
                address,
                pool,
                home,
            } => write!(
                f,
                "{address} is now in pool {pool}, unlike the other address in pool {home}"
            ),
            Self::NeedsBothFamilies { pool, missing } => {
                write!(
                    f,
                    "both families are required, and pool {pool} has no free {missing}"
                )
            }
            Self::PoolRequested { from, to } => {
                write!(f, "pool {to} is requested instead of pool {from}")
            }
            Self::StillRecorded { addresses } => {
                write!(f, "it is still on record with {addresses}")
            }
            Self::AddressesRequested { addresses } => write!(f, "{addresses} is requested"),
        }
    }
}
