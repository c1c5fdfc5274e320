//! Addresses of Services from pools, for providers that assign them themselves: claim, record,
//! withdraw and release, restored from the record after a restart.
//!
//! ```text
//!  Intent ──> Addressing::observe: what the Service holds, and what the allocator would assign
//!         ──> plan (pure): at most one change of the claim, and one release
//!         ──> Addressing::apply: one of these
//! ```
//!
//! A provider keeps one [`Addressing`] under its lock, adds [`Holdings`] to what it observes,
//! plans its listeners or announcements between the steps of [`AddressPlan::around`], and passes
//! the calls of the engine on: pools, claims on record, claims of others. It knows no data plane,
//! and does no I/O.
//!
//! Two rules keep an address from serving two Services. It is claimed, and that is on record,
//! before it is used; and after a release it stays reserved until no record names it.

#![forbid(unsafe_code)]

mod addressing;
mod decide;
mod parts;
mod plan;
mod pools;
mod request;
mod status;
mod step;

pub use addressing::{Addressing, Holdings};
pub use decide::{Answer, Change};
pub use plan::{AddressPlan, plan, plan_removal};
pub use status::{missing_family, published, remarks};
pub use step::AddressStep;
