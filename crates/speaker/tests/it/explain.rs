//! What people learn of a Service: which node announces what, and why another does not.

use landfall_model::ServiceKey;
use landfall_model::rows::{Endpoint, Fact, ResourceKind};
use landfall_speaker::every_node;
use landfall_speaker::explain::Explained;
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use serde_json::{Value, json};

use crate::support::{advertisement, peer, pool, resource};

/// Three nodes and a Service with an endpoint on node-a, and what announces it.
fn facts(local: bool, more: Vec<Fact>) -> Vec<Fact> {
    let ready = Endpoint {
        node: Some("node-a".into()),
        ..endpoint("10.8.0.1")
    };
    let web = svc("web").port(80).holding("192.0.2.1");
    let web = if local { web.local() } else { web };
    let mut facts = vec![
        pool(),
        Fact::Service(web.row()),
        Fact::Slice(slice("web").port("", 8080).endpoint(ready).row()),
        // Of no concern.
        Fact::Service(svc("other").port(80).holding("192.0.2.2").row()),
    ];
    for number in ["a", "b", "c"] {
        let rack = if number == "c" { "two" } else { "one" };
        let node = node(&format!("node-{number}"), "10.0.0.1").labelled("rack", rack);
        facts.push(Fact::Node(node.row()));
    }
    facts.extend(more);
    facts
}

fn explained(facts: &[Fact]) -> Explained {
    every_node::explain(facts, &ServiceKey::new("default", "web"), |_| None).unwrap()
}

fn by_bgp(spec: &Value) -> Fact {
    resource(ResourceKind::BgpAdvertisement, "v1beta1", "all", spec)
}

/// Node, router, whether it is announced, and the word for why not.
type Row<'a> = (&'a str, Option<&'a str>, bool, Option<&'a str>);

fn rows(explained: &Explained) -> Vec<Row<'_>> {
    let all = explained.announcements.iter();
    all.map(|it| {
        let (peer, reason) = (it.peer.as_deref(), it.reason.as_deref());
        (it.node.as_str(), peer, it.announced, reason)
    })
    .collect()
}

#[test]
fn one_node_answers_and_the_others_name_it() {
    let explained = explained(&facts(false, vec![advertisement(&json!({}))]));
    let said = &explained.announcements;
    assert_eq!(said.len(), 3);
    let owners = said.iter().filter(|it| it.announced);
    let owner = owners.map(|it| it.node.clone()).collect::<Vec<_>>();
    assert_eq!(owner.len(), 1);
    for it in said.iter().filter(|it| !it.announced) {
        assert_eq!(it.reason.as_deref(), Some("notOwner"));
        assert_eq!(it.message, format!("node {} is elected", owner[0]));
    }
    assert!(explained.reasons.is_empty(), "{:?}", explained.reasons);
}

#[test]
fn a_node_without_an_endpoint_and_one_that_is_not_selected_say_so() {
    let rack = json!({"nodeSelectors": [{"matchLabels": {"rack": "one"}}]});
    let explained = explained(&facts(true, vec![advertisement(&rack)]));
    assert_eq!(
        rows(&explained),
        [
            ("node-a", None, true, None),
            ("node-b", None, false, Some("noLocalEndpoints")),
            ("node-c", None, false, Some("noMatchingAdvertisement")),
        ]
    );
}

#[test]
fn each_router_of_a_node_has_a_line_and_a_node_without_one_as_well() {
    let one = json!({"nodeSelectors": [{"matchLabels": {"rack": "one"}}]});
    let two = json!({"peerAddress": "192.0.2.253",
        "nodeSelectors": [{"matchLabels": {"rack": "one"}}]});
    let for_tor = json!({"aggregationLength": 24, "peers": ["tor"]});
    let more = vec![by_bgp(&for_tor), peer("tor", &one), peer("spare", &two)];
    let mut facts = facts(false, more);
    let cordoned = node("node-b", "10.0.0.1").labelled("rack", "one");
    facts.push(Fact::Node(cordoned.with(|row| row.cordoned = true).row()));
    let explained = explained(&facts);
    assert_eq!(
        rows(&explained),
        [
            (
                "node-a",
                Some("spare"),
                false,
                Some("noMatchingAdvertisement")
            ),
            ("node-a", Some("tor"), true, None),
            (
                "node-b",
                Some("spare"),
                false,
                Some("noMatchingAdvertisement")
            ),
            ("node-b", Some("tor"), true, None),
            ("node-c", None, false, None),
        ]
    );
    let said = &explained.announcements;
    assert_eq!(said[1].prefix.as_deref(), Some("192.0.2.0/24"));
    assert_eq!(said[1].message, "announced");
    assert_eq!(
        said[3].message,
        "announced, with the request to prefer other nodes"
    );
    assert_eq!(said[4].message, "no BGPPeer selects this node");
}

#[test]
fn a_service_that_nothing_can_announce_has_a_reason_with_what_to_do() {
    let why = |facts: &[Fact]| {
        let explained = explained(facts);
        assert!(explained.announcements.is_empty());
        explained.reasons[0].to_string()
    };
    assert!(why(&facts(false, vec![])).contains("create an L2Advertisement"));
    let mut pending = facts(false, vec![advertisement(&json!({}))]);
    pending.push(Fact::Service(svc("web").port(80).row()));
    assert!(why(&pending).contains("it has no address yet"));
    pending.push(Fact::Service(
        svc("web").port(80).holding("198.51.100.1").row(),
    ));
    assert!(why(&pending).contains("in an IPAddressPool"));
    let none = ServiceKey::new("default", "none");
    assert!(every_node::explain(&pending, &none, |_| None).is_none());
}
