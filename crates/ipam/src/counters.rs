//! The counters of a pool, as its status shows them.

use crate::pool_name::PoolName;

/// Counters of one pool. What does not fit reads `i64::MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The pool.
    pub pool: PoolName,
    /// IPv4 addresses held, each counted once however many share it.
    pub assigned_ipv4: i64,
    /// IPv6 addresses held.
    pub assigned_ipv6: i64,
    /// IPv4 addresses that could be given out now.
    pub available_ipv4: i64,
    /// IPv6 addresses that could be given out now.
    pub available_ipv6: i64,
    /// IPv4 addresses that one namespace may hold; `None`: all.
    pub limit_ipv4: Option<i64>,
    /// IPv6 addresses that one namespace may hold; `None`: all.
    pub limit_ipv6: Option<i64>,
    /// IPv4 addresses held by the namespace that holds the most.
    pub largest_ipv4: i64,
    /// IPv6 addresses held by the namespace that holds the most.
    pub largest_ipv6: i64,
}
