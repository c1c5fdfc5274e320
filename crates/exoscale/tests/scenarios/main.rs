//! The scenarios of the specification, on a simulated cloud: a controller, a cluster in memory, and
//! what becomes of the cloud. A test is called after its number. All that is sent and answered is
//! checked against the published description of the API.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bad;
mod change;
mod chaos;
#[expect(dead_code, reason = "shared with the tests of the client")]
#[path = "../it/rig.rs"]
mod client;
#[expect(dead_code, reason = "shared with the scenarios on OpenStack")]
#[path = "../../../openstack/tests/scenarios/cluster.rs"]
mod cluster;
mod conformance;
mod costs;
mod crash;
mod create;
mod each_write;
mod external;
mod neighbours;
mod ownership;
mod pools;
mod rig;
mod robust;
#[path = "../it/schema.rs"]
mod schema;
