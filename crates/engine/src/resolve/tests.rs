use std::time::Duration;

use landfall_model::dialect::{DialectId, Vocabulary};
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::reason::annotation_field;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::{Code, Intent, Listener, LoadBalancerSpec, Protocol, Reason, Severity};
use landfall_testkit::build::{ServiceBuilder, SliceBuilder, number};
use landfall_testkit::svc;

use super::*;

mod address;
mod cloud;
mod limits;
mod listeners;
mod members;
mod nodes;
mod options;
mod properties;
mod protection;
mod reach;
mod tls;

fn world(facts: impl IntoIterator<Item = Fact>) -> World {
    let mut world = World::default();
    for fact in facts {
        world.apply(fact);
    }
    world
}

fn slices(slices: impl IntoIterator<Item = SliceBuilder>) -> World {
    world(slices.into_iter().map(|slice| Fact::Slice(slice.row())))
}

/// What a provider on one machine can do.
fn one_machine() -> ProviderProfile {
    ProviderProfile {
        provider: "local",
        support: |option| match option {
            OptionId::ProtocolSctp => Support::Refused {
                why: "it carries TCP and UDP only",
            },
            OptionId::TargetType => Support::Refused {
                why: "members are endpoints",
            },
            _ => Support::Supported,
        },
        ..ProviderProfile::default()
    }
}

/// What a provider in a cloud can do, whose members are nodes.
fn in_cloud() -> ProviderProfile {
    ProviderProfile {
        provider: "openstack",
        target: Target::Node,
        vocabulary: Vocabulary {
            dialects: &[
                DialectId::Landfall,
                DialectId::OpenStack,
                DialectId::Kubernetes,
            ],
            ignores_others: "addresses come from the networks of the cloud",
            extension: Some(DialectId::OpenStack),
        },
        completes_families: true,
        validates_numbers: true,
        udp_timeouts: true,
        keeps_unset: true,
        support: |option| match option {
            OptionId::MonitorGrpcService => Support::Refused {
                why: "it has no gRPC monitors",
            },
            _ => Support::Supported,
        },
        ..ProviderProfile::default()
    }
}

fn resolve_in(world: &World, service: ServiceBuilder) -> Result<Intent, Vec<Reason>> {
    resolve(&service.row(), world, &one_machine())
}

fn spec_in(world: &World, service: ServiceBuilder) -> (LoadBalancerSpec, Vec<Reason>) {
    let intent = resolve_in(world, service).unwrap();
    (intent.load_balancer.unwrap(), intent.remarks)
}

/// The spec of a Service without endpoints, and the remarks beside that there are none.
fn spec(service: ServiceBuilder) -> (LoadBalancerSpec, Vec<Reason>) {
    let (spec, mut remarks) = spec_in(&World::default(), service);
    remarks.retain(|remark| remark.code != Code::NoEndpoints);
    (spec, remarks)
}

/// The only listener of a Service about which there is nothing to remark.
fn listener(service: ServiceBuilder) -> Listener {
    let (mut spec, remarks) = spec(service);
    assert_eq!(remarks, []);
    assert_eq!(spec.listeners.len(), 1);
    spec.listeners.remove(0)
}

fn errors(service: ServiceBuilder) -> Vec<Reason> {
    errors_in(&World::default(), service)
}

fn errors_in(world: &World, service: ServiceBuilder) -> Vec<Reason> {
    let mut reasons = resolve_in(world, service).unwrap_err();
    reasons.retain(|reason| reason.severity == Severity::Error);
    reasons
}

/// The only error of a Service.
fn error(service: ServiceBuilder) -> Reason {
    let mut errors = errors(service);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

fn web() -> ServiceBuilder {
    svc("web").port(80)
}

#[test]
fn a_service_that_is_deleted_or_of_another_type_wants_nothing() {
    let removal = |service: &ServiceRow| {
        let intent = resolve(service, &World::default(), &ProviderProfile::default()).unwrap();
        assert_eq!(
            intent,
            Intent::removal(service.key.clone(), service.uid.clone())
        );
    };
    let broken = || svc("web").annotated("landfall.dev/mode", "?");
    removal(&broken().with(|row| row.deleting = true).row());
    removal(&broken().with(|row| row.wants_load_balancer = false).row());
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_with_its_place() {
    let service = svc("web")
        .any_port("a", Protocol::Sctp, 80)
        .named_port("b", 81)
        .named_port("b", 81)
        .annotated("landfall.dev/drain", "30")
        .annotated("landfall.dev/mode.b", "https")
        .source_range("10.0.0.0")
        .load_balancer_ip("nowhere")
        .from_file(
            "web.yaml",
            &[
                ("metadata.annotations[landfall.dev/drain]", 7),
                ("spec.ports", 20),
                ("spec.ports[0].protocol", 23),
            ],
        );
    let errors = errors(service);
    let reported: Vec<(Code, &str, u32)> = errors
        .iter()
        .map(|error| {
            let line = error.origin.as_ref().unwrap().line;
            (error.code, error.field.as_deref().unwrap(), line)
        })
        .collect();
    assert_eq!(
        reported,
        [
            (
                Code::InvalidAnnotation,
                "metadata.annotations[landfall.dev/drain]",
                7
            ),
            (Code::ProtocolNotSupported, "spec.ports[0].protocol", 23),
            (Code::InvalidField, "spec.ports[2].port", 20),
            (Code::InvalidField, "spec.ports[2].name", 20),
            (Code::InvalidAddress, "spec.loadBalancerIP", 1),
            (
                Code::InvalidSourceRange,
                "spec.loadBalancerSourceRanges[0]",
                1
            ),
            (
                Code::ConflictingOptions,
                "metadata.annotations[landfall.dev/mode.b]",
                1
            ),
        ]
    );
    assert!(
        errors
            .iter()
            .all(|error| error.value.is_some() && !error.remedy.is_empty())
    );
    let file = |error: &Reason| error.origin.as_ref().map(|origin| origin.file.to_string());
    assert!(
        errors
            .iter()
            .all(|error| file(error).as_deref() == Some("web.yaml"))
    );
}

#[test]
fn warnings_go_with_errors_but_behind_them() {
    let service = web()
        .annotated("loadbalancer.openstack.org/flavor-id", "big")
        .annotated("landfall.dev/drain", "soon");
    let reasons = resolve_in(&World::default(), service).unwrap_err();
    let severities: Vec<Severity> = reasons.iter().map(|reason| reason.severity).collect();
    assert_eq!(
        severities,
        [Severity::Error, Severity::Warning, Severity::Warning]
    );
}

#[test]
fn a_service_without_ports_or_without_a_cluster_address_is_refused() {
    assert_eq!(error(svc("web")).field.as_deref(), Some("spec.ports"));
    let headless = error(web().with(|row| row.headless = true));
    assert_eq!(headless.field.as_deref(), Some("spec.clusterIP"));
}

#[test]
fn several_ports_need_names() {
    let unnamed = error(svc("web").port(80).named_port("b", 81));
    assert_eq!(unnamed.field.as_deref(), Some("spec.ports[0].name"));
}

#[test]
fn tcp_and_udp_may_use_the_same_number() {
    let service = svc("dns").named_port("tcp", 53).udp_port("udp", 53);
    let (spec, remarks) = spec(service);
    assert_eq!(remarks, []);
    let keys: Vec<String> = spec
        .listeners
        .iter()
        .map(|listener| listener.key.to_string())
        .collect();
    assert_eq!(keys, ["53/TCP", "53/UDP"]);
}

#[test]
fn sctp_is_refused_with_a_way_out() {
    let reason = error(svc("sig").any_port("", Protocol::Sctp, 2905));
    assert_eq!(
        reason,
        Reason::error(Code::ProtocolNotSupported, "SCTP is not supported")
            .at("spec.ports[0].protocol")
            .value("SCTP")
            .remedy("use TCP or UDP, or move the port to a Service of its own type NodePort")
    );
}

#[test]
fn a_provider_that_carries_sctp_gets_its_ports() {
    let service = svc("sig").any_port("", Protocol::Sctp, 2905);
    let carries = ProviderProfile::default();
    let intent = resolve(&service.row(), &World::default(), &carries).unwrap();
    let spec = intent.load_balancer.unwrap();
    assert_eq!(spec.listeners.len(), 1);
    assert_eq!(spec.listeners[0].key.to_string(), "2905/SCTP");
    assert_eq!(spec.order, [spec.listeners[0].key]);
}

#[test]
fn the_order_of_the_ports_is_that_of_the_spec_while_listeners_are_sorted() {
    let service = svc("web")
        .named_port("b", 443)
        .udp_port("c", 53)
        .named_port("a", 80);
    let (spec, _) = spec(service);
    let text = |keys: Vec<ListenerKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(spec.order.clone()), ["443/TCP", "53/UDP", "80/TCP"]);
    let mut sorted = spec.order;
    sorted.sort();
    let keys = spec.listeners.iter().map(|listener| listener.key).collect();
    assert_eq!(text(keys), text(sorted));
}

#[test]
fn what_the_provider_refuses_is_an_error_and_what_it_emulates_a_remark() {
    let profile = ProviderProfile {
        provider: "slim",
        target: Target::Pod,
        support: |option| match option {
            OptionId::ProxyProtocol => Support::Refused { why: "it has none" },
            OptionId::Drain => Support::Emulated { how: "by weight 0" },
            OptionId::SourceRanges => Support::Refused {
                why: "it can't filter",
            },
            OptionId::SessionAffinity => Support::Refused { why: "it forgets" },
            _ => Support::Supported,
        },
        ..ProviderProfile::default()
    };
    let validated = |service: ServiceBuilder| resolve(&service.row(), &World::default(), &profile);
    let refused = validated(web().annotated("loadbalancer.openstack.org/proxy-protocol", "v1"));
    assert_eq!(
        refused.unwrap_err()[0],
        Reason::error(
            Code::OptionNotSupported,
            "the provider slim does not support this: it has none"
        )
        .at_annotation("loadbalancer.openstack.org/proxy-protocol")
        .value("v1")
        .remedy("remove it, or use a load balancer class whose provider supports it")
    );
    assert!(validated(web().annotated("landfall.dev/proxy-protocol", "off")).is_ok());

    let emulated = validated(web().annotated("landfall.dev/drain", "1s")).unwrap();
    let reported = emulated
        .remarks
        .iter()
        .find(|remark| remark.code == Code::OptionNotSupported);
    assert_eq!(
        reported,
        Some(
            &Reason::info(
                Code::OptionNotSupported,
                "the provider slim implements this differently: by weight 0"
            )
            .at_annotation("landfall.dev/drain")
            .value("1s")
        )
    );

    let fields = validated(
        web()
            .source_range("10.0.0.0/8")
            .affinity(Duration::from_secs(1)),
    );
    let fields: Vec<_> = fields
        .unwrap_err()
        .into_iter()
        .filter(|reason| reason.severity == Severity::Error)
        .map(|reason| reason.field.unwrap())
        .collect();
    assert_eq!(
        fields,
        ["spec.loadBalancerSourceRanges", "spec.sessionAffinity"]
    );
}
