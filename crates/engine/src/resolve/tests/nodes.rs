//! Where members are nodes: which, how they are checked, and what is reported.

use landfall_model::Member;
use landfall_model::dialect::NodeSelector;
use landfall_model::intent::NodeTarget;
use landfall_model::listener::{Check, Monitor};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::build::{NodeBuilder, node};

use super::*;

const SELECTOR: &str = "loadbalancer.openstack.org/node-selector";

fn nodes(nodes: impl IntoIterator<Item = NodeBuilder>) -> World {
    world(nodes.into_iter().map(|node| Fact::Node(node.row())))
}

fn to_nodes(
    facts: impl IntoIterator<Item = NodeBuilder>,
    service: ServiceBuilder,
) -> LoadBalancerSpec {
    let intent = resolve(&service.row(), &nodes(facts), &in_cloud());
    intent.unwrap().load_balancer.unwrap()
}

fn of_node(name: &str, address: &str) -> Member {
    Member {
        node: Some(name.into()),
        name: Some(name.into()),
        ..Member::new(address.parse().unwrap())
    }
}

/// Two nodes with the label `pool`.
fn edge_and_inner() -> [NodeBuilder; 2] {
    [
        node("a", "10.1.0.1").labelled("pool", "edge"),
        node("b", "10.1.0.2").labelled("pool", "inner"),
    ]
}

/// The nodes that are members of a Service, by a provider that is configured so.
fn chosen(configured: Option<&str>, own: Option<&str>) -> Vec<String> {
    let selector = configured.map(|text| NodeSelector::parse(text).unwrap());
    let profile = ProviderProfile {
        node_selector: selector,
        ..in_cloud()
    };
    let service = web().node_port(30080);
    let service = match own {
        Some(own) => service.annotated(SELECTOR, own),
        None => service,
    };
    let intent = resolve(&service.row(), &nodes(edge_and_inner()), &profile).unwrap();
    let about_it = |remark: &&Reason| remark.field == Some(annotation_field(SELECTOR));
    assert_eq!(intent.remarks.iter().find(about_it), None);
    let spec = intent.load_balancer.unwrap();
    let targets: Vec<String> = spec.nodes.iter().map(|it| it.name.to_string()).collect();
    let members = spec.listeners[0].pool.members.iter();
    let members: Vec<String> = members
        .filter_map(|it| it.name.as_deref())
        .map(str::to_owned)
        .collect();
    assert_eq!(targets, members, "nodes and members are the same");
    targets
}

#[test]
fn eligible_nodes_are_members_where_the_target_is_nodes() {
    let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
    let spec = to_nodes(
        [
            node("a", "10.1.0.1").with(|row| row.ready = false),
            node("b", "10.1.0.2").labelled(excluded, ""),
            node("c", "10.1.0.3").labelled(excluded, "false"),
            node("d", "10.1.0.4").with(|row| row.leaving = true),
            node("e", "10.1.0.5").with(|row| row.deleting = true),
            node("f", "2001:db8::1"),
        ],
        web().node_port(30080),
    );
    assert_eq!(
        spec.listeners[0].pool.members,
        [
            of_node("a", "10.1.0.1:30080"),
            of_node("c", "10.1.0.3:30080")
        ]
    );
    let left: Vec<&str> = spec
        .left_out
        .iter()
        .map(|left| left.endpoint.as_str())
        .collect();
    assert_eq!(left, ["node b", "node d", "node e", "node f"]);
}

#[test]
fn eligible_nodes_come_with_the_server_that_they_are() {
    let server = "openstack:///11111111-1111-1111-1111-111111111111";
    let service = web()
        .node_port(30080)
        .families(&[Family::V6, Family::V4], FamilyPolicy::PreferDualStack);
    let spec = to_nodes(
        [
            node("a", "10.1.0.1").with(|row| {
                row.addresses.push("2001:db8::1".parse().unwrap());
                row.provider_id = Some(server.into());
            }),
            node("b", "10.1.0.2"),
        ],
        service,
    );
    let expected = NodeTarget {
        name: "a".into(),
        address: "2001:db8::1".parse().unwrap(),
        provider_id: Some(server.into()),
        others: vec!["10.1.0.1".parse().unwrap()],
    };
    assert_eq!(spec.nodes, [expected]);
}

#[test]
fn a_provider_whose_members_are_pods_gets_no_nodes() {
    let (spec, _) = spec_in(&nodes(edge_and_inner()), web());
    assert_eq!(spec.nodes, []);
}

#[test]
fn a_port_without_a_node_port_has_no_node_as_member() {
    let spec = to_nodes([node("a", "10.1.0.1")], web());
    assert_eq!(spec.listeners[0].pool.members, []);
    assert_eq!(spec.left_out[0].reason.message, "the port has no NodePort");
}

#[test]
fn the_selector_of_the_service_beats_that_of_the_configuration() {
    assert_eq!(chosen(None, None), ["a", "b"]);
    assert_eq!(chosen(Some("pool=edge"), None), ["a"]);
    assert_eq!(chosen(Some("pool=edge"), Some("pool=inner")), ["b"]);
    assert_eq!(chosen(None, Some("pool=inner")), ["b"]);
}

#[test]
fn an_empty_selector_of_the_service_chooses_every_node() {
    assert_eq!(chosen(Some("pool=edge"), Some("")), ["a", "b"]);
}

#[test]
fn a_node_that_the_selector_excludes_is_reported_with_the_reason() {
    let service = web().node_port(30080).annotated(SELECTOR, "pool=edge");
    let spec = to_nodes(edge_and_inner(), service);
    let [left] = &spec.left_out[..] else {
        panic!("{:?}", spec.left_out)
    };
    assert_eq!(left.name.as_deref(), Some("b"));
    assert_eq!(
        left.reason.message,
        "its labels do not match the node selector"
    );
}

#[test]
fn a_world_that_never_had_a_node_is_no_instruction_to_remove_all_members() {
    let service = || web().node_port(30080).row();
    let reasons = resolve(&service(), &World::default(), &in_cloud()).unwrap_err();
    assert_eq!(
        reasons[0],
        Reason::error(
            Code::NoEligibleNodes,
            "no Node is known, so no traffic can be forwarded"
        )
        .remedy("check whether this process may list nodes")
    );
    assert!(
        resolve(&service(), &World::default(), &one_machine()).is_ok(),
        "whose members are pods needs no nodes"
    );
    let mut emptied = nodes([node("a", "10.1.0.1")]);
    emptied.apply(Fact::NodeGone("a".into()));
    let spec = resolve(&service(), &emptied, &in_cloud()).unwrap();
    let spec = spec.load_balancer.unwrap();
    assert_eq!(spec.nodes, []);
    assert_eq!(spec.listeners[0].pool.members, []);
}

/// A Service whose nodes deliver only to their own endpoints.
fn local() -> ServiceBuilder {
    web().node_port(30080).with(|row| {
        row.external_local = true;
        row.health_check_node_port = Some(number(32000));
    })
}

fn monitor_and_remarks(
    service: ServiceBuilder,
    profile: &ProviderProfile,
) -> (Option<Monitor>, Vec<Reason>) {
    let world = nodes([node("a", "10.1.0.1")]);
    let intent = resolve(&service.row(), &world, profile).unwrap();
    let mut spec = intent.load_balancer.unwrap();
    (spec.listeners.remove(0).pool.monitor, intent.remarks)
}

#[test]
fn nodes_of_a_local_service_are_checked_without_being_asked_for() {
    let (monitor, remarks) = monitor_and_remarks(local(), &in_cloud());
    assert_eq!(monitor, Some(Monitor::new(Check::Tcp)));
    assert_eq!(remarks, []);

    let udp = svc("dns").udp_port("", 53).node_port(30053).with(|row| {
        row.external_local = true;
        row.health_check_node_port = Some(number(32000));
    });
    let (monitor, _) = monitor_and_remarks(udp, &in_cloud());
    assert_eq!(monitor, Some(Monitor::new(Check::UdpConnect)));

    let cluster_wide = web().node_port(30080);
    assert_eq!(monitor_and_remarks(cluster_wide, &in_cloud()).0, None);
    assert_eq!(monitor_and_remarks(local(), &one_machine()).0, None);
}

#[test]
fn the_health_check_node_port_is_part_of_the_spec() {
    let port = |service| to_nodes([node("a", "10.1.0.1")], service).health_check_port;
    assert_eq!(port(local()), Some(number(32000)));
    let cluster_wide = local().with(|row| row.external_local = false);
    assert_eq!(port(cluster_wide), None);
}

#[test]
fn a_local_service_whose_monitor_is_switched_off_is_warned() {
    let key = "loadbalancer.openstack.org/enable-health-monitor";
    let off = local().annotated(key, "false");
    let (monitor, remarks) = monitor_and_remarks(off, &in_cloud());
    assert_eq!(monitor, None);
    let [warning] = &remarks[..] else {
        panic!("{remarks:?}")
    };
    assert_eq!(warning.code, Code::ConflictingOptions);
    assert_eq!(warning.severity, Severity::Warning);
    assert_eq!(warning.field, Some(annotation_field(key)));
    assert_eq!(warning.value.as_deref(), Some("false"));

    let anywhere = web().node_port(30080).annotated(key, "false");
    assert_eq!(monitor_and_remarks(anywhere, &in_cloud()), (None, vec![]));
}
