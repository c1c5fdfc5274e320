//! The speaker of a node, as far as it is there: which of the addresses of a cluster this node
//! announces, and what it reports about itself to the speakers of other nodes. No command uses it
//! yet.
//!
//! It needs no Lease and never writes a Service.

pub mod board;
pub mod metadata;
