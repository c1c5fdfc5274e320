//! A provider for a cloud with asynchronous operations, built on this crate, under the engine: it
//! creates, edits and deletes load balancers, and continues after a crash before and after every
//! write. It shows what a provider for a new cloud consists of.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod engine;
mod mock;
mod provider;
