//! Address pools from `--pool` flags.

use landfall_model::rows::{PoolOrigin, PoolRow};

/// What is served from when nobody named a pool: loopback, so that no privileges are needed.
pub const DEFAULT_POOL: &str = "127.77.0.0/24";

/// The name of the pool that flags (or the default) make.
pub const FLAG_POOL: &str = "default";

/// One pool holding every range, in the order given. Ranges stay text: the allocator judges them.
pub fn from_flags(ranges: &[String]) -> PoolRow {
    PoolRow {
        name: FLAG_POOL.to_owned(),
        addresses: ranges.to_vec(),
        auto_assign: true,
        origin: PoolOrigin::Configured,
        ..PoolRow::default()
    }
}

/// The pool of an instance that was given none. Its first and last address are left out because
/// many people take .0 and .255 for a mistake.
pub fn fallback() -> PoolRow {
    PoolRow {
        avoid_buggy: true,
        origin: PoolOrigin::Fallback,
        ..from_flags(&[DEFAULT_POOL.to_owned()])
    }
}
