//! Three nodes whose speakers decide, with announcers in network namespaces, and a client on the
//! same switch with `arping` and `ndisc6` as witnesses: the rows of the conformance table about
//! which node announces. A test is called after the number of its row. Making the namespaces takes
//! root.
//!
//! What members see of each other is given, not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_l2::election::{NotAnnounced, Rules, hash};
use landfall_l2::fsm::{Settings, State};
use landfall_l2::interfaces::{Exclusions, eligible};
use landfall_membership::driver::View as Members;
use landfall_membership::machine::Peer;
use landfall_model::ServiceKey;
use landfall_model::rows::{Endpoint, Fact, ResourceKind};
use landfall_model::wire;
use landfall_speaker::decide::Decider;
use landfall_speaker::metadata::Metadata;
use landfall_testkit::build::{ServiceBuilder, endpoint};
use landfall_testkit::{node, slice, svc};
use serde_json::{Value, json};

use crate::lab::{self, Host, SWITCH, until};
use crate::support::advertisement;

const NAMES: [&str; 3] = ["node-a", "node-b", "node-c"];
const V4: &str = "10.0.0.200";
const V6: &str = "2001:db8::200";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A node.
struct Member {
    name: &'static str,
    host: Host,
    announcer: lab::Node,
    decider: Decider,
}

/// Three nodes and a client.
struct Segment {
    client: Host,
    members: Vec<Member>,
    labels: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// How often nodes that had lost each other met again.
    meetings: u64,
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The nodes in the order in which MetalLB elects them for an address.
fn order(of: &str) -> [&'static str; 3] {
    let mut names = NAMES;
    names.sort_by_key(|name| hash(name, address(of)));
    names
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn web() -> ServiceBuilder {
    svc("web").port(80).holding(V4)
}

/// Endpoints of a Service, on these nodes.
fn serving(service: &str, nodes: &[&'static str]) -> Fact {
    let endpoints = nodes.iter().enumerate().map(|(number, node)| Endpoint {
        node: Some((*node).into()),
        ..endpoint(&format!("10.8.0.{}", 1 + number))
    });
    let row = endpoints.fold(slice(service).port("", 8080), |row, it| row.endpoint(it));
    Fact::Slice(row.row())
}

/// The pool of the addresses.
fn pool() -> Fact {
    let shape: wire::IpAddressPool = serde_json::from_value(json!({
        "metadata": {"name": "lan", "namespace": "metallb-system"},
        "spec": {"addresses": ["10.0.0.192/26", "2001:db8::200-2001:db8::2ff"]},
    }))
    .unwrap();
    Fact::Pool(Arc::new(shape.into_row().unwrap()))
}

fn named(name: &str, spec: &Value) -> Fact {
    let shape: wire::Resource = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
        "metadata": {"name": name, "namespace": "metallb-system"}, "spec": spec,
    }))
    .unwrap();
    let row = shape.into_row(ResourceKind::L2Advertisement).unwrap();
    Fact::Resource(Arc::new(row))
}

fn of_nodes(names: &[&str]) -> Value {
    let selectors = names
        .iter()
        .map(|name| json!({"matchLabels": {"kubernetes.io/hostname": name}}));
    json!({"nodeSelectors": selectors.collect::<Vec<_>>()})
}

// === impl Segment ===

impl Segment {
    /// Nodes that know the pool of the addresses, one Service with an endpoint, and an
    /// advertisement.
    async fn start(rules: Rules, spec: &Value) -> Self {
        let client = Host::connect(1);
        let members = NAMES.into_iter().zip(2..).map(|(name, number)| {
            let host = Host::connect(number);
            Member {
                name,
                announcer: host.node(Settings::default()),
                decider: Decider::new(name, u64::from(number), rules),
                host,
            }
        });
        let mut segment = Self {
            client,
            members: members.collect(),
            labels: BTreeMap::new(),
            meetings: 0,
        };
        segment.begin(rules, spec).await;
        segment
    }

    /// Speakers that start on these nodes.
    async fn begin(&mut self, rules: Rules, spec: &Value) {
        for (session, member) in (1..).zip(&mut self.members) {
            member.decider = Decider::new(member.name, session, rules);
        }
        let mut facts = vec![
            pool(),
            Fact::Service(web().row()),
            serving("web", &NAMES),
            advertisement(spec),
        ];
        facts.extend(NAMES.map(|name| self.node(name)));
        facts.push(Fact::Synced);
        self.take(&facts);
        self.meet(&NAMES).await;
    }

    fn node(&self, name: &str) -> Fact {
        let row = node(name, "10.0.0.2").labelled("kubernetes.io/hostname", name);
        let labels = self.labels.get(name).into_iter().flatten();
        let row = labels.fold(row, |row, (key, value)| row.labelled(key, value));
        Fact::Node(row.row())
    }

    /// Gives a node a label.
    async fn label(&mut self, name: &'static str, key: &str) {
        let labels = self.labels.entry(name).or_default();
        labels.insert(key.to_owned(), String::new());
        self.report(&[self.node(name)]).await;
    }

    fn take(&mut self, facts: &[Fact]) {
        for member in &mut self.members {
            member.decider.take_facts(facts.to_vec());
        }
    }

    /// Something changes, and every node has acted on it.
    async fn report(&mut self, facts: &[Fact]) {
        self.take(facts);
        self.settle().await;
    }

    /// These nodes see each other, and none of the others.
    async fn meet(&mut self, names: &[&str]) {
        self.meetings += 1;
        for member in &mut self.members {
            let links = member.announcer.announcer.links();
            until("its interfaces are known", || {
                let table = links.borrow();
                let names = table.links.values().map(|link| &link.name);
                names.filter(|name| **name == "eth0").count() == 1
                    && eligible(&table, &Exclusions::default())
                        .values()
                        .any(|it| it.link_local.is_some())
            })
            .await;
            let interfaces = eligible(&links.borrow(), &Exclusions::default());
            let interfaces = interfaces.into_values().collect();
            member.decider.take_interfaces(interfaces);
        }
        let reported = self.members.iter().map(|member| {
            let peer = Peer {
                address: ([10, 0, 0, 1], 7947).into(),
                incarnation: 1,
                metadata: Metadata {
                    is_starting: false,
                    ..member.decider.metadata()
                }
                .encode()
                .into(),
            };
            (Arc::from(member.name), peer)
        });
        let reported = reported.collect::<Vec<(Arc<str>, Peer)>>();
        for member in &mut self.members {
            let sees = |it: &&(Arc<str>, Peer)| {
                let both = [&*it.0, member.name];
                both.iter().all(|name| names.contains(name)) && &*it.0 != member.name
            };
            let peers = reported.iter().filter(sees).cloned().collect();
            member.decider.take_members(Arc::new(Members {
                peers,
                reunions: self.meetings,
            }));
        }
        self.settle().await;
    }

    /// Waits until each node announces what it wants to.
    async fn settle(&self) {
        for member in &self.members {
            let wanted = member.decider.wanted();
            member.announcer.announcer.set(wanted.clone());
            until("announced", || {
                let view = member.announcer.view();
                view.addresses.len() == wanted.announcements.len()
                    && wanted.announcements.keys().all(|address| {
                        let status = view.addresses.get(address);
                        status.is_some_and(|it| it.state == State::Announcing)
                    })
            })
            .await;
        }
    }

    /// The nodes that answer to `arping` of the client on an interface.
    fn on(&self, interface: &str, source: &str) -> BTreeSet<String> {
        let said = self.client.sh(&format!(
            "arping -b -c 2 -w 2 -s {source} -I {interface} {V4} || true"
        ));
        assert!(said.contains("Sent "), "{said}");
        self.named_in(&said)
    }

    fn named_in(&self, said: &str) -> BTreeSet<String> {
        let said = said.to_lowercase();
        let members = self.members.iter();
        let named = members.filter(|it| {
            let own = it.host.sh("ip -o link show type veth");
            let mut words = own.split_whitespace();
            let mut found = false;
            while let Some(word) = words.next() {
                let mac = words.clone().next().unwrap_or_default();
                found |= word == "link/ether" && said.contains(mac);
            }
            found
        });
        named.map(|it| it.name.to_owned()).collect()
    }

    /// The nodes that answer for the address.
    fn answering(&self) -> BTreeSet<String> {
        self.on("eth0", "10.0.0.1")
    }

    /// The nodes that answer to `ndisc6`.
    fn answering_v6(&self) -> BTreeSet<String> {
        let said = self
            .client
            .sh(&format!("ndisc6 -n -m -r 1 -w 1000 {V6} eth0 || true"));
        self.named_in(&said)
    }

    fn why_not(&self, name: &str) -> Option<NotAnnounced> {
        let member = self.members.iter().find(|it| it.name == name).unwrap();
        member.decider.why_not(address(V4))
    }
}

fn is_inside(test: &str) -> bool {
    lab::is_inside(&format!("network::{test}"), SWITCH)
}

#[tokio::test]
async fn row_57_the_owner_follows_the_endpoints_of_a_local_service() {
    if !is_inside("row_57_the_owner_follows_the_endpoints_of_a_local_service") {
        return;
    }
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    let [_, second, third] = order(V4);
    segment
        .report(&[
            Fact::Service(web().local().row()),
            serving("web", &[second]),
        ])
        .await;
    assert_eq!(segment.answering(), set(&[second]));
    segment.report(&[serving("web", &[third])]).await;
    assert_eq!(segment.answering(), set(&[third]));
    // Of several with an endpoint the first in MetalLB's order.
    segment.report(&[serving("web", &[third, second])]).await;
    assert_eq!(segment.answering(), set(&[second]));
    segment.report(&[serving("web", &[])]).await;
    assert_eq!(segment.answering(), set(&[]));
}

#[tokio::test]
async fn row_58_without_endpoints_no_node_answers_and_with_one_that_drains_one_does() {
    if !is_inside("row_58_without_endpoints_no_node_answers_and_with_one_that_drains_one_does") {
        return;
    }
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    let [owner, ..] = order(V4);
    assert_eq!(segment.answering(), set(&[owner]));
    let slices = |row: landfall_testkit::build::SliceBuilder| Fact::Slice(row.row());
    let none = slices(slice("web").port("", 8080).not_ready("10.8.0.1"));
    segment.report(&[none]).await;
    assert_eq!(segment.answering(), set(&[]));
    assert_eq!(segment.why_not(owner), Some(NotAnnounced::NoEndpoints));
    let draining = slices(slice("web").port("", 8080).draining("10.8.0.1"));
    segment.report(&[draining]).await;
    assert_eq!(segment.answering(), set(&[owner]));
}

#[tokio::test]
async fn row_59_an_excluded_node_gives_the_address_up_unless_the_label_is_ignored() {
    if !is_inside("row_59_an_excluded_node_gives_the_address_up_unless_the_label_is_ignored") {
        return;
    }
    let [owner, next, _] = order(V4);
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    assert_eq!(segment.answering(), set(&[owner]));
    segment.label(owner, EXCLUDED).await;
    assert_eq!(segment.answering(), set(&[next]));
    // A node without a network is none to announce on, either.
    let unavailable = node(next, "10.0.0.3").with(|row| row.network_unavailable = true);
    segment.report(&[Fact::Node(unavailable.row())]).await;
    assert_eq!(segment.answering(), set(&[order(V4)[2]]));

    let rules = Rules {
        ignore_exclude_label: true,
        ..Rules::default()
    };
    segment.begin(rules, &json!({})).await;
    assert_eq!(segment.answering(), set(&[owner]));
}

#[tokio::test]
async fn row_61_and_row_65_the_owner_is_among_the_selected_nodes_and_without_advertisement_none_is()
{
    let name =
        "row_61_and_row_65_the_owner_is_among_the_selected_nodes_and_without_advertisement_none_is";
    if !is_inside(name) {
        return;
    }
    let [first, second, third] = order(V4);
    let mut segment = Segment::start(Rules::default(), &of_nodes(&[third])).await;
    assert_eq!(segment.answering(), set(&[third]));
    assert_eq!(
        segment.why_not(first),
        Some(NotAnnounced::NoMatchingAdvertisement)
    );
    segment
        .report(&[advertisement(&of_nodes(&[third, second]))])
        .await;
    assert_eq!(segment.answering(), set(&[second]));
    let racked = json!({"nodeSelectors": [{"matchExpressions": [
        {"key": "rack", "operator": "Exists"},
    ]}]});
    segment.report(&[advertisement(&racked)]).await;
    assert_eq!(segment.answering(), set(&[]));
    segment.label(first, "rack").await;
    assert_eq!(segment.answering(), set(&[first]));
    let gone = ServiceKey::new("metallb-system", "all");
    segment
        .report(&[Fact::ResourceGone(ResourceKind::L2Advertisement, gone)])
        .await;
    assert_eq!(segment.answering(), set(&[]));
    segment
        .report(&[advertisement(&json!({"ipAddressPools": ["other"]}))])
        .await;
    assert_eq!(segment.answering(), set(&[]));
}

#[tokio::test]
async fn row_62_and_row_63_a_node_that_has_the_interface_answers_on_it_alone() {
    if !is_inside("row_62_and_row_63_a_node_that_has_the_interface_answers_on_it_alone") {
        return;
    }
    let [first, second, _] = order(V4);
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    // A cable from the client to the node that comes second.
    let member = segment.members.iter().find(|it| it.name == second).unwrap();
    member.host.sh(&format!(
        "ip link add eth1 type veth peer name eth1 netns {}; ip link set eth1 up",
        segment.client.pid()
    ));
    segment
        .client
        .sh("ip address add 10.0.0.99/32 dev eth1; ip link set eth1 up");
    let links = member.announcer.announcer.links();
    until("the cable is there", || {
        let all = eligible(&links.borrow(), &Exclusions::default());
        all.values().any(|it| it.name == "eth1")
    })
    .await;
    segment.meet(&NAMES).await;
    assert_eq!(segment.answering(), set(&[first]));
    assert_eq!(segment.on("eth1", "10.0.0.99"), set(&[]));
    // MetalLB goes on electing the node without the interface, and none answers.
    let only = |names: &[&str]| advertisement(&json!({"interfaces": names}));
    segment.report(&[only(&["eth1"])]).await;
    assert_eq!(segment.on("eth1", "10.0.0.99"), set(&[second]));
    assert_eq!(segment.answering(), set(&[]));
    segment.report(&[only(&["eth0"])]).await;
    assert_eq!(segment.answering(), set(&[first]));
    assert_eq!(segment.on("eth1", "10.0.0.99"), set(&[]));
}

#[tokio::test]
async fn row_93_services_that_share_an_address_have_one_owner() {
    if !is_inside("row_93_services_that_share_an_address_have_one_owner") {
        return;
    }
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    let key = "metallb.io/allow-shared-ip";
    let dual = web().holding(V6).annotated(key, "k").row();
    let six = svc("six").port(81).holding(V6).annotated(key, "k").row();
    segment
        .report(&[
            Fact::Service(dual),
            Fact::Service(six),
            serving("six", &NAMES),
        ])
        .await;
    // By MetalLB two nodes may answer for the IPv6 address.
    let owner = segment.answering_v6();
    assert_eq!(owner.len(), 1);
    assert_eq!(segment.answering().len(), 1);
    // Whichever of them has endpoints.
    segment.report(&[serving("web", &[])]).await;
    assert_eq!(segment.answering_v6().len(), 1);
    segment
        .report(&[Fact::ServiceGone(ServiceKey::new("default", "six"))])
        .await;
    assert_eq!(segment.answering_v6(), set(&[]));
    segment.report(&[serving("web", &NAMES)]).await;
    assert_eq!(segment.answering_v6(), segment.answering());
}

#[tokio::test]
async fn row_94_weights_add_up_and_the_next_preferred_node_takes_over() {
    if !is_inside("row_94_weights_add_up_and_the_next_preferred_node_takes_over") {
        return;
    }
    let [first, second, third] = order(V4);
    let prefers = |weights: &[(&str, u8)]| {
        let preferences = weights.iter().map(|(name, weight)| {
            let preference = json!({"matchLabels": {"kubernetes.io/hostname": name}});
            json!({"weight": weight, "preference": preference})
        });
        json!({"preferredNodeSelectors": preferences.collect::<Vec<_>>()})
    };
    let spec = prefers(&[(second, 10), (third, 90)]);
    let mut segment = Segment::start(Rules::default(), &spec).await;
    assert_eq!(segment.answering(), set(&[third]));
    // 10 and 85 are more than 90.
    segment
        .report(&[named("more", &prefers(&[(second, 85)]))])
        .await;
    assert_eq!(segment.answering(), set(&[second]));
    segment.meet(&[first, third]).await;
    let alone = segment.answering();
    // The one that is cut off from the others still answers; among the others the next does.
    assert_eq!(alone, set(&[second, third]));
    segment.meet(&NAMES).await;
    assert_eq!(segment.answering(), set(&[second]));
}

#[tokio::test]
async fn row_95_labels_move_a_service_between_advertisements_and_a_key_excludes_that() {
    if !is_inside("row_95_labels_move_a_service_between_advertisements_and_a_key_excludes_that") {
        return;
    }
    let [first, _, third] = order(V4);
    let of = |label: &str, node: &str| {
        let mut spec = of_nodes(&[node]);
        spec["serviceSelectors"] = json!([{"matchLabels": {"tier": label}}]);
        spec
    };
    let mut segment = Segment::start(Rules::default(), &of("front", first)).await;
    segment.report(&[named("back", &of("back", third))]).await;
    assert_eq!(segment.answering(), set(&[]));
    let labelled = |label: &str| web().labelled("tier", label);
    segment
        .report(&[Fact::Service(labelled("front").row())])
        .await;
    assert_eq!(segment.answering(), set(&[first]));
    segment
        .report(&[Fact::Service(labelled("back").row())])
        .await;
    assert_eq!(segment.answering(), set(&[third]));
    let sharing = labelled("back").annotated("metallb.io/allow-shared-ip", "k");
    segment.report(&[Fact::Service(sharing.row())]).await;
    assert_eq!(segment.answering(), set(&[]));
}

#[tokio::test]
async fn row_99_two_parts_of_a_cluster_have_an_owner_each_and_after_that_one_is_left() {
    let name = "row_99_two_parts_of_a_cluster_have_an_owner_each_and_after_that_one_is_left";
    if !is_inside(name) {
        return;
    }
    let [first, second, third] = order(V4);
    let mut segment = Segment::start(Rules::default(), &json!({})).await;
    segment.meet(&[second, third]).await;
    assert_eq!(segment.answering(), set(&[first, second]));
    segment.meet(&NAMES).await;
    assert_eq!(segment.answering(), set(&[first]));
    segment.client.send(V4);
    let member = segment.members.iter().find(|it| it.name == first).unwrap();
    let lladdr = format!("lladdr {}", member.host.mac);
    until("the client converges", || {
        segment.client.neighbour(V4).contains(&lladdr)
    })
    .await;
}
