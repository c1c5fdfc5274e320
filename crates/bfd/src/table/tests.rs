use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::packet::{Diagnostic, Micros};

const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn path(peer: &str) -> Path {
    Path::to(ip(peer))
}

fn wanted(paths: &[Path]) -> Wanted {
    paths
        .iter()
        .map(|it| (it.clone(), Settings::default()))
        .collect()
}

fn table(paths: &[Path], now: Instant) -> Table {
    let mut table = Table::new(9);
    table.apply(&wanted(paths), |_| true, now);
    table
}

/// The sessions that were opened, by path.
fn opened(table: &mut Table) -> BTreeMap<Path, Id> {
    let open = |action| match action {
        Action::Open(id, path) => Some(((*path).clone(), id)),
        _ => None,
    };
    table.take().into_iter().filter_map(open).collect()
}

fn packet(state: State, your: Option<Id>) -> Vec<u8> {
    Control {
        diagnostic: Diagnostic::None,
        state,
        is_poll: false,
        is_final: false,
        is_control_plane_independent: false,
        is_demand: false,
        detect_multiplier: 3,
        my_discriminator: NonZeroU32::new(77).unwrap(),
        your_discriminator: your,
        desired_min_tx: Micros(100_000),
        required_min_rx: Micros(100_000),
        required_min_echo_rx: Micros(0),
        authentication: None,
    }
    .bytes()
}

fn datagram<'d>(from: &str, bytes: &'d [u8]) -> Datagram<'d> {
    Datagram {
        from: ip(from),
        to: Some(ip("10.0.0.9")),
        interface: Some(2),
        hops: Hops::Single,
        vrf: None,
        ttl: Some(255),
        bytes,
    }
}

fn state(table: &Table, path: &Path) -> State {
    table.status()[path].session.state
}

#[test]
fn a_first_packet_is_for_the_session_over_its_path() {
    let now = Instant::now();
    let paths = [path("10.0.0.1"), path("10.0.0.2")];
    let mut table = table(&paths, now);
    let hello = packet(State::Down, None);
    table.receive(&datagram("10.0.0.2", &hello), now).unwrap();
    assert_eq!(state(&table, &paths[0]), State::Down);
    assert_eq!(state(&table, &paths[1]), State::Init);
}

#[test]
fn a_packet_that_names_a_session_is_for_no_other() {
    let now = Instant::now();
    let paths = [path("10.0.0.1"), path("10.0.0.2")];
    let mut table = table(&paths, now);
    let ids = opened(&mut table);
    let init = packet(State::Init, Some(ids[&paths[0]]));
    // From the address of another peer it is forged.
    let forged = table.receive(&datagram("10.0.0.2", &init), now);
    assert_eq!(forged, Err(Rejection::Unknown));
    table.receive(&datagram("10.0.0.1", &init), now).unwrap();
    assert_eq!(state(&table, &paths[0]), State::Up);
    assert_eq!(state(&table, &paths[1]), State::Down);
    let unknown = NonZeroU32::new(ids.values().map(|it| it.get()).max().unwrap() ^ 1);
    let stray = packet(State::Init, unknown);
    let rejected = table.receive(&datagram("10.0.0.1", &stray), now);
    assert_eq!(rejected, Err(Rejection::Unknown));
    assert_eq!(table.discards().unknown, 2);
}

#[test]
fn interface_vrf_port_and_own_address_are_parts_of_the_path() {
    let now = Instant::now();
    let bound = |name: &str| Path {
        interface: Some(name.into()),
        ..path("fe80::1")
    };
    let vrf = Path {
        vrf: Some("red".into()),
        ..path("10.0.0.1")
    };
    let multi = Path {
        hops: Hops::Multi,
        local: Some(ip("10.0.0.9")),
        ..path("10.0.0.1")
    };
    let paths = [bound("eth0"), bound("eth1"), vrf.clone(), multi.clone()];
    let mut table = table(&paths, now);
    let ids = opened(&mut table);
    table.set_interface(ids[&paths[0]], Some(2));
    table.set_interface(ids[&paths[1]], Some(3));
    let hello = packet(State::Down, None);
    let mut through = |change: &dyn Fn(&mut Datagram<'_>)| {
        let mut datagram = datagram("10.0.0.1", &hello);
        change(&mut datagram);
        table.receive(&datagram, now).map(|()| {
            let sessions = table.status();
            let it = sessions
                .iter()
                .filter(|(_, it)| it.session.state == State::Init);
            it.map(|(path, _)| (**path).clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(through(&|_| {}), Err(Rejection::Unknown));
    let link_local = |index| {
        move |it: &mut Datagram<'_>| {
            (it.from, it.interface) = (ip("fe80::1"), Some(index));
        }
    };
    assert_eq!(through(&link_local(4)), Err(Rejection::Unknown));
    assert_eq!(through(&link_local(3)), Ok(vec![bound("eth1")]));
    let red = through(&|it| it.vrf = Some("red"));
    assert!(red.unwrap().contains(&vrf));
    let other = through(&|it| {
        (it.hops, it.to) = (Hops::Multi, Some(ip("10.0.0.8")));
    });
    assert_eq!(other, Err(Rejection::Unknown));
    let own = through(&|it| (it.hops, it.ttl) = (Hops::Multi, Some(254)));
    assert!(own.unwrap().contains(&multi));
}

#[test]
fn a_packet_that_crossed_a_router_is_not_of_a_neighbor() {
    let now = Instant::now();
    let near = path("10.0.0.1");
    let mut table = table(std::slice::from_ref(&near), now);
    let hello = packet(State::Down, None);
    for ttl in [None, Some(0), Some(254)] {
        let far = Datagram {
            ttl,
            ..datagram("10.0.0.1", &hello)
        };
        let least = 255;
        let rejection = Rejection::Ttl { came: ttl, least };
        assert_eq!(table.receive(&far, now), Err(rejection));
    }
    let status = &table.status()[&near];
    assert_eq!(status.session.state, State::Down);
    assert_eq!(status.counters.rejected, 3);
    let text = status.last_rejection.as_ref().unwrap().to_string();
    assert_eq!(text, "the TTL of the packet is 254, at least 255 is needed");
}

#[test]
fn several_hops_are_limited_by_the_smallest_ttl() {
    let now = Instant::now();
    let far = Path {
        hops: Hops::Multi,
        ..path("10.0.0.1")
    };
    let mut table = Table::new(9);
    let settings = Settings {
        minimum_ttl: 250,
        ..Settings::default()
    };
    table.apply(&[(far.clone(), settings)].into(), |_| true, now);
    let hello = packet(State::Down, None);
    let with = |ttl| Datagram {
        hops: Hops::Multi,
        ttl: Some(ttl),
        ..datagram("10.0.0.1", &hello)
    };
    assert!(table.receive(&with(249), now).is_err());
    assert!(table.receive(&with(250), now).is_ok());
}

#[test]
fn a_session_that_is_no_longer_wanted_announces_that_and_is_gone() {
    let now = Instant::now();
    let one = path("10.0.0.1");
    let mut table = table(std::slice::from_ref(&one), now);
    let id = opened(&mut table)[&one];
    let hello = packet(State::Init, Some(id));
    table.receive(&datagram("10.0.0.1", &hello), now).unwrap();
    table.take();
    table.apply(&Wanted::new(), |_| true, now);
    assert!(table.status().is_empty());
    let actions = table.take();
    let Some(Action::Control(_, bytes)) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!(Control::parse(bytes).unwrap().state, State::AdminDown);
    table.expire(now + 10 * SECOND);
    assert_eq!(table.take().last(), Some(&Action::Close(id)));
    assert_eq!(table.deadline(), None);
    // The same path gets a session of another name.
    table.apply(&wanted(std::slice::from_ref(&one)), |_| true, now);
    assert_ne!(opened(&mut table)[&one], id);
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let now = Instant::now();
    let paths = [path("10.0.0.1"), path("2001:db8::1")];
    let mut table = table(&paths, now);
    table.expire(now);
    table.take();
    table.apply(&wanted(&paths), |_| true, now);
    assert_eq!(table.take(), []);
}

#[test]
fn echo_is_for_single_hops_over_ipv4() {
    let now = Instant::now();
    let multi = Path {
        hops: Hops::Multi,
        ..path("10.0.0.2")
    };
    let settings = Settings {
        echo: Some(Duration::from_millis(50)),
        ..Settings::default()
    };
    let offered = |path: Path, returns: bool| {
        let mut table = Table::new(9);
        table.apply(&[(path, settings.clone())].into(), |_| returns, now);
        table.expire(now);
        let control = |action| match action {
            Action::Control(_, bytes) => Some(Control::parse(&bytes).unwrap()),
            _ => None,
        };
        let sent = table.take().into_iter().find_map(control).unwrap();
        sent.required_min_echo_rx.0
    };
    assert_eq!(offered(path("10.0.0.1"), true), 50_000);
    assert_eq!(offered(path("10.0.0.1"), false), 0);
    assert_eq!(offered(path("2001:db8::1"), true), 0);
    assert_eq!(offered(multi, true), 0);
}

#[test]
fn events_say_which_session_went_down_and_why() {
    let now = Instant::now();
    let one = path("10.0.0.1");
    let mut table = table(std::slice::from_ref(&one), now);
    let id = opened(&mut table)[&one];
    let init = packet(State::Init, Some(id));
    table.receive(&datagram("10.0.0.1", &init), now).unwrap();
    // Sessions begin with 300 ms, times 3.
    table.expire(now + Duration::from_millis(899));
    table.expire(now + Duration::from_millis(900));
    let event = |action| match action {
        Action::Event(event) => Some(event.to_string()),
        _ => None,
    };
    let events: Vec<String> = table.take().into_iter().filter_map(event).collect();
    assert_eq!(
        events,
        [
            "the BFD session with 10.0.0.1 is Up: both sides receive packets of each other",
            "the BFD session with 10.0.0.1 went down: no packet came for 900ms",
        ]
    );
    let status = &table.status()[&one];
    let counters = status.counters;
    assert_eq!(
        (counters.ups, counters.downs, counters.control_in),
        (1, 1, 1)
    );
    let silence = Cause::Silence(Duration::from_millis(900));
    assert_eq!(status.last_down, Some(silence));
}

proptest! {
    /// The queue against the simplest model: the smallest of all deadlines.
    #[test]
    fn the_queue_names_the_earliest_deadline_and_no_session_is_lost(
        steps in proptest::collection::vec((0_u8..6, 0_u8..4, 0_u64..1_500), 1..80),
    ) {
        let mut now = Instant::now();
        let mut table = Table::new(3);
        let mut paths = BTreeSet::new();
        for (what, peer, pause) in steps {
            let one = path(&format!("10.0.0.{peer}"));
            match what {
                0 => { paths.insert(one); }
                1 => { paths.remove(&one); }
                2..=4 => {
                    let state = [State::Down, State::Init, State::Up][usize::from(what - 2)];
                    let id = table.paths.get(&one).copied();
                    let bytes = packet(state, id);
                    let from = format!("10.0.0.{peer}");
                    let _taken = table.receive(&datagram(&from, &bytes), now);
                }
                _ => now += Duration::from_millis(pause),
            }
            let all: Vec<Path> = paths.iter().cloned().collect();
            table.apply(&wanted(&all), |_| true, now);
            table.expire(now);
            table.take();
            let earliest = table.sessions.values().filter_map(|it| it.session.deadline()).min();
            prop_assert_eq!(table.deadline(), earliest);
            prop_assert!(earliest.is_none_or(|at| at > now));
            prop_assert_eq!(table.queue.len(), table.sessions.len());
            prop_assert_eq!(table.paths.len(), table.sessions.len());
            prop_assert_eq!(table.status().len(), paths.len());
        }
    }
}
