//! The provider for one machine: addresses from pools, traffic through this process's own data
//! plane.
//!
//! ```text
//!  Intent ──> observe: what the allocator would give, which listeners are open
//!         ──> plan (pure): claim, open, change, close, release
//!         ──> apply: one of these
//! ```
//!
//! Never reads a manifest, never writes a status; it only ever opens listeners on addresses that
//! the allocator granted.

#![forbid(unsafe_code)]

mod difference;
mod failure;
mod live;
#[cfg(feature = "memory")]
pub mod memory;
mod plan;
mod pools;
mod provider;
mod quota;
mod request;
mod shortage;
mod standing;
mod state;
mod step;
mod wakes;

pub use plan::{Observed, Opened};
pub use provider::Local;
pub use shortage::watch_shares;
pub use step::Step;
pub use wakes::watch_health;
