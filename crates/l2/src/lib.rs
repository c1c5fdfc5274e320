//! Announcing addresses in the networks of a node: which node announces an address (election), and
//! how it answers for it (ARP for IPv4, Neighbour Discovery for IPv6).
//!
//! The speaker decides what to announce; this crate knows no Service and no Kubernetes.

pub mod driver;
pub mod election;
pub mod fsm;
pub mod interfaces;
pub mod local_routes;
pub mod mac;
pub mod packet;
