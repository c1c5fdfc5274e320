//! The commands, one file each.

pub mod adopt;
mod announce;
pub mod check;
pub mod completion;
pub mod controller;
pub mod demo;
pub mod explain;
pub mod get;
pub mod orphans;
pub mod plan;
mod serve_cluster;
pub mod speaker;
pub mod up;
