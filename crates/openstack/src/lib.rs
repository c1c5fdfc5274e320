//! The provider for OpenStack: load balancers of Octavia, floating IPs and security groups of Neutron.
//!
//! ```text
//!  Intent ──> observe: the roster of load balancers (one shared list), the details of one
//!         ──> plan (pure): the graph that is wanted against the graph that is there
//!         ──> apply: one write
//! ```
//!
//! Names, tags and descriptions are those of cloud-provider-openstack, byte for byte, so that either
//! controller finds what the other one made.

#![forbid(unsafe_code)]

pub mod client;
pub mod objects;
