//! What sessions are to be like, and what is wrong with one: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_bfd::packet::authentication::Key;
use landfall_bfd::table::{Path, Wanted as BfdWanted};
use landfall_bgp::driver::{Neighbor, Refusal, Refusals, Statuses, configured};
use landfall_bgp::peer::{Mode, Password, Peer, PeerAddress};
use landfall_bgp::route::Drain;
use landfall_bgp::status::{State, Status};
use landfall_metallb::{KEY_SECRET, PASSIVE};
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason, annotation_field};

use super::{about, add};
use crate::peers::{BfdKeySpec, PeerSpec};
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
    /// Those that are not among the peers, because their password is not known: a range around one
    /// is not to take its connections.
    pub(super) reserved: Vec<PeerAddress>,
    pub(super) unusable: BTreeMap<Arc<str>, Reason>,
}

/// Returns the sessions.
pub(super) fn neighbors(routing: &Routing, passwords: &Passwords) -> Made {
    let mut made = Made {
        peers: BTreeMap::new(),
        reserved: Vec::new(),
        unusable: BTreeMap::new(),
    };
    for (name, desired) in &routing.peers {
        let Some(peer) = complete(name, desired, passwords, &mut made.unusable) else {
            if desired.peer.vrf.is_none() {
                made.reserved.push(desired.peer.address.clone());
            }
            continue;
        };
        let routes = routing.union.routes.get(name);
        let routes = routes.map_or_else(Arc::default, Arc::clone);
        let neighbor = Neighbor { peer, routes };
        made.peers.insert(Arc::clone(name), neighbor);
    }
    made
}

/// Returns how the session with a router is made, with its password; `None`: that is not known.
fn complete(
    name: &Arc<str>,
    desired: &PeerSpec,
    passwords: &Passwords,
    unusable: &mut BTreeMap<Arc<str>, Reason>,
) -> Option<Peer> {
    let mut peer = desired.peer.clone();
    if let Some(problem) = &desired.password_problem {
        let remedy = "write a password of 1 to 80 bytes";
        let reason = about(name, problem, remedy).at("spec.password");
        unusable.insert(Arc::clone(name), reason);
        return None;
    }
    if let Some(secret) = &desired.secret {
        // None: it is being read.
        let known = passwords.get(secret)?;
        if let Some(problem) = &known.problem {
            let remedy = "create a Secret of type kubernetes.io/basic-auth with the key \
                              password in the namespace of the BGPPeer";
            let reason = about(name, problem, remedy).at("spec.passwordSecret");
            unusable.insert(Arc::clone(name), reason);
        }
        // A session that has one goes on with it.
        peer.password = Some(known.password.clone()?);
    }
    Some(peer)
}

/// Returns which routers are asked to prefer other nodes. Where all are, a stop then withdraws
/// everything, also from those that would keep the routes of a speaker that restarts.
pub(super) const fn drain(routing: &Routing, is_stopping: bool) -> Drain {
    if routing.is_leaving || (is_stopping && !routing.is_to_return()) {
        Drain::All
    } else if is_stopping {
        Drain::Forgetful
    } else {
        Drain::Off
    }
}

/// Returns whether a router has routes that it will not keep when the sessions end.
pub(super) fn is_to_wait(routing: &Routing, statuses: &Statuses) -> bool {
    let drain = drain(routing, true);
    statuses.values().any(|status| {
        let agreed = status.agreed.as_ref();
        let is_asked = agreed.is_some_and(|it| drain.concerns(it.keeps_routes));
        status.state == State::Established && status.prefixes_sent > 0 && is_asked
    })
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

/// Adds why connections that routers begin are refused. A router with which this node begins the
/// session needs none of them, unless it has no session.
pub(super) fn add_refusals(
    problems: &mut BTreeMap<Arc<str>, Reason>,
    routing: &Routing,
    refusals: &Refusals,
) {
    for (name, refusal) in refusals {
        let desired = routing.peers.get(name);
        let is_waiting = desired.is_some_and(|it| it.peer.mode == Mode::Passive);
        let is_needless = matches!(refusal, Refusal::Keyed(_)) && !is_waiting;
        if !is_needless || problems.contains_key(name) {
            add(problems, name, refused(name, refusal));
        }
    }
}

/// Returns the reason why connections that a router begins are refused.
fn refused(name: &str, refusal: &Refusal) -> Reason {
    let (why, remedy) = match refusal {
        Refusal::Unsigned(why) => (
            format!("refused, because nothing asks for its password: {why}"),
            "let this node begin the session; or raise net.core.optmem_max where memory lacks, and \
             use a kernel with TCP MD5",
        ),
        Refusal::Keyed(range) => (
            format!(
                "dropped: it has no password, and the kernel asks for that of another BGPPeer for \
                 all connections from {range}"
            ),
            "write a password here and in the router, or narrow the range of the other BGPPeer",
        ),
        Refusal::Closed(why) => (
            format!("refused, because this node does not listen: {why}"),
            "end the other program that has the port, and let the speaker have the capability \
             NET_BIND_SERVICE",
        ),
    };
    let message = format!("BGPPeer {name}: connections that its router begins are {why}");
    Reason::warning(Code::ListenFailed, message).remedy(remedy)
}

/// Returns what BFD is to watch, and the path to each router that it watches.
pub(super) fn paths(
    routing: &Routing,
    statuses: &Statuses,
    passwords: &Passwords,
) -> (BfdWanted, BTreeMap<Arc<str>, Path>) {
    let (mut wanted, mut watched) = (BfdWanted::new(), BTreeMap::new());
    for (name, desired) in &routing.peers {
        let Some((path, settings)) = &desired.bfd else {
            continue;
        };
        let (mut path, mut settings) = (path.clone(), settings.clone());
        if path.peer.is_unspecified() {
            // The address at the other end of an interface is known once the session is up.
            let agreed = statuses.get(name).and_then(|it| it.agreed.as_ref());
            let Some(remote) = agreed.map(|it| it.remote.ip()) else {
                continue;
            };
            path.peer = remote;
        }
        if let Some(spec) = &desired.bfd_key {
            // Without it no packet would be taken.
            let Ok(Some(key)) = bfd_key(name, spec, passwords) else {
                continue;
            };
            settings.authentication = Some(key);
        }
        wanted.insert(path.clone(), settings);
        watched.insert(Arc::clone(name), path);
    }
    (wanted, watched)
}

/// Returns the key of BFD with a router; `None`: it is not known yet.
///
/// # Errors
/// Why there is none that can be used.
pub(super) fn bfd_key(
    name: &str,
    spec: &BfdKeySpec,
    passwords: &Passwords,
) -> Result<Option<Key>, Box<Reason>> {
    let secret = &spec.secret;
    let refusal = |message: String| {
        let remedy = "write a key of 1 to 20 bytes under password into the Secret of type \
                      kubernetes.io/basic-auth that the BFDProfile names";
        let message = format!("BFD does not watch the router: {message}");
        Box::new(about(name, &message, remedy).at(annotation_field(KEY_SECRET)))
    };
    let Some(known) = passwords.get(secret) else {
        return Ok(None);
    };
    match (&known.password, &known.problem) {
        // What can't be read any more stays as it was.
        (Some(password), _) => {
            let key = Key::new(spec.method, spec.id, password.reveal());
            let key = key.map_err(|error| refusal(format!("Secret {secret}: {error}")));
            key.map(Some)
        }
        (None, Some(problem)) => Err(refusal(problem.clone())),
        (None, None) => Ok(None),
    }
}

/// Returns what is wrong with routers: with a session first, then with what it is to be made of.
pub(super) fn problems(
    routing: &Routing,
    statuses: &Statuses,
    unusable: &BTreeMap<Arc<str>, Reason>,
) -> BTreeMap<Arc<str>, Reason> {
    let mut problems = BTreeMap::new();
    for (name, status) in statuses {
        let desired = routing.peers.get(configured(name));
        let problem = desired.and_then(|it| problem(name, it, status));
        problems.extend(problem.map(|it| (Arc::clone(name), it)));
    }
    for (name, problem) in unusable {
        add(&mut problems, name, problem.clone());
    }
    problems
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
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use landfall_bfd::packet::authentication::Method;
    use landfall_bfd::session::Settings;
    use landfall_bgp::error::{ConnectProblem, SessionError};
    use landfall_bgp::notification::Notification;
    use landfall_bgp::peer::{Families, Hops, RemoteAsn, Timers};
    use landfall_bgp::status::{Agreed, Capabilities, Counts};

    use super::*;

    pub fn tor() -> PeerSpec {
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
            bfd_key: None,
        }
    }

    pub fn failed(error: SessionError) -> Status {
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

    /// A session that is established.
    fn up(keeps_routes: bool, prefixes_sent: usize) -> Status {
        let agreed = Agreed {
            local: ([192, 0, 2, 1], 40_000).into(),
            remote: ([192, 0, 2, 254], 179).into(),
            remote_asn: std::num::NonZeroU32::new(64_501).unwrap(),
            remote_id: [192, 0, 2, 254].into(),
            hold: Duration::from_secs(90),
            keepalive: Duration::from_secs(30),
            families: Families::default(),
            capabilities: Capabilities::default(),
            keeps_routes,
        };
        Status {
            state: State::Established,
            agreed: Some(agreed),
            prefixes_sent,
            ..failed(SessionError::BfdDown)
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
    fn a_key_of_bfd_comes_from_its_secret_and_one_that_is_missing_or_too_long_is_named() {
        let secret = ServiceKey::new("metallb-system", "bfd");
        let spec = BfdKeySpec {
            secret: secret.clone(),
            id: 7,
            method: Method::KeyedSha1,
        };
        let key = |known: Option<Known>| {
            let passwords = known.map(|known| (secret.clone(), known));
            bfd_key("tor", &spec, &passwords.into_iter().collect())
        };
        let of = |text: &str| Known {
            password: Some(Password::new(text).unwrap()),
            problem: None,
        };
        assert_eq!(key(None), Ok(None));
        let expected = Key::new(Method::KeyedSha1, 7, b"a good key").unwrap();
        assert_eq!(key(Some(of("a good key"))), Ok(Some(expected.clone())));
        let unread = Some("it can't be read".to_owned());
        let kept = Known {
            problem: unread.clone(),
            ..of("a good key")
        };
        assert_eq!(key(Some(kept)), Ok(Some(expected)));
        let missing = Known {
            password: None,
            problem: unread,
        };
        for (known, why) in [
            (missing, "it can't be read"),
            (of(&"x".repeat(21)), "not 21"),
        ] {
            let reason = key(Some(known)).unwrap_err();
            assert!(reason.message.contains("BGPPeer tor"), "{reason}");
            assert!(reason.message.contains(why), "{reason}");
            assert!(reason.remedy.contains("1 to 20 bytes"), "{reason}");
        }
    }

    #[test]
    fn a_key_of_bfd_that_can_not_be_used_does_not_hide_why_there_is_no_session() {
        let routing = Routing {
            peers: [("tor".into(), tor())].into(),
            ..Routing::default()
        };
        let key = about("tor", "BFD does not watch the router", "write a key");
        let unusable = [("tor".into(), key.clone())].into();
        let of = |statuses: &Statuses| {
            let mut said = problems(&routing, statuses, &unusable);
            said.remove("tor").unwrap()
        };
        let down = [("tor".into(), failed(SessionError::BfdDown))].into();
        let both = of(&down);
        let own = problem("tor", &tor(), &down["tor"]).unwrap();
        assert_eq!((both.code, both.severity), (own.code, own.severity));
        assert_eq!(both.message, format!("{}; {}", own.message, key.message));
        assert_eq!(both.remedy, format!("{}; {}", own.remedy, key.remedy));
        let mut up = failed(SessionError::BfdDown);
        up.state = State::Established;
        assert_eq!(of(&[("tor".into(), up)].into()), key);
    }

    #[test]
    fn bfd_watches_a_router_with_its_key_and_not_before_the_key_is_known() {
        let secret = ServiceKey::new("metallb-system", "bfd");
        let path = Path {
            peer: [192, 0, 2, 254].into(),
            hops: landfall_bfd::table::Hops::Single,
            interface: None,
            vrf: None,
            local: None,
        };
        let mut keyed = tor();
        keyed.bfd = Some((path.clone(), Settings::default()));
        let mut plain = keyed.clone();
        keyed.bfd_key = Some(BfdKeySpec {
            secret: secret.clone(),
            id: 7,
            method: Method::MeticulousKeyedSha1,
        });
        let of = |desired: &PeerSpec, passwords: &Passwords| {
            let routing = Routing {
                peers: [("tor".into(), desired.clone())].into(),
                ..Routing::default()
            };
            let (wanted, watched) = paths(&routing, &Statuses::new(), passwords);
            assert_eq!(wanted.len(), watched.len());
            wanted.get(&path).map(|it| it.authentication.clone())
        };
        let known = Known {
            password: Some(Password::new("a good key").unwrap()),
            problem: None,
        };
        let passwords = Passwords::from([(secret, known)]);
        let key = Key::new(Method::MeticulousKeyedSha1, 7, b"a good key").unwrap();
        assert_eq!(of(&keyed, &Passwords::new()), None);
        assert_eq!(of(&keyed, &passwords), Some(Some(key)));
        assert_eq!(of(&plain, &passwords), Some(None));
        // A router at the other end of an interface, before its address is known.
        plain.bfd = Some((
            Path {
                peer: std::net::Ipv6Addr::UNSPECIFIED.into(),
                ..path.clone()
            },
            Settings::default(),
        ));
        assert_eq!(of(&plain, &passwords), None);
    }

    #[test]
    fn routes_outlive_a_stop_only_where_the_node_is_to_start_a_speaker_again() {
        let of = |is_leaving, is_unready, is_stopping| {
            let routing = Routing {
                is_leaving,
                is_unready,
                ..Routing::default()
            };
            drain(&routing, is_stopping)
        };
        // A node that is not ready goes on for routers while its speaker does.
        assert_eq!(of(false, true, false), Drain::Off);
        assert_eq!(of(false, true, true), Drain::All);
        assert_eq!(of(false, false, false), Drain::Off);
        assert_eq!(of(false, false, true), Drain::Forgetful);
        assert_eq!(of(true, false, false), Drain::All);
        assert_eq!(of(true, false, true), Drain::All);
    }

    #[test]
    fn a_stop_waits_for_routers_that_did_not_agree_to_keep_routes_whatever_the_spec_says() {
        let mut graceful = tor();
        graceful.peer.graceful_restart = Some(Duration::from_mins(1));
        let waits = |is_unready, keeps_routes, prefixes_sent, name: &str| {
            let routing = Routing {
                peers: [("tor".into(), graceful.clone())].into(),
                is_unready,
                ..Routing::default()
            };
            is_to_wait(
                &routing,
                &[(name.into(), up(keeps_routes, prefixes_sent))].into(),
            )
        };
        for name in ["tor", "tor/192.0.2.7"] {
            assert!(waits(false, false, 1, name));
            assert!(!waits(false, true, 1, name));
            // It has nothing; the speaker is not to come back in time.
            assert!(!waits(false, false, 0, name));
            assert!(waits(true, true, 1, name));
        }
    }

    #[test]
    fn the_address_of_a_router_whose_password_is_not_known_is_reserved_for_it() {
        let secret = ServiceKey::new("metallb-system", "bgp");
        let mut keyed = tor();
        keyed.secret = Some(secret.clone());
        let mut unusable = tor();
        unusable.password_problem = Some("an empty password".to_owned());
        let mut far = keyed.clone();
        far.peer.vrf = Some("red".to_owned());
        let made = |desired: &PeerSpec, known: Option<Known>| {
            let routing = Routing {
                peers: [("tor".into(), desired.clone())].into(),
                ..Routing::default()
            };
            let passwords = known.map(|known| (secret.clone(), known));
            let made = neighbors(&routing, &passwords.into_iter().collect());
            (made.peers.contains_key("tor"), made.reserved)
        };
        let own = vec![tor().peer.address];
        let missing = Known {
            password: None,
            problem: Some("it can't be read".to_owned()),
        };
        let known = Known {
            password: Some(Password::new("secret").unwrap()),
            problem: None,
        };
        assert_eq!(made(&keyed, None), (false, own.clone()));
        assert_eq!(made(&keyed, Some(missing)), (false, own.clone()));
        assert_eq!(made(&unusable, None), (false, own));
        assert_eq!(made(&keyed, Some(known)), (true, vec![]));
        // Routers of a range are never those of a VRF.
        assert_eq!(made(&far, None), (false, vec![]));
    }

    #[test]
    fn a_router_whose_connections_are_refused_is_named_with_the_cause() {
        let keyed = Refusal::Keyed("192.0.2.0/24".parse().unwrap());
        for (refusal, parts, remedy) in [
            (
                Refusal::Unsigned("no memory".to_owned()),
                ["password", "no memory"],
                "optmem_max",
            ),
            (
                keyed.clone(),
                ["no password", "192.0.2.0/24"],
                "write a password",
            ),
            (
                Refusal::Closed("in use".to_owned()),
                ["not listen", "in use"],
                "other program",
            ),
        ] {
            let reason = refused("tor", &refusal);
            for part in [["BGPPeer tor"].as_slice(), &parts].concat() {
                assert!(reason.message.contains(part), "{reason}");
            }
            assert!(reason.remedy.contains(remedy), "{reason}");
        }
        // A router with which this node begins the session is named while it has none.
        let said = |mode, before: Option<Reason>| {
            let mut desired = tor();
            desired.peer.mode = mode;
            let routing = Routing {
                peers: [("tor".into(), desired)].into(),
                ..Routing::default()
            };
            let before = before.map(|it| (Arc::from("tor"), it));
            let mut problems: BTreeMap<Arc<str>, Reason> = before.into_iter().collect();
            let refusals = [("tor".into(), keyed.clone())].into();
            add_refusals(&mut problems, &routing, &refusals);
            let said = problems.get("tor").map(|it| it.message.clone());
            said.is_some_and(|it| it.contains("no password"))
        };
        let problem = || problem("tor", &tor(), &failed(SessionError::BfdDown));
        assert!(said(Mode::Passive, None) && said(Mode::Passive, problem()));
        assert!(!said(Mode::Active, None) && said(Mode::Active, problem()));
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
