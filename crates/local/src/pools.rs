//! Pools from rows: the facts, turned into what the allocator judges.

use std::sync::Arc;

use landfall_ipam::{AllocationSpec, ExpressionSpec, PoolSpec, SelectorSpec};
use landfall_model::rows::{PoolAllocation, PoolRow, Selector};

/// A pool as the allocator takes it.
pub fn spec(row: &Arc<PoolRow>) -> PoolSpec {
    PoolSpec {
        name: row.name.clone(),
        addresses: row.addresses.clone(),
        auto_assign: row.auto_assign,
        avoid_buggy_ips: row.avoid_buggy,
        allocation: row.allocation.as_ref().map(allocation),
    }
}

fn allocation(allocation: &PoolAllocation) -> AllocationSpec {
    AllocationSpec {
        priority: allocation.priority,
        namespaces: allocation.namespaces.clone(),
        namespace_selectors: allocation
            .namespace_selectors
            .iter()
            .map(selector)
            .collect(),
        service_selectors: allocation.service_selectors.iter().map(selector).collect(),
    }
}

fn selector(selector: &Selector) -> SelectorSpec {
    let expressions = selector.match_expressions.iter();
    SelectorSpec {
        match_labels: selector.match_labels.clone(),
        match_expressions: expressions
            .map(|(key, operator, values)| ExpressionSpec {
                key: key.clone(),
                operator: operator.clone(),
                values: values.clone(),
            })
            .collect(),
    }
}
