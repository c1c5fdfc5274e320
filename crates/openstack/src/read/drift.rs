//! Whether listeners and pools, as a list shows them, are what is remembered or wanted. Pure.
//!
//! A load balancer's `updated_at` does not show everything: another program may change it in the
//! second in which we do, or between our last look and our next write.

use std::collections::BTreeSet;

use crate::graph::Graph;
use crate::objects::{Id, Listener, Pool};
use crate::plan::diff::{listener_changes, same_port};
use crate::target::WantedListener;

/// Listeners and pools of one load balancer, out of lists of all.
pub(crate) struct Listed<'a> {
    pub(crate) listeners: Vec<&'a Listener>,
    pub(crate) pools: Vec<&'a Pool>,
}

// === impl Listed ===

impl<'a> Listed<'a> {
    /// Those of one load balancer.
    pub(crate) fn of(id: &Id, listeners: &'a [Listener], pools: &'a [Pool]) -> Self {
        let here = |parents: &[crate::objects::Ref]| parents.iter().any(|it| it.id == *id);
        Self {
            listeners: listeners
                .iter()
                .filter(|it| here(&it.loadbalancers))
                .collect(),
            pools: pools.iter().filter(|it| here(&it.loadbalancers)).collect(),
        }
    }

    /// Whether the graph is as it is remembered. Members are counted, and monitors are only seen to
    /// be there.
    pub(crate) fn matches_cached(&self, graph: &Graph) -> bool {
        self.listeners.len() == graph.listeners.len()
            && self.pools.len() == graph.pools.len()
            && self.listeners.iter().all(|it| {
                let mut known = graph.listeners.iter();
                known.any(|known| same_listener(known, it, graph))
            })
            && self.pools.iter().all(|it| {
                let mut known = graph.pools.iter();
                known.any(|known| same_pool(known, it, graph))
            })
    }

    /// Whether the listeners are there as they are wanted, each with its pool.
    pub(crate) fn matches_wanted(&self, wanted: &[WantedListener]) -> bool {
        wanted.iter().all(|wanted| {
            let mut fitting = self.listeners.iter().filter(|it| same_port(wanted, it));
            let Some(listener) = fitting.next() else {
                return false;
            };
            let pool = self.pools.iter().find(|pool| {
                listener.default_pool_id.as_ref() == Some(&pool.id)
                    || pool.listeners.iter().any(|it| it.id == listener.id)
            });
            listener.protocol == wanted.protocol
                && listener_changes(listener, wanted).is_empty()
                && pool.is_some_and(|pool| {
                    pool.protocol == wanted.pool.protocol
                        && pool.healthmonitor_id.is_some() == wanted.pool.monitor.is_some()
                        && pool.members.len() == wanted.pool.members.len()
                })
        })
    }
}

fn set(texts: &[String]) -> BTreeSet<&String> {
    texts.iter().collect()
}

fn same_listener(known: &Listener, now: &Listener, graph: &Graph) -> bool {
    let pool = graph.pool_of(known).map(|it| &it.id);
    known.id == now.id
        && known.protocol == now.protocol
        && known.connection_limit == now.connection_limit
        && known.timeout_client_data == now.timeout_client_data
        && known.timeout_member_connect == now.timeout_member_connect
        && known.timeout_member_data == now.timeout_member_data
        && known.timeout_tcp_inspect == now.timeout_tcp_inspect
        && known.insert_headers == now.insert_headers
        && known.default_tls_container_ref == now.default_tls_container_ref
        && set(&known.sni_container_refs) == set(&now.sni_container_refs)
        && known.tls_versions == now.tls_versions
        && known.tls_ciphers == now.tls_ciphers
        && known.alpn_protocols == now.alpn_protocols
        && set(known.allowed_cidrs.as_deref().unwrap_or_default())
            == set(now.allowed_cidrs.as_deref().unwrap_or_default())
        && set(&known.tags) == set(&now.tags)
        && (now.default_pool_id.is_none() || now.default_pool_id.as_ref() == pool)
        && (now.default_pool_id.is_some() || known.default_pool_id.is_none())
}

fn same_pool(known: &Pool, now: &Pool, graph: &Graph) -> bool {
    let monitored = graph.monitor_of(known).is_some();
    known.id == now.id
        && known.protocol == now.protocol
        && known.lb_algorithm == now.lb_algorithm
        && known.session_persistence == now.session_persistence
        && graph.members_of(known).len() == now.members.len()
        // Some versions leave the monitor out of lists, so that only one that is there is to be
        // trusted.
        && (now.healthmonitor_id.is_none() != monitored
            || known.healthmonitor_id == now.healthmonitor_id)
}
