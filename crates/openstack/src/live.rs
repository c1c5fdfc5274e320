//! What there is of a Service in Octavia, for people: from what passes have seen. Nobody is asked.
//!
//! How members fare is left to Octavia: it is in no list that passes read, and a graph is kept for
//! long.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_model::listener::{Algorithm, Pool};
use landfall_model::view::{Health, ListenerView, MemberView, TrafficView};
use landfall_model::{Code, Intent, Listener, Reason, Uid};

use crate::features::Features;
use crate::graph::Graph;
use crate::memory::{ExpectedGraph, Known, Memory};
use crate::names::Names;
use crate::objects::{Id, LoadBalancer, Provisioning};
use crate::observed::{Found, Observed};
use crate::plan::diff::{Diff, transport};
use crate::refusal::Refusals;

/// What Services asked for when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<HashMap<Uid, Spec>>);

#[derive(Debug)]
struct Spec {
    balancer: Id,
    owner: bool,
    names: Names,
    features: Features,
    /// Without members: those are in the graph.
    listeners: Vec<Listener>,
}

/// Octavia's word for a load balancer that reaches no member.
const NO_MEMBER: &str = "ERROR";

// === impl Shown ===

impl Shown {
    fn specs(&self) -> MutexGuard<'_, HashMap<Uid, Spec>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Service was looked at.
    pub(crate) fn note(&self, want: &Intent, have: &Observed) {
        let mut specs = self.specs();
        let (
            Some(spec),
            Found::One {
                balancer, owner, ..
            },
        ) = (&want.load_balancer, &have.found)
        else {
            specs.remove(&want.uid);
            return;
        };
        let bare = |listener: &Listener| Listener {
            pool: Pool {
                members: Vec::new(),
                ..listener.pool.clone()
            },
            ..listener.clone()
        };
        let spec = Spec {
            balancer: balancer.id.clone(),
            owner: *owner,
            names: have.names.clone(),
            features: have.features,
            listeners: spec.listeners.iter().map(bare).collect(),
        };
        specs.insert(want.uid.clone(), spec);
    }

    /// The listeners of a Service that are there, as far as is known.
    pub(crate) fn listeners(&self, service: &Uid, memory: &Memory) -> Vec<ListenerView> {
        let specs = self.specs();
        let Some(spec) = specs.get(service) else {
            return Vec::new();
        };
        let Some(known) = memory.balancers.get(&spec.balancer) else {
            return Vec::new();
        };
        let sketch = memory.sketches.get(service);
        let sketch = sketch.filter(|it| it.balancer == spec.balancer);
        let views = spec.listeners.iter().filter_map(|listener| {
            let view = bare_view(listener, known);
            match (&known.graph, sketch) {
                (Some(graph), _) => spec.in_graph(view, known, graph),
                (None, Some(sketch)) => in_sketch(view, sketch),
                // It is to be read anew; nothing says that it is gone.
                (None, None) => Some(view),
            }
        });
        views.collect()
    }
}

// === impl Spec ===

impl Spec {
    fn in_graph(
        &self,
        mut view: ListenerView,
        known: &Known,
        graph: &Graph,
    ) -> Option<ListenerView> {
        // Only for telling what is ours.
        let diff = Diff {
            balancer: &known.row,
            owner: self.owner,
            names: &self.names,
            features: self.features,
            body_limit: 0,
            serial: false,
            refusals: &Refusals::default(),
            graph,
        };
        let listener = graph.listeners.iter().find(|it| {
            it.protocol_port == view.key.port.get()
                && transport(&it.protocol) == view.key.protocol
                && diff.is_ours(it)
        })?;
        if listener.provisioning_status == Provisioning::Error {
            let reason = Reason::error(
                Code::LoadBalancerFailed,
                format!("Octavia could not configure listener {}", listener.id),
            );
            view.problem = Some(reason);
        }
        let Some(pool) = graph.pool_of(listener) else {
            return Some(view);
        };
        view.algorithm = algorithm(&pool.lb_algorithm).unwrap_or(view.algorithm);
        let checked = graph.monitor_of(pool).is_some();
        let members = graph.members_of(pool).iter();
        view.members = members
            .filter_map(|it| {
                let mut shown = member(it.address?, it.protocol_port, &it.name, checked);
                shown.weight = it.weight.unwrap_or(1);
                shown.backup = it.backup;
                Some(shown)
            })
            .collect();
        Some(view)
    }
}

fn in_sketch(mut view: ListenerView, sketch: &ExpectedGraph) -> Option<ListenerView> {
    let mut drawn = sketch.listeners.iter();
    let drawn =
        drawn.find(|it| it.port == view.key.port.get() && it.transport == view.key.protocol)?;
    let checked = drawn.pool.monitor.is_some();
    view.algorithm = algorithm(&drawn.pool.algorithm).unwrap_or(view.algorithm);
    let members = drawn.pool.members.iter();
    view.members = members
        .map(|(address, it)| member(*address, it.port, &it.name, checked))
        .collect();
    Some(view)
}

fn bare_view(listener: &Listener, known: &Known) -> ListenerView {
    ListenerView {
        addresses: addresses(&known.row),
        key: listener.key,
        name: listener.name.clone(),
        mode: listener.mode.as_str().to_owned(),
        problem: problem(&known.row),
        traffic: TrafficView::default(),
        measured: None,
        algorithm: listener.pool.algorithm,
        allowed: listener.allowed.clone(),
        connection_limit: listener.connection_limit,
        affinity: listener.pool.affinity,
        proxy_protocol: listener.pool.proxy_protocol,
        monitor: listener.pool.monitor.clone(),
        members: Vec::new(),
    }
}

fn addresses(balancer: &LoadBalancer) -> Vec<IpAddr> {
    let further = balancer.additional_vips.iter();
    let further = further.filter_map(|it| it.ip_address);
    balancer.vip_address.into_iter().chain(further).collect()
}

fn problem(balancer: &LoadBalancer) -> Option<Reason> {
    (balancer.operating_status == NO_MEMBER).then(|| {
        Reason::warning(
            Code::NoHealthyMembers,
            format!(
                "Octavia reports that load balancer {} reaches no member",
                balancer.id
            ),
        )
        .remedy("`openstack loadbalancer status show` shows each member")
    })
}

fn member(address: IpAddr, port: u16, node: &str, checked: bool) -> MemberView {
    let detail = if checked { "checked by Octavia" } else { "" };
    MemberView {
        address: SocketAddr::new(address, port),
        name: None,
        node: Some(node.to_owned()).filter(|node| !node.is_empty()),
        weight: 1,
        backup: false,
        health: Health::Unknown,
        detail: detail.to_owned(),
        traffic: TrafficView::default(),
    }
}

/// The algorithm of Octavia's word.
fn algorithm(word: &str) -> Option<Algorithm> {
    [
        Algorithm::RoundRobin,
        Algorithm::LeastConnections,
        Algorithm::SourceIp,
        Algorithm::SourceIpPort,
    ]
    .into_iter()
    .find(|algorithm| algorithm.as_str() == word)
}
