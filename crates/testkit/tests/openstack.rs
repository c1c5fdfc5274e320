//! The simulated OpenStack: each rule of the real servers, and each fault.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]

#[path = "openstack/balancers.rs"]
mod balancers;
#[path = "openstack/children.rs"]
mod children;
#[path = "openstack/client.rs"]
mod client;
#[path = "openstack/faults.rs"]
mod faults;
#[path = "openstack/identity.rs"]
mod identity;
#[path = "openstack/members.rs"]
mod members;
#[path = "openstack/network.rs"]
mod network;
#[path = "openstack/ovn.rs"]
mod ovn;
