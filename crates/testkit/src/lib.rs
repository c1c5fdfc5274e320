//! What tests of all crates share. Nothing here is part of the program.

pub mod browser;
pub mod build;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod conformance;
#[cfg(feature = "exoscale")]
pub mod exoscale;
pub mod fuzz;
pub mod namespace;
#[cfg(feature = "openstack")]
pub mod openstack;
pub mod router;
#[cfg(feature = "stack")]
pub mod stack;

pub use build::{node, secret, slice, svc};
