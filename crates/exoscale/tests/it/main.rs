//! The client against the simulated cloud. What both say is checked against the published
//! description of the API.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod calls;
mod credentials;
mod egoscale;
mod faults;
mod http;
mod operations;
mod rig;
mod schema;
