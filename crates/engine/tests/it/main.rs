//! Whole roles of the engine against a cluster in memory.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod cluster;
mod speakers;
