//! The data plane over real sockets on loopback addresses.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

mod choosing;
mod edits;
mod failures;
mod handover;
mod lifecycle;
mod limits;
mod proxy_protocol;
mod scene;
mod sources;
mod streams;
mod timeouts;
mod tls;
mod udp;
