//! The provider for Exoscale: Network Load Balancers (NLB).
//!
//! ```text
//!  Intent ──> read: all NLBs (one shared list), the operation in flight, the instance pool
//!         ──> target (pure): what is wanted
//!         ──> plan (pure): the changes from what is there to what is wanted
//!         ──> apply: one request, answered by an operation
//! ```
//!
//! An NLB has a public IPv4 address and one *NLB service* per port. An NLB service forwards to one
//! port of every instance of one instance pool; the cloud follows the pool by itself. A change is
//! answered by an operation, which is asked for until it is done; an NLB takes one at a time.

#![forbid(unsafe_code)]

mod apply;
pub mod client;
mod failure;
mod live;
mod memory;
pub mod objects;
mod observed;
mod options;
pub mod orphans;
pub mod ownership;
mod plan;
mod provider;
mod read;
mod record;
mod settings;
mod status;
mod step;
pub mod target;
mod waits;

pub use observed::Observed;
pub use provider::Exoscale;
pub use settings::{Settings, profile};
pub use step::{Change, Step};
