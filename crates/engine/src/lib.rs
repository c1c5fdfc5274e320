//! The loop that turns facts into load balancers: World, resolve, queue, reconciles, reports.
//!
//! ```text
//!  Fact ──> World ──> resolve ──> Intent ─┐             one reconcile per Service at a time
//!                                         ├─> plan ──> apply ──> report
//!              Provider::observe ─────────┘
//! ```
//!
//! The engine knows providers only by the [`landfall_model::Provider`] trait and sources only by
//! [`landfall_model::rows::Fact`]. It never reads files, never speaks to Kubernetes, and never
//! waits inside a reconcile for a cloud to finish.

pub mod backoff;
pub mod claims;
pub mod debounce;
pub mod driver;
pub mod dry_run;
pub mod follow;
pub mod heartbeat;
mod held;
pub mod instance;
pub mod leadership;
pub mod metrics;
pub mod parallel;
pub mod progress;
pub mod queue;
pub mod reconcile;
pub mod report;
pub mod resolve;
pub mod select;
pub mod status;
pub mod store;
pub mod world;

pub use claims::{claims, foreign_claims};
pub use driver::{AUDIT_EVERY, Engine, EngineConfig, EngineHandle};
pub use report::{Report, ReportError};
pub use resolve::resolve;
pub use select::Classes;
pub use world::World;
