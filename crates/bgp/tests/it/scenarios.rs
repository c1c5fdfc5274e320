//! The same scenarios with each program.

use std::time::Duration;

use landfall_bgp::peer::{Mode, Password, Peer, PeerAddress, RemoteAsn};
use landfall_bgp::route::{Attributes, Community, LargeCommunity};
use landfall_testkit::namespace::sh;

use crate::lab::{NODE, NODE_V6, is_inside, until};
use crate::node::{Node, asn, ip, peer, routes};
use crate::router::{Kind, Router, Setup};

pub const V4: &str = "192.0.2.7/32";
pub const V6: &str = "2001:db8:7::7/128";

/// Makes a test of every scenario with a program.
macro_rules! with {
    ($kind:ident: $($scenario:ident)*) => {
        $(
            #[test]
            fn $scenario() {
                let name = concat!(module_path!(), "::", stringify!($scenario));
                // Without the name of the crate.
                let (_, name) = name.split_once("::").unwrap();
                if is_inside(name) {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    runtime.block_on(super::$scenario(Kind::$kind));
                }
            }
        )*
    };
}

mod frr {
    use super::*;

    with!(Frr:
        routes_of_both_families_appear_change_and_disappear
        a_router_of_the_same_as_sees_local_preferences
        a_password_lets_a_session_come_up_and_can_be_changed_in_it
        a_wrong_password_keeps_a_session_down_with_its_reason
        packets_that_do_not_come_from_far_away_pass_gtsm
        prefixes_of_both_families_are_announced_over_ipv6
        next_hops_of_the_other_family_follow_the_addresses_of_the_interface
        a_restart_keeps_routes_where_it_is_agreed_and_withdraws_them_otherwise
        another_as_is_refused_by_either_side_with_its_reason
        a_router_that_asks_gets_all_routes_again
        a_router_that_restarts_has_all_routes_again
        a_thousand_received_routes_are_counted
        a_drained_node_asks_for_other_paths
        a_router_may_begin_the_session
        a_router_of_a_range_may_begin_the_session
        both_sides_may_begin_and_one_session_stays
        a_router_that_knows_nodes_by_a_range_takes_the_session
        a_link_without_addresses_carries_routes_of_both_families
        a_session_is_made_through_the_device_of_its_vrf_alone
        ten_thousand_prefixes_take_few_messages
    );
}

mod bird {
    use super::*;

    with!(Bird:
        routes_of_both_families_appear_change_and_disappear
        a_router_of_the_same_as_sees_local_preferences
        a_password_lets_a_session_come_up_and_can_be_changed_in_it
        a_wrong_password_keeps_a_session_down_with_its_reason
        packets_that_do_not_come_from_far_away_pass_gtsm
        prefixes_of_both_families_are_announced_over_ipv6
        a_restart_keeps_routes_where_it_is_agreed_and_withdraws_them_otherwise
        another_as_is_refused_by_either_side_with_its_reason
        a_router_that_asks_gets_all_routes_again
        a_router_that_restarts_has_all_routes_again
        a_thousand_received_routes_are_counted
        a_drained_node_asks_for_other_paths
        a_router_may_begin_the_session
        both_sides_may_begin_and_one_session_stays
        ten_thousand_prefixes_take_few_messages
    );
}

/// GoBGP never asks for routes again: it keeps what it received.
mod gobgp {
    use super::*;

    with!(Gobgp:
        routes_of_both_families_appear_change_and_disappear
        a_router_of_the_same_as_sees_local_preferences
        a_password_lets_a_session_come_up_and_can_be_changed_in_it
        a_wrong_password_keeps_a_session_down_with_its_reason
        packets_that_do_not_come_from_far_away_pass_gtsm
        prefixes_of_both_families_are_announced_over_ipv6
        a_restart_keeps_routes_where_it_is_agreed_and_withdraws_them_otherwise
        another_as_is_refused_by_either_side_with_its_reason
        a_router_that_restarts_has_all_routes_again
        a_thousand_received_routes_are_counted
        a_drained_node_asks_for_other_paths
        a_router_may_begin_the_session
        both_sides_may_begin_and_one_session_stays
        ten_thousand_prefixes_take_few_messages
    );
}

pub fn attributes() -> Attributes {
    Attributes {
        local_preference: Some(300),
        communities: [Community(65_000, 7), Community(65_000, 9)].into(),
        large_communities: [LargeCommunity(70_000, 1, 2)].into(),
        ..Attributes::default()
    }
}

async fn routes_of_both_families_appear_change_and_disappear(kind: Kind) {
    let router = Router::start(kind, Setup::default());
    let node = Node::start(peer(&router.setup), routes(&[V4, V6], attributes()));
    node.up().await;
    until("both routes", || {
        router.route(V4).is_some() && router.route(V6).is_some()
    })
    .await;
    let seen = router.route(V4).unwrap();
    assert_eq!(seen.next_hop, Some(ip(NODE)));
    assert_eq!(seen.path, [65_000]);
    assert_eq!(seen.communities, [(65_000, 7), (65_000, 9)]);
    assert_eq!(seen.large_communities, [(70_000, 1, 2)]);
    // What routers of the same AS see only; a program may show its own default.
    assert_ne!(seen.local_preference, Some(300));
    let seen = router.route(V6).unwrap();
    assert_eq!(seen.next_hop, Some(ip(NODE_V6)));
    assert_eq!(seen.communities, [(65_000, 7), (65_000, 9)]);
    node.set_routes(routes(&[V6, "198.51.100.0/24"], Attributes::default()));
    until("the first prefix is gone", || router.route(V4).is_none()).await;
    until("the second one has no community", || {
        router.route(V6).is_some_and(|it| it.communities.is_empty())
    })
    .await;
    until("the aggregate", || {
        router.route("198.51.100.0/24").is_some()
    })
    .await;
    let status = node.status().unwrap();
    assert_eq!((status.prefixes_wanted, status.prefixes_sent), (2, 2));
    node.stop().await;
    until("all routes are withdrawn", || router.route(V6).is_none()).await;
}

async fn a_router_of_the_same_as_sees_local_preferences(kind: Kind) {
    let setup = Setup {
        asn: 4_200_000_000,
        node_asn: 4_200_000_000,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let peer = Peer {
        remote_asn: RemoteAsn::Internal,
        ..peer(&router.setup)
    };
    let node = Node::start(peer, routes(&[V4, V6], attributes()));
    node.up().await;
    until("both routes", || {
        router.route(V4).is_some() && router.route(V6).is_some()
    })
    .await;
    let seen = router.route(V4).unwrap();
    assert_eq!((seen.local_preference, seen.path), (Some(300), vec![]));
    node.set_routes(routes(&[V4], Attributes::default()));
    until("the default", || {
        router
            .route(V4)
            .is_some_and(|it| it.local_preference == Some(100))
    })
    .await;
    node.stop().await;
}

async fn a_password_lets_a_session_come_up_and_can_be_changed_in_it(kind: Kind) {
    let setup = Setup {
        password: Some("secret".into()),
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let node = Node::start(peer(&router.setup), routes(&[V4], Attributes::default()));
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    // The router does not follow: from now on neither side understands the other.
    node.set_peer(Peer {
        password: Password::new("other").ok(),
        ..peer(&router.setup)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        node.is_up(),
        "the session is as it was until its hold time ends"
    );
    node.set_peer(peer(&router.setup));
    node.set_routes(routes(&[V4, V6], Attributes::default()));
    until("a route that is announced after that", || {
        router.route(V6).is_some()
    })
    .await;
    assert_eq!(node.status().unwrap().counts.established, 1);
    node.stop().await;
}

async fn a_wrong_password_keeps_a_session_down_with_its_reason(kind: Kind) {
    let setup = Setup {
        password: Some("secret".into()),
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let wrong = Peer {
        password: Password::new("wrong").ok(),
        ..peer(&router.setup)
    };
    let node = Node::start(wrong, routes(&[V4], Attributes::default()));
    node.fails("ConnectTimeout").await;
    let (_, error) = node.status().unwrap().last_error.unwrap();
    assert!(error.remedy().contains("same password"));
    // The right one is tried at once.
    node.set_peer(peer(&router.setup));
    node.up().await;
    node.stop().await;
}

async fn packets_that_do_not_come_from_far_away_pass_gtsm(kind: Kind) {
    let setup = Setup {
        gtsm: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let near = peer(&router.setup);
    let far = Peer {
        hops: landfall_bgp::peer::Hops::Direct,
        ..near.clone()
    };
    // A TTL of 1 is what packets from far away have.
    let node = Node::start(far, routes(&[V4], Attributes::default()));
    until("an attempt that fails", || {
        node.status().is_some_and(|it| it.last_error.is_some())
    })
    .await;
    assert!(!node.is_up());
    node.set_peer(near);
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    node.stop().await;
}

async fn prefixes_of_both_families_are_announced_over_ipv6(kind: Kind) {
    let setup = Setup {
        over_ipv6: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let node = Node::start(
        peer(&router.setup),
        routes(&[V4, V6], Attributes::default()),
    );
    node.up().await;
    until("the route of IPv6", || router.route(V6).is_some()).await;
    assert_eq!(router.route(V6).unwrap().next_hop, Some(ip(NODE_V6)));
    let agreed = node.status().unwrap().agreed.unwrap();
    assert!(agreed.capabilities.extended_next_hop);
    until("the route of IPv4", || router.route(V4).is_some()).await;
    assert_eq!(router.route(V4).unwrap().next_hop, Some(ip(NODE_V6)));
    node.stop().await;
}

async fn next_hops_of_the_other_family_follow_the_addresses_of_the_interface(kind: Kind) {
    let setup = Setup {
        over_ipv6: true,
        extended_next_hop: false,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    sh(&format!("ip address delete {NODE}/24 dev eth0"));
    let node = Node::start(
        peer(&router.setup),
        routes(&[V4, V6], Attributes::default()),
    );
    node.up().await;
    until("the route of IPv6", || router.route(V6).is_some()).await;
    let agreed = node.status().unwrap().agreed.unwrap();
    assert!(!agreed.capabilities.extended_next_hop);
    assert_eq!(router.route(V4), None);
    let is_next_hop = |address| {
        let seen = router.route(V4).and_then(|it| it.next_hop);
        seen == Some(ip(address))
    };
    sh("ip address add 10.0.0.9/24 dev eth0");
    until("an address that came later", || is_next_hop("10.0.0.9")).await;
    sh(&format!(
        "ip address delete 10.0.0.9/24 dev eth0; ip address add {NODE}/24 dev eth0"
    ));
    until("the one that replaced it", || is_next_hop(NODE)).await;
    assert_eq!(router.route(V6).unwrap().next_hop, Some(ip(NODE_V6)));
    assert_eq!(node.status().unwrap().counts.established, 1);
    node.stop().await;
}

async fn a_restart_keeps_routes_where_it_is_agreed_and_withdraws_them_otherwise(kind: Kind) {
    let setup = Setup {
        graceful_restart: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let start = |peer| Node::start(peer, routes(&[V4], Attributes::default()));
    let node = start(peer(&router.setup));
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    let agreed = node.status().unwrap().agreed.unwrap();
    assert!(agreed.capabilities.graceful_restart.is_some());
    node.stop().await;
    for _ in 0..20 {
        assert!(router.route(V4).is_some(), "kept while the process is away");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let node = start(peer(&router.setup));
    node.up().await;
    for _ in 0..20 {
        assert!(router.route(V4).is_some(), "kept when it is back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // What is not announced again is dropped at the end of the table.
    node.stop().await;
    let node = Node::start(peer(&router.setup), routes(&[V6], Attributes::default()));
    node.up().await;
    until("the old route is gone", || router.route(V4).is_none()).await;
    until("the new one is there", || router.route(V6).is_some()).await;
    node.stop().await;
    let plain = Peer {
        graceful_restart: None,
        ..peer(&router.setup)
    };
    let node = start(plain);
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    node.stop().await;
    until("withdrawn", || router.route(V4).is_none()).await;
}

async fn another_as_is_refused_by_either_side_with_its_reason(kind: Kind) {
    let router = Router::start(kind, Setup::default());
    let right = peer(&router.setup);
    let expects_other = Peer {
        remote_asn: RemoteAsn::Number(asn(65_099)),
        ..right.clone()
    };
    let node = Node::start(expects_other, routes(&[V4], Attributes::default()));
    node.fails("BadPeerAS").await;
    let is_other = Peer {
        asn: asn(65_098),
        ..right.clone()
    };
    node.set_peer(is_other);
    node.fails("NotificationReceived").await;
    let (_, error) = node.status().unwrap().last_error.unwrap();
    assert!(error.to_string().contains("Bad Peer AS (2/2)"), "{error}");
    assert!(error.remedy().contains("myASN"));
    node.set_peer(Peer {
        remote_asn: RemoteAsn::External,
        ..right
    });
    node.up().await;
    node.stop().await;
}

async fn a_router_that_asks_gets_all_routes_again(kind: Kind) {
    let router = Router::start(kind, Setup::default());
    let node = Node::start(peer(&router.setup), routes(&[V4, V6], attributes()));
    node.up().await;
    until("the routes", || router.route(V6).is_some()).await;
    let before = node.status().unwrap().counts;
    router.refresh();
    until("it asked, and got them", || {
        let counts = node.status().unwrap().counts;
        counts.refreshes_received > before.refreshes_received
            && counts.updates_sent > before.updates_sent
    })
    .await;
    assert!(router.route(V4).is_some() && node.is_up());
    node.stop().await;
}

async fn a_router_that_restarts_has_all_routes_again(kind: Kind) {
    let mut router = Router::start(kind, Setup::default());
    let node = Node::start(peer(&router.setup), routes(&[V4, V6], attributes()));
    node.up().await;
    until("the routes", || router.route(V6).is_some()).await;
    router.restart();
    until("a second session", || {
        node.status().is_some_and(|it| it.counts.established == 2)
    })
    .await;
    until("the routes again", || {
        router.route(V4).is_some() && router.route(V6).is_some()
    })
    .await;
    node.stop().await;
}

async fn a_thousand_received_routes_are_counted(kind: Kind) {
    let setup = Setup {
        announced: 1_000,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let node = Node::start(peer(&router.setup), routes(&[V4], Attributes::default()));
    node.up().await;
    until("a thousand", || {
        node.status().unwrap().prefixes_received >= 1_000
    })
    .await;
    let status = node.status().unwrap();
    assert_eq!(status.counts.updates_malformed, 0);
    assert_eq!(status.prefixes_sent, 1);
    node.stop().await;
}

async fn a_drained_node_asks_for_other_paths(kind: Kind) {
    let router = Router::start(kind, Setup::default());
    let node = Node::start(
        peer(&router.setup),
        routes(&[V4, V6], Attributes::default()),
    );
    node.up().await;
    until("the routes", || router.route(V6).is_some()).await;
    node.drain();
    for prefix in [V4, V6] {
        until("the community of RFC 8326", || {
            router
                .route(prefix)
                .is_some_and(|it| it.communities == [(0xffff, 0)])
        })
        .await;
    }
    node.stop().await;
    until("withdrawn", || router.route(V4).is_none()).await;
}

async fn a_router_may_begin_the_session(kind: Kind) {
    let setup = Setup {
        active: true,
        password: Some("secret".into()),
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let passive = Peer {
        mode: Mode::Passive,
        ..peer(&router.setup)
    };
    let node = Node::start(passive, routes(&[V4, V6], attributes()));
    node.listen();
    node.up().await;
    let agreed = node.status().unwrap().agreed.unwrap();
    assert_eq!(agreed.local.port(), 179);
    until("the routes", || {
        router.route(V4).is_some() && router.route(V6).is_some()
    })
    .await;
    node.stop().await;
}

async fn a_router_of_a_range_may_begin_the_session(kind: Kind) {
    let setup = Setup {
        active: true,
        password: Some("secret".into()),
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let known = peer(&router.setup);
    let PeerAddress::Ip(address) = known.address else {
        panic!("{known:?}");
    };
    let ranged = Peer {
        mode: Mode::Passive,
        address: PeerAddress::Range(ipnet::IpNet::new(address, 24).unwrap().trunc()),
        ..known
    };
    let node = Node::start(ranged, routes(&[V4], attributes()));
    node.listen();
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    node.set_routes(routes(&[V6], attributes()));
    until("another route", || {
        router.route(V4).is_none() && router.route(V6).is_some()
    })
    .await;
    node.stop().await;
    until("withdrawn", || router.route(V6).is_none()).await;
}

async fn a_router_that_knows_nodes_by_a_range_takes_the_session(kind: Kind) {
    let setup = Setup {
        by_range: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let node = Node::start(peer(&router.setup), routes(&[V4, V6], attributes()));
    node.up().await;
    until("the routes", || {
        router.route(V4).is_some() && router.route(V6).is_some()
    })
    .await;
    node.stop().await;
}

async fn both_sides_may_begin_and_one_session_stays(kind: Kind) {
    let setup = Setup {
        active: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let node = Node::start(peer(&router.setup), routes(&[V4], attributes()));
    node.listen();
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    // What the other side begins meanwhile changes nothing.
    let established = node.status().unwrap().counts.established;
    for _ in 0..30 {
        assert!(node.is_up() && router.route(V4).is_some());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(node.status().unwrap().counts.established, established);
    node.stop().await;
}

async fn a_link_without_addresses_carries_routes_of_both_families(kind: Kind) {
    let setup = Setup {
        unnumbered: true,
        ..Setup::default()
    };
    let router = Router::start(kind, setup);
    let unnumbered = Peer {
        address: PeerAddress::Interface("eth0".into()),
        remote_asn: RemoteAsn::External,
        source: None,
        ..peer(&router.setup)
    };
    let node = Node::start(unnumbered, routes(&[V4, V6], Attributes::default()));
    node.up().await;
    for prefix in [V4, V6] {
        until("the route", || router.route(prefix).is_some()).await;
        let Some(std::net::IpAddr::V6(next_hop)) = router.route(prefix).unwrap().next_hop else {
            panic!("{:?}", router.route(prefix));
        };
        assert!(next_hop.is_unicast_link_local(), "{next_hop}");
    }
    node.stop().await;
    // An interface that is not there is named.
    let wrong = Peer {
        address: PeerAddress::Interface("eth7".into()),
        ..peer(&router.setup)
    };
    let node = Node::start(wrong, routes(&[V4], Attributes::default()));
    node.fails("InterfaceMissing").await;
    node.stop().await;
}

/// A socket is bound to the device of a VRF as to any other, and not every kernel has VRFs.
async fn a_session_is_made_through_the_device_of_its_vrf_alone(kind: Kind) {
    let router = Router::start(kind, Setup::default());
    sh("ip link add aside type veth peer name aside1; ip link set aside up");
    let through = |device: &str| Peer {
        vrf: Some(device.to_owned()),
        ..peer(&router.setup)
    };
    let node = Node::start(through("aside"), routes(&[V4], attributes()));
    until("an attempt that fails", || {
        node.status().is_some_and(|it| it.last_error.is_some())
    })
    .await;
    assert!(!node.is_up(), "the router is behind another device");
    node.set_peer(through("eth0"));
    node.up().await;
    until("the route", || router.route(V4).is_some()).await;
    node.set_peer(through("green"));
    node.fails("InterfaceMissing").await;
    node.stop().await;
}

async fn ten_thousand_prefixes_take_few_messages(kind: Kind) {
    const COUNT: u32 = 10_000;
    let router = Router::start(kind, Setup::default());
    let prefix = |number: u32| {
        let address = std::net::Ipv4Addr::from_bits(0xc612_0000 + number);
        format!("{address}/32")
    };
    let many = |attributes: Attributes| {
        let all: Vec<String> = (0..COUNT).map(prefix).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        routes(&all, attributes)
    };
    let (first, last) = (prefix(0), prefix(COUNT - 1));
    let node = Node::start(peer(&router.setup), many(Attributes::default()));
    node.up().await;
    until("the first and the last", || {
        router.route(&first).is_some() && router.route(&last).is_some()
    })
    .await;
    let sent = || node.status().unwrap().counts.updates_sent;
    assert_eq!(node.status().unwrap().prefixes_sent, COUNT as usize);
    let at_first = sent();
    assert!(at_first < 50, "{at_first} messages");
    // One that changes is sent alone.
    let mut changed = many(Attributes::default());
    let key = first.parse().unwrap();
    std::sync::Arc::make_mut(&mut changed).set(&key, Some(std::sync::Arc::new(attributes())));
    node.set_routes(changed);
    until("the change", || {
        router
            .route(&first)
            .is_some_and(|it| !it.communities.is_empty())
    })
    .await;
    assert_eq!(sent() - at_first, 1);
    node.stop().await;
}
