//! What a provider's configuration says beneath annotations, and what only a cloud can do.

use landfall_model::dialect::{CloudOptions, DIALECTS, Effect, Given, MonitorChoice};
use landfall_model::listener::{Algorithm, Check, Monitor};
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
fn configured() -> Capabilities {
    Capabilities {
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

fn judged(service: ServiceBuilder, capabilities: &Capabilities) -> Result<Intent, Vec<Reason>> {
    resolve(&service.node_port(30080).row(), &one_node(), capabilities)
}

fn listener_and_remarks(
    service: ServiceBuilder,
    capabilities: &Capabilities,
) -> (Listener, Vec<Reason>) {
    let intent = judged(service, capabilities).unwrap();
    let mut wish = intent.load_balancer.unwrap();
    (wish.listeners.remove(0), intent.remarks)
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
fn what_the_configuration_says_and_nobody_needs_is_not_called_unused() {
    let service = web().annotated("loadbalancer.openstack.org/enable-health-monitor", "false");
    let (listener, remarks) = listener_and_remarks(service, &configured());
    assert_eq!(listener.pool.monitor, None);
    assert_eq!(remarks, []);
}

#[test]
fn a_timeout_of_the_configuration_is_cut_to_fit_a_delay_that_a_service_asks_for() {
    let delay = "loadbalancer.openstack.org/health-monitor-delay";
    let (listener, remarks) = listener_and_remarks(web().annotated(delay, "2"), &configured());
    assert_eq!(remarks, []);
    let monitor = listener.pool.monitor.unwrap();
    assert_eq!(monitor.delay, Duration::from_secs(2));
    assert_eq!(monitor.timeout, Duration::from_secs(2));
}

#[test]
fn a_warning_about_the_configuration_names_its_place_there() {
    let capabilities = Capabilities {
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
    let (_, remarks) = listener_and_remarks(service, &capabilities);
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
fn a_node_selector_that_is_none_is_a_warning_and_selects_nobody_away() {
    let service = || web().annotated(SELECTOR, "=edge");
    let about_it = |reasons: &[Reason]| -> Vec<(Code, Severity)> {
        let about_it = reasons
            .iter()
            .filter(|reason| reason.field == Some(annotation_field(SELECTOR)));
        about_it
            .map(|reason| (reason.code, reason.severity))
            .collect()
    };
    let here = judged(service(), &one_machine()).unwrap();
    assert_eq!(
        about_it(&here.remarks),
        [(Code::OptionNotApplicable, Severity::Warning)]
    );
    let there = judged(service(), &in_cloud()).unwrap();
    assert_eq!(
        about_it(&there.remarks),
        [(Code::InvalidAnnotation, Severity::Warning)]
    );
    let nodes = |intent: Intent| intent.load_balancer.map(|wish| wish.nodes.len());
    let plain = judged(web(), &in_cloud()).unwrap();
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
    let there = judged(service(), &in_cloud()).unwrap();
    assert_eq!(there.cloud, CloudOptions::default());
    assert_eq!(codes(there), [(Code::InvalidAnnotation, Severity::Warning)]);
    let here = judged(service(), &one_machine()).unwrap();
    assert_eq!(
        codes(here),
        [(Code::OptionNotApplicable, Severity::Warning)]
    );
}

#[test]
fn every_cloud_option_means_something_in_the_cloud() {
    for dialect in DIALECTS {
        for row in dialect.rows {
            if !matches!(row.effect, Effect::Cloud { .. }) {
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
            let told = here.remarks.iter();
            let told = told.filter(|remark| remark.code == Code::OptionNotApplicable);
            assert_eq!(told.count(), 1, "{key}");
        }
    }
}

fn marked(service: ServiceBuilder) -> ServiceBuilder {
    service.annotated(KEEP, "true").with(|row| {
        row.status.marks.insert(RECORD.to_owned(), "v1".to_owned());
    })
}

#[test]
fn a_wish_carries_the_options_of_the_cloud_and_our_marks() {
    let intent = judged(marked(web()), &in_cloud()).unwrap();
    assert!(intent.cloud.keep_floating_ip.unwrap().value);
    assert_eq!(intent.marks[RECORD], "v1");
}

#[test]
fn a_removal_carries_the_options_of_the_cloud_and_our_marks() {
    let removals = [
        marked(web()).with(|row| row.deleting = true),
        marked(web()).with(|row| row.wants_load_balancer = false),
    ];
    for service in removals {
        let intent = judged(service, &in_cloud()).unwrap();
        assert_eq!(intent.load_balancer, None);
        assert!(intent.cloud.keep_floating_ip.unwrap().value);
        assert_eq!(intent.marks[RECORD], "v1");
    }
}
