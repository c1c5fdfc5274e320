//! The real binary, driven from outside: processes, signals, manifests on disk, sockets on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

mod backend;
mod client;
mod commands;
mod examples;
mod lab;
mod lifecycle;
mod load;
mod manifest;
mod operating;
mod planning;
mod pools;
mod program;
mod proxy_headers;
mod ranges;
mod refusals;
mod requests;
mod restart;
mod traffic;
