//! The speaker of a node: which of the addresses of a cluster this node announces, and what it says
//! about that.
//!
//! ```text
//!  facts ──> World ──┐
//!  resources ────────┼──> Board: one election per address ──> Wanted ──> landfall_l2
//!  membership ───────┘                                   └──> status objects and events
//! ```
//!
//! It needs no Lease, never writes a Service, and goes on electing from what it knows while the API
//! server is unavailable.

pub mod board;
pub mod layer2;
pub mod metadata;
