//! What sessions are to be like, and what is wrong with one: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_bgp::driver::Neighbor;
use landfall_bgp::peer::{Mode, Password, PeerAddress};
use landfall_bgp::route::{Attributes, Routes};
use landfall_bgp::status::{State, Status};
use landfall_metallb::PASSIVE;
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason, annotation_field};

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

/// Returns what is wrong with routers that are to begin sessions with a node that does not listen.
pub(super) fn unheard(routing: &Routing) -> impl Iterator<Item = (Arc<str>, Reason)> {
    let passive = routing.peers.iter();
    let passive = passive.filter(|(_, desired)| desired.peer.mode == Mode::Passive);
    passive.map(|(name, _)| {
        let message = "the router is to begin the session, and this node does not listen for it";
        let remedy = "start the speakers with --bgp-listen 179, or remove the annotation";
        let at = annotation_field(PASSIVE);
        (Arc::clone(name), about(name, message, remedy).at(at))
    })
}

fn drained(routes: &Routes) -> Routes {
    let mut known: BTreeMap<Arc<Attributes>, Arc<Attributes>> = BTreeMap::new();
    let routes = routes.entries().map(|(prefix, attributes)| {
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
        PeerAddress::Range(range) => range.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use landfall_bgp::error::{ConnectProblem, SessionError};
    use landfall_bgp::notification::Notification;
    use landfall_bgp::peer::{Families, Hops, Peer, RemoteAsn, Timers};
    use landfall_bgp::status::Counts;

    use super::*;

    fn tor() -> PeerSpec {
        let asn = |number| std::num::NonZeroU32::new(number).unwrap();
        PeerSpec {
            peer: Peer {
                asn: asn(64_500),
                remote_asn: RemoteAsn::Number(asn(64_501)),
                address: PeerAddress::Ip([192, 0, 2, 254].into()),
                port: 179,
                source: None,
                mode: Mode::Passive,
                router_id: [10, 0, 0, 1].into(),
                timers: Timers::default(),
                password: None,
                hops: Hops::Direct,
                vrf: None,
                families: Families::default(),
                graceful_restart: None,
            },
            secret: None,
            password_problem: None,
            bfd: None,
        }
    }

    fn failed(error: SessionError) -> Status {
        Status {
            state: State::Idle,
            since: Instant::now(),
            last_error: Some((Instant::now(), error)),
            next_attempt: None,
            agreed: None,
            prefixes_wanted: 0,
            prefixes_sent: 0,
            unsent: None,
            prefixes_received: 0,
            counts: Counts::default(),
        }
    }

    #[test]
    fn each_way_in_which_a_session_fails_has_a_reason_with_the_router_and_a_remedy() {
        let minute = Duration::from_mins(1);
        let connect = |kind, password| SessionError::Connect {
            kind,
            why: "as the system says".to_owned(),
            password,
        };
        let sent = |code, subcode| Notification {
            code,
            subcode,
            data: Box::default(),
        };
        let received = |code, subcode| SessionError::Received(sent(code, subcode));
        let cases = [
            // Nothing listens; silent; a wrong password.
            (
                connect(ConnectProblem::Refused, false),
                "ConnectionRefused",
                "start BGP",
            ),
            (
                connect(ConnectProblem::Timeout, false),
                "ConnectTimeout",
                "firewalls",
            ),
            (
                connect(ConnectProblem::Timeout, true),
                "ConnectTimeout",
                "the same password",
            ),
            (
                connect(ConnectProblem::Source, false),
                "SourceAddressMissing",
                "sourceAddress",
            ),
            (
                connect(ConnectProblem::Interface, false),
                "InterfaceMissing",
                "interface",
            ),
            // It speaks no BGP, or does not know this node.
            (
                SessionError::Closed { open_sent: true },
                "ConnectionClosed",
                "its neighbor",
            ),
            // Half-open, or stuck.
            (
                SessionError::HoldTimer(minute),
                "HoldTimerExpired",
                "the link",
            ),
            (
                SessionError::SendHoldTimer(minute),
                "SendHoldTimerExpired",
                "overloaded",
            ),
            (
                SessionError::WrongAs {
                    want: RemoteAsn::Internal,
                    got: 64_502,
                },
                "BadPeerAS",
                "peerASN",
            ),
            (
                SessionError::NoFamily,
                "NoCommonFamily",
                "dualStackAddressFamily",
            ),
            // Garbage.
            (
                SessionError::Invalid(sent(1, 1)),
                "InvalidMessage",
                "router's log",
            ),
            // What the router refuses: the AS, a capability; and its operator.
            (received(2, 2), "NotificationReceived", "myASN"),
            (received(2, 7), "NotificationReceived", "the same families"),
            (received(6, 2), "NotificationReceived", "enable it there"),
            (SessionError::BfdDown, "BFDDown", "the link"),
        ];
        for (error, reason, remedy) in cases {
            let said = problem("tor", &tor(), &failed(error)).unwrap();
            let named = format!("BGPPeer tor (192.0.2.254): no session ({reason})");
            assert!(said.message.starts_with(&named), "{said}");
            assert!(said.remedy.contains(remedy), "{said}");
        }
    }

    #[test]
    fn a_router_that_is_to_begin_the_session_with_a_node_that_does_not_listen_is_named() {
        let routing = Routing {
            peers: [("tor".into(), tor())].into(),
            ..Routing::default()
        };
        let said: Vec<_> = unheard(&routing).collect();
        let [(_, reason)] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(reason.message.contains("BGPPeer tor"), "{reason}");
        assert!(reason.remedy.contains("--bgp-listen"), "{reason}");
    }
}
