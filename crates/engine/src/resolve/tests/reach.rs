//! Members that may be none.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::reach::{MemberRules, Setting};
use landfall_model::rows::PoolRow;
use landfall_model::{Member, ServiceKey};
use landfall_testkit::slice;

use super::*;
use crate::world::Affected;

const ENDPOINTS: &str = "landfall.dev/endpoints";

fn in_cluster(annotations: &[&str]) -> ProviderProfile {
    let listed = annotations.iter().map(|text| text.parse().unwrap());
    ProviderProfile {
        members: MemberRules {
            setting: Setting::Cluster,
            annotations: (!annotations.is_empty()).then(|| listed.collect()),
            ..MemberRules::default()
        },
        ..one_machine()
    }
}

fn pool(name: &str, addresses: &[&str]) -> Fact {
    Fact::Pool(Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: addresses.iter().map(|&text| text.to_owned()).collect(),
        auto_assign: true,
        ..PoolRow::default()
    }))
}

fn with_pool(mut world: World) -> World {
    world.apply(pool("public", &["192.0.2.0/29", "192.0.2.20-192.0.2.30"]));
    assert_eq!(world.settle_pools(None), []);
    world
}

fn members(intent: &Intent) -> Vec<String> {
    let spec = intent.load_balancer.as_ref().unwrap();
    let members = spec.listeners[0].pool.members.iter();
    members
        .map(|member: &Member| member.address.to_string())
        .collect()
}

fn of_code(reasons: &[Reason]) -> Vec<&Reason> {
    let found = reasons
        .iter()
        .filter(|it| it.code == Code::MemberNotAllowed);
    found.collect()
}

#[test]
fn in_a_cluster_an_annotation_names_no_members_unless_the_operator_lets_it() {
    let service = || web().annotated(ENDPOINTS, "10.1.0.1:80");
    let refused = resolve(&service().row(), &World::default(), &in_cluster(&[])).unwrap_err();
    let expected = Reason::error(
        Code::MemberNotAllowed,
        "10.1.0.1 comes from an annotation, and in a cluster annotations name no members unless \
        the operator allows it",
    )
    .at_annotation(ENDPOINTS)
    .value("10.1.0.1:80")
    .remedy(
        "use a selector or EndpointSlices, or ask the operator to set members.annotations of the \
        instance in landfall.yaml",
    );
    assert_eq!(of_code(&refused), [&expected]);

    let allowed = in_cluster(&["10.1.0.0/16"]);
    let intent = resolve(&service().row(), &World::default(), &allowed).unwrap();
    assert_eq!(members(&intent), ["10.1.0.1:80"]);
    let outside = web().annotated(ENDPOINTS, "10.1.0.1:80, 10.2.0.1:80, 10.2.0.2:80");
    let refused = resolve(&outside.row(), &World::default(), &allowed).unwrap_err();
    assert_eq!(
        of_code(&refused)[0].message,
        "10.2.0.1 is in none of the prefixes that the operator allows for members, and 1 more \
        addresses are not allowed either"
    );
}

#[test]
fn a_service_that_points_at_an_address_of_a_pool_is_refused() {
    let world = with_pool(World::default());
    for target in ["192.0.2.1:80", "192.0.2.25:443", "[::ffff:192.0.2.25]:443"] {
        let service = web().annotated(ENDPOINTS, target);
        let refused = resolve(&service.row(), &world, &one_machine()).unwrap_err();
        assert_eq!(of_code(&refused).len(), 1, "{target}: {refused:?}");
        assert_eq!(refused[0].severity, Severity::Error);
    }
    let beside = web().annotated(ENDPOINTS, "192.0.2.9:80, 127.0.0.1:81");
    let intent = resolve(&beside.row(), &world, &one_machine()).unwrap();
    assert_eq!(members(&intent), ["127.0.0.1:81", "192.0.2.9:80"]);
}

#[test]
fn an_endpoint_of_a_slice_that_may_be_no_member_is_left_out_and_the_others_serve() {
    let world = with_pool(slices([slice("web")
        .port("", 8080)
        .ready("169.254.169.254")
        .ready("127.0.0.1")
        .ready("192.0.2.1")
        .ready("10.0.0.1")]));
    let intent = resolve(&web().row(), &world, &in_cluster(&[])).unwrap();
    assert_eq!(members(&intent), ["10.0.0.1:8080"]);
    let reported = of_code(&intent.remarks);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].severity, Severity::Warning);
    assert_eq!(
        reported[0].message,
        "127.0.0.1 is a loopback address, which is not allowed for members, and 2 more addresses \
        are not allowed either"
    );
    let left_out = intent.load_balancer.unwrap().left_out;
    let left_out: Vec<(&str, Code)> = left_out
        .iter()
        .map(|it| (it.endpoint.as_str(), it.reason.code))
        .collect();
    let barred = ["127.0.0.1", "169.254.169.254", "192.0.2.1"];
    assert_eq!(left_out, barred.map(|it| (it, Code::MemberNotAllowed)));
    // On one machine, loopback is where members are.
    let intent = resolve(&web().row(), &world, &one_machine()).unwrap();
    assert_eq!(members(&intent), ["10.0.0.1:8080", "127.0.0.1:8080"]);
}

#[test]
fn a_monitor_port_that_is_the_admin_endpoint_of_a_member_is_refused() {
    let rules = MemberRules {
        admin: Some("127.0.0.1:9640".parse().unwrap()),
        ..MemberRules::default()
    };
    let machine = ProviderProfile {
        members: rules,
        ..one_machine()
    };
    let service = |port: &str| {
        web()
            .annotated(ENDPOINTS, "127.0.0.1:80, 127.0.0.2:80")
            .annotated("landfall.dev/monitor", "http")
            .annotated("landfall.dev/monitor-port", port)
            .row()
    };
    let refused = resolve(&service("9640"), &World::default(), &machine).unwrap_err();
    let reported = of_code(&refused);
    assert_eq!(
        (reported.len(), reported[0].message.as_str()),
        (
            1,
            "127.0.0.1 would be checked at the admin endpoint of this process"
        )
    );
    let intent = resolve_previous(&service("9640"), &[], &World::default(), &machine).unwrap();
    assert_eq!(members(&intent), ["127.0.0.2:80"]);
    let intent = resolve(&service("9641"), &World::default(), &machine).unwrap();
    assert_eq!(members(&intent), ["127.0.0.1:80", "127.0.0.2:80"]);
    // Endpoints of slices come and go: the one that can't be checked is left out.
    let world = slices([slice("web")
        .port("", 80)
        .ready("127.0.0.1")
        .ready("10.0.0.1")]);
    let service = web()
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor-port", "9640");
    let intent = resolve(&service.row(), &world, &machine).unwrap();
    assert_eq!(members(&intent), ["10.0.0.1:80"]);
}

#[test]
fn an_address_that_the_machine_gets_later_leads_no_member_to_the_admin_endpoint() {
    let machine = ProviderProfile {
        members: MemberRules::default().beside(Some("0.0.0.0:9640".parse().unwrap())),
        ..one_machine()
    };
    let here = |networks: &[&str]| {
        let networks = networks.iter().map(|text| text.parse().unwrap());
        Fact::Machine(networks.collect())
    };
    let mut world = slices([slice("web")
        .port("", 9640)
        .ready("10.0.0.1")
        .ready("10.0.0.7")]);
    world.apply(here(&["10.0.0.6/32"]));
    let of = |world: &World| members(&resolve(&web().row(), world, &machine).unwrap());
    assert_eq!(of(&world), ["10.0.0.1:9640", "10.0.0.7:9640"]);
    let both = here(&["10.0.0.6/32", "10.0.0.7/32"]);
    assert_eq!(world.apply(both.clone()), Affected::All);
    assert_eq!(of(&world), ["10.0.0.1:9640"]);
    assert_eq!(world.apply(both), Affected::None);
    world.apply(here(&[]));
    assert_eq!(of(&world), ["10.0.0.1:9640", "10.0.0.7:9640"]);
}

#[test]
fn a_version_that_was_accepted_earlier_is_served_without_what_may_be_no_member_any_more() {
    let world = with_pool(World::default());
    let service = web()
        .annotated(ENDPOINTS, "192.0.2.1:80, 10.0.0.1:80")
        .row();
    assert!(resolve(&service, &world, &one_machine()).is_err());
    let intent = resolve_previous(&service, &[], &world, &one_machine()).unwrap();
    assert_eq!(members(&intent), ["10.0.0.1:80"]);
    assert_eq!(of_code(&intent.remarks)[0].severity, Severity::Warning);
}

#[test]
fn addresses_of_a_pool_that_can_not_be_read_any_more_stay_ours() {
    let mut world = with_pool(World::default());
    let old: std::net::IpAddr = "192.0.2.25".parse().unwrap();
    world.apply(pool("public", &["192.0.2.0/29", "192.0.2.20-192.0.2.3x"]));
    world.settle_pools(None);
    assert!(world.in_a_pool(old));
    world.apply(pool("public", &["198.51.100.0/29"]));
    world.settle_pools(None);
    assert!(!world.in_a_pool(old));
    let new: std::net::IpAddr = "198.51.100.1".parse().unwrap();
    assert!(world.in_a_pool(new));
    // Without any pool, Services keep what they have.
    world.apply(Fact::PoolGone("public".to_owned()));
    world.settle_pools(None);
    assert!(world.in_a_pool(new));
}

/// All cluster IPs of a Service of another namespace.
fn cluster_ips(service: &str, addresses: &[&str]) -> Fact {
    let addresses = addresses.iter().map(|it| it.parse::<IpAddr>().unwrap());
    Fact::ClusterIps(
        ServiceKey::new("other-tenant", service),
        addresses.collect(),
    )
}

#[test]
fn a_cluster_ip_of_any_service_is_no_member_and_the_others_serve() {
    let row = svc("web").udp_port("", 53).row();
    let mut world = slices([slice("web")
        .any_port("", Protocol::Udp, Some(53))
        .ready("10.96.0.7")
        .not_ready("10.96.0.8")
        .ready("10.0.0.1")]);
    let resolved = |world: &World| resolve(&row, world, &in_cluster(&[])).unwrap();
    let members_of = |world: &World| members(&resolved(world));
    assert_eq!(members_of(&world), ["10.0.0.1:53", "10.96.0.7:53"]);
    world.apply(cluster_ips("dns", &["10.96.0.7", "10.96.0.8"]));
    let intent = resolved(&world);
    assert_eq!(members(&intent), ["10.0.0.1:53"]);
    let reported = of_code(&intent.remarks);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].severity, Severity::Warning);
    assert_eq!(
        reported[0].message,
        "10.96.0.7 is a cluster IP, and a load balancer must not forward traffic to a Service, \
        which may forward it back, and 1 more addresses are not allowed either"
    );
    // Nothing of another tenant's Service but what the slice itself says.
    let all = format!("{intent:?}");
    assert!(
        !all.contains("other-tenant") && !all.contains("dns"),
        "{all}"
    );
    // A Service took it over before it is known that the first one is gone.
    world.apply(cluster_ips("next", &["10.96.0.7"]));
    world.apply(cluster_ips("dns", &[]));
    assert_eq!(members_of(&world), ["10.0.0.1:53"]);
    world.apply(cluster_ips("next", &[]));
    assert_eq!(members_of(&world), ["10.0.0.1:53", "10.96.0.7:53"]);
}

#[test]
fn an_annotation_that_names_a_cluster_ip_is_refused() {
    let service = web()
        .annotated(ENDPOINTS, "10.96.0.7:80, 10.0.0.1:80")
        .row();
    let mut world = World::default();
    let allowed = in_cluster(&["10.0.0.0/8"]);
    assert!(resolve(&service, &world, &allowed).is_ok());
    world.apply(cluster_ips("dns", &["10.96.0.7"]));
    let refused = resolve(&service, &world, &allowed).unwrap_err();
    assert_eq!(of_code(&refused).len(), 1);
    let intent = resolve_previous(&service, &[], &world, &allowed).unwrap();
    assert_eq!(members(&intent), ["10.0.0.1:80"]);
}
