//! Pools from rows: the facts, turned into what the allocator judges.

use std::sync::Arc;

use landfall_ipam::PoolSpec;
use landfall_model::rows::PoolRow;

/// A pool as the allocator takes it.
pub fn spec(row: &Arc<PoolRow>) -> PoolSpec {
    PoolSpec::from(&**row)
}
