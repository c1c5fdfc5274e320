//! The real binary, driven from outside: processes, signals, manifests on disk, sockets on
//! loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

#[path = "../support/simulated.rs"]
mod simulated;

mod access_log;
mod adopt;
mod announcing;
mod attacks;
mod backend;
mod blocked_log;
mod broken_files;
mod client;
mod commands;
mod examples;
mod exoscale;
mod health;
mod lab;
mod lifecycle;
mod load;
mod manifest;
mod members;
mod openstack;
mod openstack_refusals;
mod operating;
mod orphans;
mod planning;
mod pools;
mod process;
mod program;
mod proxy_headers;
mod ranges;
mod refusals;
mod requests;
mod restart;
mod routers;
mod scene;
mod shortage;
mod signals;
mod takeover;
mod traffic;
mod view;
mod witness;
