//! Sessions with routers that aren't ours, on links between network namespaces: FRR, BIRD and
//! GoBGP. These tests make namespaces and run as root.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on ends, and prints what it found"
)]

mod bird;
mod conformance;
mod ended;
mod frr;
mod gobgp;
mod lab;
mod misbehaving;
mod node;
mod ranges;
mod recorded;
mod router;
mod scenarios;
