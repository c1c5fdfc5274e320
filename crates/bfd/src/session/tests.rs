use std::num::NonZeroU8;

use proptest::prelude::*;

use super::*;
use crate::packet::authentication::{Key, Method};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A session with a clock, and the packets of the other side as this test makes them.
pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) now: Instant,
}

pub(super) fn settings(transmit: u64, receive: u64, multiplier: u8) -> Settings {
    Settings {
        transmit_interval: Duration::from_millis(transmit),
        receive_interval: Duration::from_millis(receive),
        detect_multiplier: NonZeroU8::new(multiplier).unwrap(),
        ..Settings::default()
    }
}

/// A packet of the other side that names ours.
pub(super) fn packet(state: State) -> Control {
    Control {
        diagnostic: Diagnostic::None,
        state,
        is_poll: false,
        is_final: false,
        is_control_plane_independent: false,
        is_demand: false,
        detect_multiplier: 3,
        my_discriminator: NonZeroU32::new(77).unwrap(),
        your_discriminator: NonZeroU32::new(11),
        desired_min_tx: Micros(100_000),
        required_min_rx: Micros(100_000),
        required_min_echo_rx: Micros(0),
        authentication: None,
    }
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        let now = Instant::now();
        let session = Session::new(settings, NonZeroU32::new(11).unwrap(), 5, now);
        Self { session, now }
    }

    /// A session that is Up, without a Poll Sequence and with nothing left to do.
    pub(super) fn up(settings: Settings) -> Self {
        let mut bench = Self::new(settings);
        bench.is_given(packet(State::Down));
        bench.is_given(packet(State::Init));
        bench.is_given(Control {
            is_final: true,
            ..packet(State::Up)
        });
        assert_eq!(bench.session.state, State::Up);
        bench.sent();
        bench
    }

    pub(super) fn is_given(&mut self, packet: Control) {
        let bytes = packet.bytes();
        self.session.receive(&packet, &bytes, self.now).unwrap();
    }

    /// Lets time pass, up to a number of deadlines.
    pub(super) fn passes(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.session.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.session.expire(self.now);
        }
        self.now = end;
    }

    /// The packets that were sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Control> {
        let packet = |output| match output {
            Output::Control(bytes) => Some(Control::parse(&bytes).unwrap()),
            Output::Echo(_) | Output::Change(_) => None,
        };
        self.session.take().into_iter().filter_map(packet).collect()
    }

    pub(super) fn changes(&mut self) -> Vec<Change> {
        let change = |output| match output {
            Output::Change(change) => Some(change),
            Output::Echo(_) | Output::Control(_) => None,
        };
        self.session.take().into_iter().filter_map(change).collect()
    }

    fn forced(state: State) -> Self {
        let mut bench = Self::new(settings(100, 100, 3));
        match state {
            State::AdminDown => bench.session.configure(
                Settings {
                    is_admin_down: true,
                    ..settings(100, 100, 3)
                },
                bench.now,
            ),
            State::Down => {}
            State::Init => bench.is_given(packet(State::Down)),
            State::Up => return Self::up(settings(100, 100, 3)),
        }
        bench.sent();
        bench
    }
}

/// The table of section 6.2 with the diagnostics of 6.8.6, row by row: state, received, state then,
/// diagnostic then (number).
const TRANSITIONS: [(State, State, State, u8); 16] = {
    use State::{AdminDown, Down, Init, Up};
    [
        (AdminDown, AdminDown, AdminDown, 7),
        (AdminDown, Down, AdminDown, 7),
        (AdminDown, Init, AdminDown, 7),
        (AdminDown, Up, AdminDown, 7),
        (Down, AdminDown, Down, 0),
        (Down, Down, Init, 0),
        (Down, Init, Up, 0),
        (Down, Up, Down, 0),
        (Init, AdminDown, Down, 3),
        (Init, Down, Init, 0),
        (Init, Init, Up, 0),
        (Init, Up, Up, 0),
        (Up, AdminDown, Down, 3),
        (Up, Down, Down, 3),
        (Up, Init, Up, 0),
        (Up, Up, Up, 0),
    ]
};

#[test]
fn every_transition_is_that_of_the_rfc() {
    for (from, received, to, diagnostic) in TRANSITIONS {
        let mut bench = Bench::forced(from);
        assert_eq!(bench.session.state, from);
        bench.is_given(packet(received));
        let view = bench.session.view();
        assert_eq!(view.state, to, "{from} receives {received}");
        assert_eq!(view.diagnostic.number(), diagnostic, "{from} {received}");
        assert_eq!(bench.changes().len(), usize::from(from != to));
    }
}

#[test]
fn a_neighbor_that_is_taken_down_on_purpose_is_no_failure() {
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.is_given(packet(State::AdminDown));
    let [change] = bench.changes()[..] else {
        panic!("no change")
    };
    assert_eq!(change.cause, Cause::NeighborAdministrator);
    assert!(change.is_down() && !change.is_failure());
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.is_given(Control {
        diagnostic: Diagnostic::DetectionTimeExpired,
        ..packet(State::Down)
    });
    let [change] = bench.changes()[..] else {
        panic!("no change")
    };
    let cause = Cause::Neighbor(Diagnostic::DetectionTimeExpired);
    assert_eq!(change.cause, cause);
    assert!(change.is_failure());
}

#[test]
fn a_session_begins_slowly_and_is_fast_once_it_is_up() {
    let mut bench = Bench::new(settings(50, 50, 3));
    bench.passes(10 * SECOND);
    let sent = bench.sent();
    // One at once, then each after 750 ms to 1 s.
    assert!((11..=14).contains(&sent.len()), "{}", sent.len());
    assert!(sent.iter().all(|it| it.desired_min_tx.0 == 1_000_000));
    assert!(sent.iter().all(|it| it.required_min_rx.0 == 50_000));
    let mut bench = Bench::up(settings(50, 50, 3));
    for _ in 0..20 {
        bench.passes(50 * MS);
        bench.is_given(packet(State::Up));
    }
    let sent = bench.sent();
    // The other side accepts one in 100 ms.
    assert!((10..=14).contains(&sent.len()), "{}", sent.len());
    assert!(sent.iter().all(|it| it.desired_min_tx.0 == 50_000));
}

#[test]
fn the_detection_time_is_that_of_the_slower_side() {
    let mut bench = Bench::up(settings(50, 40, 7));
    // 3 x 100 ms of the other side, not 7 x 50 ms or 3 x 40 ms.
    assert_eq!(bench.session.view().detection_time, Some(300 * MS));
    bench.passes(299 * MS);
    assert_eq!(bench.changes(), []);
    bench.passes(MS);
    let [change] = bench.changes()[..] else {
        panic!("no change")
    };
    assert_eq!((change.from, change.to), (State::Up, State::Down));
    assert_eq!(change.cause, Cause::Silence(300 * MS));
    let view = bench.session.view();
    assert_eq!(view.diagnostic, Diagnostic::DetectionTimeExpired);
    assert_eq!(view.remote_discriminator, None);
    assert_eq!(view.transmit_interval, SECOND);
}

#[test]
fn a_poll_is_answered_at_once_in_every_state_but_admin_down() {
    for state in State::ALL {
        let mut bench = Bench::forced(state);
        bench.is_given(Control {
            is_poll: true,
            ..packet(State::Up)
        });
        let finals = bench.sent().iter().filter(|it| it.is_final).count();
        assert_eq!(finals, usize::from(state != State::AdminDown), "{state}");
    }
}

#[test]
fn slower_sending_waits_until_the_other_side_knows() {
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.session.configure(settings(500, 100, 3), bench.now);
    assert_eq!(bench.session.view().transmit_interval, 100 * MS);
    bench.passes(50 * MS);
    let sent = bench.sent();
    assert!(
        sent.iter()
            .all(|it| it.is_poll && it.desired_min_tx.0 == 500_000)
    );
    assert!(!sent.is_empty());
    bench.is_given(Control {
        is_final: true,
        ..packet(State::Up)
    });
    assert_eq!(bench.session.view().transmit_interval, 500 * MS);
    bench.passes(200 * MS);
    assert!(bench.sent().iter().all(|it| !it.is_poll));
}

#[test]
fn faster_sending_is_at_once() {
    let mut bench = Bench::up(settings(500, 100, 3));
    bench.session.configure(settings(200, 100, 3), bench.now);
    assert_eq!(bench.session.view().transmit_interval, 200 * MS);
}

#[test]
fn a_shorter_detection_time_waits_until_the_other_side_knows() {
    let mut bench = Bench::up(settings(100, 500, 3));
    assert_eq!(bench.session.view().detection_time, Some(1_500 * MS));
    bench.session.configure(settings(100, 200, 3), bench.now);
    assert_eq!(bench.session.view().detection_time, Some(1_500 * MS));
    // A final that answers an older poll is none: there was none.
    bench.is_given(Control {
        is_final: true,
        ..packet(State::Up)
    });
    assert_eq!(bench.session.view().detection_time, Some(600 * MS));
    bench.session.configure(settings(100, 900, 3), bench.now);
    assert_eq!(bench.session.view().detection_time, Some(2_700 * MS));
}

#[test]
fn a_change_during_a_poll_sequence_gets_one_of_its_own() {
    let is_final = Control {
        is_final: true,
        ..packet(State::Up)
    };
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.session.configure(settings(400, 100, 3), bench.now);
    bench.session.configure(settings(800, 100, 3), bench.now);
    bench.is_given(is_final);
    assert_eq!(bench.session.view().transmit_interval, 100 * MS);
    bench.passes(100 * MS);
    assert!(bench.sent().last().unwrap().is_poll);
    bench.is_given(is_final);
    assert_eq!(bench.session.view().transmit_interval, 800 * MS);
}

#[test]
fn a_passive_session_is_silent_until_it_is_spoken_to() {
    let passive = Settings {
        role: Role::Passive,
        ..settings(100, 100, 3)
    };
    let mut bench = Bench::new(passive);
    assert_eq!(bench.session.deadline(), None);
    bench.passes(10 * SECOND);
    assert_eq!(bench.sent(), []);
    bench.is_given(packet(State::Down));
    let sent = bench.sent();
    assert_eq!(sent[0].state, State::Init);
    // And again, after the other side is gone.
    bench.passes(10 * SECOND);
    bench.sent();
    assert_eq!(bench.session.view().state, State::Down);
    assert_eq!(bench.session.deadline(), None);
}

#[test]
fn a_neighbor_that_accepts_no_packets_gets_none_but_answers() {
    let mut bench = Bench::up(settings(100, 100, 3));
    let silent = Control {
        required_min_rx: Micros(0),
        ..packet(State::Up)
    };
    for _ in 0..10 {
        bench.is_given(silent);
        bench.passes(100 * MS);
    }
    assert_eq!(bench.sent(), []);
    bench.is_given(Control {
        is_poll: true,
        ..silent
    });
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn a_neighbor_in_demand_mode_gets_no_periodic_packets() {
    let mut bench = Bench::up(settings(100, 100, 3));
    let demands = Control {
        is_demand: true,
        ..packet(State::Up)
    };
    for _ in 0..10 {
        bench.is_given(demands);
        bench.passes(100 * MS);
    }
    assert_eq!(bench.sent(), []);
    // It is missed all the same, because this side is in asynchronous mode.
    bench.passes(300 * MS);
    assert_eq!(bench.session.view().state, State::Down);
    let sent = bench.sent();
    assert_eq!(sent[0].state, State::Down);
}

#[test]
fn in_demand_mode_silence_is_no_failure_but_an_unanswered_poll_is() {
    let demand = Settings {
        demand: Some(5 * SECOND),
        ..settings(100, 100, 3)
    };
    let mut bench = Bench::up(demand);
    // The change to demand mode is a Poll Sequence, too.
    bench.passes(50 * MS);
    bench.is_given(Control {
        is_final: true,
        ..packet(State::Up)
    });
    let sent = bench.sent();
    assert!(sent.iter().all(|it| it.is_demand && it.is_poll), "{sent:?}");
    bench.passes(4_900 * MS);
    assert_eq!(bench.session.view().state, State::Up);
    assert!(bench.sent().iter().all(|it| !it.is_poll));
    bench.passes(200 * MS);
    assert!(bench.sent().iter().any(|it| it.is_poll));
    bench.passes(300 * MS);
    let [change] = bench.changes()[..] else {
        panic!("no change")
    };
    assert_eq!(change.cause, Cause::NoAnswer(300 * MS));
    assert!(!bench.session.is_demand_active());
}

fn with_echo(interval: u64) -> Settings {
    Settings {
        echo: Some(Duration::from_millis(interval)),
        ..settings(100, 100, 3)
    }
}

fn returns_echoes() -> Control {
    Control {
        required_min_echo_rx: Micros(50_000),
        ..packet(State::Up)
    }
}

#[test]
fn echoes_that_stop_to_return_end_the_session() {
    let mut bench = Bench::up(with_echo(20));
    bench.is_given(returns_echoes());
    let mut echoes = 0;
    for _ in 0..20 {
        bench.passes(50 * MS);
        bench.is_given(returns_echoes());
        for output in bench.session.take() {
            if let Output::Echo(token) = output {
                echoes += 1;
                assert!(bench.session.receive_echo(token, bench.now));
            }
        }
    }
    // The other side returns one in 50 ms.
    assert!((20..=28).contains(&echoes), "{echoes}");
    let view = bench.session.view();
    assert_eq!(view.echo_interval, Some(50 * MS));
    // Control packets have become rare.
    bench.passes(MS);
    assert_eq!(bench.session.advertised.receive, SECOND);
    bench.session.take();
    for _ in 0..3 {
        bench.is_given(returns_echoes());
        bench.passes(49 * MS);
    }
    bench.passes(10 * MS);
    let [change] = bench.changes()[..] else {
        panic!("no change")
    };
    assert_eq!(change.cause, Cause::NoEcho(150 * MS));
    assert_eq!(bench.session.view().diagnostic, Diagnostic::EchoFailed);
}

#[test]
fn echoes_that_never_returned_are_not_missed() {
    let mut bench = Bench::up(with_echo(50));
    for _ in 0..50 {
        bench.is_given(returns_echoes());
        bench.passes(100 * MS);
    }
    let output = bench.session.take();
    assert!(output.iter().any(|it| matches!(it, Output::Echo(_))));
    assert!(!output.iter().any(|it| matches!(it, Output::Change(_))));
    assert_eq!(bench.session.view().echo_interval, None);
}

#[test]
fn no_echo_is_sent_to_a_neighbor_that_returns_none() {
    let mut bench = Bench::up(with_echo(50));
    bench.is_given(returns_echoes());
    bench.is_given(packet(State::Up));
    bench.session.take();
    bench.passes(250 * MS);
    let output = bench.session.take();
    assert!(!output.iter().any(|it| matches!(it, Output::Echo(_))));
    let token = bench.session.token;
    assert!(!bench.session.receive_echo(token, bench.now));
}

#[test]
fn an_echo_of_another_is_not_taken() {
    let mut bench = Bench::up(with_echo(50));
    bench.is_given(returns_echoes());
    let token = bench.session.token ^ 1;
    assert!(!bench.session.receive_echo(token, bench.now));
    assert_eq!(bench.session.view().echo_interval, None);
}

#[test]
fn what_this_system_does_not_return_is_not_offered() {
    let mut bench = Bench::new(with_echo(50));
    bench.passes(MS);
    assert_eq!(bench.sent()[0].required_min_echo_rx.0, 50_000);
    bench.session.set_returns_echoes(false, bench.now);
    assert_eq!(bench.sent()[0].required_min_echo_rx.0, 0);
}

#[test]
fn a_session_that_is_closed_says_so_for_the_time_that_the_other_side_needs() {
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.session.close(bench.now);
    let sent = bench.sent();
    assert_eq!(sent[0].state, State::AdminDown);
    assert_eq!(sent[0].diagnostic, Diagnostic::AdministrativelyDown);
    assert!(!bench.session.is_closed(bench.now));
    assert!(bench.session.is_closed(bench.now + 300 * MS));
    let mut unknown = Bench::new(settings(100, 100, 3));
    unknown.session.close(unknown.now);
    assert!(unknown.session.is_closed(unknown.now));
}

#[test]
fn a_session_that_is_wanted_again_comes_up_again() {
    let mut bench = Bench::up(settings(100, 100, 3));
    bench.session.close(bench.now);
    bench.session.configure(settings(100, 100, 3), bench.now);
    assert_eq!(bench.session.view().state, State::Down);
    bench.is_given(packet(State::Down));
    bench.is_given(packet(State::Up));
    assert_eq!(bench.session.view().state, State::Up);
    assert!(!bench.session.is_closing());
}

fn key(method: Method) -> Key {
    Key::new(method, 3, b"between us").unwrap()
}

fn sealed(key: &Key, sequence: u32, state: State) -> Vec<u8> {
    let mut bytes = Control {
        authentication: Some(key.section(sequence)),
        ..packet(state)
    }
    .bytes();
    key.seal(&mut bytes);
    bytes
}

fn takes(bench: &mut Bench, bytes: &[u8]) -> Result<(), Discard> {
    let packet = Control::parse(bytes).unwrap();
    bench.session.receive(&packet, bytes, bench.now)
}

#[test]
fn sequence_numbers_have_the_windows_of_the_rfc() {
    for (method, least) in [(Method::KeyedSha1, 0), (Method::MeticulousKeyedSha1, 1)] {
        let key = key(method);
        let mut bench = Bench::new(Settings {
            authentication: Some(key.clone()),
            ..settings(100, 100, 3)
        });
        // The first may be any, also at the end of the numbers.
        let first = u32::MAX - 1;
        assert_eq!(takes(&mut bench, &sealed(&key, first, State::Down)), Ok(()));
        for ahead in [u32::MAX, 10, 11] {
            let packet = sealed(&key, first.wrapping_add(ahead), State::Down);
            assert_eq!(
                takes(&mut bench, &packet),
                Err(Discard::Sequence),
                "{ahead}"
            );
        }
        let same = takes(&mut bench, &sealed(&key, first, State::Down));
        assert_eq!(same.is_ok(), least == 0);
        let most = sealed(&key, first.wrapping_add(9), State::Down);
        assert_eq!(takes(&mut bench, &most), Ok(()));
        // After twice the detection time the other side may begin again.
        bench.passes(601 * MS);
        assert_eq!(takes(&mut bench, &sealed(&key, 5, State::Down)), Ok(()));
    }
}

#[test]
fn packets_without_the_key_change_nothing() {
    let key = key(Method::KeyedSha1);
    let mut bench = Bench::new(Settings {
        authentication: Some(key.clone()),
        ..settings(100, 100, 3)
    });
    let plain = packet(State::Down).bytes();
    assert_eq!(
        takes(&mut bench, &plain),
        Err(Discard::MissingAuthentication)
    );
    let other = Key::new(Method::KeyedSha1, 3, b"between them").unwrap();
    let forged = sealed(&other, 1, State::Down);
    assert_eq!(
        takes(&mut bench, &forged),
        Err(Discard::WrongAuthentication)
    );
    assert_eq!(bench.session.view().remote_discriminator, None);
    assert_eq!(bench.changes(), []);
    let mut open = Bench::new(settings(100, 100, 3));
    let sealed = sealed(&key, 1, State::Down);
    assert_eq!(
        takes(&mut open, &sealed),
        Err(Discard::UnexpectedAuthentication)
    );
}

#[test]
fn packets_of_a_session_with_a_key_are_accepted_by_the_other_side() {
    for method in [Method::KeyedSha1, Method::MeticulousKeyedSha1] {
        let key = key(method);
        let mut bench = Bench::new(Settings {
            authentication: Some(key.clone()),
            ..settings(100, 100, 3)
        });
        bench.passes(5 * SECOND);
        let mut last: Option<u32> = None;
        for output in bench.session.take() {
            let Output::Control(bytes) = output else {
                panic!("{output:?}")
            };
            let section = Control::parse(&bytes).unwrap().authentication.unwrap();
            assert!(key.verify(&bytes, &section));
            let step = u32::from(method == Method::MeticulousKeyedSha1);
            assert!(last.is_none_or(|last| section.sequence == last.wrapping_add(step)));
            last = Some(section.sequence);
        }
        assert!(last.is_some());
    }
}

#[test]
fn a_session_that_is_held_down_stays_so_and_says_it() {
    let mut bench = Bench::new(Settings {
        is_admin_down: true,
        ..settings(100, 100, 3)
    });
    bench.is_given(packet(State::Down));
    bench.passes(3 * SECOND);
    let sent = bench.sent();
    assert!(sent.len() >= 3);
    assert!(sent.iter().all(|it| it.state == State::AdminDown));
}

/// The state of a session by the words of the RFC alone: no timers but the time of the last packet.
#[derive(Debug, Default)]
struct Model {
    state: State,
    diagnostic: u8,
    received: Option<Instant>,
}

impl Model {
    fn packet(&mut self, state: State, now: Instant) {
        self.received = Some(now);
        let row = TRANSITIONS
            .iter()
            .find(|it| (it.0, it.1) == (self.state, state));
        let (from, _, to, diagnostic) = *row.unwrap();
        if from != to && (diagnostic != 0 || to == State::Up) {
            self.diagnostic = diagnostic;
        }
        self.state = to;
    }

    fn time(&mut self, now: Instant) {
        let is_expected = matches!(self.state, State::Init | State::Up);
        let silent = self.received.is_some_and(|it| now - it >= 300 * MS);
        if is_expected && silent {
            (self.state, self.diagnostic) = (State::Down, 1);
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_of_packets_and_pauses_ends_as_the_naive_model_says(
        steps in proptest::collection::vec((0_usize..4, 0_u64..400, any::<bool>()), 1..60),
    ) {
        let mut bench = Bench::new(settings(100, 100, 3));
        let mut model = Model::default();
        for (state, pause, is_poll) in steps {
            bench.passes(Duration::from_millis(pause));
            model.time(bench.now);
            let state = State::ALL[state];
            bench.is_given(Control { is_poll, ..packet(state) });
            model.packet(state, bench.now);
            let view = bench.session.view();
            prop_assert_eq!(view.state, model.state);
            prop_assert_eq!(view.diagnostic.number(), model.diagnostic);
        }
    }

    #[test]
    fn an_interval_between_packets_has_the_jitter_of_the_rfc(multiplier in 1_u8..4, seed: u64) {
        let now = Instant::now();
        let wanted = settings(2_000, 100, multiplier);
        let id = NonZeroU32::new(11).unwrap();
        let mut bench = Bench { session: Session::new(wanted, id, seed, now), now };
        let mut times = Vec::new();
        while times.len() < 20 {
            bench.now = bench.session.deadline().unwrap();
            bench.session.expire(bench.now);
            times.extend(bench.sent().iter().map(|_| bench.now));
        }
        let most = if multiplier == 1 { 1_800 } else { 2_000 };
        for pair in times.windows(2) {
            let gap = (pair[1] - pair[0]).as_millis();
            prop_assert!((1_500..=most).contains(&gap), "{}", gap);
        }
    }
}
