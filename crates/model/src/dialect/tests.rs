use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use super::*;
use crate::listener::{Algorithm, Protocol, ProxyProtocol};
use crate::reason::{Code, Reason, annotation_field};
use crate::rows::{ServicePort, TargetPort};

fn port(name: &str, number: u16) -> ServicePort {
    let number = NonZeroU16::new(number).unwrap();
    ServicePort {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        port: number,
        target: TargetPort::Number(number),
        node_port: None,
        app_protocol: None,
    }
}

fn two_ports() -> Vec<ServicePort> {
    vec![port("web", 80), port("web-admin", 8080)]
}

fn reading(pairs: &[(&str, &str)]) -> Reading {
    let annotations: BTreeMap<String, String> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    read(&annotations, &two_ports(), &Vocabulary::default())
}

fn reading_on_openstack(pairs: &[(&str, &str)]) -> Reading {
    reading_where(DialectId::OpenStack, pairs)
}

/// What is read where the extension of this dialect is supported.
fn reading_where(extension: DialectId, pairs: &[(&str, &str)]) -> Reading {
    let annotations = pairs.iter();
    let annotations = annotations.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let vocabulary = Vocabulary {
        extension: Some(extension),
        ..Vocabulary::default()
    };
    read(&annotations.collect(), &two_ports(), &vocabulary)
}

fn only_reason(pairs: &[(&str, &str)]) -> Reason {
    let mut reasons = reading(pairs).reasons;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

fn every_row() -> impl Iterator<Item = (&'static Dialect, &'static OptionRow, String)> {
    DIALECTS.iter().flat_map(|dialect| {
        dialect
            .rows
            .iter()
            .map(|row| (*dialect, row, format!("{}{}", dialect.prefix, row.name)))
    })
}

#[test]
fn every_option_takes_its_own_example() {
    for (dialect, row, key) in every_row() {
        let reading = reading(&[(&key, row.example)]);
        match row.effect {
            Effect::Service { option, .. } | Effect::Port { option, .. } => {
                let complaints: Vec<&Reason> = reading
                    .reasons
                    .iter()
                    .filter(|reason| reason.code != Code::DeprecatedAnnotation)
                    .collect();
                assert_eq!(complaints, Vec::<&Reason>::new(), "{key}");
                assert_eq!(reading.given.len(), 1, "{key}");
                assert_eq!(reading.given[0].option, option, "{key}");
                assert_ne!(reading.options, ServiceOptions::default(), "{key}");
            }
            Effect::Extension { severity, .. } | Effect::NotApplicable { severity, .. } => {
                let of = match row.effect {
                    Effect::Extension { of, .. } => of,
                    _ => dialect.id,
                };
                let there = reading_where(of, &[(&key, row.example)]);
                assert_eq!(there.extension_reasons, [], "{key}");
                let mut reasons = [reading.reasons, reading.extension_reasons].concat();
                assert_eq!(reasons.len(), 1, "{key}");
                let reason = reasons.remove(0);
                assert_eq!(reason.code, Code::OptionNotApplicable, "{key}");
                assert_eq!(reason.severity, severity, "{key}");
                assert_eq!(reason.field, Some(annotation_field(&key)));
                assert_eq!(reason.value.as_deref(), Some(row.example));
                assert!(reading.given.is_empty());
            }
        }
        assert!(
            dialect
                .rows
                .iter()
                .filter(|other| other.name == row.name)
                .count()
                == 1,
            "{key}"
        );
    }
}

#[test]
fn every_option_answers_garbage_with_field_value_and_remedy() {
    let garbage = "\u{1f980} =,;";
    for (dialect, row, key) in every_row() {
        let free_text = matches!(
            row.takes,
            "any text" | "the name of an address pool" | "a text of at most 256 bytes"
        );
        let empty = if free_text { " " } else { garbage };
        // An option that only OpenStack has is validated there, and has no effect elsewhere.
        let there = reading_on_openstack(&[(&key, empty)]);
        let reading = reading(&[(&key, empty)]);
        if free_text && dialect.empty_is_absent {
            continue;
        }
        let reason = reading
            .reasons
            .iter()
            .chain(&reading.monitor_reasons)
            .chain(&there.extension_reasons)
            .chain(&reading.extension_reasons)
            .find(|reason| reason.code != Code::DeprecatedAnnotation);
        let Some(reason) = reason else {
            panic!("{key} takes {empty:?} without a word");
        };
        assert_eq!(reason.field, Some(annotation_field(&key)), "{key}");
        assert_eq!(reason.value.as_deref(), Some(empty), "{key}");
        assert!(!reason.remedy.is_empty(), "{key}: {reason}");
        if dialect.prefix == "landfall.dev/" {
            assert_eq!(reason.severity, Severity::Error, "{key}");
        }
        assert!(reading.given.is_empty(), "{key}");
    }
}

#[test]
fn every_port_option_of_the_portable_dialect_can_be_set_for_one_port() {
    for (dialect, row, key) in every_row().filter(|(dialect, ..)| dialect.per_port) {
        let reading = reading(&[(&format!("{key}.web-admin"), row.example)]);
        if matches!(row.effect, Effect::Port { .. }) {
            assert_eq!(reading.reasons, [], "{key}");
            let name = PortRef::Name("web-admin".to_owned());
            assert_eq!(reading.given[0].port, Some(name.clone()), "{key}");
            assert_eq!(reading.options.common, PortOptions::default(), "{key}");
            assert_eq!(
                reading.options.own(&two_ports()[1]),
                reading.options.per_port[&name],
                "{key}"
            );
            assert_eq!(reading.options.own(&two_ports()[0]), PortOptions::default());
        } else {
            assert_eq!(reading.reasons.len(), 1, "{key}");
            assert_eq!(
                reading.reasons[0].remedy,
                format!("write {}{}", dialect.prefix, row.name)
            );
        }
    }
}

#[test]
fn a_port_goes_by_its_name_before_its_number_before_the_service() {
    let reading = reading(&[
        ("landfall.dev/drain", "1s"),
        ("landfall.dev/drain.80", "2s"),
        ("landfall.dev/drain.web", "3s"),
        ("landfall.dev/drain.8080", "4s"),
    ]);
    assert_eq!(reading.reasons, []);
    let drain = |port: &ServicePort| reading.options.effective(port).drain.unwrap();
    let [web, admin] = [drain(&two_ports()[0]), drain(&two_ports()[1])];
    assert_eq!(
        (web.value.as_secs(), web.annotation.as_str()),
        (3, "landfall.dev/drain.web")
    );
    assert_eq!(
        (admin.value.as_secs(), admin.annotation.as_str()),
        (4, "landfall.dev/drain.8080")
    );
}

#[test]
fn a_port_named_like_another_ones_number_is_found_by_its_name() {
    let ports = vec![port("8080", 80), port("other", 8080)];
    assert_eq!(
        PortRef::find("8080", &ports),
        Some(PortRef::Name("8080".to_owned()))
    );
    assert_eq!(
        PortRef::find("80", &ports),
        Some(PortRef::Number(ports[0].port))
    );
    assert_eq!(PortRef::find("", &ports), None);
    assert_eq!(PortRef::find("0", &ports), None);
    assert_eq!(PortRef::find("", &[port("", 80)]), None);
}

#[test]
fn the_reason_for_an_unknown_port_lists_the_ports_of_the_service() {
    let reason = only_reason(&[("landfall.dev/drain.wbe", "3s")]);
    assert_eq!(
        reason,
        Reason::error(Code::InvalidAnnotation, "the Service has no port \"wbe\"")
            .at_annotation("landfall.dev/drain.wbe")
            .value("3s")
            .remedy("did you mean web? The ports are web, web-admin (numbers work too)")
    );
    let reason = only_reason(&[("landfall.dev/drain.metrics", "3s")]);
    assert_eq!(
        reason.remedy,
        "name one of its ports: web, web-admin (numbers work too)"
    );
}

#[test]
fn an_unknown_portable_option_is_an_error_with_a_suggestion() {
    let reason = only_reason(&[("landfall.dev/source-rangs.web", "10.0.0.0/8")]);
    assert_eq!(
        reason,
        Reason::error(
            Code::UnknownAnnotation,
            "no option is called landfall.dev/source-rangs"
        )
        .at_annotation("landfall.dev/source-rangs.web")
        .value("10.0.0.0/8")
        .remedy("did you mean landfall.dev/source-ranges.web?")
    );
}

#[test]
fn a_word_of_another_dialect_is_translated_in_the_suggestion() {
    assert_eq!(
        only_reason(&[("landfall.dev/lb-method", "SOURCE_IP")]).remedy,
        "did you mean landfall.dev/algorithm?"
    );
    assert_eq!(
        only_reason(&[("landfall.dev/loadBalancerIPs", "192.0.2.1")]).remedy,
        "did you mean landfall.dev/addresses?"
    );
}

#[test]
fn an_unknown_option_of_another_dialect_is_a_warning() {
    let reason = only_reason(&[("loadbalancer.openstack.org/lb-methud", "SOURCE_IP")]);
    assert_eq!(reason.severity, Severity::Warning);
    assert_eq!(
        reason.remedy,
        "did you mean loadbalancer.openstack.org/lb-method?"
    );
}

#[test]
fn annotations_of_unknown_dialects_are_ignored() {
    let reading = reading(&[
        ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ("service.beta.kubernetes.io/aws-load-balancer-type", "nlb"),
        ("landfall.example/mode", "?"),
        ("zzz", ""),
    ]);
    assert_eq!(reading, Reading::default());
}

#[test]
fn the_portable_dialect_wins_and_a_difference_is_reported() {
    let differing = reading(&[
        ("landfall.dev/algorithm", "SOURCE_IP"),
        ("loadbalancer.openstack.org/lb-method", "LEAST_CONNECTIONS"),
    ]);
    let algorithm = differing.options.common.algorithm.unwrap();
    assert_eq!(algorithm.value, Algorithm::SourceIp);
    assert_eq!(
        differing.reasons,
        [Reason::warning(
            Code::ConflictingOptions,
            "landfall.dev/algorithm has another value and takes precedence"
        )
        .at_annotation("loadbalancer.openstack.org/lb-method")
        .value("LEAST_CONNECTIONS")
        .remedy("remove one of the two, or give both the same value")]
    );
    let agreeing = reading(&[
        ("landfall.dev/timeout-client-data", "5m"),
        ("loadbalancer.openstack.org/timeout-client-data", "300000"),
    ]);
    assert_eq!(agreeing.reasons, []);
}

#[test]
fn what_the_reference_ignored_without_a_word_is_a_warning_that_names_the_fallback() {
    let cases = [
        ("timeout-client-data", "5min", "50000"),
        ("proxy-protocol", "yes", "off"),
        ("enable-health-monitor", "True", "the default"),
        ("connection-limit", "many", "-1"),
        ("health-monitor-delay", "5s", "the default"),
        ("health-monitor-max-retries", "x", "the default"),
        ("x-forwarded-for", "1", "false"),
        ("lb-method", "FASTEST", "the default"),
    ];
    for (name, value, fallback) in cases {
        let key = format!("loadbalancer.openstack.org/{name}");
        let reading = reading(&[(&key, value)]);
        assert_eq!(reading.options, ServiceOptions::default(), "{name}");
        let [reason] = &reading.reasons[..] else {
            panic!("{name}: {:?}", reading.reasons)
        };
        assert_eq!(reason.severity, Severity::Warning, "{name}");
        assert_eq!(reason.value.as_deref(), Some(value));
        assert!(
            reason
                .message
                .ends_with(&format!("so {fallback} is used instead")),
            "{reason}"
        );
    }
}

#[test]
fn what_octavia_would_refuse_is_an_error() {
    for (name, value) in [
        ("connection-limit", "-5"),
        ("timeout-member-data", "-1"),
        ("timeout-member-data", "2073600001"),
        ("health-monitor-delay", "0"),
        ("health-monitor-timeout", "-1"),
        ("health-monitor-max-retries", "11"),
        ("hostname", "Not A Name"),
    ] {
        let reading = reading(&[(&format!("loadbalancer.openstack.org/{name}"), value)]);
        let reasons = if name.starts_with("health-monitor") {
            reading.monitor_reasons
        } else {
            reading.reasons
        };
        assert_eq!(reasons.len(), 1, "{name}: {value}");
        assert_eq!(reasons[0].severity, Severity::Error, "{name}: {value}");
    }
}

#[test]
fn what_octavia_takes_is_taken() {
    let reading = reading(&[
        ("loadbalancer.openstack.org/connection-limit", "0"),
        (
            "loadbalancer.openstack.org/timeout-client-data",
            "2073600000",
        ),
        ("loadbalancer.openstack.org/timeout-member-data", "0"),
        ("loadbalancer.openstack.org/health-monitor-delay", "7200"),
        ("loadbalancer.openstack.org/health-monitor-timeout", "0"),
    ]);
    assert_eq!((reading.reasons, reading.monitor_reasons), (vec![], vec![]));
    let common = reading.options.common;
    assert_eq!(common.connection_limit.unwrap().value, Some(0));
    let seconds = |given: Option<Given<Duration>>| given.unwrap().value.as_secs();
    assert_eq!(seconds(common.timeout_client_data), 2_073_600);
    assert_eq!(seconds(common.timeout_member_data), 0);
    assert_eq!(seconds(common.monitor_delay), 7200);
    assert_eq!(seconds(common.monitor_timeout), 0);
}

#[test]
fn openstack_values_mean_what_they_mean_there() {
    let reading = reading(&[
        ("loadbalancer.openstack.org/proxy-protocol", "true"),
        ("loadbalancer.openstack.org/connection-limit", "-1"),
        ("loadbalancer.openstack.org/timeout-member-connect", "0"),
        ("loadbalancer.openstack.org/timeout-tcp-inspect", "0"),
        ("loadbalancer.openstack.org/enable-health-monitor", "true"),
        ("loadbalancer.openstack.org/health-monitor-timeout", "2"),
        ("loadbalancer.openstack.org/hostname", ""),
        ("loadbalancer.openstack.org/default-tls-container-ref", ""),
    ]);
    assert_eq!(reading.reasons, []);
    assert_eq!(reading.options.hostname, None);
    let common = reading.options.common;
    assert_eq!(
        common.proxy_protocol.unwrap().value,
        Some(ProxyProtocol::V1)
    );
    assert_eq!(common.connection_limit.unwrap().value, None);
    assert_eq!(common.timeout_member_connect.unwrap().value, Duration::ZERO);
    assert_eq!(common.timeout_tcp_inspect.unwrap().value, Duration::ZERO);
    assert_eq!(common.monitor.unwrap().value, MonitorChoice::On);
    assert_eq!(
        common.monitor_timeout.unwrap().value,
        Duration::from_secs(2)
    );
}

#[test]
fn forwarded_headers_of_openstack_add_up_and_imply_http() {
    let reading = reading(&[
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
        ("loadbalancer.openstack.org/x-forwarded-port", "true"),
        ("loadbalancer.openstack.org/x-forwarded-proto", "false"),
    ]);
    assert_eq!(reading.reasons, []);
    assert_eq!(reading.options.common.mode.unwrap().value, ModeChoice::Http);
    assert_eq!(
        reading.options.common.forwarded_headers.unwrap().value,
        ForwardedHeaders {
            client: true,
            proto: false,
            port: true
        }
    );
}

#[test]
fn forwarded_headers_of_openstack_yield_to_the_portable_dialect() {
    let https = reading(&[
        ("landfall.dev/mode", "https"),
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
    ]);
    assert_eq!(https.reasons, []);
    assert_eq!(https.options.common.mode.unwrap().value, ModeChoice::Https);

    let without = reading(&[
        ("landfall.dev/forwarded-headers", "proto"),
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
    ]);
    assert_eq!(without.reasons[0].code, Code::ConflictingOptions);
    let headers = without.options.common.forwarded_headers.unwrap().value;
    assert!(!headers.client && headers.proto);

    let stream = reading(&[
        ("landfall.dev/mode", "stream"),
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
    ]);
    assert_eq!(stream.reasons[0].code, Code::ConflictingOptions);
    assert_eq!(stream.options.common.forwarded_headers, None);
}

#[test]
fn the_old_prefix_of_metallb_works_with_a_warning() {
    let reading = reading(&[("metallb.universe.tf/address-pool", "public")]);
    assert_eq!(reading.options.address_pool.unwrap().value, "public");
    assert_eq!(
        reading.reasons,
        [Reason::warning(
            Code::DeprecatedAnnotation,
            "this is the old name of metallb.io/address-pool"
        )
        .at_annotation("metallb.universe.tf/address-pool")
        .value("public")
        .remedy("rename it to metallb.io/address-pool")]
    );
}

#[test]
fn the_new_prefix_of_metallb_wins_over_the_old_one() {
    let reading = reading(&[
        ("metallb.universe.tf/loadBalancerIPs", "192.0.2.1"),
        ("metallb.io/loadBalancerIPs", "192.0.2.2"),
        ("metallb.universe.tf/allow-shared-ip", "key"),
        ("metallb.io/allow-shared-ip", ""),
    ]);
    let [addresses] = &reading.options.addresses[..] else {
        panic!("{reading:?}")
    };
    assert_eq!(addresses.annotation, "metallb.io/loadBalancerIPs");
    assert_eq!(reading.options.sharing_key.unwrap().value, "key");
    assert!(
        reading
            .reasons
            .iter()
            .all(|reason| reason.code == Code::DeprecatedAnnotation)
    );
    assert!(
        reading
            .reasons
            .iter()
            .any(|reason| reason.message.ends_with("takes precedence"))
    );
}

#[test]
fn every_annotation_of_the_openstack_reference_is_in_the_table() {
    let names = [
        "floating-network-id",
        "floating-subnet-id",
        "floating-subnet",
        "floating-subnet-tags",
        "class",
        "keep-floatingip",
        "port-id",
        "lb-method",
        "proxy-protocol",
        "subnet-id",
        "network-id",
        "member-subnet-id",
        "connection-limit",
        "timeout-client-data",
        "timeout-member-connect",
        "timeout-member-data",
        "timeout-tcp-inspect",
        "x-forwarded-for",
        "default-tls-container-ref",
        "flavor-id",
        "availability-zone",
        "enable-health-monitor",
        "health-monitor-delay",
        "health-monitor-timeout",
        "health-monitor-max-retries",
        "health-monitor-max-retries-down",
        "hostname",
        "node-selector",
        "load-balancer-id",
        "load-balancer-address",
        "load-balancer-tags",
        "listener-tags",
        "pool-tags",
        "floating-ip-tags",
        "security-group-tags",
        "sni-container-refs",
        "tls-versions",
        "tls-ciphers",
        "alpn-protocols",
        "x-forwarded-port",
        "x-forwarded-proto",
        "lb-provider",
        "enable-ingress-hostname",
    ];
    for name in names {
        let known = openstack::DIALECT.rows.iter().any(|row| row.name == name);
        assert!(known, "{name} is missing");
    }
}

#[test]
fn an_option_of_the_cloud_is_validated_apart_from_what_holds_everywhere() {
    let key = "loadbalancer.openstack.org/node-selector";
    let bad = reading(&[(key, "=edge")]);
    assert_eq!(bad.reasons, []);
    assert_eq!(bad.given, []);
    assert_eq!(bad.options, ServiceOptions::default());
    let there = reading_on_openstack(&[(key, "=edge")]);
    assert_eq!(there.reasons, []);
    assert_eq!(there.options, ServiceOptions::default());
    let [reason] = &there.extension_reasons[..] else {
        panic!("{:?}", there.extension_reasons)
    };
    assert_eq!(reason.severity, Severity::Warning);
    assert_eq!(reason.field, Some(annotation_field(key)));
    assert_eq!(reason.value.as_deref(), Some("=edge"));
    let [elsewhere] = &bad.extension_reasons[..] else {
        panic!("{:?}", bad.extension_reasons)
    };
    assert_eq!(elsewhere.code, Code::OptionNotApplicable);
    assert_eq!(elsewhere.severity, Severity::Warning);

    let key = "loadbalancer.openstack.org/keep-floatingip";
    let replaced = reading_on_openstack(&[(key, "yes")]);
    assert_eq!(replaced.options.extensions, Extensions::default());
    let [reason] = &replaced.extension_reasons[..] else {
        panic!("{:?}", replaced.extension_reasons)
    };
    assert_eq!(reason.severity, Severity::Warning);
    assert!(
        reason.message.ends_with("so false is used instead"),
        "{reason}"
    );
}

#[test]
fn an_empty_text_chooses_none_where_the_configuration_may_choose_one_and_is_nothing_elsewhere() {
    let empty = reading_on_openstack(&[
        ("loadbalancer.openstack.org/floating-network-id", ""),
        ("loadbalancer.openstack.org/flavor-id", " "),
        ("loadbalancer.openstack.org/subnet-id", ""),
        ("loadbalancer.openstack.org/load-balancer-tags", ""),
    ]);
    let cloud = &empty.options.extensions.openstack;
    let text = |given: &Option<Given<String>>| given.as_ref().map(|given| given.value.clone());
    assert_eq!(text(&cloud.floating_network).as_deref(), Some(""));
    assert_eq!(text(&cloud.flavor).as_deref(), Some(""));
    assert_eq!(cloud.subnet, None);
    assert_eq!(cloud.load_balancer_tags, None);
    assert_eq!(
        (empty.reasons, empty.extension_reasons),
        (Vec::new(), Vec::new())
    );
}

#[test]
fn the_reference_page_is_the_checked_in_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/annotations.md");
    let page = reference_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == page,
        "docs/annotations.md is not what the tables say; rewrite it with \
         UPDATE_DOCS=1 cargo test -p landfall-model reference_page"
    );
}
