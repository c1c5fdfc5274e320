//! Targets.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use landfall_model::dialect::{ExoscaleOptions, Given};
use landfall_model::intent::{AddressSpec, NodeTarget};
use landfall_model::listener::{ListenerKey, Member};
use landfall_model::provider::Target as MemberKind;
use landfall_model::rows::FamilyPolicy;
use landfall_model::{ServiceKey, Uid};

use super::*;
use crate::objects::HealthcheckMode;

fn number(port: u16) -> NonZeroU16 {
    NonZeroU16::new(port).unwrap()
}

fn listener(protocol: landfall_model::Protocol, port: u16) -> Listener {
    let mut listener = Listener::new(protocol, number(port));
    let address = format!("10.0.0.1:{}", 30_000 + port).parse().unwrap();
    listener.pool.members.push(Member {
        address,
        weight: 1,
        backup: false,
        draining: false,
        node: None,
        name: None,
    });
    listener
}

fn spec(listeners: Vec<Listener>) -> LoadBalancerSpec {
    LoadBalancerSpec {
        address: AddressSpec {
            namespace_labels: BTreeMap::new(),
            labels: BTreeMap::new(),
            families: vec![Family::V4],
            policy: FamilyPolicy::SingleStack,
            requested: Vec::new(),
            requested_by: String::new(),
            pool: None,
            count: 1,
            sharing_key: None,
            backend_key: String::new(),
            held: Vec::new(),
        },
        order: listeners
            .iter()
            .map(|it| it.key)
            .collect::<Vec<ListenerKey>>(),
        listeners,
        hostname: None,
        left_out: Vec::new(),
        health_check_port: None,
        target: MemberKind::Node,
        nodes: vec![NodeTarget {
            name: "a".into(),
            address: "10.0.0.1".parse().unwrap(),
            provider_id: None,
            others: Vec::new(),
        }],
        has_nodes: true,
    }
}

fn tcp(ports: impl IntoIterator<Item = u16>) -> LoadBalancerSpec {
    let tcp = landfall_model::Protocol::Tcp;
    spec(ports.into_iter().map(|port| listener(tcp, port)).collect())
}

#[expect(clippy::unnecessary_wraps, reason = "as options are given")]
fn some(value: &str) -> Option<Given<String>> {
    Some(Given {
        value: value.to_owned(),
        annotation: "a".to_owned(),
    })
}

fn target(
    spec: &LoadBalancerSpec,
    options: ExoscaleOptions,
    have: Option<&LoadBalancer>,
) -> Target {
    let key = ServiceKey::new("default", "web");
    let uid = Uid::new("u1");
    let mut intent = Intent::removal(key.clone(), uid.clone());
    intent.extensions.exoscale = options;
    let owner = Owner {
        cluster: "c1".to_owned(),
        uid,
        service: key,
        record: None,
    };
    let build = Build {
        intent: &intent,
        spec,
        settings: &Settings::new("c1"),
        owner: &owner,
        pool: &Ok(Id::from("p")),
        have,
    };
    build.target()
}

fn codes(reasons: &[Reason]) -> Vec<Code> {
    reasons.iter().map(|it| it.code).collect()
}

/// The NLB with what is wanted.
fn made(wanted: &Wanted) -> LoadBalancer {
    let service = |want: &WantedService| LoadBalancerService {
        id: Id::from(want.name.as_str()),
        name: want.name.clone(),
        protocol: want.protocol.clone(),
        port: want.port,
        target_port: want.target_port,
        strategy: want.strategy.clone(),
        instance_pool: Some(Reference {
            id: want.pool.clone(),
        }),
        healthcheck: want.healthcheck.body(),
        ..LoadBalancerService::default()
    };
    LoadBalancer {
        name: wanted.name.clone(),
        services: wanted.services.iter().map(service).collect(),
        ..LoadBalancer::default()
    }
}

#[test]
fn an_option_that_is_refused_keeps_its_value_and_all_else_follows() {
    let first = ExoscaleOptions {
        strategy: some("source-hash"),
        healthcheck_interval: some("20s"),
        ..ExoscaleOptions::default()
    };
    let have = made(&target(&tcp([80]), first, None).wanted);
    let bad = ExoscaleOptions {
        strategy: some("least-conn"),
        healthcheck_interval: some("20"),
        name: some(""),
        ..ExoscaleOptions::default()
    };
    let mut spec = tcp([80, 443]);
    for listener in &mut spec.listeners {
        listener.pool.members[0].address.set_port(31_000);
    }
    let target = target(&spec, bad, Some(&have));
    assert_eq!(codes(&target.refusals), [Code::InvalidAnnotation; 3]);
    assert_eq!(target.wanted.name, "k8s-u1");
    let services = &target.wanted.services;
    assert_eq!(services.len(), 2);
    for service in services {
        assert_eq!(service.strategy, Strategy::SourceHash);
        assert_eq!(service.target_port, 31_000);
        assert_eq!(service.healthcheck.port, 31_000);
        assert_eq!(service.healthcheck.interval, 20);
    }
}

#[test]
fn what_was_never_accepted_is_not_made_up() {
    let bad = ExoscaleOptions {
        healthcheck_timeout: some("20s"),
        ..ExoscaleOptions::default()
    };
    let target = target(&tcp([80]), bad, None);
    assert_eq!(codes(&target.refusals), [Code::ConflictingOptions]);
    assert_eq!(target.wanted.services, []);
}

#[test]
fn a_load_balancer_has_room_for_ten_and_what_is_there_stays() {
    let none = ExoscaleOptions::default;
    let eleven = target(&tcp(1..=11), none(), None);
    assert_eq!(codes(&eleven.refusals), [Code::LimitReached]);
    let have = made(&target(&tcp([11]), none(), None).wanted);
    let target = target(&tcp(1..=11), none(), Some(&have));
    let ports: Vec<u16> = target.wanted.services.iter().map(|it| it.port).collect();
    assert_eq!(ports, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
}

#[test]
fn health_checks_ask_nodes_of_local_services_whether_they_have_an_endpoint() {
    let mut spec = tcp([80]);
    spec.health_check_port = Some(number(30_123));
    let check = |options| {
        let mut target = target(&spec, options, None);
        assert_eq!(target.refusals, []);
        target.wanted.services.remove(0).healthcheck
    };
    let local = check(ExoscaleOptions::default());
    assert_eq!(
        (local.mode, local.port, local.uri.as_deref()),
        (HealthcheckMode::Http, 30_123, Some("/healthz"))
    );
    let given = check(ExoscaleOptions {
        healthcheck_mode: some("tcp"),
        healthcheck_port: some("31000"),
        ..ExoscaleOptions::default()
    });
    assert_eq!(
        (given.mode, given.port, given.uri),
        (HealthcheckMode::Tcp, 31_000, None)
    );
}

#[test]
fn a_udp_port_whose_checks_can_not_succeed_is_remarked_upon() {
    let (tcp, udp) = (landfall_model::Protocol::Tcp, landfall_model::Protocol::Udp);
    let none = ExoscaleOptions::default;
    let alone = target(&spec(vec![listener(udp, 53)]), none(), None);
    assert_eq!(codes(&alone.remarks), [Code::NoHealthyMembers]);
    assert_eq!(alone.wanted.services[0].name, "u1-53-udp");
    let both = spec(vec![listener(tcp, 53), listener(udp, 53)]);
    assert_eq!(target(&both, none(), None).remarks, []);
    let checked = ExoscaleOptions {
        healthcheck_port: some("31000"),
        ..none()
    };
    let checked = target(&spec(vec![listener(udp, 53)]), checked, None);
    assert_eq!(checked.remarks, []);
}
