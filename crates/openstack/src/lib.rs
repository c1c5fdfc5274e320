//! The provider for OpenStack: load balancers of Octavia, floating IPs and security groups of
//! Neutron.
//!
//! ```text
//!  Intent ──> read: the roster of load balancers (one shared list), the details of one
//!         ──> target (pure): the graph that is wanted
//!         ──> plan (pure): the steps from the graph that is there to the one that is wanted
//!         ──> apply: one write
//! ```
//!
//! Names, tags and descriptions are those of cloud-provider-openstack, byte for byte, so that
//! either controller finds what the other one made.

#![forbid(unsafe_code)]

mod adoption;
mod apply;
mod certificates;
pub mod client;
pub mod configured;
mod errors;
mod fares;
mod features;
mod graph;
mod kind;
mod live;
mod memory;
pub mod names;
mod notices;
pub mod objects;
mod observed;
pub mod orphans;
mod ownership;
mod plan;
mod provider;
mod read;
mod record;
mod refusal;
mod requests;
mod settings;
mod status;
mod step;
mod target;

pub use adoption::Adopted;
pub use observed::Observed;
pub use provider::OpenStack;
pub use settings::{Groups, Settings};
pub use step::Step;
