//! BGP (RFC 4271) for a node that announces routes: no table of received routes, no choice of best
//! paths.
//!
//! ```text
//!   peers, routes ──> driver ──> session (state machine) ──> advertise (what is to be sent)
//!                       │               │                        │
//!                    sockets            └───────── wire ─────────┘
//! ```
//!
//! Everything but [`driver`] is without I/O and clock. What a router sends can end the session with
//! it, and nothing else: prefixes that it announces are counted and ignored.

mod advertise;
pub mod driver;
pub mod error;
pub mod notification;
pub mod peer;
pub mod route;
pub mod session;
pub mod shared;
pub mod status;
mod wire;

pub use advertise::NextHops;
