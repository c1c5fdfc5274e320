use crate::packet::LONGEST;
use crate::seal::Key;

use super::*;

pub(super) fn own_address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7947))
}

/// A machine that knows of node 1 and node 2.
pub(super) fn machine(node: usize, now: Instant) -> Machine {
    let name = |node: usize| Arc::from(format!("node-{node}"));
    let own = Own {
        name: name(node),
        address: own_address(node),
        incarnation: 1,
        metadata: b"facts"[..].into(),
        session: SessionId([node as u8; 16]),
        seed: node as u64,
    };
    let keys = Keys {
        first: Key::new(b"a key of these tests").unwrap(),
        others: Vec::new(),
    };
    let mut machine = Machine::new(Settings::default(), own, keys, now).unwrap();
    machine.set_seeds((1..3).map(|it| (name(it), own_address(it))).collect());
    machine
}

fn record(status: Status, incarnation: u64) -> Record {
    Record {
        name: "node-2".into(),
        address: own_address(2),
        incarnation,
        status,
        metadata: [].into(),
    }
}

#[test]
fn a_node_that_others_hold_for_dead_stays_a_member_and_is_asked() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    machine.merge(now, record(Status::Alive, 5));
    machine.out.clear();
    machine.merge(now, record(Status::Dead, 5));
    assert_eq!(machine.peers().len(), 1);
    let asked: Vec<SocketAddr> = machine.out.iter().map(|it| it.to).collect();
    assert_eq!(asked, [own_address(2)]);
}

#[test]
fn one_that_others_hold_for_dead_is_watched_until_it_answers_or_is_dead() {
    let begin = |now| {
        let mut machine = machine(1, now);
        machine.merge(now, record(Status::Alive, 5));
        // In a larger cluster others watch it, and do not once it is dead.
        machine.watches.clear();
        machine.merge(now, record(Status::Dead, 5));
        machine
    };
    let start = Instant::now();
    let mut machine = begin(start);
    for millis in (0..1_000).step_by(10) {
        machine.expire(start + Duration::from_millis(millis));
    }
    assert!(machine.peers().is_empty());
    assert!(machine.watches.is_empty());

    let mut machine = begin(start);
    machine.expire(start);
    machine.take_answer(&"node-2".into(), machine.number);
    assert_eq!(machine.peers().len(), 1);
    assert!(machine.watches.is_empty());
}

#[test]
fn a_suspicion_that_is_not_refuted_ends_a_member() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    machine.merge(now, record(Status::Alive, 5));
    machine.merge(now, record(Status::Suspect, 5));
    let (end, moment) = (now + machine.settings.confirm, Duration::from_millis(1));
    machine.conclude(now + machine.settings.confirm.saturating_sub(moment));
    assert_eq!(machine.peers().len(), 1);
    machine.conclude(end);
    assert!(machine.peers().is_empty());
    // What is said of that life later does not bring it back; the next life does.
    machine.merge(end, record(Status::Alive, 5));
    machine.merge(end, record(Status::Suspect, 6));
    assert!(machine.peers().is_empty());
    machine.merge(end, record(Status::Alive, 7));
    assert_eq!(machine.peers().len(), 1);
}

#[test]
fn a_refutation_in_time_ends_a_suspicion() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    machine.merge(now, record(Status::Alive, 5));
    machine.merge(now, record(Status::Suspect, 5));
    machine.merge(now, record(Status::Alive, 6));
    machine.conclude(now + Duration::from_secs(9));
    assert_eq!(machine.peers().len(), 1);
}

#[test]
fn a_node_whose_refutation_came_too_late_learns_that_it_was_held_for_dead() {
    let mut now = Instant::now();
    let mut machines = [machine(1, now), machine(2, now)];
    let carry = |now, machines: &mut [Machine; 2], sent: Vec<Datagram>, from: usize| {
        let (mut sent, mut from) = (sent, from);
        while !sent.is_empty() {
            let to = 3 - from;
            let receives = &mut machines[to - 1];
            let answers = sent.iter().filter(|it| it.to == own_address(to));
            let answers = answers.map(|it| receives.receive(now, own_address(from), &it.bytes));
            (sent, from) = (answers.flatten().collect(), to);
        }
    };
    while machines.iter().any(|it| it.peers().is_empty()) {
        now += Duration::from_millis(10);
        for node in 1..3 {
            let sent = machines[node - 1].expire(now);
            carry(now, &mut machines, sent, node);
        }
    }
    let before = machines[1].reunions();

    machines[0].merge(now, record(Status::Suspect, 1));
    let suspicion = machines[0].take_out();
    let received = suspicion.iter().filter(|it| it.to == own_address(2));
    let refutations = received.map(|it| machines[1].receive(now, own_address(1), &it.bytes));
    let refutations: Vec<Datagram> = refutations.flatten().collect();
    assert_eq!(machines[1].reunions(), before, "it may be in time");
    now += machines[0].settings.confirm;
    machines[0].conclude(now);
    assert!(machines[0].peers().is_empty());
    carry(now, &mut machines, refutations, 2);
    assert_eq!(machines[0].peers().len(), 1);
    assert_eq!(machines[1].reunions(), before + 1);
}

#[test]
fn no_packet_is_longer_than_a_network_carries() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    let name: Arc<str> = "n".repeat(LONGEST_NAME).into();
    let say = |machine: &mut Machine, status, incarnation| {
        let said = Record {
            name: Arc::clone(&name),
            metadata: vec![1; LONGEST_METADATA].into(),
            ..record(status, incarnation)
        };
        machine.merge(now, said);
    };
    say(&mut machine, Status::Alive, 5);
    say(&mut machine, Status::Suspect, 5);
    machine.conclude(now + machine.settings.confirm);
    // It learns that it was held for dead, and is suspected again.
    say(&mut machine, Status::Alive, 7);
    say(&mut machine, Status::Suspect, 7);
    machine
        .set_metadata(vec![1; LONGEST_METADATA].into())
        .unwrap();
    machine.send(Kind::Ping, &name, 0);
    let sent = machine.take_out();
    assert!(!sent.is_empty());
    let sealed = LONGEST + 100;
    assert!(
        sent.iter().all(|it| it.bytes.len() <= sealed),
        "{:?}",
        lengths(&sent)
    );
    // It is said when there is room.
    assert!(machine.members[&name].buried.is_some());
}

fn lengths(sent: &[Datagram]) -> Vec<usize> {
    sent.iter().map(|it| it.bytes.len()).collect()
}

#[test]
fn a_node_that_held_this_one_for_dead_is_met_when_it_leaves() {
    // It said so of this node itself, or another one did.
    for (from, met) in [(2, 1), (1, 0)] {
        let now = Instant::now();
        let mut machine = machine(0, now);
        let mut own = machine.own.clone();
        own.status = Status::Dead;
        for node in 1..3 {
            let sender = Record {
                name: format!("node-{node}").into(),
                address: own_address(node),
                ..record(Status::Alive, 5)
            };
            machine.merge(now, sender.clone());
            let packet = Packet {
                kind: Kind::News,
                to: machine.sealer.session(),
                number: 0,
                sender,
                records: (node == from).then(|| own.clone()).into_iter().collect(),
            };
            machine.accept(now, SessionId([node as u8; 16]), packet);
        }
        let before = machine.reunions();
        machine.merge(now, record(Status::Left, 6));
        assert_eq!(machine.reunions(), before + met, "{from}");
        // Once: it says several times that it leaves.
        machine.merge(now, record(Status::Left, 7));
        assert_eq!(machine.reunions(), before + met);
    }
}

#[test]
fn a_node_that_leaves_is_met_by_those_that_held_it_for_dead() {
    let now = Instant::now();
    for (held, met) in [(Status::Dead, 1), (Status::Alive, 0)] {
        let mut machine = machine(1, now);
        machine.merge(now, record(Status::Alive, 5));
        if held == Status::Dead {
            machine.merge(now, record(Status::Suspect, 5));
            machine.conclude(now + machine.settings.confirm);
        }
        let before = (machine.reunions(), machine.revision());
        machine.merge(now, record(Status::Left, 6));
        assert_eq!(machine.reunions(), before.0 + met, "{held:?}");
        assert!(machine.revision() > before.1);
    }
}

#[test]
fn a_node_that_leaves_notifies_those_that_it_holds_for_dead() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    machine.merge(now, record(Status::Alive, 5));
    machine.merge(now, record(Status::Suspect, 5));
    machine.conclude(now + machine.settings.confirm);
    machine.out.clear();
    let notified: Vec<SocketAddr> = machine.leave().iter().map(|it| it.to).collect();
    assert_eq!(notified, [own_address(2)]);
}

#[test]
fn a_node_says_more_of_itself_than_others_hold_of_it() {
    let now = Instant::now();
    let mut machine = machine(2, now);
    for (status, said, expected) in [
        (Status::Suspect, 1, 2),
        (Status::Suspect, 1, 2),
        (Status::Dead, 2, 3),
        (Status::Alive, 3, 4),
        (Status::Left, 9, 10),
    ] {
        machine.merge(now, record(status, said));
        assert_eq!(machine.own.incarnation, expected, "{status:?} {said}");
    }
}

#[test]
fn a_session_begins_again_before_the_windows_are_full() {
    let now = Instant::now();
    let mut machine = machine(1, now);
    let before = machine.sealer.session();
    machine.begin_session();
    assert_ne!(machine.sealer.session(), before);
    assert_eq!(machine.windows.len(), 0);
}

#[test]
fn names_and_metadata_that_others_refuse_are_refused_at_once() {
    let mut machine = machine(1, Instant::now());
    let long = vec![0; LONGEST_METADATA + 1];
    assert_eq!(
        machine.set_metadata(long.into()),
        Err(OwnError::Metadata(257))
    );
    let changed = machine.set_metadata(vec![1; LONGEST_METADATA].into());
    assert_eq!(changed, Ok(Vec::new()));
    assert_eq!(machine.own.incarnation, 2);
}
