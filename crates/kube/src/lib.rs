//! The Kubernetes API as a source of facts and as the place of reports.
//!
//! ```text
//!            ┌─ watch per kind ──> Known ──> Fact ──> engine ──> passes
//!  API server┤                                                     │
//!            └─ <── status, finalizer, events <── KubeReports <────┘
//!                          only while the Lease is ours (WriteGuard)
//! ```
//!
//! Losing the API server loses nothing: facts freeze as they are, and the watches take up again
//! where they were. What is written touches our own entries only, and only where they differ.
//!
//! This is the only room that sees a Kubernetes client. It decides nothing about load balancers.

pub mod access;
pub mod activity;
mod api;
mod config;
pub mod connect;
mod error;
mod health;
pub mod lease;
pub mod member_leases;
pub mod objects;
pub mod own_pod;
pub mod password;
mod proxy_env;
pub mod report;
mod retry;
mod secrets;
pub mod source;
mod watch;

pub use config::{CustomResources, SourceConfig};
pub use connect::{ConnectError, Connection, Origin};
pub use error::ApiError;
pub use health::Health;
pub use lease::{Election, LeaseConfig, WriteGuard};
pub use report::{KubeReports, OwnReports, ResourceReports};
pub use source::Sources;
