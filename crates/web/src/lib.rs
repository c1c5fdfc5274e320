//! The admin endpoint: health, metrics, the JSON API and the status page of one running instance.
//!
//! Owns HTTP toward people, probes and scrapers. It only renders what an [`Instance`] says and must
//! never change anything: there is no route that writes.
//!
//! ```text
//!  TCP ──> server (limits, timeouts) ──> guard (Host, origin, headers) ──> routes ──> Instance
//!                                                                            │
//!                    page (embedded HTML, CSS, JS) · events (SSE) · metrics ─┘
//! ```
//!
//! Without a [`token`] there are no credentials: every client can read. The default address is a
//! loopback address, and [`guard`] keeps web pages of others from using the reader's browser as a
//! way in.

mod answering;
mod error;
mod events;
pub mod guard;
mod instance;
pub mod metrics;
mod options;
mod page;
mod places;
mod routes;
mod server;
mod stall;
mod texts;
pub mod token;

pub use answering::is_answering;
pub use instance::{Heartbeat, Instance, PlanError, Readiness, similar};
pub use options::Options;
pub use server::serve;
