use super::*;
use crate::interfaces::Prefix;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

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

fn nodes() -> Vec<Node> {
    ["node-a", "node-b", "node-c"].map(node).into()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn advertisement(nodes: &[&str]) -> Advertisement {
    Advertisement {
        nodes: names(nodes),
        ..Advertisement::default()
    }
}

fn everywhere() -> Advertisement {
    advertisement(&["node-a", "node-b", "node-c"])
}

static NOWHERE: BTreeSet<String> = BTreeSet::new();

fn service<'a>(first: &str, advertisements: &[&'a Advertisement]) -> Service<'a> {
    Service {
        first_address: address(first),
        has_sharing_key: false,
        is_local: false,
        has_endpoints: true,
        endpoint_nodes: &NOWHERE,
        advertisements: advertisements.to_vec(),
    }
}

/// The order of an election for an address that one Service holds.
fn order(service: &Service<'_>, nodes: &[Node], rules: Rules) -> Vec<String> {
    let election = elect(
        service.first_address,
        std::slice::from_ref(service),
        nodes,
        rules,
    );
    election.order.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_order_is_that_of_metallb() {
    let advertisement = everywhere();
    for (first, expected) in [
        ("10.0.0.1", ["node-b", "node-a", "node-c"]),
        ("10.0.0.2", ["node-b", "node-c", "node-a"]),
        ("10.0.0.3", ["node-c", "node-a", "node-b"]),
        ("2001:db8::1", ["node-b", "node-a", "node-c"]),
        ("2001:DB8:0::0001", ["node-b", "node-a", "node-c"]),
    ] {
        let service = service(first, &[&advertisement]);
        assert_eq!(
            order(&service, &nodes(), Rules::default()),
            expected,
            "{first}"
        );
    }
}

#[test]
fn the_hashes_are_those_of_the_specification() {
    for (node, first, prefix) in [
        ("node-b", "10.0.0.1", "2acae88581fd"),
        ("node-c", "10.0.0.1", "f949561f9d43"),
        ("node-c", "10.0.0.2", "c71d9feea314"),
        ("node-a", "10.0.0.3", "587ee81da8e6"),
        ("node-b", "2001:db8::1", "1aee61dde2bd"),
        ("node-c", "2001:db8::1", "bb833059784d"),
    ] {
        let hash = hash(node, address(first));
        let bytes = (0..12)
            .step_by(2)
            .map(|at| u8::from_str_radix(&prefix[at..at + 2], 16));
        let expected: Vec<u8> = bytes.map(Result::unwrap).collect();
        assert_eq!(hash[..6], expected, "{node} {first}");
    }
}

#[test]
fn preference_comes_before_the_hash_and_adds_up_over_advertisements() {
    let weighed = |node: &str, weight| Advertisement {
        preferences: BTreeMap::from([(node.to_owned(), weight)]),
        ..everywhere()
    };
    let (one, two, three) = (
        weighed("node-c", 60),
        weighed("node-a", 50),
        weighed("node-a", 20),
    );
    let service = service("10.0.0.1", &[&one, &two, &three]);
    let expected = ["node-a", "node-c", "node-b"];
    assert_eq!(order(&service, &nodes(), Rules::default()), expected);
}

#[test]
fn a_preference_for_a_node_that_its_advertisement_does_not_select_counts_nothing() {
    let elsewhere = Advertisement {
        preferences: BTreeMap::from([("node-c".to_owned(), 100)]),
        ..advertisement(&["node-a"])
    };
    let all = everywhere();
    let service = service("10.0.0.1", &[&elsewhere, &all]);
    let expected = ["node-b", "node-a", "node-c"];
    assert_eq!(order(&service, &nodes(), Rules::default()), expected);
}

/// Changes one thing of an election for 10.0.0.1 and expects why node-b, its owner, loses it.
fn loses(change: impl FnOnce(&mut Node), rules: Rules, reason: NotAnnounced) {
    let advertisement = everywhere();
    let service = service("10.0.0.1", &[&advertisement]);
    let mut nodes = nodes();
    change(&mut nodes[1]);
    let services = [service];
    let election = elect(address("10.0.0.1"), &services, &nodes, rules);
    assert_eq!(election.order, ["node-a", "node-c"]);
    let why = |node: &Node| election.why_not(node, &services, rules);
    assert_eq!(why(&nodes[1]), Some(reason));
    assert_eq!(why(&nodes[0]), None);
    assert_eq!(why(&nodes[2]), Some(NotAnnounced::NotOwner));
}

#[test]
fn a_node_that_can_not_goes_behind_those_that_can_and_where_none_can_all_are_as_before() {
    let (v4, v6) = (address("10.0.0.1"), address("2001:db8::1"));
    let (everywhere, mut nodes) = (everywhere(), nodes());
    let owner = |of: IpAddr, nodes: &[Node]| {
        let service = service(&of.to_string(), &[&everywhere]);
        order(&service, nodes, Rules::default())[0].clone()
    };
    // The order of both addresses is b, a, c.
    let owners = |nodes: &[Node]| [owner(v4, nodes), owner(v6, nodes)];
    assert_eq!(owners(&nodes), ["node-b", "node-b"]);
    nodes[1].inability.ipv4 = true;
    assert_eq!(owners(&nodes), ["node-a", "node-b"]);
    nodes[0].inability.addresses.insert(fingerprint(v4));
    assert_eq!(owners(&nodes), ["node-c", "node-b"]);
    nodes[1].inability.addresses.insert(fingerprint(v6));
    assert_eq!(owners(&nodes), ["node-c", "node-a"]);
    // A preference does not make up for it.
    let preferred = Advertisement {
        preferences: [("node-b".to_owned(), 100)].into(),
        ..everywhere.clone()
    };
    let service = service("10.0.0.1", &[&preferred]);
    let order = order(&service, &nodes, Rules::default());
    assert_eq!(order, ["node-c", "node-b", "node-a"]);
    nodes[2].inability.ipv4 = true;
    assert_eq!(owner(v4, &nodes), "node-b");
}

#[test]
fn a_node_that_says_its_subnets_goes_behind_those_that_reach_an_address() {
    let (v4, v6) = (address("10.0.0.1"), address("2001:db8::1"));
    let subnets = |all: &[(&str, u8)]| {
        let prefixes = all.iter().map(|(it, length)| Prefix {
            address: address(it),
            length: *length,
        });
        Inability {
            subnets: Some(prefixes.map(Subnet::from).collect()),
            ..Inability::default()
        }
    };
    let of_both = subnets(&[("10.0.0.250", 24), ("2001:db8::f:1", 64)]);
    assert!(!of_both.concerns(v4) && !of_both.concerns(v6));
    for others in [
        subnets(&[]),
        subnets(&[("10.0.1.250", 24), ("2001:db8:0:1::1", 64)]),
        subnets(&[("10.0.0.250", 32), ("10.0.0.250", 64)]),
    ] {
        assert!(others.concerns(v4) && others.concerns(v6));
        assert!(!others.is_of_serving(v4), "only announcing");
    }
    let everything = subnets(&[("10.9.9.9", 0)]);
    assert!(!everything.concerns(v4) && everything.concerns(v6));
}

#[test]
fn nodes_that_cannot_announce_are_no_candidates() {
    let rules = Rules::default();
    loses(|it| it.is_alive = false, rules, NotAnnounced::NotAMember);
    loses(
        |it| it.network_unavailable = true,
        rules,
        NotAnnounced::NodeNetworkUnavailable,
    );
    loses(
        |it| it.excluded = true,
        rules,
        NotAnnounced::NodeLabeledExcludeBalancers,
    );
    let strict = Rules {
        must_be_able_to_serve: true,
        ..rules
    };
    loses(
        |it| it.is_able_to_serve = false,
        strict,
        NotAnnounced::NotAbleToServe,
    );
}

#[test]
fn switches_decide_about_the_label_and_about_the_ability_to_serve() {
    let advertisement = everywhere();
    let service = service("10.0.0.1", &[&advertisement]);
    let mut nodes = nodes();
    nodes[1].excluded = true;
    nodes[1].is_able_to_serve = false;
    let lenient = Rules {
        ignore_exclude_label: true,
        must_be_able_to_serve: false,
    };
    let expected = ["node-b", "node-a", "node-c"];
    assert_eq!(order(&service, &nodes, lenient), expected);
}

#[test]
fn only_selected_nodes_take_part() {
    let (one, two) = (advertisement(&["node-a"]), advertisement(&["node-c"]));
    let expected = ["node-a", "node-c"];
    let selected = service("10.0.0.1", &[&one, &two]);
    assert_eq!(order(&selected, &nodes(), Rules::default()), expected);
    let services = [selected];
    let nodes = nodes();
    let election = elect(address("10.0.0.1"), &services, &nodes, Rules::default());
    let why = election.why_not(&nodes[1], &services, Rules::default());
    assert_eq!(why, Some(NotAnnounced::NoMatchingAdvertisement));
}

#[test]
fn local_traffic_stays_on_nodes_with_endpoints() {
    let (advertisement, endpoints) = (everywhere(), names(&["node-c"]));
    let local = Service {
        is_local: true,
        endpoint_nodes: &endpoints,
        ..service("10.0.0.1", &[&advertisement])
    };
    assert_eq!(order(&local, &nodes(), Rules::default()), ["node-c"]);
    let services = [local];
    let nodes = nodes();
    let election = elect(address("10.0.0.1"), &services, &nodes, Rules::default());
    let why = election.why_not(&nodes[1], &services, Rules::default());
    assert_eq!(why, Some(NotAnnounced::NoLocalEndpoints));
}

#[test]
fn what_no_node_may_announce_says_why() {
    let nowhere = |service: Service<'_>| {
        let nodes = nodes();
        let election = elect(service.first_address, &[service], &nodes, Rules::default());
        assert_eq!(election.owner(), None);
        election.nowhere
    };
    let (all, by_service) = (
        everywhere(),
        Advertisement {
            selects_services: true,
            ..everywhere()
        },
    );
    let without_endpoints = Service {
        has_endpoints: false,
        ..service("10.0.0.1", &[&all])
    };
    assert_eq!(nowhere(without_endpoints), Some(NotAnnounced::NoEndpoints));
    let without_advertisement = service("10.0.0.1", &[]);
    let expected = Some(NotAnnounced::NoMatchingAdvertisement);
    assert_eq!(nowhere(without_advertisement), expected);
    let sharing = Service {
        has_sharing_key: true,
        ..service("10.0.0.1", &[&all, &by_service])
    };
    let expected = Some(NotAnnounced::SharedAddressWithServiceSelector);
    assert_eq!(nowhere(sharing), expected);
}

#[test]
fn both_addresses_of_a_service_are_on_the_node_that_metallb_elects() {
    let all = everywhere();
    let dual = [service("10.0.0.3", &[&all])];
    let nodes = nodes();
    for own in ["10.0.0.3", "2001:db8::1"] {
        let election = elect(address(own), &dual, &nodes, Rules::default());
        assert_eq!(election.owner(), Some("node-c"), "{own}");
    }
}

#[test]
fn an_address_shared_by_a_dual_stack_and_an_ipv6_service_has_one_owner() {
    // MetalLB: node-c for the first Service, node-b for the second, and both answer.
    let all = everywhere();
    let shared = [
        service("10.0.0.3", &[&all]),
        service("2001:db8::1", &[&all]),
    ];
    let nodes = nodes();
    let elected = |services: &[Service<'_>]| {
        let election = elect(address("2001:db8::1"), services, &nodes, Rules::default());
        election.owner().map(str::to_owned)
    };
    assert_eq!(elected(&shared).as_deref(), Some("node-b"));
    let reversed = [shared[1].clone(), shared[0].clone()];
    assert_eq!(elected(&reversed).as_deref(), Some("node-b"));
    assert_eq!(elected(&shared[..1]).as_deref(), Some("node-c"));
    assert_eq!(elected(&shared[1..]).as_deref(), Some("node-b"));
}

#[test]
fn a_service_without_endpoints_leaves_the_address_to_those_that_share_it() {
    let all = everywhere();
    let idle = Service {
        has_endpoints: false,
        ..service("10.0.0.1", &[&all])
    };
    let nodes = nodes();
    let services = [idle, service("10.0.0.1", &[&all])];
    let election = elect(address("10.0.0.1"), &services, &nodes, Rules::default());
    assert_eq!(election.owner(), Some("node-b"));
    assert_eq!(election.nowhere, None);
}
