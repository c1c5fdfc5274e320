//! The scenarios of the specification, on a simulated cloud: a controller, a cluster in memory, and what
//! becomes of the cloud. A test is called after its row.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod cluster;
mod create;
mod rig;
