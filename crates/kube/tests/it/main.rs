//! Against a real API server, as the identity that `deploy/rbac.yaml` binds.
//!
//! `cargo test -p landfall-kube --test it` runs these and nothing else. Where etcd and
//! kube-apiserver are neither found nor can be built, they fail and say what to do.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails where something unexpected happens"
)]

mod connection;
mod current;
mod facts;
mod fake;
mod leadership;
mod lists;
mod member_leases;
mod outage;
mod own;
mod reports;
mod resources;
mod support;
