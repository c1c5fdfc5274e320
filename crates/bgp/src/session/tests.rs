use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use ipnet::IpNet;

use super::*;
use crate::advertise::NextHops;
use crate::notification::code;
use crate::peer::{Families, Hops, Password, PeerAddress, RemoteAsn, Timers};
use crate::route::Attributes;
use crate::wire::open::Offer;
use crate::wire::{self, Message};

pub(crate) const BOTH: Families = Families {
    ipv4: true,
    ipv6: true,
};

pub(crate) fn asn(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// AS 65000 with the identifier 10.0.0.1, and a router of AS 65001.
pub(crate) fn peer() -> Peer {
    Peer {
        asn: asn(65_000),
        remote_asn: RemoteAsn::Number(asn(65_001)),
        address: PeerAddress::Ip(IpAddr::from([10, 0, 0, 2])),
        port: 179,
        source: None,
        mode: Mode::Active,
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        timers: Timers::default(),
        password: None,
        hops: Hops::Direct,
        vrf: None,
        families: BOTH,
        graceful_restart: None,
    }
}

pub(crate) fn connection(side: Side) -> Connection {
    Connection {
        side,
        local: "10.0.0.1:40000".parse().unwrap(),
        remote: "10.0.0.2:179".parse().unwrap(),
        next_hops: NextHops {
            ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            ..NextHops::default()
        },
    }
}

/// What the router offers.
pub(crate) fn router() -> Offer {
    Offer {
        asn: asn(65_001),
        hold: 90,
        id: Ipv4Addr::new(10, 0, 0, 2),
        families: BOTH,
        graceful_restart: None,
    }
}

pub(crate) fn routes(count: u8) -> Arc<Routes> {
    let one = |it| IpNet::new_assert(IpAddr::from([192, 0, 2, it]), 32);
    Arc::new((0..count).map(|it| (one(it), Arc::default())).collect())
}

/// A session with its clock.
struct Bench {
    session: Session,
    now: Instant,
}

impl Bench {
    fn new(peer: Peer) -> Self {
        let now = Instant::now();
        let session = Session::new(peer, routes(3), 7, now);
        Self { session, now }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.session.expire(self.now);
    }

    /// Lets time pass up to the next deadline, and returns how long that took.
    fn next(&mut self) -> Duration {
        let at = self.session.deadline().expect("it is not stuck");
        let wait = at.saturating_duration_since(self.now);
        self.now = self.now.max(at);
        self.session.expire(self.now);
        wait
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.next_action()).collect()
    }

    /// Waits for the session to connect, and connects it.
    fn connect(&mut self) -> LinkId {
        while !self.actions().contains(&Action::Connect) {
            self.next();
        }
        self.session.connected(connection(Side::Outgoing), self.now)
    }

    fn accept(&mut self) -> LinkId {
        let accepted = self.session.accepted(connection(Side::Incoming), self.now);
        accepted.unwrap()
    }

    fn messages(&mut self, id: LinkId) -> Vec<Message> {
        let context = wire::received::Context {
            internal: false,
            four_octet_as: true,
        };
        let mut all = Vec::new();
        while let Some(bytes) = self.session.transmit(id, self.now) {
            all.push(wire::read(&bytes, context).unwrap());
        }
        self.session.sent(id);
        all
    }

    fn receive(&mut self, id: LinkId, bytes: &[u8]) {
        self.session.received(id, bytes, self.now);
    }

    /// Brings a connection up to the state Established.
    fn establish(&mut self, id: LinkId, offer: &Offer) {
        self.receive(id, &offer.write());
        self.receive(id, &wire::keepalive());
        assert_eq!(self.state(), State::Established, "{:?}", self.error());
    }

    fn state(&self) -> State {
        self.session.status().state
    }

    fn error(&self) -> Option<SessionError> {
        self.session.status().last_error.map(|(_, error)| error)
    }

    /// Returns the NOTIFICATION with which the only connection was closed.
    fn refusal(&mut self) -> (u8, u8) {
        let mut closed = self
            .actions()
            .into_iter()
            .filter_map(|action| match action {
                Action::Close(_, last) => Some(last),
                _ => None,
            });
        let last = closed
            .next()
            .expect("it is closed")
            .expect("with a message");
        assert_eq!(closed.next(), None);
        (last[19], last[20])
    }
}

fn established(peer: Peer, offer: &Offer) -> (Bench, LinkId) {
    let mut bench = Bench::new(peer);
    let id = bench.connect();
    bench.establish(id, offer);
    (bench, id)
}

#[test]
fn a_session_passes_the_states_of_rfc_4271_and_sends_routes_and_markers() {
    let mut bench = Bench::new(peer());
    assert_eq!(bench.state(), State::Idle);
    bench.pass(0);
    assert_eq!(bench.state(), State::Connect);
    assert_eq!(bench.actions(), [Action::Connect]);
    let id = bench
        .session
        .connected(connection(Side::Outgoing), bench.now);
    assert_eq!(bench.state(), State::OpenSent);
    assert!(matches!(bench.messages(id)[..], [Message::Open(_)]));
    bench.receive(id, &router().write());
    assert_eq!(bench.state(), State::OpenConfirm);
    assert_eq!(bench.messages(id), [Message::Keepalive]);
    bench.receive(id, &wire::keepalive());
    assert_eq!(bench.state(), State::Established);
    let sent = bench.messages(id);
    let [
        Message::Update(three),
        Message::Update(one),
        Message::Update(two),
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(three.announced, 3);
    assert!(one.end_of_rib && two.end_of_rib);
    let status = bench.session.status();
    assert_eq!((status.prefixes_wanted, status.prefixes_sent), (3, 3));
    let agreed = status.agreed.unwrap();
    assert_eq!(agreed.remote_id, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(agreed.hold, Duration::from_secs(90));
    assert_eq!(agreed.keepalive, Duration::from_secs(30));
    assert_eq!(status.counts.established, 1);
    assert_eq!(status.last_error, None);
    assert!(bench.actions().is_empty());
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let mut bench = Bench::new(peer());
    let id = bench.connect();
    let all = [router().write(), wire::keepalive(), wire::keepalive()].concat();
    for byte in all {
        bench.receive(id, &[byte]);
    }
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.session.status().counts.keepalives_received, 2);
}

#[test]
fn a_message_that_is_not_expected_in_a_state_ends_the_session_with_its_subcode() {
    let update = wire::update::withdraw(&[], true);
    for early in [wire::keepalive(), update.clone()] {
        let mut bench = Bench::new(peer());
        let id = bench.connect();
        bench.receive(id, &early);
        assert_eq!(bench.refusal(), (code::STATE_MACHINE, 1));
        let id = bench.connect();
        bench.receive(id, &router().write());
        bench.receive(id, if early == update { &early } else { &update });
        assert_eq!(bench.refusal(), (code::STATE_MACHINE, 2));
    }
    let (mut bench, id) = established(peer(), &router());
    bench.receive(id, &router().write());
    assert_eq!(bench.refusal(), (code::STATE_MACHINE, 3));
    assert_eq!(bench.state(), State::Idle);
    assert_eq!(bench.error().unwrap().reason(), "InvalidMessage");
}

#[test]
fn a_router_of_another_as_is_refused_with_bad_peer_as() {
    let mut bench = Bench::new(peer());
    let id = bench.connect();
    let other = Offer {
        asn: asn(65_009),
        ..router()
    };
    bench.receive(id, &other.write());
    assert_eq!(bench.refusal(), (code::OPEN, 2));
    let error = bench.error().unwrap();
    assert_eq!(error.reason(), "BadPeerAS");
    assert_eq!(
        error.to_string(),
        "the router says that it is of AS 65009, but is configured as AS 65001"
    );
    assert!(error.remedy().contains("peerASN"));
    let at = bench.session.status().next_attempt.unwrap();
    assert!(at > bench.now);
}

#[test]
fn a_dynamic_as_takes_routers_inside_or_outside() {
    let up = |remote_asn, number| {
        let mut bench = Bench::new(Peer {
            remote_asn,
            ..peer()
        });
        let id = bench.connect();
        let offer = Offer {
            asn: asn(number),
            ..router()
        };
        bench.receive(id, &offer.write());
        bench.state() == State::OpenConfirm
    };
    assert!(up(RemoteAsn::External, 65_001) && up(RemoteAsn::External, 4_200_000_000));
    assert!(!up(RemoteAsn::External, 65_000));
    assert!(up(RemoteAsn::Internal, 65_000) && !up(RemoteAsn::Internal, 65_001));
}

#[test]
fn the_own_identifier_is_refused_inside_an_as_only() {
    let state = |remote: u32| {
        let mut bench = Bench::new(Peer {
            remote_asn: RemoteAsn::Number(asn(remote)),
            ..peer()
        });
        let id = bench.connect();
        let offer = Offer {
            asn: asn(remote),
            id: Ipv4Addr::new(10, 0, 0, 1),
            ..router()
        };
        bench.receive(id, &offer.write());
        bench.state()
    };
    assert_eq!(state(65_000), State::Idle);
    assert_eq!(state(65_001), State::OpenConfirm);
}

#[test]
fn a_router_without_a_common_family_is_refused_with_the_capabilities_that_lack() {
    let ipv6 = Families {
        ipv4: false,
        ipv6: true,
    };
    let mut bench = Bench::new(Peer {
        families: ipv6,
        ..peer()
    });
    let id = bench.connect();
    let offer = Offer {
        families: Families {
            ipv4: true,
            ipv6: false,
        },
        ..router()
    };
    bench.receive(id, &offer.write());
    let actions = bench.actions();
    let [Action::Close(_, Some(last))] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(last.get(19..).unwrap(), [2, 7, 1, 4, 0, 2, 0, 1]);
    assert_eq!(bench.error(), Some(SessionError::NoFamily));
}

#[test]
fn a_router_that_is_silent_is_given_up_after_the_hold_time_in_every_state() {
    // It does not answer at all.
    let mut bench = Bench::new(peer());
    bench.connect();
    bench.pass(29);
    assert_eq!(bench.state(), State::OpenSent);
    bench.pass(1);
    assert_eq!(bench.refusal(), (code::HOLD_TIMER, 0));
    // Only an OPEN.
    let id = bench.connect();
    bench.receive(id, &router().write());
    bench.pass(89);
    assert_eq!(bench.state(), State::OpenConfirm);
    bench.pass(1);
    assert_eq!(bench.refusal(), (code::HOLD_TIMER, 0));
    // Nothing more after a while.
    let id = bench.connect();
    bench.establish(id, &router());
    bench.pass(60);
    bench.receive(id, &wire::keepalive());
    bench.pass(89);
    assert_eq!(bench.state(), State::Established);
    bench.pass(1);
    assert_eq!(bench.refusal(), (code::HOLD_TIMER, 0));
    let hold = Duration::from_secs(90);
    assert_eq!(bench.error(), Some(SessionError::HoldTimer(hold)));
}

#[test]
fn the_shorter_hold_time_counts_and_a_third_of_it_between_keepalives() {
    let agreed = |own: u64, keepalive: Option<u64>, router_hold: u16| {
        let timers = Timers {
            hold: Duration::from_secs(own),
            keepalive: keepalive.map(Duration::from_secs),
            ..Timers::default()
        };
        let offer = Offer {
            hold: router_hold,
            ..router()
        };
        let (bench, _) = established(Peer { timers, ..peer() }, &offer);
        let agreed = bench.session.status().agreed.unwrap();
        (agreed.hold.as_secs(), agreed.keepalive.as_secs())
    };
    assert_eq!(agreed(90, None, 30), (30, 10));
    assert_eq!(agreed(9, None, 180), (9, 3));
    assert_eq!(agreed(90, Some(5), 180), (90, 5));
    assert_eq!(agreed(90, Some(25), 30), (30, 10));
    assert_eq!(agreed(0, None, 180), (0, 0));
    assert_eq!(agreed(90, None, 0), (0, 0));
}

#[test]
fn keepalives_are_sent_often_enough_and_not_while_there_is_other_traffic() {
    let offer = Offer {
        hold: 9,
        ..router()
    };
    let (mut bench, id) = established(peer(), &offer);
    bench.messages(id);
    let mut sent = 0;
    let end = bench.now + Duration::from_secs(60);
    while bench.now < end {
        let wait = bench.next();
        assert!(wait <= Duration::from_secs(3), "{wait:?}");
        sent += bench.messages(id).len();
        bench.receive(id, &wire::keepalive());
    }
    // Every 2.25 to 3 seconds.
    assert!((19..=28).contains(&sent), "{sent}");
    assert_eq!(bench.state(), State::Established);
}

#[test]
fn without_a_hold_time_a_session_waits_for_nothing() {
    let offer = Offer {
        hold: 0,
        ..router()
    };
    let (mut bench, id) = established(peer(), &offer);
    bench.messages(id);
    assert_eq!(bench.session.deadline(), None);
    bench.pass(1_000_000);
    assert_eq!(bench.state(), State::Established);
}

#[test]
fn without_a_hold_time_a_router_that_never_confirms_is_given_up_too() {
    let offer = Offer {
        hold: 0,
        ..router()
    };
    let mut bench = Bench::new(peer());
    let id = bench.connect();
    bench.messages(id);
    bench.receive(id, &offer.write());
    bench.messages(id);
    bench.pass(29);
    assert_eq!(bench.state(), State::OpenConfirm);
    bench.pass(1);
    assert_eq!(bench.refusal(), (code::HOLD_TIMER, 0));
    let silent = Duration::from_secs(30);
    assert_eq!(bench.error(), Some(SessionError::HoldTimer(silent)));
    // It is attempted again.
    bench.connect();
}

#[test]
fn a_router_that_takes_nothing_is_given_up() {
    let (mut bench, id) = established(peer(), &router());
    assert!(bench.session.transmit(id, bench.now).is_some());
    for _ in 0..15 {
        bench.pass(30);
        bench.receive(id, &wire::keepalive());
    }
    assert_eq!(bench.state(), State::Established);
    bench.pass(30);
    assert_eq!(bench.refusal(), (code::SEND_HOLD_TIMER, 0));
    assert_eq!(bench.error().unwrap().reason(), "SendHoldTimerExpired");
}

#[test]
fn failed_attempts_follow_each_other_more_and_more_slowly_and_say_why() {
    let mut bench = Bench::new(Peer {
        password: Password::new("secret").ok(),
        ..peer()
    });
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(bench.next());
        assert_eq!(bench.actions(), [Action::Connect]);
        let why = "10.0.0.2:179: connection refused".to_owned();
        let now = bench.now;
        bench
            .session
            .connect_failed(ConnectProblem::Refused, why, now);
        assert_eq!(bench.state(), State::Active);
    }
    assert_eq!(waits.first(), Some(&Duration::ZERO));
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(30)));
    assert!(*waits.last().unwrap() > Duration::from_secs(20));
    let error = bench.error().unwrap();
    assert_eq!(error.reason(), "ConnectionRefused");
    // No answer at all: with a password, that is the first thing to check.
    bench.next();
    assert_eq!(bench.actions(), [Action::Connect]);
    bench.next();
    assert_eq!(bench.actions(), [Action::Abort]);
    let error = bench.error().unwrap();
    assert_eq!(error.reason(), "ConnectTimeout");
    assert!(error.remedy().contains("same password"));
}

#[test]
fn a_session_that_lasted_begins_with_short_waits_again() {
    let mut bench = Bench::new(peer());
    for _ in 0..6 {
        bench.next();
        let now = bench.now;
        bench
            .session
            .connect_failed(ConnectProblem::Refused, String::new(), now);
    }
    bench.actions();
    let id = bench.connect();
    bench.establish(id, &router());
    bench.pass(40);
    bench.session.closed(id, None, bench.now);
    let at = bench.session.deadline().unwrap();
    assert!(at <= bench.now + Duration::from_secs(1));
    assert_eq!(bench.error().unwrap().reason(), "ConnectionClosed");
}

#[test]
fn of_two_connections_the_one_stays_that_the_higher_identifier_began() {
    // The router's is higher: the incoming one stays, in whichever order the OPENs come.
    for (id, survivor) in [(2, Side::Incoming), (0, Side::Outgoing)] {
        for outgoing_first in [true, false] {
            let offer = Offer {
                id: Ipv4Addr::new(10, 0, 0, id),
                ..router()
            };
            let offer = Offer {
                id: if id == 0 {
                    Ipv4Addr::new(9, 0, 0, 1)
                } else {
                    offer.id
                },
                ..offer
            };
            let mut bench = Bench::new(peer());
            let outgoing = bench.connect();
            let incoming = bench.accept();
            let mut order = [outgoing, incoming];
            if !outgoing_first {
                order.reverse();
            }
            for link in order {
                bench.receive(link, &offer.write());
            }
            let (stays, goes) = match survivor {
                Side::Outgoing => (outgoing, incoming),
                Side::Incoming => (incoming, outgoing),
            };
            assert!(bench.session.has(stays) && !bench.session.has(goes));
            assert_eq!(bench.refusal(), (code::CEASE, 7));
            bench.receive(stays, &wire::keepalive());
            assert_eq!(bench.state(), State::Established);
            assert_eq!(bench.error(), None);
        }
    }
}

#[test]
fn of_equal_identifiers_the_higher_as_decides() {
    let mut bench = Bench::new(peer());
    let offer = Offer {
        id: peer().router_id,
        ..router()
    };
    let (outgoing, incoming) = (bench.connect(), bench.accept());
    bench.receive(outgoing, &offer.write());
    bench.receive(incoming, &offer.write());
    assert!(bench.session.has(incoming) && !bench.session.has(outgoing));
}

#[test]
fn a_session_that_is_established_wins_over_any_other_connection() {
    let (mut bench, id) = established(peer(), &router());
    let incoming = bench.accept();
    bench.receive(incoming, &router().write());
    assert_eq!(bench.refusal(), (code::CEASE, 7));
    assert!(bench.session.has(id));
    // One that was half open when the session was established, too.
    let mut bench = Bench::new(peer());
    let (outgoing, incoming) = (bench.connect(), bench.accept());
    bench.establish(incoming, &router());
    assert!(!bench.session.has(outgoing));
    assert_eq!(bench.refusal(), (code::CEASE, 7));
    // An attempt that is on its way is given up.
    let mut bench = Bench::new(peer());
    bench.pass(0);
    let incoming = bench.accept();
    bench.establish(incoming, &router());
    assert_eq!(bench.actions(), [Action::Connect, Action::Abort]);
}

#[test]
fn a_router_that_connects_again_gives_its_first_connection_up() {
    let mut bench = Bench::new(peer());
    let first = bench.accept();
    let second = bench.accept();
    assert!(!bench.session.has(first) && bench.session.has(second));
    assert_eq!(bench.actions(), [Action::Close(first, None)]);
}

#[test]
fn a_router_that_restarts_gracefully_replaces_its_old_connection() {
    let graceful = Peer {
        graceful_restart: Some(Duration::from_secs(120)),
        ..peer()
    };
    let offer = Offer {
        graceful_restart: Some((Duration::from_secs(60), false)),
        ..router()
    };
    let (mut bench, old) = established(graceful, &offer);
    let new = bench.accept();
    bench.receive(new, &offer.write());
    assert!(!bench.session.has(old) && bench.session.has(new));
    assert_eq!(bench.actions(), [Action::Close(old, None)]);
    bench.receive(new, &wire::keepalive());
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.session.status().counts.established, 2);
}

#[test]
fn without_a_hold_time_a_router_that_is_back_replaces_its_old_connection() {
    for hold in [0, 90] {
        let offer = Offer { hold, ..router() };
        let (mut bench, old) = established(peer(), &offer);
        let new = bench.accept();
        // A host that connects and says nothing ends no session.
        assert!(bench.session.has(old));
        bench.receive(new, &offer.write());
        let is_replaced = hold == 0;
        assert_eq!(bench.session.has(new), is_replaced, "{hold}");
        assert_eq!(bench.session.has(old), !is_replaced, "{hold}");
        if is_replaced {
            bench.receive(new, &wire::keepalive());
        }
        assert_eq!(bench.state(), State::Established, "{hold}");
    }
}

#[test]
fn only_a_first_session_says_that_this_process_restarted() {
    let graceful = Peer {
        graceful_restart: Some(Duration::from_secs(120)),
        ..peer()
    };
    let mut bench = Bench::new(graceful);
    for restarted in [true, false] {
        let id = bench.connect();
        let sent = bench.messages(id);
        let [Message::Open(open)] = &sent[..] else {
            panic!("{sent:?}");
        };
        let offered = open.capabilities.graceful_restart.unwrap();
        assert_eq!(offered.restarted, restarted);
        assert_eq!(offered.families, BOTH);
        bench.establish(id, &router());
        bench.session.closed(id, None, bench.now);
    }
}

#[test]
fn a_restart_says_nothing_to_routers_that_keep_routes_and_a_shutdown_says_why() {
    let graceful = Peer {
        graceful_restart: Some(Duration::from_secs(120)),
        ..peer()
    };
    let keeps = Offer {
        graceful_restart: Some((Duration::from_secs(60), false)),
        ..router()
    };
    let ended = |offer: &Offer, end| {
        let (mut bench, id) = established(graceful.clone(), offer);
        bench.session.end(end, bench.now);
        assert_eq!(bench.session.deadline(), None);
        let actions = bench.actions();
        let [Action::Close(closed, last)] = &actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(*closed, id);
        last.as_deref()
            .map(|last| (last[19], last[20], last[21..].to_vec()))
    };
    assert_eq!(ended(&keeps, End::Restart), None);
    assert_eq!(ended(&router(), End::Restart), Some((6, 2, vec![])));
    let shutdown = ended(&keeps, End::Shutdown("drained".into()));
    assert_eq!(shutdown, Some((6, 2, b"\x07drained".to_vec())));
    assert_eq!(ended(&keeps, End::Removed), Some((6, 3, vec![])));
}

#[test]
fn before_a_restart_only_routers_that_did_not_agree_to_keep_routes_are_asked_for_other_paths() {
    let graceful = Peer {
        graceful_restart: Some(Duration::from_secs(120)),
        ..peer()
    };
    let keeps = Offer {
        graceful_restart: Some((Duration::from_secs(60), false)),
        ..router()
    };
    let asked = |peer: &Peer, offer: &Offer, drain| {
        let (mut bench, id) = established(peer.clone(), offer);
        let agreed = bench.session.status().agreed.unwrap();
        bench.messages(id);
        let routes = Arc::clone(bench.session.routes());
        bench.session.announce(routes, drain);
        let during = !bench.messages(id).is_empty();
        // One that comes up meanwhile is asked in the same way.
        let mut bench = Bench::new(peer.clone());
        let routes = Arc::clone(bench.session.routes());
        bench.session.announce(routes, drain);
        let id = bench.connect();
        bench.establish(id, offer);
        let bytes = std::iter::from_fn(|| bench.session.transmit(id, bench.now));
        let community = [0xff, 0xff, 0, 0];
        let mut updates = bytes.filter(|it| it[18] == 2);
        let later = updates.any(|it| it.windows(4).any(|it| it == community));
        assert_eq!(during, later);
        (agreed.keeps_routes, later)
    };
    for (peer, offer, keeps_routes) in [
        (&graceful, &keeps, true),
        (&graceful, &router(), false),
        (&peer(), &keeps, false),
    ] {
        for (drain, is_asked) in [
            (Drain::Off, false),
            (Drain::Forgetful, !keeps_routes),
            (Drain::All, true),
        ] {
            let found = asked(peer, offer, drain);
            assert_eq!(found, (keeps_routes, is_asked), "{drain:?}");
        }
    }
}

#[test]
fn a_path_that_is_down_ends_the_session_at_once_and_it_is_attempted_again() {
    let (mut bench, _) = established(peer(), &router());
    bench.session.end(End::BfdDown, bench.now);
    assert_eq!(bench.refusal(), (code::CEASE, 10));
    assert_eq!(bench.error(), Some(SessionError::BfdDown));
    let id = bench.connect();
    bench.establish(id, &router());
}

#[test]
fn only_a_change_of_the_password_leaves_a_session_as_it_is() {
    let (mut bench, id) = established(peer(), &router());
    let with_password = Peer {
        password: Password::new("new").ok(),
        ..peer()
    };
    bench.session.configure(with_password.clone(), bench.now);
    assert_eq!(bench.actions(), [Action::Rekey]);
    assert!(bench.session.has(id));
    bench.session.configure(with_password.clone(), bench.now);
    assert!(bench.actions().is_empty());
    let other = Peer {
        port: 1790,
        ..with_password
    };
    bench.session.configure(other, bench.now);
    assert_eq!(bench.refusal(), (code::CEASE, 6));
    assert_eq!(bench.session.deadline(), Some(bench.now));
}

#[test]
fn a_changed_password_is_tried_without_waiting() {
    let mut bench = Bench::new(peer());
    bench.pass(0);
    bench.actions();
    bench.pass(10);
    assert!(bench.session.deadline().unwrap() > bench.now);
    let with_password = Peer {
        password: Password::new("new").ok(),
        ..peer()
    };
    bench.session.configure(with_password, bench.now);
    assert_eq!(bench.session.deadline(), Some(bench.now));
}

#[test]
fn a_passive_session_waits_for_the_router() {
    let passive = Peer {
        mode: Mode::Passive,
        ..peer()
    };
    let mut bench = Bench::new(passive);
    assert_eq!(bench.state(), State::Active);
    assert_eq!(bench.session.deadline(), None);
    let id = bench.accept();
    bench.establish(id, &router());
    bench.session.closed(id, None, bench.now);
    assert_eq!(bench.session.deadline(), None);
    let id = bench.accept();
    bench.establish(id, &router());
}

#[test]
fn an_ended_session_takes_no_connection() {
    let mut bench = Bench::new(peer());
    bench.session.end(End::Removed, bench.now);
    let accepted = bench
        .session
        .accepted(connection(Side::Incoming), bench.now);
    assert_eq!(accepted, None);
}

#[test]
fn a_notification_is_shown_as_text_and_answered_by_none() {
    let (mut bench, id) = established(peer(), &router());
    let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN, "maintenance");
    bench.receive(id, &wire::notification(&why));
    assert_eq!(bench.actions(), [Action::Close(id, None)]);
    let error = bench.error().unwrap();
    assert_eq!(
        error.to_string(),
        "the router sent a NOTIFICATION: Cease/Administrative Shutdown (6/2): \"maintenance\""
    );
    assert!(error.remedy().contains("enable it there"));
    assert!(bench.session.status().next_attempt.is_some());
}

#[test]
fn received_prefixes_are_counted_and_forgotten_with_the_session() {
    let (mut bench, id) = established(peer(), &router());
    let terms = crate::wire::update::Style {
        path: Some(asn(65_001)),
        four_octet_as: true,
    };
    let next_hop = crate::wire::update::NextHop::Classic(Ipv4Addr::new(10, 0, 0, 2));
    let announcement =
        crate::wire::update::Announcement::new(&Attributes::default(), next_hop, true, terms);
    let prefixes: Vec<IpNet> = routes(200).keys().copied().collect();
    for _ in 0..5 {
        bench.receive(id, &announcement.write(&prefixes));
    }
    let status = bench.session.status();
    assert_eq!(
        (status.prefixes_received, status.counts.updates_received),
        (1000, 5)
    );
    assert_eq!(status.counts.updates_malformed, 0);
    bench.session.closed(id, None, bench.now);
    assert_eq!(bench.session.status().prefixes_received, 0);
}
