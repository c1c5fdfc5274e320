//! The real binary, driven from outside: processes, signals, manifests on disk, sockets on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

mod backend;
mod client;
mod lab;
mod manifest;
mod ranges;
