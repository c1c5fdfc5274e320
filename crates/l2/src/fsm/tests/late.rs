//! Interfaces that come after a take-over began, or while an address is announced on others.

use super::*;

fn both() -> [(u32, Interface); 2] {
    [
        (1, interface("eth0", OURS)),
        (2, interface("eth1", OURS_TOO)),
    ]
}

fn only_first() -> [(u32, Interface); 1] {
    [(1, interface("eth0", OURS))]
}

#[test]
fn a_take_over_without_an_interface_asks_on_the_one_that_comes() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.interfaces([]);
    scene.take_over(&[V4]);
    assert_eq!(scene.run(1_000), []);
    assert_eq!(scene.state(V4), State::Waiting);
    scene.interfaces(only_first());
    let probes = [1_000, 1_100, 1_200].map(|at| Seen::Probe(at, 1));
    assert_eq!(scene.run(299), probes);
    let announced = Seen::Report(1_300, Event::Announced);
    assert_eq!(scene.run(1), [announced, Seen::Gratuitous(1_300, 1)]);
}

#[test]
fn a_host_keeps_the_address_that_a_node_took_over_without_an_interface() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.interfaces([]);
    scene.take_over(&[V4]);
    scene.interfaces(only_first());
    assert_eq!(scene.run(0), [Seen::Probe(0, 1)]);
    assert_eq!(scene.receive(&claims(HOST)[0]).len(), 1);
    // Another cause is no reason to announce it.
    let again = Announcement {
        revision: 1,
        ..announcement(Start::TakeOver)
    };
    scene.announce(&[V4], &again);
    assert_eq!(scene.run(199), []);
    assert_eq!(scene.state(V4), State::Conflicted);
}

#[test]
fn a_host_keeps_an_address_on_its_interface_alone_when_another_one_comes() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.interfaces([(2, interface("eth1", OURS_TOO))]);
    scene.announce(&[V4], &announcement(Start::Probe));
    scene.run(0);
    scene.machine.receive(scene.now, 2, &claims(HOST)[0]);
    assert_eq!(scene.state(V4), State::Conflicted);
    scene.run(100);
    // At once, and not when the host is asked again.
    scene.interfaces(both());
    assert_eq!(scene.run(0), [Seen::Probe(100, 1), Seen::Probe(100, 2)],);
    let refused = scene.machine.receive(scene.now, 2, &claims(HOST)[0]);
    assert_eq!(refused, []);
    scene.run(300);
    assert_announced_on_first(&scene);
}

/// The address is announced on eth0, and a host has it on eth1.
fn assert_announced_on_first(scene: &Scene) {
    let status = &scene.machine.status()[&ip(V4)];
    assert_eq!(status.state, State::Announcing);
    assert_eq!(status.interfaces, ["eth0"]);
}

/// An address that is announced on eth0, with an interface on whose link a host has it.
fn with_host_on_late_interface() -> Scene {
    let mut scene = Scene::new();
    scene.take_over(&[V4]);
    scene.run(6_000);
    scene.interfaces(both());
    run_with_host_on_second(&mut scene, 1_000);
    assert_announced_on_first(&scene);
    scene
}

/// Lets time pass while a host answers each probe on eth1; returns how often it was reported.
fn run_with_host_on_second(scene: &mut Scene, millis: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..millis / 10 {
        for seen in scene.run(10) {
            match seen {
                Seen::Probe(_, 2) => {
                    let outputs = scene.machine.receive(scene.now, 2, &claims(HOST)[0]);
                    events.extend(outputs.iter().map(|it| match it {
                        Output::Report(_, event) => *event,
                        Output::Send { .. } => panic!("{it:?}"),
                    }));
                }
                Seen::Report(_, event) => events.push(event),
                _ => {}
            }
        }
    }
    events
}

#[test]
fn a_host_on_a_later_interface_takes_the_address_from_no_other_after_an_outage() {
    let second = || [(2, interface("eth1", OURS_TOO))];
    // How long the good interface is away, and whether both are.
    for away in [0, 50, 350, 5_000] {
        for both_are in [false, true] {
            let mut scene = with_host_on_late_interface();
            if both_are {
                scene.interfaces([]);
            } else {
                scene.interfaces(second());
            }
            run_with_host_on_second(&mut scene, away);
            scene.interfaces(both());
            run_with_host_on_second(&mut scene, 350);
            assert_announced_on_first(&scene);
            let asked = request(V4).frame(MacAddress::BROADCAST);
            assert_eq!(scene.receive(&asked).len(), 1, "{away} {both_are}");
            assert_eq!(scene.machine.receive(scene.now, 2, &asked), []);
        }
    }
}

#[test]
fn an_address_is_not_announced_once_hosts_have_it_on_all_interfaces() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.interfaces(both());
    scene.announce(&[V4], &announcement(Start::Probe));
    scene.run(0);
    assert_eq!(scene.machine.receive(scene.now, 2, &claims(HOST)[0]), []);
    assert_eq!(scene.state(V4), State::Probing);
    let outputs = scene.receive(&claims(HOST)[0]);
    assert!(matches!(
        outputs[..],
        [Output::Report(_, Event::Refused(_))]
    ));
    assert_eq!(scene.state(V4), State::Conflicted);
    let asked = [Seen::Probe(200, 1), Seen::Probe(200, 2)];
    assert_eq!(scene.run(200), asked, "both again");
}

#[test]
fn a_host_on_a_later_interface_is_reported_once_with_the_interface() {
    let mut scene = Scene::new();
    scene.take_over(&[V4]);
    scene.run(6_000);
    scene.interfaces(both());
    let events = run_with_host_on_second(&mut scene, 600_000);
    let [Event::RefusedOn(conflict)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((conflict.mac, conflict.interface), (HOST, 2));
    // It is gone, and comes again.
    scene.run(60_000);
    assert_eq!(scene.machine.status()[&ip(V4)].interfaces.len(), 2);
    scene.interfaces(only_first());
    scene.interfaces(both());
    let events = run_with_host_on_second(&mut scene, 60_000);
    assert!(matches!(events[..], [Event::RefusedOn(_)]), "{events:?}");
}

#[test]
fn the_probe_of_a_former_peer_on_a_later_interface_is_no_conflict() {
    let mut scene = Scene::new();
    scene.machine.set_peers(scene.now, [PEER].into());
    scene.take_over(&[V4]);
    scene.run(6_000);
    scene.machine.set_peers(scene.now, BTreeSet::new());
    scene.interfaces(both());
    scene.run(10);
    let Ok(target) = V4.parse() else {
        panic!("no address: {V4}");
    };
    let probe = Arp::probe(PEER, target).frame(MacAddress::BROADCAST);
    assert_eq!(scene.machine.receive(scene.now, 2, &probe), []);
    scene.run(290);
    assert_eq!(scene.machine.status()[&ip(V4)].interfaces.len(), 2);
}

#[test]
fn a_take_over_begins_at_once_on_the_interfaces_that_are_found_at_the_start() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.take_over(&[V4]);
    assert_eq!(scene.run(10), []);
    scene.interfaces(only_first());
    let now = [Seen::Report(10, Event::Announced), Seen::Gratuitous(10, 1)];
    assert_eq!(scene.run(0), now);
}

#[test]
fn an_address_is_asked_for_after_its_only_interface_was_away() {
    let mut scene = Scene::announcing();
    scene.machine.set_peers(scene.now, [PEER].into());
    scene.receive(&claims(PEER)[0]);
    scene.interfaces([]);
    assert_eq!(scene.run(1_000), []);
    scene.interfaces(only_first());
    let frame = request(V4).frame(MacAddress::BROADCAST);
    assert_eq!(scene.receive(&frame), [], "not yet");
    let status = &scene.machine.status()[&ip(V4)];
    assert_eq!(status.conflict, None, "the one with a node was no refusal");
    scene.run(299);
    assert_eq!(scene.state(V4), State::Probing);
    let again = [Seen::Gratuitous(7_300, 1), Seen::Unsolicited(7_300, 1)];
    assert_eq!(scene.run(1), again, "and not as new");
}

#[test]
fn a_host_that_took_the_address_while_the_interface_was_away_keeps_it() {
    let mut scene = Scene::announcing();
    scene.interfaces([]);
    scene.interfaces(only_first());
    scene.run(50);
    let outputs = scene.receive(&claims(HOST)[0]);
    assert!(matches!(
        outputs[..],
        [Output::Report(_, Event::Refused(_))]
    ));
    assert_eq!(scene.state(V4), State::Conflicted);
    scene.run(150);
    let of_v4 = |seen: &Seen| matches!(seen, Seen::Report(..) | Seen::Gratuitous(..));
    let seen: Vec<_> = scene.run(500).into_iter().filter(of_v4).collect();
    let announced = Seen::Report(6_550, Event::Announced);
    assert_eq!(seen, [announced, Seen::Gratuitous(6_550, 1)], "it is gone");
}

#[test]
fn an_interface_that_comes_later_is_asked_while_the_address_is_announced_on_another() {
    let mut scene = Scene::new();
    scene.take_over(&[V4]);
    scene.run(6_000);
    scene.interfaces(both());
    let frame = request(V4).frame(MacAddress::BROADCAST);
    let names = |scene: &Scene| scene.machine.status()[&ip(V4)].interfaces.clone();
    let probes = [6_000, 6_100, 6_200].map(|at| Seen::Probe(at, 2));
    assert_eq!(scene.run(299), probes);
    assert_eq!(names(&scene), ["eth0"]);
    assert_eq!(scene.receive(&frame).len(), 1);
    assert_eq!(scene.machine.receive(scene.now, 2, &frame), []);
    let announced = [Seen::Gratuitous(6_300, 1), Seen::Gratuitous(6_300, 2)];
    assert_eq!(scene.run(1), announced);
    assert_eq!(names(&scene), ["eth0", "eth1"]);
    assert_eq!(scene.machine.receive(scene.now, 2, &frame).len(), 1);
}

#[test]
fn a_host_on_a_later_interface_keeps_the_address_there_and_only_there() {
    for frame in &claims(HOST)[..3] {
        let mut scene = Scene::new();
        scene.take_over(&[V4]);
        scene.run(6_000);
        scene.interfaces(both());
        assert_eq!(scene.run(0), [Seen::Probe(6_000, 2)]);
        let mut now = 6_000;
        for (wait, reports) in [(200, 1), (400, 0), (800, 0)] {
            let outputs = scene.machine.receive(scene.now, 2, frame);
            assert_eq!(outputs.len(), reports, "{outputs:?}");
            assert_eq!(scene.run(wait - 1), []);
            now += wait;
            assert_eq!(scene.run(1), [Seen::Probe(now, 2)]);
        }
        assert_eq!(scene.state(V4), State::Announcing);
        let asked = request(V4).frame(MacAddress::BROADCAST);
        assert_eq!(scene.receive(&asked).len(), 1);
        assert_eq!(scene.machine.receive(scene.now, 2, &asked), []);
        // The host is gone.
        let announced = [Seen::Gratuitous(7_700, 1), Seen::Gratuitous(7_700, 2)];
        assert_eq!(scene.run(300)[2..], announced);
    }
}

#[test]
fn an_address_whose_interfaces_are_all_exchanged_is_asked_for_as_after_an_outage() {
    let mut scene = Scene::new();
    scene.take_over(&[V4]);
    scene.run(6_000);
    scene.interfaces(both());
    scene.run(150);
    scene.interfaces([(2, interface("eth1", OURS_TOO))]);
    assert_eq!(scene.state(V4), State::Probing);
    let probes = [6_150, 6_250, 6_350].map(|at| Seen::Probe(at, 2));
    assert_eq!(scene.run(299), probes);
    assert_eq!(scene.run(1), [Seen::Gratuitous(6_450, 2)]);
}

#[test]
fn that_an_address_is_announced_again_is_news() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.interfaces(only_first());
    scene.announce(&[V4], &announcement(Start::Probe));
    scene.run(1_000);
    assert_eq!(scene.state(V4), State::Announcing);
    assert!(std::mem::take(&mut scene.machine.has_news));
    scene.run(1_000);
    assert!(!std::mem::take(&mut scene.machine.has_news));
    scene.interfaces([]);
    scene.interfaces(only_first());
    scene.run(299);
    assert_eq!(scene.state(V4), State::Probing);
    assert!(std::mem::take(&mut scene.machine.has_news));
    scene.run(1);
    assert_eq!(scene.state(V4), State::Announcing);
    assert!(std::mem::take(&mut scene.machine.has_news));
    // Another interface is shown once no host has the address there.
    scene.interfaces(both());
    scene.run(299);
    std::mem::take(&mut scene.machine.has_news);
    scene.run(1);
    assert!(std::mem::take(&mut scene.machine.has_news));
}
