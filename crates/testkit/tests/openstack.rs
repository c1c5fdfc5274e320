//! The simulated OpenStack: each rule of the real servers, and each fault.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]
