//! The speaker of a node: which of the addresses of a cluster this node announces, and what it
//! reports about that.
//!
//! ```text
//!   facts ─┐                       ┌─> announcer (ARP, NDP)
//! members ─┼─> decide ─> board ────┼─> membership (what this node reports, where others may be)
//!   links ─┘   (pure)   (elections)└─> status objects and events
//!                 ├─> plane ──> serve ──> listeners and routes (`dataPlane: landfall`)
//!                 └─> routing ──> sessions ──> routers (BGP, BFD)
//! ```
//!
//! It needs no Lease and never writes a Service, and it works on what it knows while the API server
//! is away.

pub mod board;
pub mod comparison;
pub mod decide;
pub mod every_node;
pub mod explain;
pub mod layer2;
pub mod leftovers;
pub mod machine;
pub mod metadata;
pub mod peers;
pub mod plane;
pub mod questions;
pub mod routes;
pub mod routing;
pub mod serve;
pub mod session_states;
pub mod sessions;
pub mod status;
pub mod steady;
pub mod task;
