//! What a speaker announces and reports: without sockets, and in network namespaces.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests stop at what they do not expect"
)]

mod comparison;
mod decide;
mod explain;
#[expect(dead_code, reason = "shared with the tests of announcing")]
#[path = "../../../l2/tests/it/lab.rs"]
mod lab;
mod leftovers;
mod machine;
mod network;
mod plane;
mod routes;
mod session_states;
mod status;
mod support;
