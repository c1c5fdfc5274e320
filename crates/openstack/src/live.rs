//! What there is of a Service in Octavia, for people: from what reconciles have seen. Nothing is
//! read.
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
use crate::objects::{Id, LoadBalancer, OperatingStatus, Provisioning};
use crate::observed::{Found, Observed};
use crate::plan::diff::Diff;
use crate::refusal::Refusals;

/// What Services asked for when they were last checked.
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

// === impl Shown ===

impl Shown {
    fn specs(&self) -> MutexGuard<'_, HashMap<Uid, Spec>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Service was checked.
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
        let expected = memory.expected.get(service);
        let expected = expected.filter(|it| it.balancer == spec.balancer);
        let views = spec.listeners.iter().filter_map(|listener| {
            let view = bare_view(listener, known);
            match (&known.graph, expected) {
                (Some(graph), _) => spec.in_graph(view, known, graph),
                (None, Some(expected)) => in_expected(view, expected),
                // It is to be read again; nothing says that it is gone.
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
        // Only to know what is ours.
        let diff = Diff {
            balancer: &known.row,
            owner: self.owner,
            names: &self.names,
            features: self.features,
            body_limit: 0,
            serial: false,
            keep: false,
            refusals: &Refusals::default(),
            graph,
        };
        let listener = graph.listeners.iter().find(|it| {
            it.protocol_port == view.key.port.get()
                && it.protocol.transport() == view.key.protocol
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
        view.algorithm = algorithm(pool.lb_algorithm.as_str()).unwrap_or(view.algorithm);
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

fn in_expected(mut view: ListenerView, expected: &ExpectedGraph) -> Option<ListenerView> {
    let mut listed = expected.listeners.iter();
    let listed =
        listed.find(|it| it.port == view.key.port.get() && it.transport == view.key.protocol)?;
    let checked = listed.pool.monitor.is_some();
    view.algorithm = algorithm(listed.pool.algorithm.as_str()).unwrap_or(view.algorithm);
    let members = listed.pool.members.iter();
    view.members = members
        .map(|((address, _), it)| member(*address, it.port, &it.name, checked))
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
    (balancer.operating_status == OperatingStatus::Error).then(|| {
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

fn member(address: IpAddr, port: u16, name: &str, checked: bool) -> MemberView {
    let detail = if checked { "checked by Octavia" } else { "" };
    let (name, node) = match name.split_once('/') {
        Some((_, pod)) => (Some(pod), None),
        None => (None, Some(name).filter(|node| !node.is_empty())),
    };
    MemberView {
        address: SocketAddr::new(address, port),
        name: name.map(str::to_owned),
        node: node.map(str::to_owned),
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
