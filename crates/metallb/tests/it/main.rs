//! What is made of objects, and what is said about those that are wrong.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failure here is a failed test"
)]

mod admission;
mod build;
mod matching;
mod objects;
mod order;
mod rules;
mod status;
