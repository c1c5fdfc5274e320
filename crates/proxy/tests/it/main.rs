//! The data plane over real sockets on loopback addresses.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

mod access_log;
mod choosing;
mod edits;
mod failures;
mod handover;
mod lifecycle;
mod limits;
mod member_limits;
mod member_tls;
mod namespace;
mod ports;
mod proxy_protocol;
mod scene;
mod shares;
mod source_limits;
mod sources;
mod streams;
mod timeouts;
mod tls;
mod udp;
