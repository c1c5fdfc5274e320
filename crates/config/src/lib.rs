//! Configuration from outside the manifests: flags and environment, turned into values.
//!
//! Pure: the environment is handed in, and no file is read here.

#![forbid(unsafe_code)]

pub mod dirs;
pub mod file;
pub mod gcfg;
pub mod patterns;
pub mod pools;
