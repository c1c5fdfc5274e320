//! The rows of the conformance table that need an API alone: a controller with pools, and a cluster
//! in memory. A test is called after the number of its row; where Landfall differs from MetalLB on
//! purpose, the test says so.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod addresses;
#[expect(dead_code, reason = "shared with the scenarios on OpenStack")]
#[path = "../../../openstack/tests/scenarios/cluster.rs"]
mod cluster;
mod conformance;
mod families;
mod pools;
mod rig;
mod sharing;
mod table;
mod writes;
