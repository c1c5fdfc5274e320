//! The admin endpoint over real sockets, and its page in a real browser.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

mod browser;
mod contrast;
mod events;
mod finding;
mod harness;
mod limits;
mod live;
mod metrics;
mod monitoring;
mod page;
mod routes;
#[path = "../../examples/stage/mod.rs"]
mod stage;
mod token;
