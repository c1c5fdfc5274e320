//! Sessions of two machines in virtual time, and of the driver with FRR, BIRD and itself in network
//! namespaces. Making the namespaces takes root; without it those tests fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

mod daemons;
mod driver;
mod lab;
mod pair;
mod peers;
mod recorded;
mod world;
