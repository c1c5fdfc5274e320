//! The words of Landfall as types: Services and their neighbours as compact rows, what a user wants
//! ([`Intent`]), why not ([`Reason`]), what would be done ([`Plan`]) and the [`Provider`] seam.
//!
//! No I/O, no async runtime, no clock. Everything here is a value; everything that decides about
//! these values is a pure function in a crate above.
//!
//! ```text
//!  wire (JSON/YAML shapes) ──> rows (facts) ──> Intent ──> Plan of steps ──> Status ──> view
//!                               └── dialect: annotations become typed options, or Reasons
//! ```

pub mod dialect;
pub mod happening;
pub mod id;
pub mod intent;
pub mod kinds;
pub mod limits;
pub mod listener;
pub mod marks;
pub mod named;
pub mod option;
pub mod plan;
pub mod protection;
pub mod provider;
pub mod reach;
pub mod reason;
pub mod recorded;
pub mod rows;
pub mod status;
mod target;
pub mod view;
pub mod wire;

pub use id::{ServiceKey, Uid};
pub use intent::{AddressSpec, Intent, LoadBalancerSpec};
pub use listener::{Listener, ListenerKey, Member, Monitor, Pool, Protocol};
pub use plan::{Plan, PlannedKind, PlannedStep};
pub use provider::{Applied, Provider, ProviderError, ProviderProfile, Retry};
pub use reason::{Code, Origin, Reason, Severity};
pub use status::{Condition, ConditionType, IngressAddress, ServiceStatus};
