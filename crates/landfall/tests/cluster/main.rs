//! The real binary against a real API server: kubectl is the only client, and the binary runs as
//! the identity that `deploy/rbac.yaml` grants, never as the administrator.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests: they end at what must not be, and print what they measured"
)]

#[path = "../support/simulated.rs"]
mod simulated;

mod bed;
mod certificates;
mod network;
mod replica;
mod traffic;

mod beside;
mod classes;
mod commands;
mod continuity;
mod exoscale;
mod kube_proxy;
mod last_known;
mod lifecycle;
mod load;
mod metal;
mod metal_rows;
mod metallb;
mod openstack;
mod outage;
mod peers;
mod plane;
mod pools;
mod refusals;
mod replicas;
mod restart;
mod selection;
mod speakers;
mod tenants;
mod webhook;
mod writes;
