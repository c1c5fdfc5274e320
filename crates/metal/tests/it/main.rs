//! The provider, driven as the engine drives it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failure here is a failed test"
)]

mod allocation;
mod announcing;
mod rig;
mod serving;
