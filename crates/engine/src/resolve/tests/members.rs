use landfall_model::Member;
use landfall_model::intent::LeftOut;
use landfall_model::rows::{Endpoint, Family, FamilyPolicy};
use landfall_testkit::build::endpoint;
use landfall_testkit::slice;

use super::*;

fn member(address: &str) -> Member {
    Member::new(address.parse().unwrap())
}

fn members_in(world: &World, service: ServiceBuilder) -> Vec<Member> {
    let (mut spec, remarks) = spec_in(world, service);
    assert_eq!(remarks, []);
    spec.listeners.remove(0).pool.members
}

fn left_out(endpoint: &str, reason: Reason) -> LeftOut {
    LeftOut {
        endpoint: endpoint.to_owned(),
        name: None,
        reason,
        count: 1,
    }
}

#[test]
fn ready_endpoints_are_members_at_the_port_of_the_slice() {
    let world = slices([slice("web")
        .port("", 8080)
        .ready("10.0.0.2")
        .endpoint(Endpoint {
            node: Some("node-1".into()),
            name: Some("web-0".into()),
            ..endpoint("10.0.0.1")
        })]);
    let first = Member {
        node: Some("node-1".into()),
        name: Some("web-0".into()),
        ..member("10.0.0.1:8080")
    };
    assert_eq!(members_in(&world, web()), [first, member("10.0.0.2:8080")]);
}

#[test]
fn ports_are_matched_by_name_and_protocol_whatever_their_numbers() {
    let world = slices([
        slice("web")
            .named("web-a")
            .port("http", 8080)
            .any_port("http", Protocol::Udp, Some(9999))
            .ready("10.0.0.1"),
        slice("web")
            .named("web-b")
            .port("http", 8081)
            .ready("10.0.0.2"),
    ]);
    let service = svc("web").named_port("http", 80);
    assert_eq!(
        members_in(&world, service),
        [member("10.0.0.1:8080"), member("10.0.0.2:8081")]
    );
}

#[test]
fn what_becomes_of_an_endpoint_follows_its_conditions() {
    let of = |ready, serving, terminating, publish: bool| {
        let world = slices([slice("web").port("", 80).endpoint(Endpoint {
            ready,
            serving,
            terminating,
            ..endpoint("10.0.0.1")
        })]);
        let service = web().with(|row| row.publish_not_ready = publish);
        let (spec, _) = spec_in(&world, service);
        match (&spec.listeners[0].pool.members[..], &spec.left_out[..]) {
            ([member], []) if member.draining => "drains".to_owned(),
            ([_], []) => "serves".to_owned(),
            ([], [left]) => left.reason.message.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(true, true, false, false), "serves");
    assert_eq!(of(true, true, true, false), "serves");
    assert_eq!(of(false, true, true, false), "drains");
    assert_eq!(of(false, true, true, true), "drains");
    assert_eq!(
        of(false, false, true, false),
        "terminating and no longer serving"
    );
    assert_eq!(of(false, false, false, false), "not ready");
    assert_eq!(of(false, true, false, false), "not ready");
    assert_eq!(of(false, false, false, true), "serves");
}

#[test]
fn an_endpoint_in_several_slices_is_one_member_and_the_best_counts() {
    let world = slices([
        slice("web")
            .named("a")
            .port("", 80)
            .draining("10.0.0.1")
            .not_ready("10.0.0.2"),
        slice("web")
            .named("b")
            .port("", 80)
            .pod("web-0", "10.0.0.1")
            .ready("10.0.0.2"),
    ]);
    let (spec, remarks) = spec_in(&world, web());
    assert_eq!(remarks, []);
    assert_eq!(spec.left_out, []);
    let first = Member {
        name: Some("web-0".into()),
        ..member("10.0.0.1:80")
    };
    assert_eq!(
        spec.listeners[0].pool.members,
        [first, member("10.0.0.2:80")]
    );
}

#[test]
fn slices_that_can_not_be_used_are_reported_with_the_reason() {
    let ignored = |message: &str, remedy: &str| {
        Reason::warning(Code::EndpointIgnored, message).remedy(remedy)
    };
    let world = slices([
        slice("web").named("a").port("other", 80).ready("10.0.0.1"),
        slice("web")
            .named("b")
            .family(Some(Family::V6))
            .port("http", 80)
            .ready("2001:db8::1"),
        slice("web").named("c").family(None).port("http", 80),
        slice("web")
            .named("d")
            .any_port("http", Protocol::Tcp, None)
            .ready("10.0.0.4"),
        slice("web").named("e").port("nothing", 80),
        slice("web")
            .named("f")
            .any_port("http", Protocol::Udp, Some(80))
            .ready("10.0.0.5"),
        slice("web").named("g").port("http", 80).ready("10.0.0.6"),
    ]);
    let (spec, remarks) = spec_in(&world, svc("web").named_port("http", 80));
    assert_eq!(remarks, []);
    assert_eq!(spec.listeners[0].pool.members, [member("10.0.0.6:80")]);
    assert_eq!(
        spec.left_out,
        [
            left_out(
                "slice a",
                ignored(
                    "it lacks a port named http (TCP)",
                    "the slice has other (TCP); ports are matched by name and protocol"
                )
            ),
            left_out(
                "slice b",
                ignored(
                    "its addresses are IPv6, which is no family of the Service",
                    "add IPv6 to spec.ipFamilies"
                )
            ),
            left_out(
                "slice c",
                ignored(
                    "its addresses are names (FQDN), and names are not resolved",
                    "write a slice of type IPv4 or IPv6"
                )
            ),
            left_out(
                "slice d",
                ignored(
                    "it has no number for a port named http",
                    "write the number into the slice"
                )
            ),
            left_out(
                "slice f",
                ignored(
                    "it lacks a port named http (TCP)",
                    "the slice has http (UDP); ports are matched by name and protocol"
                )
            ),
        ]
    );
}

#[test]
fn an_endpoint_that_no_port_can_use_is_reported_once() {
    let world = slices([slice("web")
        .port("a", 80)
        .port("b", 81)
        .not_ready("10.0.0.1")]);
    let (spec, _) = spec_in(&world, svc("web").named_port("a", 80).named_port("b", 81));
    assert_eq!(
        spec.left_out,
        [left_out(
            "10.0.0.1",
            Reason::info(Code::EndpointIgnored, "not ready")
        )]
    );
}

#[test]
fn both_families_serve_a_service_that_has_both() {
    let world = slices([
        slice("web")
            .named("six")
            .family(Some(Family::V6))
            .port("", 80)
            .ready("2001:db8::1"),
        slice("web").named("four").port("", 80).ready("10.0.0.1"),
    ]);
    let service = web().families(&[Family::V6, Family::V4], FamilyPolicy::PreferDualStack);
    assert_eq!(
        members_in(&world, service),
        [member("10.0.0.1:80"), member("[2001:db8::1]:80")]
    );
}

#[test]
fn slices_of_other_services_do_not_matter() {
    let world = slices([
        slice("web").port("", 80).ready("10.0.0.1"),
        slice("other").port("", 80).ready("10.0.0.2"),
    ]);
    assert_eq!(members_in(&world, web()), [member("10.0.0.1:80")]);
}

#[test]
fn endpoints_that_are_named_outright_take_the_place_of_slices() {
    let world = slices([slice("web").port("", 80).ready("10.0.0.1")]);
    let service = web().annotated(
        "landfall.dev/endpoints",
        "[::1]:9000, localhost:9001 weight=3, 127.0.0.1:9002 backup",
    );
    let weighted = Member {
        weight: 3,
        ..member("127.0.0.1:9001")
    };
    let backup = Member {
        backup: true,
        ..member("127.0.0.1:9002")
    };
    assert_eq!(
        members_in(&world, service),
        [weighted, backup, member("[::1]:9000")]
    );
}

#[test]
fn endpoints_may_be_named_for_one_port_while_another_uses_slices() {
    let world = slices([slice("web").port("a", 80).port("b", 81).ready("10.0.0.1")]);
    let service = svc("web")
        .named_port("a", 80)
        .named_port("b", 81)
        .annotated("landfall.dev/endpoints.b", "127.0.0.1:9000");
    let (spec, remarks) = spec_in(&world, service);
    assert_eq!(remarks, []);
    assert_eq!(spec.listeners[0].pool.members, [member("10.0.0.1:80")]);
    assert_eq!(spec.listeners[1].pool.members, [member("127.0.0.1:9000")]);
}

#[test]
fn weights_and_backups_go_by_pod_name_and_by_address() {
    let world = slices([slice("web")
        .port("", 80)
        .pod("web-0", "10.0.0.1")
        .pod("web-1", "10.0.0.2")
        .ready("10.0.0.3")]);
    let service = web()
        .annotated(
            "landfall.dev/member-weights",
            "web-0=5,10.0.0.2=0,10.0.0.1=7",
        )
        .annotated("landfall.dev/backup-members", "10.0.0.3");
    let members = members_in(&world, service);
    let reported: Vec<(u16, bool)> = members
        .iter()
        .map(|member| (member.weight, member.backup))
        .collect();
    assert_eq!(reported, [(5, false), (0, false), (1, true)]);
}

#[test]
fn a_weight_beside_an_endpoint_wins_over_the_list_of_weights() {
    let service = web()
        .annotated("landfall.dev/endpoints", "10.0.0.1:80 weight=2,10.0.0.2:80")
        .annotated("landfall.dev/member-weights", "10.0.0.1=9,10.0.0.2=9");
    let members = members_in(&World::default(), service);
    let weights: Vec<u16> = members.iter().map(|member| member.weight).collect();
    assert_eq!(weights, [2, 9]);
}

#[test]
fn a_weight_for_no_endpoint_is_remarked_and_one_for_an_endpoint_that_is_not_ready_is_not() {
    let world = slices([slice("web")
        .port("", 80)
        .ready("10.0.0.1")
        .not_ready("10.0.0.2")]);
    let key = "landfall.dev/member-weights";
    let value = "10.0.0.2=3,web-9=4";
    let (_, remarks) = spec_in(&world, web().annotated(key, value));
    assert_eq!(
        remarks,
        [Reason::warning(
            Code::OptionNotApplicable,
            "no endpoint of the Service is named web-9"
        )
        .at_annotation(key)
        .value(value)
        .remedy("name an endpoint by its address or its pod's name, or wait for it")]
    );
}

#[test]
fn a_flood_of_unknown_names_is_one_short_remark() {
    let value: Vec<String> = (0..9000).map(|pod| format!("pod-{pod:05}")).collect();
    let world = slices([slice("web").port("", 80).ready("10.0.0.1")]);
    let service = web().annotated("landfall.dev/backup-members", &value.join(","));
    let (_, remarks) = spec_in(&world, service);
    assert_eq!(remarks.len(), 1);
    let text = remarks[0].to_string();
    assert!(text.len() < 1000, "{} characters", text.len());
    assert!(
        text.contains("pod-00004 or the 8995 others listed"),
        "{text}"
    );
}

#[test]
fn a_service_without_endpoints_is_valid_and_gets_a_remedy() {
    let (spec, remarks) = spec_in(&World::default(), web());
    assert_eq!(spec.listeners[0].pool.members, []);
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].code, Code::NoEndpoints);
    assert!(
        remarks[0]
            .remedy
            .contains("kubernetes.io/service-name: web"),
        "{}",
        remarks[0]
    );
}

#[test]
fn endpoints_that_can_not_serve_are_remarked_once_for_the_service() {
    let world = slices([slice("web")
        .port("a", 80)
        .port("b", 81)
        .not_ready("10.0.0.1")]);
    let service = || svc("web").named_port("a", 80).named_port("b", 81);
    let (_, remarks) = spec_in(&world, service());
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].code, Code::NoReadyEndpoints);
    assert_eq!(remarks[0].field, None);

    let draining = slices([slice("web")
        .port("a", 80)
        .port("b", 81)
        .draining("10.0.0.1")]);
    let (_, remarks) = spec_in(&draining, service());
    assert_eq!(remarks.len(), 1);
    assert_eq!(
        remarks[0].message,
        "only endpoints that are shutting down are left"
    );
}

#[test]
fn a_single_port_that_no_endpoint_serves_is_named() {
    let world = slices([slice("web").port("a", 80).ready("10.0.0.1")]);
    let (_, remarks) = spec_in(&world, svc("web").named_port("a", 80).named_port("b", 81));
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].code, Code::NoReadyEndpoints);
    assert_eq!(remarks[0].field.as_deref(), Some("spec.ports[1]"));
    assert_eq!(remarks[0].value.as_deref(), Some("81/TCP"));
}

#[test]
fn of_many_endpoints_that_are_left_out_some_are_listed_and_the_others_counted() {
    let crowd = |name: &str| {
        let slice = slice("web").named(name).port("a", 80).port("b", 81);
        (0..1000).fold(slice, |slice, last| {
            slice.not_ready(&format!("10.0.{}.{}", last / 250, last % 250 + 1))
        })
    };
    // The same endpoints twice, and for two ports.
    let world = slices([crowd("web-1"), crowd("web-2")]);
    let service = svc("web").named_port("a", 80).named_port("b", 81);
    let intent = resolve(&service.row(), &world, &one_machine()).unwrap();
    let left_out = intent.load_balancer.unwrap().left_out;
    assert_eq!(left_out.len(), 51);
    assert_eq!(left_out.iter().map(|it| it.count).sum::<usize>(), 1000);
    assert_eq!(left_out[50].endpoint, "950 more");
    assert_eq!(left_out[50].reason.code, Code::EndpointIgnored);
}
