//! Whole roles of the engine against a cluster in memory.

mod cluster;
mod speakers;
