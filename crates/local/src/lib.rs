//! The provider for one machine: addresses from pools, traffic through this process's own data
//! plane.
//!
//! ```text
//!  Intent ──> observe: claims of `landfall-addressing`, which listeners are open
//!         ──> plan (pure): claim, open, change, close, release
//!         ──> apply: one of these
//! ```
//!
//! [`Serving`] is the part of it that opens and changes listeners, for speakers, whose addresses
//! the controller of a cluster assigns.
//!
//! Never reads a manifest, never writes a status; it only ever opens listeners on addresses that
//! the allocator granted.

#![forbid(unsafe_code)]

mod carrier;
mod difference;
mod failure;
mod live;
#[cfg(feature = "memory")]
pub mod memory;
mod observed;
mod plan;
mod provider;
mod quota;
mod serving;
mod shortage;
mod state;
mod status;
mod step;
mod support;
mod wakes;

pub use carrier::OpenAddresses;
pub use observed::{Observed, Opened};
pub use provider::Local;
pub use serving::Serving;
pub use step::Step;
pub use wakes::{watch_health, watch_shares};
