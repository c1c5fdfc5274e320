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
    // Nothing else that changes is a reason to announce it.
    scene.interfaces(both());
    scene.announce(
        &[V4],
        &Announcement {
            revision: 1,
            ..announcement(Start::TakeOver)
        },
    );
    assert_eq!(scene.run(199), []);
    assert_eq!(scene.state(V4), State::Conflicted);
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
