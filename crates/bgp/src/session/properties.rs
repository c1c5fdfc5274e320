//! Any order of events: no panic, never stuck, and both ends agree in the end.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::tests::{connection, peer, router, routes};
use super::*;
use crate::wire;

/// Something that happens to a session.
#[derive(Clone, Debug)]
enum Event {
    Connected,
    Failed,
    Accepted,
    Open(u8),
    Keepalive(u8),
    Update(u8),
    Refresh(u8),
    Notification(u8),
    Garbage(u8, Vec<u8>),
    Closed(u8),
    Transmit(u8),
    Sent(u8),
    Pass(u32),
    Deadline,
    Announce(u8),
    Password,
    Port(u16),
    BfdDown,
    Reset,
}

fn any_event() -> impl Strategy<Value = Event> {
    let place = 0..3_u8;
    prop_oneof![
        3 => Just(Event::Connected),
        1 => Just(Event::Failed),
        2 => Just(Event::Accepted),
        4 => place.clone().prop_map(Event::Open),
        6 => place.clone().prop_map(Event::Keepalive),
        2 => place.clone().prop_map(Event::Update),
        1 => place.clone().prop_map(Event::Refresh),
        1 => place.clone().prop_map(Event::Notification),
        1 => (place.clone(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(place, bytes)| Event::Garbage(place, bytes)),
        1 => place.clone().prop_map(Event::Closed),
        4 => place.clone().prop_map(Event::Transmit),
        4 => place.prop_map(Event::Sent),
        3 => (0..200_000_u32).prop_map(Event::Pass),
        3 => Just(Event::Deadline),
        2 => (0..6_u8).prop_map(Event::Announce),
        1 => Just(Event::Password),
        1 => (1..3_u16).prop_map(Event::Port),
        1 => Just(Event::BfdDown),
        1 => Just(Event::Reset),
    ]
}

/// A session, and the connections that its driver would hold.
struct Driven {
    session: Session,
    links: Vec<LinkId>,
    dialing: bool,
    now: Instant,
}

impl Driven {
    fn link(&self, place: u8) -> Option<LinkId> {
        self.links.get(usize::from(place)).copied()
    }

    fn apply(&mut self, event: Event) {
        let now = self.now;
        let mut receive = |place, bytes: &[u8]| {
            if let Some(id) = self.links.get(usize::from(place)) {
                self.session.received(*id, bytes, now);
            }
        };
        match event {
            Event::Connected if self.dialing => {
                self.dialing = false;
                let id = self.session.connected(connection(Side::Outgoing), now);
                self.links.push(id);
            }
            Event::Failed if self.dialing => {
                self.dialing = false;
                self.session
                    .connect_failed(ConnectProblem::Other, String::new(), now);
            }
            Event::Connected | Event::Failed => {}
            Event::Accepted => {
                let id = self.session.accepted(connection(Side::Incoming), now);
                self.links.extend(id);
            }
            Event::Open(place) => receive(place, &router().write()),
            Event::Keepalive(place) => receive(place, &wire::keepalive()),
            Event::Update(place) => receive(place, &wire::update::withdraw(&[], true)),
            Event::Refresh(place) => {
                let mut bytes = wire::update::withdraw(&[], true);
                bytes[18] = 5;
                bytes[20] = 1;
                bytes[22] = 1;
                receive(place, &bytes);
            }
            Event::Notification(place) => {
                receive(place, &wire::notification(&Notification::cease(4, "again")));
            }
            Event::Garbage(place, bytes) => receive(place, &bytes),
            Event::Closed(place) => {
                if let Some(id) = self.link(place) {
                    self.session.closed(id, None, now);
                    self.links.retain(|it| *it != id);
                }
            }
            Event::Transmit(place) => {
                if let Some(id) = self.link(place) {
                    self.session.transmit(id, now);
                }
            }
            Event::Sent(place) => {
                if let Some(id) = self.link(place) {
                    self.session.sent(id);
                }
            }
            Event::Pass(milliseconds) => {
                self.now += Duration::from_millis(milliseconds.into());
                self.session.expire(self.now);
            }
            Event::Deadline => {
                if let Some(at) = self.session.deadline() {
                    self.now = self.now.max(at);
                    self.session.expire(self.now);
                }
            }
            Event::Announce(count) => {
                let drain = match count {
                    0..=2 => Drain::Off,
                    3 => Drain::Forgetful,
                    _ => Drain::All,
                };
                self.session.announce(routes(count), drain);
            }
            Event::Password => {
                let password = match self.session.peer().password {
                    None => crate::peer::Password::new("key").ok(),
                    Some(_) => None,
                };
                let peer = Peer {
                    password,
                    ..self.session.peer().clone()
                };
                self.session.configure(peer, now);
            }
            Event::Port(port) => {
                let peer = Peer {
                    port,
                    ..self.session.peer().clone()
                };
                self.session.configure(peer, now);
            }
            Event::BfdDown => self.session.end(End::BfdDown, now),
            Event::Reset => self.session.end(End::Reset("test".into()), now),
        }
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.session.next_action() {
            match action {
                Action::Connect => {
                    assert!(!self.dialing, "two attempts at once");
                    self.dialing = true;
                }
                Action::Abort => {
                    assert!(self.dialing, "nothing to give up");
                    self.dialing = false;
                }
                Action::Close(id, last) => {
                    assert!(last.is_none_or(|last| last.len() <= wire::LONGEST));
                    let before = self.links.len();
                    self.links.retain(|it| *it != id);
                    assert_eq!(self.links.len() + 1, before, "it was open");
                }
                Action::Rekey => {}
            }
        }
    }

    /// Checks what is always so.
    fn check(&self) {
        for id in &self.links {
            assert!(self.session.has(*id), "a connection that is forgotten");
        }
        assert!(self.links.len() <= 3);
        let status = self.session.status();
        assert!(status.since <= self.now);
        let is_established = status.state == State::Established;
        assert_eq!(status.agreed.is_some(), is_established);
        assert!(status.next_attempt.is_none() || !is_established);
        // Something will happen by itself: a timer, or an attempt that is reported.
        assert!(
            self.session.deadline().is_some() || self.dialing,
            "stuck in {status:?}"
        );
        if !is_established && self.links.is_empty() {
            let wait = self
                .session
                .deadline()
                .map(|at| at.saturating_duration_since(self.now));
            assert!(wait <= Some(Duration::from_secs(60)), "{wait:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// After any events, a router that behaves has the routes within the longest wait.
    #[test]
    fn a_session_is_never_stuck(events in proptest::collection::vec(any_event(), 0..120)) {
        let now = Instant::now();
        let session = Session::new(peer(), routes(3), 1, now);
        let mut driven = Driven { session, links: Vec::new(), dialing: false, now };
        driven.act();
        for event in events {
            driven.apply(event);
            driven.check();
        }
        // From now on the router behaves: it accepts, answers and takes everything.
        let start = driven.now;
        let mut answers: VecDeque<(LinkId, Vec<u8>)> = VecDeque::new();
        let mut opened = Vec::new();
        for id in driven.links.clone() {
            driven.session.closed(id, None, driven.now);
        }
        driven.links.clear();
        driven.act();
        for _ in 0..500 {
            if driven.dialing {
                driven.apply(Event::Connected);
            }
            for id in driven.links.clone() {
                while let Some(sent) = driven.session.transmit(id, driven.now) {
                    if sent[18] == 1 && !opened.contains(&id) {
                        opened.push(id);
                        answers.push_back((id, router().write()));
                        answers.push_back((id, wire::keepalive()));
                    }
                }
                driven.session.sent(id);
            }
            while let Some((id, bytes)) = answers.pop_front() {
                driven.session.received(id, &bytes, driven.now);
                driven.act();
            }
            let status = driven.session.status();
            let unsent = status.unsent.map_or(0, |it| it.count);
            if status.state == State::Established
                && status.prefixes_sent + unsent == status.prefixes_wanted
            {
                prop_assert!(driven.now - start <= Duration::from_secs(60));
                return Ok(());
            }
            driven.apply(Event::Deadline);
        }
        prop_assert!(false, "{:?}", driven.session.status());
    }
}
