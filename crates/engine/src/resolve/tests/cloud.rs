//! What a provider's configuration says beneath annotations, and what only a cloud can do.

use landfall_model::dialect::{DIALECTS, Effect, Extensions, Given, MonitorChoice};
use landfall_model::listener::{Algorithm, Check, ExplicitFields, Monitor};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::RECORD;
use landfall_testkit::build::node;

use super::*;

const KEEP: &str = "loadbalancer.openstack.org/keep-floatingip";
const SELECTOR: &str = "loadbalancer.openstack.org/node-selector";

fn given<T>(value: T, place: &str) -> Given<T> {
    Given {
        value,
        annotation: format!("[LoadBalancer] {place}"),
    }
}

/// A cloud whose configuration has an opinion.
fn configured() -> ProviderProfile {
    ProviderProfile {
        defaults: PortOptions {
            algorithm: Some(given(Algorithm::SourceIp, "lb-method")),
            monitor: Some(given(MonitorChoice::On, "create-monitor")),
            monitor_delay: Some(given(Duration::from_secs(9), "monitor-delay")),
            monitor_timeout: Some(given(Duration::from_secs(8), "monitor-timeout")),
            ..PortOptions::default()
        },
        ..in_cloud()
    }
}

fn one_node() -> World {
    world([Fact::Node(node("a", "10.1.0.1").row())])
}

fn validated(service: ServiceBuilder, profile: &ProviderProfile) -> Result<Intent, Vec<Reason>> {
    resolve(&service.node_port(30080).row(), &one_node(), profile)
}

fn listener_and_remarks(
    service: ServiceBuilder,
    profile: &ProviderProfile,
) -> (Listener, Vec<Reason>) {
    let intent = validated(service, profile).unwrap();
    let mut spec = intent.load_balancer.unwrap();
    (spec.listeners.remove(0), intent.remarks)
}

#[test]
fn what_the_configuration_says_holds_where_a_service_says_nothing() {
    let (listener, remarks) = listener_and_remarks(web(), &configured());
    assert_eq!(remarks, []);
    assert_eq!(listener.pool.algorithm, Algorithm::SourceIp);
    assert_eq!(
        listener.pool.monitor,
        Some(Monitor {
            delay: Duration::from_secs(9),
            timeout: Duration::from_secs(8),
            ..Monitor::new(Check::Tcp)
        })
    );
}

#[test]
fn annotations_beat_the_configuration() {
    let service = web()
        .annotated("loadbalancer.openstack.org/lb-method", "LEAST_CONNECTIONS")
        .annotated("landfall.dev/monitor-delay", "20s");
    let (listener, remarks) = listener_and_remarks(service, &configured());
    assert_eq!(remarks, []);
    assert_eq!(listener.pool.algorithm, Algorithm::LeastConnections);
    let monitor = listener.pool.monitor.unwrap();
    assert_eq!(monitor.delay, Duration::from_secs(20));
    assert_eq!(monitor.timeout, Duration::from_secs(8));
}

#[test]
fn a_default_of_the_configuration_that_no_service_needs_is_not_called_unused() {
    let service = web().annotated("loadbalancer.openstack.org/enable-health-monitor", "false");
    let (listener, remarks) = listener_and_remarks(service, &configured());
    assert_eq!(listener.pool.monitor, None);
    assert_eq!(remarks, []);
}

#[test]
fn a_configured_timeout_is_cut_to_fit_the_delay_of_a_service_except_in_the_cloud() {
    let delay = "loadbalancer.openstack.org/health-monitor-delay";
    let times = |profile: &ProviderProfile| {
        let (listener, remarks) = listener_and_remarks(web().annotated(delay, "2"), profile);
        assert!(remarks.iter().all(|it| it.code == Code::NoEndpoints));
        let monitor = listener.pool.monitor.unwrap();
        (monitor.delay.as_secs(), monitor.timeout.as_secs())
    };
    assert_eq!(times(&configured()), (2, 8));
    let here = ProviderProfile {
        defaults: configured().defaults,
        ..one_machine()
    };
    assert_eq!(times(&here), (2, 2));
}

#[test]
fn what_octavia_takes_is_passed_on_in_the_cloud_and_refused_elsewhere() {
    let key = |name: &str| format!("loadbalancer.openstack.org/{name}");
    let cases = [
        ("connection-limit", "0"),
        ("timeout-client-data", "86400001"),
        ("health-monitor-delay", "7200"),
        ("health-monitor-timeout", "0"),
        ("health-monitor-timeout", "9"),
    ];
    for (name, value) in cases {
        let service = || {
            web()
                .annotated(&key("enable-health-monitor"), "true")
                .annotated(&key(name), value)
        };
        let (listener, remarks) = listener_and_remarks(service(), &in_cloud());
        assert_eq!(remarks, [], "{name}");
        let monitor = listener.pool.monitor.unwrap();
        let reported = match name {
            "connection-limit" => u64::from(listener.connection_limit.unwrap()),
            "timeout-client-data" => {
                u64::try_from(listener.timeouts.client_data.as_millis()).unwrap()
            }
            "health-monitor-delay" => monitor.delay.as_secs(),
            _ => monitor.timeout.as_secs(),
        };
        assert_eq!(reported.to_string(), value, "{name}");
        let errors = errors(service());
        assert_eq!(errors.len(), 1, "{name}: {errors:?}");
        assert_eq!(errors[0].field, Some(annotation_field(&key(name))));
        assert!(!errors[0].remedy.is_empty());
    }
}

#[test]
fn a_time_out_of_nothing_is_sent_as_it_is_and_means_a_day_elsewhere() {
    let key = "loadbalancer.openstack.org/timeout-member-connect";
    let service = || web().annotated(key, "0");
    let (there, _) = listener_and_remarks(service(), &in_cloud());
    assert_eq!(there.timeouts.member_connect, Duration::ZERO);
    let here = listener(service());
    assert_eq!(here.timeouts.member_connect, Duration::from_hours(24));
}

#[test]
fn time_outs_of_the_service_hold_on_every_port_in_the_cloud() {
    let key = |name: &str| format!("loadbalancer.openstack.org/{name}");
    let service = svc("dns")
        .udp_port("udp", 53)
        .named_port("tcp", 53)
        .annotated(&key("timeout-member-connect"), "700")
        .annotated(&key("timeout-tcp-inspect"), "70");
    let intent = validated(service, &in_cloud()).unwrap();
    for listener in intent.load_balancer.unwrap().listeners {
        let timeouts = listener.timeouts;
        assert_eq!(timeouts.member_connect, Duration::from_millis(700));
        assert_eq!(timeouts.tcp_inspect, Duration::from_millis(70));
    }
    let own = svc("dns")
        .udp_port("udp", 53)
        .annotated("landfall.dev/timeout-tcp-inspect.udp", "1s");
    assert!(validated(own, &in_cloud()).is_err());
}

#[test]
fn a_number_for_a_monitor_that_does_not_exist_is_a_warning() {
    let retries = "loadbalancer.openstack.org/health-monitor-max-retries";
    let service = || web().annotated(retries, "20");
    let (listener, remarks) = listener_and_remarks(service(), &in_cloud());
    assert_eq!(listener.pool.monitor, None);
    let [remark] = &remarks[..] else {
        panic!("{remarks:?}")
    };
    assert_eq!(remark.severity, Severity::Warning);
    assert_eq!(remark.field, Some(annotation_field(retries)));
    let errors = validated(service(), &configured()).unwrap_err();
    assert_eq!(errors[0].severity, Severity::Error);
}

#[test]
fn annotations_of_metallb_that_were_left_behind_refuse_nothing_in_the_cloud() {
    let service = || {
        web()
            .load_balancer_ip("192.0.2.7")
            .annotated("metallb.io/address-pool", "public")
            .annotated("metallb.io/loadBalancerIPs", "198.51.100.1")
            .annotated("metallb.universe.tf/allow-shared-ip", "office")
            .annotated("metallb.io/ip-allocated-from-pool", "public")
    };
    let refuses = ProviderProfile {
        support: |option| match option {
            OptionId::AddressPool => Support::Refused { why: "it has none" },
            _ => Support::Supported,
        },
        ..in_cloud()
    };
    let intent = validated(service(), &refuses).unwrap();
    let reported: Vec<_> = intent
        .remarks
        .iter()
        .map(|it| (it.code, it.severity))
        .collect();
    assert_eq!(
        reported,
        [(Code::OptionNotApplicable, Severity::Warning); 3]
    );
    let address = intent.load_balancer.unwrap().address;
    assert_eq!(
        address.requested,
        ["192.0.2.7".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!((address.pool, address.sharing_key), (None, None));
    let portable = web().annotated("landfall.dev/address-pool", "public");
    assert!(validated(portable, &refuses).is_err());
}

#[test]
fn one_address_is_enough_to_ask_for_where_the_cloud_has_one_of_the_other_family() {
    let service = || {
        web()
            .families(&[Family::V4, Family::V6], FamilyPolicy::RequireDualStack)
            .load_balancer_ip("192.0.2.7")
    };
    assert!(validated(service(), &in_cloud()).is_ok());
    assert_eq!(
        validated(service(), &one_machine()).unwrap_err()[0].code,
        Code::AddressFamilyMismatch
    );
}

#[test]
fn explicit_values_are_distinguished_from_defaults() {
    let said = |service: ServiceBuilder| listener_and_remarks(service, &in_cloud()).0.said;
    assert_eq!(said(web()), ExplicitFields::default());
    let forwarded = "loadbalancer.openstack.org/x-forwarded-for";
    let by_reference = said(web().annotated(forwarded, "true"));
    assert_eq!((by_reference.mode, by_reference.headers), (true, false));
    let portable = said(
        web()
            .annotated(forwarded, "true")
            .annotated("landfall.dev/mode", "http"),
    );
    assert_eq!((portable.mode, portable.headers), (true, true));
    let members = said(
        web()
            .annotated("landfall.dev/member-weights.80", "a=3")
            .annotated("landfall.dev/backup-members", "a"),
    );
    assert_eq!((members.weights, members.backups), (true, true));
}

#[test]
fn nodes_are_there_though_the_selector_finds_none_of_them() {
    let has_nodes = |service: ServiceBuilder, world: &World| {
        let intent = resolve(&service.row(), world, &in_cloud()).unwrap();
        let spec = intent.load_balancer.unwrap();
        assert!(spec.nodes.is_empty());
        spec.has_nodes
    };
    let service = || web().annotated(SELECTOR, "pool=edge");
    assert!(has_nodes(service(), &one_node()));
    let excluded = node("a", "10.1.0.1")
        .labelled(
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "",
        )
        .row();
    assert!(!has_nodes(service(), &world([Fact::Node(excluded)])));
}

#[test]
fn a_warning_about_the_configuration_names_its_place_there() {
    let profile = ProviderProfile {
        defaults: PortOptions {
            monitor: Some(given(MonitorChoice::Off, "create-monitor")),
            ..PortOptions::default()
        },
        ..in_cloud()
    };
    let service = web()
        .with(|row| {
            row.external_local = true;
            row.health_check_node_port = Some(number(32000));
        })
        .from_file("web.yaml", &[]);
    let (_, remarks) = listener_and_remarks(service, &profile);
    let [warning] = &remarks[..] else {
        panic!("{remarks:?}")
    };
    assert_eq!(
        warning.field.as_deref(),
        Some("[LoadBalancer] create-monitor")
    );
    assert_eq!(warning.origin, None, "it does not stand in the manifest");
}

#[test]
fn an_invalid_node_selector_is_a_warning_and_excludes_no_node() {
    let service = || web().annotated(SELECTOR, "=edge");
    let about_it = |reasons: &[Reason]| -> Vec<(Code, Severity)> {
        let about_it = reasons
            .iter()
            .filter(|reason| reason.field == Some(annotation_field(SELECTOR)));
        about_it
            .map(|reason| (reason.code, reason.severity))
            .collect()
    };
    let here = validated(service(), &one_machine()).unwrap();
    assert_eq!(
        about_it(&here.remarks),
        [(Code::OptionNotApplicable, Severity::Warning)]
    );
    let there = validated(service(), &in_cloud()).unwrap();
    assert_eq!(
        about_it(&there.remarks),
        [(Code::InvalidAnnotation, Severity::Warning)]
    );
    let nodes = |intent: Intent| intent.load_balancer.map(|spec| spec.nodes.len());
    let plain = validated(web(), &in_cloud()).unwrap();
    assert_eq!(nodes(there), nodes(plain));
}

#[test]
fn a_cloud_option_that_falls_back_is_a_warning_only_in_the_cloud() {
    let service = || web().annotated(KEEP, "yes");
    let codes = |intent: Intent| -> Vec<(Code, Severity)> {
        let about_it = |remark: &&Reason| remark.field == Some(annotation_field(KEEP));
        let remarks = intent.remarks.iter().filter(about_it);
        remarks
            .map(|remark| (remark.code, remark.severity))
            .collect()
    };
    let there = validated(service(), &in_cloud()).unwrap();
    assert_eq!(there.extensions, Extensions::default());
    assert_eq!(codes(there), [(Code::InvalidAnnotation, Severity::Warning)]);
    let here = validated(service(), &one_machine()).unwrap();
    assert_eq!(
        codes(here),
        [(Code::OptionNotApplicable, Severity::Warning)]
    );
}

#[test]
fn every_cloud_option_means_something_in_the_cloud() {
    for dialect in DIALECTS {
        for row in dialect.rows {
            if !matches!(row.effect, Effect::Extension { .. }) {
                continue;
            }
            let key = format!("{}{}", dialect.prefix, row.name);
            // The node has every label that an example may ask for.
            let labelled = node("a", "10.1.0.1").labelled("pool", "edge").row();
            let service = web().node_port(30080).annotated(&key, row.example).row();
            let world = world([Fact::Node(labelled)]);
            let intent = resolve(&service, &world, &in_cloud()).unwrap();
            assert_eq!(intent.remarks, [], "{key}");
            let here = resolve(&service, &world, &one_machine()).unwrap();
            let reported = here.remarks.iter();
            let reported = reported.filter(|remark| remark.code == Code::OptionNotApplicable);
            assert_eq!(reported.count(), 1, "{key}");
        }
    }
}

fn marked(service: ServiceBuilder) -> ServiceBuilder {
    service.annotated(KEEP, "true").with(|row| {
        row.status.marks.insert(RECORD.to_owned(), "v1".to_owned());
    })
}

#[test]
fn a_spec_carries_the_options_of_the_cloud_and_our_marks() {
    let intent = validated(marked(web()), &in_cloud()).unwrap();
    assert!(intent.extensions.openstack.keep_floating_ip.unwrap().value);
    assert_eq!(intent.marks[RECORD], "v1");
}

#[test]
fn a_removal_carries_the_options_of_the_cloud_and_our_marks() {
    let removals = [
        marked(web()).with(|row| row.deleting = true),
        marked(web()).with(|row| row.wants_load_balancer = false),
    ];
    for service in removals {
        let intent = validated(service, &in_cloud()).unwrap();
        assert_eq!(intent.load_balancer, None);
        assert!(intent.extensions.openstack.keep_floating_ip.unwrap().value);
        assert_eq!(intent.marks[RECORD], "v1");
    }
}

/// A Service with a pod, in a cloud.
fn with_a_pod(service: ServiceBuilder) -> Intent {
    let slice = landfall_testkit::slice("web").port("", 8080);
    let node = node("a", "10.1.0.1").row();
    let slice = Fact::Slice(slice.ready("10.244.0.1").row());
    let world = world([Fact::Node(node), slice]);
    resolve(&service.row(), &world, &in_cloud()).unwrap()
}

#[test]
fn a_service_in_a_cloud_may_have_pods_as_members() {
    let addresses = |intent: &Intent| -> Vec<String> {
        let spec = intent.load_balancer.as_ref().unwrap();
        let members = spec.listeners[0].pool.members.iter();
        members.map(|it| it.address.to_string()).collect()
    };
    let service = |target: &str| {
        let service = web().node_port(30080).local().with(|row| {
            row.health_check_node_port = Some(number(32000));
        });
        with_a_pod(service.annotated("landfall.dev/target-type", target))
    };
    let pods = service("pod");
    assert_eq!(addresses(&pods), ["10.244.0.1:8080"]);
    assert_eq!(pods.remarks, []);
    let spec = pods.load_balancer.unwrap();
    assert_eq!((spec.target, spec.health_check_port), (Target::Pod, None));
    assert!(spec.has_nodes);
    // Nodes show where the cluster is.
    assert_eq!(spec.nodes.len(), 1);
    assert_eq!(spec.listeners[0].pool.monitor, None);
    let nodes = service("node");
    assert_eq!(addresses(&nodes), ["10.1.0.1:30080"]);
    assert!(nodes.load_balancer.unwrap().health_check_port.is_some());
}

#[test]
fn a_node_selector_beside_pods_has_no_effect_and_is_reported() {
    let service = web().annotated("landfall.dev/target-type", "pod");
    let intent = with_a_pod(service.annotated(SELECTOR, "pool=edge"));
    let [remark] = &intent.remarks[..] else {
        panic!("{:?}", intent.remarks)
    };
    assert_eq!(remark.code, Code::OptionNotApplicable);
    assert_eq!(remark.field, Some(annotation_field(SELECTOR)));
}

#[test]
fn where_members_are_always_pods_only_that_may_be_asked_for() {
    let service = |target: &str| web().annotated("landfall.dev/target-type", target);
    assert!(validated(service("pod"), &one_machine()).is_ok());
    let refused = validated(service("node"), &one_machine()).unwrap_err();
    assert_eq!(refused[0].code, Code::OptionNotSupported);
    let unknown = validated(service("pods"), &in_cloud()).unwrap_err();
    assert_eq!(unknown[0].code, Code::InvalidAnnotation);
}
