//! The address-pool allocator: which Service holds which address, and why.
//!
//! Pure and synchronous: no I/O, no clock, no randomness. The same pools, claims and requests give
//! the same answer on every run and in every order of arrival of the pools.
//!
//! ```text
//!  PoolSpec --parse--> Pool --validate--> PoolSet --set_pools--+
//!                                                              v
//!  Service status ------------restore-------------------> Allocator <---claim / release
//!                                                              |
//!  Request ---------------------------------------propose(&self)--> Proposal | Refusal
//! ```
//!
//! [`Allocator::propose`] decides and changes nothing; [`Allocator::claim`] checks again and
//! writes down. A dry run clones the allocator and claims in the clone.
//!
//! What this crate must never do: hand one address to two Services that may not share it, take an
//! address from a Service because a request of that Service was refused, or answer "no" without a
//! typed [`Refusal`] that says what to change.

#![forbid(unsafe_code)]

mod allocator;
mod bitmap;
mod conflict;
mod counters;
mod entry;
mod family;
mod occupancy;
mod pool;
mod pool_error;
mod pool_name;
mod pool_set;
mod pool_state;
mod port_index;
mod proposal;
mod propose;
mod ranges;
mod refusal;
mod request;
mod reservation;
mod selector;
mod shares;
mod sharing;
mod slots;
mod verdict;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use allocator::{Allocator, Claim, Restore};
pub use conflict::Conflict;
pub use counters::Counters;
pub use entry::{Entry, EntryError, Range};
pub use family::{Addresses, WantedFamilies};
pub use pool::{Allocation, AllocationSpec, Pool, PoolSpec};
pub use pool_error::PoolError;
pub use pool_name::PoolName;
pub use pool_set::PoolSet;
pub use proposal::{Decision, Proposal, Why};
pub use refusal::Refusal;
pub use request::{Claimant, Request, parse_requested_addresses};
pub use reservation::Reservation;
pub use selector::{
    Expression, ExpressionSpec, LabelSelector, Labels, Operator, SelectorError, SelectorSpec,
};
pub use sharing::{BackendKey, SharingKey, Terms};
pub use verdict::{SkippedPool, Verdict};
