//! Real folders, real edits: which facts the source reports.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a stage that can't be set is a failed test"
)]

mod changes;
mod lifecycle;
mod loading;
mod pools;
mod small_disk;
mod stage;
