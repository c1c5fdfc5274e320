//! Whether two versions of what is remembered are the same. Pure.

use std::sync::Arc;

use landfall_model::rows::{PoolRow, ServiceRow};

/// Whether both are the very same row in memory: then they need no comparing.
pub(crate) fn is_same_memory(
    one: Option<&Arc<ServiceRow>>,
    other: Option<&Arc<ServiceRow>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether two versions of a Service are the same but for what is not remembered: where they stand.
pub(crate) fn is_remembered_alike(
    one: Option<&Arc<ServiceRow>>,
    other: Option<&Arc<ServiceRow>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || says_the_same(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether two Services are the same, wherever they stand.
fn says_the_same(one: &ServiceRow, other: &ServiceRow) -> bool {
    one.is_same_version(other)
        && one.resource_version == other.resource_version
        && one.recorded == other.recorded
        && one.annotations == other.annotations
        && one.finalized == other.finalized
        && one.status == other.status
}

/// Whether two versions of a pool are the same, wherever they stand.
pub(crate) fn same_pool(one: &PoolRow, other: &PoolRow) -> bool {
    let unplaced = |row: &PoolRow| PoolRow {
        source: None,
        // Of a remembered pool, what is remembered of it.
        resource: None,
        ..row.clone()
    };
    unplaced(one) == unplaced(other)
}
