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
fn each_further_address_of_a_family_has_an_election_of_its_own() {
    let owner = |addresses: &[&str], of: &str| {
        let mut board = board("node-a");
        board.set_service(&key("web"), Some(facts(addresses)));
        board.owner(ip(of)).map(str::to_owned).unwrap()
    };
    let v4: Vec<String> = (1..9).map(|it| format!("10.0.0.{it}")).collect();
    let mut all: Vec<&str> = v4.iter().map(String::as_str).collect();
    all.extend(["2001:db8::1", "2001:db8::2"]);
    let owners: BTreeSet<String> = v4.iter().map(|it| owner(&all, it)).collect();
    assert!(owners.len() > 1, "several nodes take its traffic");
    for further in v4.iter().map(String::as_str).chain(["2001:db8::2"]) {
        assert_eq!(owner(&all, further), owner(&[further], further));
    }
    // Of each family the first one, as with MetalLB.
    assert_eq!(owner(&all, "2001:db8::1"), owner(&all, "10.0.0.1"));
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
    board.set_announced(ip("10.0.0.2"));
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

fn without(name: &str) -> Vec<Node> {
    let mut nodes = nodes(&NAMES);
    for node in nodes.iter_mut().filter(|it| it.name == name) {
        node.is_alive = false;
    }
    nodes
}

fn refused_at(names: &[&str], addresses: &[&str]) -> BTreeMap<String, Refused> {
    let refused = Refused {
        addresses: addresses.iter().map(|it| fingerprint(ip(it))).collect(),
        ..Refused::default()
    };
    let refused = names.iter().map(|it| ((*it).to_owned(), refused.clone()));
    refused.collect()
}

/// A Board that is current, and owns this address as long as it lives: the owner is node-b.
fn with_web(own: &str) -> Board {
    let mut board = board(own);
    board.set_current();
    board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
    board
}

fn start(board: &Board) -> Start {
    board.owned()[&ip("10.0.0.1")].start
}

#[test]
fn an_address_that_a_host_has_is_probed_again_after_its_only_pod_restarted() {
    let mut board = with_web("node-b");
    for is_announced in [false, true] {
        let mut without = facts(&["10.0.0.1"]);
        without.has_endpoints = false;
        board.set_service(&key("web"), Some(without));
        board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
        let expected = [Start::Probe, Start::TakeOver][usize::from(is_announced)];
        assert_eq!(start(&board), expected);
        board.set_announced(ip("10.0.0.1"));
    }
}

#[test]
fn the_next_owner_probes_what_the_one_before_it_was_refused() {
    // Of the others only the second is elected after the first.
    let next = |name: &str| {
        let mut board = with_web(name);
        board.set_nodes(without("node-b"));
        !board.owned().is_empty()
    };
    let own = ["node-a", "node-c"]
        .into_iter()
        .find(|it| next(it))
        .unwrap();
    let looks = |board: &mut Board, count: usize| (0..count).for_each(|_| board.look());

    let mut board = with_web(own);
    assert!(board.is_unsettled());
    board.set_nodes(without("node-b"));
    assert_eq!(
        start(&board),
        Start::Probe,
        "it may not have been announced yet"
    );
    assert!(!board.is_unsettled(), "that depends on this node now");

    let mut board = with_web(own);
    looks(&mut board, usize::from(NEW));
    assert!(!board.is_unsettled());
    board.set_nodes(without("node-b"));
    assert_eq!(start(&board), Start::TakeOver, "it was announced");

    let mut board = with_web(own);
    looks(&mut board, usize::from(NEW));
    board.set_refused(refused_at(&["node-b"], &["10.0.0.1"]));
    looks(&mut board, 1_000);
    // What the dead node reported is gone with it.
    board.set_refused(BTreeMap::new());
    board.set_nodes(without("node-b"));
    assert_eq!(start(&board), Start::Probe);

    let mut board = with_web(own);
    board.set_refused(refused_at(&["node-b"], &["10.0.0.1"]));
    board.set_refused(BTreeMap::new());
    looks(&mut board, usize::from(REFUSED));
    board.set_nodes(without("node-b"));
    assert_eq!(start(&board), Start::TakeOver, "the host is gone for long");
}

#[test]
fn a_node_with_more_refusals_than_it_can_name_may_mean_each_address_that_it_owns() {
    let mut board = with_web("node-a");
    let many = Refused {
        are_many: true,
        ..Refused::default()
    };
    board.set_refused(BTreeMap::from([("node-c".to_owned(), many.clone())]));
    (0..NEW).for_each(|_| board.look());
    assert!(!board.is_unsettled(), "node-c does not own it");
    board.set_refused(BTreeMap::from([("node-b".to_owned(), many)]));
    assert!(board.is_unsettled());
}

#[test]
fn at_its_start_a_node_takes_over_what_another_announces_and_probes_what_none_does() {
    let starting = || {
        let mut board = board("node-b");
        board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
        board
    };
    let mut board = starting();
    board.set_current();
    assert_eq!(start(&board), Start::TakeOver);

    let mut board = starting();
    board.set_nodes(nodes(&["node-b"]));
    board.set_current();
    assert_eq!(start(&board), Start::Probe, "it is alone");

    // It can't announce itself yet, such as without a link where nodes must be able to serve.
    let mut board = starting();
    board.set_nodes(Vec::new());
    board.set_current();
    board.set_nodes(nodes(&["node-b"]));
    assert_eq!(start(&board), Start::Probe, "none announced it");

    let mut board = starting();
    let mut without = facts(&["10.0.0.1"]);
    without.has_endpoints = false;
    board.set_service(&key("web"), Some(without));
    board.set_current();
    board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
    assert_eq!(start(&board), Start::Probe, "it had no endpoint");

    // The report may come before or after it asks.
    for asks_first in [false, true] {
        let mut board = starting();
        if asks_first {
            board.begin();
        }
        board.set_refused(refused_at(&["node-a", "node-c"], &["10.0.0.1"]));
        assert_eq!(start(&board), Start::Probe);
        board.set_current();
        assert_eq!(start(&board), Start::Probe);
    }

    let mut board = starting();
    board.assume_announced();
    board.set_nodes(nodes(&["node-b"]));
    board.set_current();
    assert_eq!(start(&board), Start::TakeOver, "MetalLB's speaker ran here");
}

#[test]
fn what_comes_after_a_node_asked_at_its_start_is_new_whichever_other_node_is_elected() {
    let mut without = facts(&["10.0.0.1"]);
    without.has_endpoints = false;
    let gets_endpoint = Some(without);
    for before in [gets_endpoint, None, Some(facts(&["10.0.0.1"]))] {
        let was_there = before.as_ref().is_some_and(|it| it.has_endpoints);
        let mut board = board("node-b");
        // All start together.
        board.set_nodes(nodes(&["node-b"]));
        board.set_service(&key("web"), before);
        board.begin();
        board.set_service(&key("web"), Some(facts(&["10.0.0.1"])));
        // The others take part a moment earlier.
        board.set_nodes(nodes(&NAMES));
        board.set_current();
        let expected = [Start::Probe, Start::TakeOver][usize::from(was_there)];
        assert_eq!(start(&board), expected, "was there: {was_there}");
        // As long as it was not announced.
        board.set_nodes(nodes(&["node-a"]));
        board.set_nodes(nodes(&NAMES));
        assert_eq!(start(&board), expected, "was there: {was_there}");
    }
}

#[test]
fn a_report_of_a_host_counts_whether_it_comes_before_or_after_the_service_at_a_start() {
    for report_first in [false, true] {
        let mut board = board("node-a");
        let refused = refused_at(&["node-b"], &["10.0.0.1"]);
        let web = Some(facts(&["10.0.0.1"]));
        if report_first {
            board.set_refused(refused);
            board.set_service(&key("web"), web);
        } else {
            board.set_service(&key("web"), web);
            board.set_refused(refused);
        }
        board.set_current();
        assert_eq!(board.owner(ip("10.0.0.1")), Some("node-b"));
        // The owner dies, and its reports with it.
        board.set_refused(BTreeMap::new());
        board.set_nodes(nodes(&["node-a"]));
        assert_eq!(start(&board), Start::Probe, "first: {report_first}");
    }
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

#[test]
fn a_host_at_one_address_does_not_take_another_with_the_same_fingerprint_down() {
    let (mine, alike) = ("2001:db8::f04", "2001:db8::1:af4");
    assert_eq!(fingerprint(ip(mine)), fingerprint(ip(alike)));
    let none = BTreeSet::new();
    for own in ["node-a", "node-b"] {
        let mut board = board(own);
        board.set_advertisements(vec![everywhere(&["node-b"])], []);
        board.set_service(&key("mine"), Some(facts(&[mine])));
        let reported = refused_at(&["node-b"], &[mine]);
        board.set_refused(reported);
        if own == "node-b" {
            // Of its own the node knows which it is.
            board.set_service(&key("alike"), Some(facts(&[alike])));
            let found = BTreeSet::from([ip(mine)]);
            assert_eq!(board.refused(&found), found);
            assert_eq!(board.refused(&none), none);
        } else {
            assert_eq!(board.refused(&none), BTreeSet::from([ip(mine)]));
            board.set_service(&key("alike"), Some(facts(&[alike])));
            assert_eq!(board.refused(&none), none, "it may be either");
            // What is found on a node that does not own it any more counts no longer.
            assert_eq!(board.refused(&BTreeSet::from([ip(mine)])), none);
        }
    }
}
