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
    // Every field by name, so that a new one can't be forgotten.
    let ServiceRow {
        key,
        uid,
        generation,
        resource_version,
        recorded,
        created,
        labels,
        annotations,
        finalized,
        deleting,
        wants_load_balancer,
        class,
        families,
        family_policy,
        headless,
        ports,
        selector,
        external_local,
        health_check_node_port,
        affinity,
        load_balancer_ip,
        source_ranges,
        publish_not_ready,
        allocate_node_ports,
        node_fields,
        status,
        faults,
        source: _,
    } = one;
    *key == other.key
        && *uid == other.uid
        && *generation == other.generation
        && *resource_version == other.resource_version
        && *recorded == other.recorded
        && *created == other.created
        && *labels == other.labels
        && *annotations == other.annotations
        && *finalized == other.finalized
        && *deleting == other.deleting
        && *wants_load_balancer == other.wants_load_balancer
        && *class == other.class
        && *families == other.families
        && *family_policy == other.family_policy
        && *headless == other.headless
        && *ports == other.ports
        && *selector == other.selector
        && *external_local == other.external_local
        && *health_check_node_port == other.health_check_node_port
        && *affinity == other.affinity
        && *load_balancer_ip == other.load_balancer_ip
        && *source_ranges == other.source_ranges
        && *publish_not_ready == other.publish_not_ready
        && *allocate_node_ports == other.allocate_node_ports
        && *node_fields == other.node_fields
        && *status == other.status
        && *faults == other.faults
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
