//! What sessions are to be like, and what is wrong with one: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_bgp::driver::Neighbor;
use landfall_bgp::peer::{Password, PeerAddress};
use landfall_bgp::route::{Attributes, Routes};
use landfall_bgp::status::{State, Status};
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};

use super::about;
use crate::peers::PeerSpec;
use crate::routing::Routing;

/// What is known of the Secrets that peers name.
pub type Passwords = BTreeMap<ServiceKey, Known>;

/// What is known of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The password that it held when it could be read last.
    pub password: Option<Password>,
    /// Why it could not be read now.
    pub problem: Option<String>,
}

/// The sessions, and why there is none with others.
pub(super) struct Made {
    pub(super) peers: BTreeMap<Arc<str>, Neighbor>,
    pub(super) unusable: BTreeMap<Arc<str>, Reason>,
}

/// Returns the sessions. `is_stopping`: routers that do not keep the routes of a speaker that
/// restarts are asked to prefer others.
pub(super) fn neighbors(routing: &Routing, passwords: &Passwords, is_stopping: bool) -> Made {
    let mut made = Made {
        peers: BTreeMap::new(),
        unusable: BTreeMap::new(),
    };
    for (name, desired) in &routing.peers {
        let mut peer = desired.peer.clone();
        if let Some(problem) = &desired.password_problem {
            let remedy = "write a password of 1 to 80 bytes";
            let reason = about(name, problem, remedy).at("spec.password");
            made.unusable.insert(Arc::clone(name), reason);
            continue;
        }
        if let Some(secret) = &desired.secret {
            let Some(known) = passwords.get(secret) else {
                // It is being read.
                continue;
            };
            if let Some(problem) = &known.problem {
                let remedy = "create a Secret of type kubernetes.io/basic-auth with the key \
                              password in the namespace of the BGPPeer";
                let reason = about(name, problem, remedy).at("spec.passwordSecret");
                made.unusable.insert(Arc::clone(name), reason);
            }
            // A session that has one goes on with it.
            let Some(password) = &known.password else {
                continue;
            };
            peer.password = Some(password.clone());
        }
        let routes = routing.union.routes.get(name);
        let mut routes = routes.map_or_else(Arc::default, Arc::clone);
        if is_stopping && peer.graceful_restart.is_none() {
            routes = Arc::new(drained(&routes));
        }
        let neighbor = Neighbor { peer, routes };
        made.peers.insert(Arc::clone(name), neighbor);
    }
    made
}

fn drained(routes: &Routes) -> Routes {
    let mut known: BTreeMap<Arc<Attributes>, Arc<Attributes>> = BTreeMap::new();
    let routes = routes.iter().map(|(prefix, attributes)| {
        let drained = known
            .entry(Arc::clone(attributes))
            .or_insert_with_key(|attributes| Arc::new(attributes.drained()));
        (*prefix, Arc::clone(drained))
    });
    routes.collect()
}

/// Returns what is wrong with a session.
pub(super) fn problem(name: &str, desired: &PeerSpec, status: &Status) -> Option<Reason> {
    let address = address(desired);
    if status.state == State::Established {
        let unsent = status.unsent?;
        let message = format!(
            "BGPPeer {name} ({address}): {} of its prefixes are not announced: {}",
            unsent.count, unsent.why
        );
        let remedy = "let the router activate the family of the prefixes, or set \
                      dualStackAddressFamily";
        return Some(Reason::warning(Code::NotAnnounced, message).remedy(remedy));
    }
    let (_, error) = status.last_error.as_ref()?;
    let message = format!(
        "BGPPeer {name} ({address}): no session ({}): {error}",
        error.reason()
    );
    Some(Reason::warning(Code::NotAnnounced, message).remedy(error.remedy()))
}

/// Returns where a router is, for people.
pub(super) fn address(desired: &PeerSpec) -> String {
    match &desired.peer.address {
        PeerAddress::Ip(address) => address.to_string(),
        PeerAddress::Interface(interface) => format!("interface {interface}"),
    }
}
