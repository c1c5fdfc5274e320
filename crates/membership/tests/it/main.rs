//! Memberships of many machines in virtual time, and two drivers on loopback.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests stop at what they do not expect, and print what they measured"
)]

mod attacks;
mod convergence;
mod detection;
mod driver;
mod world;
