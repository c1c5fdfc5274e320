//! The provider from outside: its decisions, what it does under an engine that meets failures, and
//! whose the listeners of the data plane are.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

mod decisions;
mod engine;
mod ownership;
mod schedules;
mod serving;
