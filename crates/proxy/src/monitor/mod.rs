//! Health checks of members: a pure state machine that says when to check and what a result means,
//! the checks themselves, and the driver that joins them to a listener's pool. Never moves traffic.
//!
//! ```text
//!   listener's configuration ──> fsm::Schedule ── Order ──> check::check (bounded, concurrent)
//!                                   │    ▲                      │
//!                                   │    └──── Verdict ─────────┘
//!                                   └──> PoolState::set_health(member, health, words)
//! ```

pub mod check;
mod driver;
pub mod failure;
pub mod fsm;
mod grpc;
mod over_http2;
mod turns;

pub use driver::Monitors;
pub use turns::Counts;
