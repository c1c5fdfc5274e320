//! Memberships of many machines in virtual time, and two drivers on loopback.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

mod attacks;
mod convergence;
mod detection;
mod driver;
mod world;
