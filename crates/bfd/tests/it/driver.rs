//! The driver with itself as the other side, over links of two hosts.

use std::time::Duration;

use landfall_bfd::packet::State;
use landfall_bfd::session::{Cause, Role, Settings};
use landfall_bfd::table::{Hops, Path};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::lab::{Host, Node, is_inside, link, link_local, sh, until};
use crate::world::{ms, settings};

fn to(peer: &str) -> Path {
    Path::to(peer.parse().unwrap())
}

fn over(interface: &str, peer: &str) -> Path {
    Path {
        interface: Some(interface.into()),
        ..to(peer)
    }
}

#[tokio::test]
async fn a_cut_link_takes_both_families_down_on_both_sides() {
    if !is_inside("driver::a_cut_link_takes_both_families_down_on_both_sides") {
        return;
    }
    let host = Host::neighbor();
    let (mut one, mut other) = (Node::start(), host.node());
    let fast = settings(50, 50, 3);
    let link_locals = [link_local("eth0"), host.link_local("eth0")];
    let paths = [
        [to("10.0.0.2"), to("10.0.0.1")],
        [to("2001:db8::2"), to("2001:db8::1")],
        [over("eth0", &link_locals[1]), over("eth0", &link_locals[0])],
    ];
    one.set(paths.clone().map(|[path, _]| (path, fast.clone())));
    other.set(paths.clone().map(|[_, path]| (path, fast.clone())));
    for [here, there] in &paths {
        one.reaches(here, State::Up).await;
        other.reaches(there, State::Up).await;
    }
    let agreed = || {
        let sessions = one.monitor.snapshot().sessions.clone();
        sessions
            .values()
            .all(|it| it.session.detection_time == Some(ms(150)))
    };
    until("intervals are agreed on", agreed).await;
    // Nothing passes from here on, and no side can notify the other.
    host.sh("ip link set eth0 down");
    for _ in 0..3 {
        let event = one.goes_down().await;
        assert_eq!(event.change.cause, Cause::Silence(ms(150)), "{event}");
        let event = other.goes_down().await;
        assert!(event.change.is_failure(), "{event}");
    }
    let counters = one.status(&paths[0][0]).unwrap().counters;
    assert_eq!((counters.ups, counters.downs), (1, 1));
    assert!(counters.control_in > 1 && counters.control_out > 1);
}

#[tokio::test]
async fn a_session_that_is_stopped_says_so_and_is_no_failure() {
    if !is_inside("driver::a_session_that_is_stopped_says_so_and_is_no_failure") {
        return;
    }
    let host = Host::neighbor();
    let (mut one, other) = (Node::start(), host.node());
    let (here, there) = (to("10.0.0.2"), to("10.0.0.1"));
    one.set([(here.clone(), settings(50, 50, 3))]);
    other.set([(there.clone(), settings(50, 50, 3))]);
    one.reaches(&here, State::Up).await;
    // No longer wanted, then wanted again, then the end of the whole side.
    other.set([]);
    let event = one.goes_down().await;
    assert_eq!(event.change.cause, Cause::NeighborAdministrator);
    assert!(!event.change.is_failure());
    other.set([(there, settings(50, 50, 3))]);
    one.reaches(&here, State::Up).await;
    other.monitor.stop();
    let event = one.goes_down().await;
    assert_eq!(event.change.cause, Cause::NeighborAdministrator);
}

#[tokio::test]
async fn several_hops_demand_mode_and_a_passive_side_work_over_a_router() {
    if !is_inside("driver::several_hops_demand_mode_and_a_passive_side_work_over_a_router") {
        return;
    }
    let (router, host) = (Host::new(), Host::new());
    link(None, "eth0", &router, "near");
    link(Some(&router), "far", &host, "eth0");
    sh("ip address add 10.1.0.1/24 dev eth0; ip route add default via 10.1.0.254");
    router.sh(
        "ip address add 10.1.0.254/24 dev near; ip address add 10.2.0.254/24 dev far; \
        echo 1 > /proc/sys/net/ipv4/ip_forward",
    );
    host.sh("ip address add 10.2.0.2/24 dev eth0; ip route add default via 10.2.0.254");
    let multihop = |peer: &str| Path {
        hops: Hops::Multi,
        ..to(peer)
    };
    let (here, there) = (multihop("10.2.0.2"), multihop("10.1.0.1"));
    let demand = Settings {
        demand: Some(ms(500)),
        ..settings(50, 50, 3)
    };
    let passive = Settings {
        role: Role::Passive,
        ..settings(50, 50, 3)
    };
    let (mut one, other) = (Node::start(), host.node());
    other.set([(there.clone(), passive.clone())]);
    one.set([(here.clone(), demand)]);
    one.reaches(&here, State::Up).await;
    other.reaches(&there, State::Up).await;
    // Packets that crossed one router more than they may are not accepted.
    let near = Settings {
        minimum_ttl: 255,
        ..passive
    };
    other.set([(there.clone(), near)]);
    let event = one.goes_down().await;
    assert!(event.change.is_failure(), "{event}");
    other.reaches(&there, State::Down).await;
    let rejection = other.status(&there).unwrap().last_rejection.unwrap();
    assert!(rejection.to_string().contains("254"), "{rejection}");
}

#[tokio::test]
async fn sessions_of_a_vrf_are_apart_from_those_outside() {
    if !is_inside("driver::sessions_of_a_vrf_are_apart_from_those_outside") {
        return;
    }
    let host = Host::neighbor();
    let twice = Host::new();
    // To sockets, a VRF is a device that they are bound to; this one has a single interface, which
    // is itself, because not every kernel has VRFs. The addresses are the same as outside.
    link(None, "red", &twice, "eth0");
    sh("ip address add 10.0.0.1/24 dev red");
    twice.sh("ip address add 10.0.0.2/24 dev eth0");
    let one = Node::start();
    let outside = to("10.0.0.2");
    let within = Path {
        vrf: Some("red".into()),
        ..to("10.0.0.2")
    };
    let fast = settings(50, 50, 3);
    one.set([
        (outside.clone(), fast.clone()),
        (within.clone(), fast.clone()),
    ]);
    let there = to("10.0.0.1");
    let other = twice.node();
    other.set([(there.clone(), fast.clone())]);
    one.reaches(&within, State::Up).await;
    let session = one.status(&outside).unwrap().session;
    assert_eq!(session.remote_discriminator, None);
    let third = host.node();
    third.set([(there, fast)]);
    one.reaches(&outside, State::Up).await;
    one.reaches(&within, State::Up).await;
}

#[tokio::test]
async fn echoes_return_through_the_other_side_and_a_loss_of_them_alone_is_found() {
    if !is_inside("driver::echoes_return_through_the_other_side_and_a_loss_of_them_alone_is_found")
    {
        return;
    }
    let host = Host::neighbor();
    host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    let (mut one, other) = (Node::start(), host.node());
    let (here, there) = (to("10.0.0.2"), to("10.0.0.1"));
    let echo = Settings {
        echo: Some(ms(50)),
        ..settings(50, 50, 3)
    };
    one.set([(here.clone(), echo.clone())]);
    other.set([(there, echo)]);
    one.reaches(&here, State::Up).await;
    let returns = || {
        let status = one.status(&here).unwrap();
        status.session.echo_interval == Some(ms(50)) && status.counters.echo_in > 10
    };
    until("echoes return", returns).await;
    // Control packets still pass, but nothing is forwarded.
    host.sh("echo 0 > /proc/sys/net/ipv4/ip_forward");
    let event = one.goes_down().await;
    assert_eq!(event.change.cause, Cause::NoEcho(ms(150)), "{event}");
}

#[tokio::test]
async fn what_cannot_be_sent_or_received_is_a_fault_until_it_can() {
    if !is_inside("driver::what_cannot_be_sent_or_received_is_a_fault_until_it_can") {
        return;
    }
    let host = Host::neighbor();
    let one = Node::start();
    let taken = std::net::UdpSocket::bind("0.0.0.0:3784").unwrap();
    let (here, missing) = (to("10.0.0.2"), over("eth7", "10.7.0.2"));
    let fast = settings(50, 50, 3);
    one.set([
        (here.clone(), fast.clone()),
        (missing.clone(), fast.clone()),
    ]);
    let fault = |path: &Path| one.status(path).and_then(|it| it.fault);
    until("faults are reported", || {
        fault(&here).is_some() && fault(&missing).is_some()
    })
    .await;
    let text = fault(&here).unwrap();
    assert!(text.contains("another BFD daemon"), "{text}");
    drop(taken);
    let other = host.node();
    other.set([(to("10.0.0.1"), fast.clone())]);
    one.reaches(&here, State::Up).await;
    assert_eq!(fault(&here), None);
    // The interface appears.
    let late = Host::new();
    link(None, "eth7", &late, "eth0");
    sh("ip address add 10.7.0.1/24 dev eth7");
    late.sh("ip address add 10.7.0.2/24 dev eth0");
    let third = late.node();
    third.set([(to("10.7.0.1"), fast)]);
    one.reaches(&missing, State::Up).await;
    assert_eq!(fault(&missing), None);
}

#[tokio::test]
async fn echoes_that_cannot_be_sent_are_a_fault_until_they_can_and_the_session_stays_up() {
    let name =
        "driver::echoes_that_cannot_be_sent_are_a_fault_until_they_can_and_the_session_stays_up";
    if !is_inside(name) {
        return;
    }
    let host = Host::neighbor();
    host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    let (one, other) = (Node::start(), host.node());
    let (here, there) = (to("10.0.0.2"), to("10.0.0.1"));
    let plain = settings(50, 50, 3);
    let echo = Settings {
        echo: Some(ms(50)),
        ..plain.clone()
    };
    one.set([(here.clone(), plain)]);
    other.set([(there, echo.clone())]);
    one.reaches(&here, State::Up).await;
    // No more descriptors than the standard streams.
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        ..usual
    };
    setrlimit(Resource::Nofile, none).unwrap();
    one.set([(here.clone(), echo)]);
    let fault = || one.status(&here).and_then(|it| it.fault);
    until("the fault is reported", || fault().is_some()).await;
    let text = fault().unwrap();
    assert!(text.contains("cannot send echoes"), "{text}");
    setrlimit(Resource::Nofile, usual).unwrap();
    let returns = || one.status(&here).is_some_and(|it| it.counters.echo_in > 10);
    until("echoes return", returns).await;
    assert_eq!(fault(), None);
    assert_eq!(one.status(&here).unwrap().counters.downs, 0);
}

#[tokio::test]
async fn a_change_of_settings_ends_no_session() {
    if !is_inside("driver::a_change_of_settings_ends_no_session") {
        return;
    }
    let host = Host::neighbor();
    let (one, other) = (Node::start(), host.node());
    let (here, there) = (to("10.0.0.2"), to("10.0.0.1"));
    one.set([(here.clone(), settings(100, 100, 5))]);
    other.set([(there, settings(100, 100, 5))]);
    one.reaches(&here, State::Up).await;
    for (interval, multiplier) in [(500, 5), (200, 4), (1_000, 3)] {
        one.set([(here.clone(), settings(interval, interval, multiplier))]);
        let agreed = || {
            let session = one.status(&here).unwrap().session;
            session.transmit_interval == Duration::from_millis(interval)
        };
        until("the interval is agreed on", agreed).await;
    }
    assert_eq!(one.status(&here).unwrap().counters.downs, 0);
}
