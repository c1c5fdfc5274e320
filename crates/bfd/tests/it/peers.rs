//! The driver with FRR's bfdd and with BIRD.

use landfall_bfd::packet::State;
use landfall_bfd::packet::authentication::{Key, Method};
use landfall_bfd::session::{Cause, Role, Settings};
use landfall_bfd::table::{Hops, Path};

use crate::daemons::{Bird, Frr};
use crate::lab::{Host, Node, is_inside, link, link_local, sh, until};
use crate::world::{ms, settings};

const PROFILE: &str = " profile fast\n  detect-multiplier 3\n  receive-interval 50\n  \
    transmit-interval 50\n";

fn over(interface: &str, peer: &str) -> Path {
    Path {
        interface: Some(interface.into()),
        ..Path::to(peer.parse().unwrap())
    }
}

#[tokio::test]
async fn frr_and_we_see_each_other_in_both_families_and_find_a_cut() {
    if !is_inside("peers::frr_and_we_see_each_other_in_both_families_and_find_a_cut") {
        return;
    }
    let host = Host::neighbor();
    let (ours, theirs) = (link_local("eth0"), host.link_local("eth0"));
    let configuration = format!(
        "bfd\n{PROFILE} !\n peer 10.0.0.1 interface eth0\n  profile fast\n !\n \
        peer 2001:db8::1 local-address 2001:db8::2 interface eth0\n  profile fast\n !\n \
        peer {ours} local-address {theirs} interface eth0\n  profile fast\n !\n!\n"
    );
    let frr = Frr::start(&host, &configuration).await;
    let mut node = Node::start();
    let paths = ["10.0.0.2", "2001:db8::2", &theirs].map(|peer| over("eth0", peer));
    node.set(paths.clone().map(|path| (path, settings(50, 50, 3))));
    for path in &paths {
        node.reaches(path, State::Up).await;
    }
    let agreed = || {
        let sessions = node.monitor.snapshot().sessions.clone();
        sessions
            .values()
            .all(|it| it.session.detection_time == Some(ms(150)))
    };
    until("intervals are agreed on", agreed).await;
    until("FRR is up", || {
        frr.show("show bfd peers").matches("Status: up").count() == 3
    })
    .await;
    host.sh("ip link set eth0 down");
    for _ in 0..3 {
        let event = node.goes_down().await;
        assert!(event.change.is_failure(), "{event}");
    }
    frr.shows("Diagnostics: control detection time expired")
        .await;
}

#[tokio::test]
async fn frr_learns_that_a_session_ends_on_purpose() {
    if !is_inside("peers::frr_learns_that_a_session_ends_on_purpose") {
        return;
    }
    let host = Host::neighbor();
    let configuration =
        format!("bfd\n{PROFILE} !\n peer 10.0.0.1 interface eth0\n  profile fast\n !\n!\n");
    let frr = Frr::start(&host, &configuration).await;
    let node = Node::start();
    let path = over("eth0", "10.0.0.2");
    node.set([(path.clone(), settings(50, 50, 3))]);
    node.reaches(&path, State::Up).await;
    frr.shows("Status: up").await;
    node.monitor.stop();
    frr.shows("Remote diagnostics: administratively down").await;
    frr.shows("Status: down").await;
}

#[tokio::test]
async fn frr_reaches_us_over_several_hops_and_as_the_passive_side() {
    if !is_inside("peers::frr_reaches_us_over_several_hops_and_as_the_passive_side") {
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
    let configuration = format!(
        "bfd\n{PROFILE} !\n peer 10.1.0.1 multihop local-address 10.2.0.2\n  profile fast\n !\n!\n"
    );
    let frr = Frr::start(&host, &configuration).await;
    let node = Node::start();
    let path = Path {
        hops: Hops::Multi,
        local: Some("10.1.0.1".parse().unwrap()),
        ..Path::to("10.2.0.2".parse().unwrap())
    };
    let passive = Settings {
        role: Role::Passive,
        ..settings(50, 50, 3)
    };
    node.set([(path.clone(), passive)]);
    node.reaches(&path, State::Up).await;
    frr.shows("Status: up").await;
}

#[tokio::test]
async fn frr_and_we_return_each_other_s_echoes() {
    if !is_inside("peers::frr_and_we_return_each_other_s_echoes") {
        return;
    }
    let host = Host::neighbor();
    host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    let configuration = "bfd\n peer 10.0.0.1 local-address 10.0.0.2 interface eth0\n  \
        detect-multiplier 3\n  receive-interval 50\n  transmit-interval 50\n  echo-mode\n  \
        echo transmit-interval 50\n  echo receive-interval 50\n !\n!\n";
    let frr = Frr::start(&host, configuration).await;
    let mut node = Node::start();
    let path = over("eth0", "10.0.0.2");
    let echo = Settings {
        echo: Some(ms(50)),
        ..settings(50, 50, 3)
    };
    node.set([(path.clone(), echo)]);
    node.reaches(&path, State::Up).await;
    let both = || {
        let counters = node.status(&path).unwrap().counters;
        let shown = frr.show("show bfd peers counters");
        let returned = shown
            .lines()
            .find_map(|it| it.trim().strip_prefix("Echo packet input: "));
        let returned = returned.and_then(|it| it.split(' ').next()?.parse::<u64>().ok());
        counters.echo_in > 20 && returned.is_some_and(|count| count > 20)
    };
    until("both get their echoes back", both).await;
    assert_eq!(node.status(&path).unwrap().counters.downs, 0);
    // The other side stops to forward, and control packets alone would not show it.
    host.sh("echo 0 > /proc/sys/net/ipv4/ip_forward");
    let event = node.goes_down().await;
    assert_eq!(event.change.cause, Cause::NoEcho(ms(150)), "{event}");
}

#[tokio::test]
async fn bird_and_we_see_each_other_in_both_families_and_find_a_cut() {
    if !is_inside("peers::bird_and_we_see_each_other_in_both_families_and_find_a_cut") {
        return;
    }
    let host = Host::neighbor();
    let (ours, theirs) = (link_local("eth0"), host.link_local("eth0"));
    let configuration = format!(
        "protocol bfd {{ interface \"eth0\" {{ interval 50 ms; multiplier 3; }};\n\
        neighbor 10.0.0.1 dev \"eth0\";\nneighbor 2001:db8::1 dev \"eth0\";\n\
        neighbor {ours} dev \"eth0\"; }}"
    );
    let bird = Bird::start(&host, &configuration).await;
    let mut node = Node::start();
    let paths = ["10.0.0.2", "2001:db8::2", &theirs].map(|peer| over("eth0", peer));
    node.set(paths.clone().map(|path| (path, settings(50, 50, 3))));
    // A source of IPv6 is chosen by each side; BIRD uses its link-local one for a neighbor that is
    // not given a source.
    for path in [&paths[0], &paths[2]] {
        node.reaches(path, State::Up).await;
    }
    bird.shows("Up").await;
    let agreed = || {
        let session = node.status(&paths[0]).unwrap().session;
        session.detection_time == Some(ms(150))
    };
    until("intervals are agreed on", agreed).await;
    host.sh("ip link set eth0 down");
    let event = node.goes_down().await;
    assert!(event.change.is_failure(), "{event}");
}

#[tokio::test]
async fn bird_and_we_authenticate_each_other_and_a_wrong_key_is_named() {
    if !is_inside("peers::bird_and_we_authenticate_each_other_and_a_wrong_key_is_named") {
        return;
    }
    let host = Host::neighbor();
    let path = over("eth0", "10.0.0.2");
    for (method, name) in [
        (Method::KeyedSha1, "keyed sha1"),
        (Method::MeticulousKeyedSha1, "meticulous keyed sha1"),
    ] {
        let configuration = format!(
            "protocol bfd {{ interface \"eth0\" {{ interval 50 ms; multiplier 3; \
            authentication {name}; password \"between us\" {{ id 7; }}; }};\n\
            neighbor 10.0.0.1 dev \"eth0\"; }}"
        );
        let bird = Bird::start(&host, &configuration).await;
        let node = Node::start();
        let with = |secret: &[u8]| {
            let key = Key::new(method, 7, secret).unwrap();
            let authentication = Some(key);
            let settings = Settings {
                authentication,
                ..settings(50, 50, 3)
            };
            [(path.clone(), settings)]
        };
        node.set(with(b"between them"));
        let rejected = || {
            let rejection = node.status(&path).and_then(|it| it.last_rejection);
            rejection.is_some_and(|it| it.to_string().contains("authentication of the packet"))
        };
        until("the key is rejected", rejected).await;
        node.set(with(b"between us"));
        node.reaches(&path, State::Up).await;
        bird.shows("Up").await;
        node.monitor.stop();
    }
}
