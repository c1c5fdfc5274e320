use landfall_l2::election::Inability;
use proptest::prelude::*;

use super::*;

fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        is_alive: true,
        network_unavailable: false,
        excluded: false,
        is_able_to_serve: true,
        inability: Inability::default(),
    }
}

fn nodes(names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| node(name)).collect()
}

fn everywhere(names: &[&str]) -> BoardAdvertisement {
    let nodes = names.iter().map(|name| (*name).to_owned()).collect();
    BoardAdvertisement {
        election: Advertisement {
            nodes,
            ..Advertisement::default()
        },
        interfaces: BTreeSet::new(),
    }
}

fn facts(addresses: &[&str]) -> ServiceFacts {
    ServiceFacts {
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        has_endpoints: true,
        advertisements: addresses.iter().map(|_| BTreeSet::from([0])).collect(),
        ..ServiceFacts::default()
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

const NAMES: [&str; 3] = ["node-a", "node-b", "node-c"];

fn board(own: &str) -> Board {
    let mut board = Board::new(own, Rules::default());
    board.set_nodes(nodes(&NAMES));
    board.set_advertisements(vec![everywhere(&NAMES)], []);
    board
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn exactly_one_of_three_boards_announces_an_address() {
    let boards = NAMES.map(|own| {
        let mut board = board(own);
        board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
        board
    });
    let owning = boards.iter().filter(|board| !board.owned().is_empty());
    assert_eq!(owning.count(), 1);
    for board in &boards {
        assert_eq!(board.owner(ip("10.0.0.1")), Some("node-b"));
    }
}

#[test]
fn a_dead_owner_is_followed_by_the_next_and_returns_when_it_lives() {
    let mut board = board("node-a");
    board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
    assert_eq!(board.why_not(ip("10.0.0.1")), Some(NotAnnounced::NotOwner));
    let mut without = nodes(&NAMES);
    without[1].is_alive = false;
    board.set_nodes(without);
    assert_eq!(board.owner(ip("10.0.0.1")), Some("node-a"));
    assert_eq!(board.why_not(ip("10.0.0.1")), None);
    board.set_nodes(nodes(&NAMES));
    assert_eq!(board.owner(ip("10.0.0.1")), Some("node-b"));
}

#[test]
fn a_new_address_is_probed_and_one_that_another_node_had_is_taken_over() {
    let mut board = board("node-b");
    board.set_service(&key("old"), Some(facts(&["10.0.0.1"])));
    board.set_current();
    assert_eq!(board.owned()[&ip("10.0.0.1")].start, Start::TakeOver);
    board.set_service(&key("new"), Some(facts(&["10.0.0.2"])));
    assert_eq!(board.owned()[&ip("10.0.0.2")].start, Start::Probe);
    // It leads somewhere else and comes back: other hosts have seen it by then.
    let mut without = nodes(&NAMES);
    without[1].is_alive = false;
    board.set_nodes(without);
    assert!(board.owned().is_empty());
    board.set_nodes(nodes(&NAMES));
    assert_eq!(board.owned()[&ip("10.0.0.2")].start, Start::TakeOver);
}

#[test]
fn an_address_whose_service_had_no_endpoint_is_still_new_when_it_has_one() {
    let mut board = board("node-b");
    board.set_current();
    let mut without = facts(&["10.0.0.1"]);
    without.has_endpoints = false;
    board.set_service(&key("web"), Some(without));
    let why = board.why_not(ip("10.0.0.1"));
    assert_eq!(why, Some(NotAnnounced::NoEndpoints));
    board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
    assert_eq!(board.owned()[&ip("10.0.0.1")].start, Start::Probe);
}

#[test]
fn a_service_that_is_gone_gives_its_addresses_up_unless_another_shares_them() {
    let mut board = board("node-b");
    board.set_service(&key("one"), Some(facts(&["10.0.0.1"])));
    board.set_service(&key("two"), Some(facts(&["10.0.0.1"])));
    board.set_service(&key("one"), None);
    assert_eq!(board.owned().len(), 1);
    board.set_service(&key("two"), None);
    assert_eq!(board.owned().len(), 0);
    assert_eq!(board.owner(ip("10.0.0.1")), None);
}

#[test]
fn interfaces_are_those_of_all_advertisements_that_select_the_node() {
    let mut board = board("node-b");
    let only = |names: &[&str], nodes: &[&str]| BoardAdvertisement {
        interfaces: names.iter().map(|name| (*name).to_owned()).collect(),
        ..everywhere(nodes)
    };
    let mut web = facts(&["10.0.0.1"]);
    web.advertisements = vec![BTreeSet::from([0, 1])];
    let eth0 = only(&["eth0"], &NAMES);
    let scope = |board: &Board| board.owned()[&ip("10.0.0.1")].interfaces.clone();
    let named = |names: &[&str]| Scope::Only(names.iter().map(|it| (*it).to_owned()).collect());

    let both = vec![eth0.clone(), only(&["eth1"], &NAMES)];
    board.set_advertisements(both, [(key("web"), web.clone())]);
    assert_eq!(scope(&board), named(&["eth0", "eth1"]));

    let elsewhere = vec![eth0.clone(), only(&["eth1"], &["node-a"])];
    board.set_advertisements(elsewhere, [(key("web"), web.clone())]);
    assert_eq!(scope(&board), named(&["eth0"]));

    let all = vec![eth0, everywhere(&NAMES)];
    board.set_advertisements(all, [(key("web"), web)]);
    assert_eq!(scope(&board), Scope::All);
}

/// A change of what a Board knows.
#[derive(Clone, Debug)]
enum Change {
    Service(u8, Option<(u8, bool, bool, u8)>),
    Nodes(Vec<(bool, bool, bool, bool)>),
}

fn change() -> impl Strategy<Value = Change> {
    let held = (0..6_u8, any::<bool>(), any::<bool>(), 0..8_u8);
    prop_oneof![
        (0..8_u8, prop::option::of(held)).prop_map(|(name, held)| Change::Service(name, held)),
        prop::collection::vec(any::<(bool, bool, bool, bool)>(), 0..6).prop_map(Change::Nodes),
    ]
}

fn apply(board: &mut Board, change: &Change) {
    match change {
        Change::Service(name, held) => {
            let held = held.map(|(address, is_local, has_endpoints, on)| ServiceFacts {
                is_local,
                has_endpoints,
                endpoint_nodes: (0..6)
                    .filter(|bit| on >> (bit % 3) & 1 == 1)
                    .map(|bit| format!("n{bit}"))
                    .collect(),
                ..facts(&[&format!("10.0.0.{address}"), "2001:db8::1"])
            });
            board.set_service(&key(&format!("s{name}")), held);
        }
        Change::Nodes(list) => {
            let list = list
                .iter()
                .enumerate()
                .map(|(number, (alive, cut, excluded, unable))| Node {
                    inability: Inability {
                        ipv4: *unable,
                        ..Inability::default()
                    },
                    is_alive: *alive,
                    network_unavailable: *cut,
                    excluded: *excluded,
                    ..node(&format!("n{number}"))
                });
            board.set_nodes(list.collect());
        }
    }
}

proptest! {
    #[test]
    fn elections_change_by_change_are_those_of_the_whole(
        changes in prop::collection::vec(change(), 1..30)
    ) {
        let names = ["n0", "n1", "n2", "n3", "n4", "n5"];
        let mut board = Board::new("n0", Rules::default());
        board.set_advertisements(vec![everywhere(&names[..5])], []);
        for change in &changes {
            apply(&mut board, change);
        }
        let mut whole = Board::new("n0", Rules::default());
        whole.set_nodes(board.nodes.clone());
        whole.set_advertisements(board.advertisements.clone(), board.services.clone());
        let owners = |board: &Board| -> BTreeMap<IpAddr, (Option<String>, Option<NotAnnounced>)> {
            let elected = board.addresses.iter();
            elected.map(|(ip, it)| (*ip, (it.owner.clone(), it.nowhere))).collect()
        };
        prop_assert_eq!(owners(&board), owners(&whole));
    }
}
