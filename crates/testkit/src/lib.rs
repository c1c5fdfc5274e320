//! What tests of all crates share. Nothing here is part of the program.

pub mod browser;
pub mod build;

pub use build::{node, secret, slice, svc};
