//! The provider for bare metal, controller side: addresses from pools, as MetalLB's objects and
//! annotations ask for them.
//!
//! ```text
//!  Intent ──> observe: claims of `landfall-addressing`, which advertisements apply
//!         ──> plan (pure): claim, record, withdraw, release
//!         ──> apply: one of these
//! ```
//!
//! It opens nothing. Speakers on the nodes read the status that it reports and announce the
//! addresses; kube-proxy on the nodes, or the speakers themselves, serve what arrives there. It
//! never reads a manifest, never writes a status, and never says that an address is announced: only
//! a speaker knows that.

#![forbid(unsafe_code)]

mod cooling;
mod data_plane;
mod events;
mod observed;
mod provider;
mod status;
mod support;

pub use data_plane::DataPlane;
pub use observed::Observed;
pub use provider::{Metal, watch_cooling};
