//! The provider for OpenStack: load balancers of Octavia, floating IPs and security groups of
//! Neutron.
//!
//! ```text
//!  Intent ──> observe: the roster of load balancers (one shared list), the details of one
//!         ──> plan (pure): the graph that is wanted against the graph that is there
//!         ──> apply: one write
//! ```
//!
//! Names, tags and descriptions are those of cloud-provider-openstack, byte for byte, so that
//! either controller finds what the other one made.

#![forbid(unsafe_code)]

mod address;
mod adoption;
mod apply;
mod bodies;
mod certificate;
mod choice;
pub mod client;
mod diff;
mod drift;
mod errors;
mod features;
mod find;
mod graph;
mod groups;
mod kind;
mod listed;
mod live;
mod members;
mod memory;
pub mod names;
mod network;
pub mod objects;
mod observe;
mod observed;
pub mod orphans;
mod plan;
mod provider;
mod record;
mod refusal;
mod settings;
mod standing;
mod step;
mod wanted;

pub use adoption::Adopted;
pub use observed::Observed;
pub use provider::OpenStack;
pub use settings::{Groups, Settings};
pub use step::Step;
