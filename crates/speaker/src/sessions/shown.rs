//! Sessions and routes as people see them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use landfall_bgp::driver::{Statuses, configured};
use landfall_bgp::peer::{PeerAddress, RemoteAsn};
use landfall_bgp::route::Attributes;
use landfall_bgp::status::{State, Status};
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::view::{
    AnnouncedView, AnnouncementView, BfdView, PeerMessages, PeerView, RouteView,
};

use super::{Sessions, wanted};
use crate::peers::PeerSpec;

// === impl Sessions ===

impl Sessions {
    /// Returns the sessions of this node.
    pub fn peers(&self, node: &str, now: Instant) -> Vec<PeerView> {
        let shown = self.shown.borrow().clone();
        let statuses = self.statuses.borrow().clone();
        let snapshot = self.bfd();
        let mut all = Vec::new();
        for (name, desired) in &shown.routing.peers {
            let path = shown.bfd.get(name);
            let bfd = snapshot.as_ref().zip(path);
            let bfd = bfd.and_then(|(snapshot, path)| snapshot.sessions.get(path));
            let view = |name: &Arc<str>, status| PeerView {
                name: name.to_string(),
                node: node.to_owned(),
                bfd: bfd.map(of_bfd),
                problem: shown.problems.get(name).cloned(),
                ..session(desired, status, now)
            };
            let sessions = sessions_of(&statuses, name);
            let rows = sessions.map(|(name, status)| view(name, Some(status)));
            let before = all.len();
            all.extend(rows);
            if all.len() == before {
                all.push(view(name, None));
            }
        }
        all
    }

    /// Returns what this node announces, and to which routers.
    pub fn routes(&self, node: &str) -> Vec<RouteView> {
        let shown = self.shown.borrow().clone();
        let statuses = self.statuses.borrow().clone();
        let union = &shown.routing.union;
        let mut services_at: BTreeMap<IpNet, BTreeSet<&ServiceKey>> = BTreeMap::new();
        for (service, sent) in union.sent.entries() {
            for prefix in &sent.prefixes {
                services_at.entry(*prefix).or_default().insert(service);
            }
        }
        let mut all = Vec::new();
        for (name, routes) in &union.routes {
            let established = state_of(&statuses, name) == State::Established;
            let sorted: BTreeMap<_, _> = routes.entries().collect();
            let of_peer = sorted.into_iter().map(|(prefix, attributes)| RouteView {
                prefix: prefix.to_string(),
                node: node.to_owned(),
                peer: name.to_string(),
                established,
                local_preference: attributes.local_preference,
                communities: communities(attributes),
                services: {
                    let services = services_at.get(prefix).into_iter().flatten();
                    services.map(|it| ServiceKey::clone(it)).collect()
                },
            });
            all.extend(of_peer);
        }
        all
    }

    /// Returns what is wrong with routers, and with what describes them.
    pub fn problems(&self) -> Vec<Reason> {
        let shown = self.shown.borrow().clone();
        let clashes = shown.routing.problems.iter();
        clashes.chain(shown.problems.values()).cloned().collect()
    }

    /// Returns what this node is to announce of a Service, router by router.
    pub fn announcements(&self, node: &str, key: &ServiceKey) -> Vec<AnnouncementView> {
        let shown = self.shown.borrow().clone();
        let union = &shown.routing.union;
        let mut said = Vec::new();
        let Some(sent) = union.sent.get(key) else {
            return said;
        };
        for address in &sent.addresses {
            for prefix in sent.prefixes.iter().filter(|it| it.contains(address)) {
                let routes = union.routes.iter();
                let routes = routes.filter(|(_, routes)| routes.contains_key(prefix));
                said.extend(routes.map(|(peer, _)| AnnouncementView {
                    node: node.to_owned(),
                    protocol: "bgp".to_owned(),
                    address: *address,
                    prefix: Some(prefix.to_string()),
                    peer: Some(peer.to_string()),
                    announced: true,
                    reason: None,
                    message: "announced".to_owned(),
                }));
            }
        }
        said
    }

    /// Returns what is said of announcements with what became of them: nothing is announced to a
    /// router without a session.
    pub fn explain(&self, announcements: Vec<AnnouncementView>) -> Vec<AnnouncementView> {
        let shown = self.shown.borrow().clone();
        let statuses = self.statuses.borrow().clone();
        let with_session = |mut said: AnnouncementView| {
            let Some(peer) = said.peer.as_deref().filter(|_| said.announced) else {
                return said;
            };
            let state = state_of(&statuses, peer);
            let problem = shown.problems.get(peer);
            if state == State::Established {
                if let Some(problem) = problem {
                    said.message = format!("{}; {problem}", said.message);
                }
                return said;
            }
            said.announced = false;
            said.message = problem.map_or_else(
                || format!("no session yet: {}", state.name()),
                ToString::to_string,
            );
            said
        };
        announcements.into_iter().map(with_session).collect()
    }

    /// Returns the addresses that some router has been sent, with their Services.
    pub fn announced(&self, node: &str) -> Vec<AnnouncedView> {
        let shown = self.shown.borrow().clone();
        let sent: BTreeMap<_, _> = shown.routing.union.sent.entries().collect();
        let all = sent.into_iter().flat_map(|(service, sent)| {
            let view = |address: &IpAddr| AnnouncedView {
                protocol: "bgp".to_owned(),
                node: node.to_owned(),
                address: *address,
                service: service.clone(),
            };
            sent.addresses.iter().map(view).collect::<Vec<_>>()
        });
        all.collect()
    }
}

/// Returns the sessions with a peer: several with routers of a range.
fn sessions_of<'a>(
    statuses: &'a Statuses,
    peer: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Status)> {
    statuses
        .iter()
        .filter(move |(name, _)| configured(name) == peer)
}

/// Returns the best state of a session with a peer.
fn state_of(statuses: &Statuses, peer: &str) -> State {
    let states = sessions_of(statuses, peer).map(|(_, status)| status.state);
    states.max().unwrap_or(State::Idle)
}

fn session(desired: &PeerSpec, status: Option<&Status>, now: Instant) -> PeerView {
    let peer = &desired.peer;
    let mut view = PeerView {
        address: wanted::address(desired),
        port: peer.port,
        vrf: peer.vrf.clone(),
        local_asn: peer.asn.get(),
        remote_asn: match peer.remote_asn {
            RemoteAsn::Number(number) => number.to_string(),
            RemoteAsn::Internal => "internal".to_owned(),
            RemoteAsn::External => "external".to_owned(),
        },
        state: State::Idle.name().to_owned(),
        ..PeerView::default()
    };
    let Some(status) = status else {
        return view;
    };
    status.state.name().clone_into(&mut view.state);
    view.state_seconds = now.saturating_duration_since(status.since).as_secs();
    if let PeerAddress::Range(_) = peer.address
        && let Some(agreed) = &status.agreed
    {
        view.address = agreed.remote.ip().to_string();
    }
    view.local_address = status.agreed.as_ref().map(|it| it.local.ip());
    view.prefixes_wanted = status.prefixes_wanted as u64;
    view.prefixes_sent = status.prefixes_sent as u64;
    view.prefixes_received = status.prefixes_received;
    let counts = &status.counts;
    view.messages = PeerMessages {
        opens_sent: counts.opens_sent,
        opens_received: counts.opens_received,
        updates_sent: counts.updates_sent,
        updates_received: counts.updates_received,
        keepalives_sent: counts.keepalives_sent,
        keepalives_received: counts.keepalives_received,
        notifications_sent: counts.notifications_sent,
        sent: counts.sent(),
        received: counts.received(),
    };
    view
}

fn of_bfd(status: &landfall_bfd::table::Status) -> BfdView {
    let counters = &status.counters;
    BfdView {
        state: format!("{:?}", status.session.state),
        ups: counters.ups,
        downs: counters.downs,
        control_in: counters.control_in,
        control_out: counters.control_out,
        echo_in: counters.echo_in,
        echo_out: counters.echo_out,
        fault: status.fault.clone(),
    }
}

fn communities(attributes: &Attributes) -> Vec<String> {
    let standard = attributes.communities.iter().map(ToString::to_string);
    let large = attributes.large_communities.iter();
    let large = large.map(|it| format!("large:{it}"));
    standard.chain(large).collect()
}
