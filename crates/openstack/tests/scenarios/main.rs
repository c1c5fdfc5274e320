//! The scenarios of the specification, on a simulated cloud: a controller, a cluster in memory, and what
//! becomes of the cloud. A test is called after its row.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod addresses;
mod chaos;
mod cluster;
mod crash;
mod create;
mod follow;
mod image;
mod listeners;
mod lost;
mod monitors;
mod pools;
mod rig;
mod shapes;
mod strangers;
mod verdict;
mod written;
