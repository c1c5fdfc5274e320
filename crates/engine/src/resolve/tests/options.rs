use std::collections::BTreeSet;

use landfall_model::dialect::{DIALECTS, Effect};

use super::*;

/// A Service on which every portable option means something.
fn able(option: Option<OptionId>) -> ServiceBuilder {
    let service = svc("web").named_port("web", 443).udp_port("dns", 53);
    let Some(option) = option else {
        return service;
    };
    match option {
        OptionId::TlsSecret => service.annotated("landfall.dev/mode.web", "https"),
        OptionId::ForwardedHeaders
        | OptionId::MemberProtocol
        | OptionId::TrustedHops
        | OptionId::SourceRequestRate
        | OptionId::HttpsRedirect => service.annotated("landfall.dev/mode.web", "http"),
        OptionId::MemberQueue | OptionId::MemberQueueTimeout => {
            service.annotated("landfall.dev/member-connection-limit", "5")
        }
        OptionId::TlsMinimumVersion | OptionId::TlsStrictNames => service
            .annotated("landfall.dev/mode.web", "https")
            .annotated("landfall.dev/tls-secret.web", "web-tls"),
        OptionId::MemberCaSecret => service.annotated("landfall.dev/member-tls", "verify"),
        OptionId::MemberServerName | OptionId::MemberClientSecret => {
            service.annotated("landfall.dev/member-tls", "insecure")
        }
        OptionId::MonitorGrpcService => service.annotated("landfall.dev/monitor.web", "grpc"),
        _ if option.name().starts_with("monitor-") => {
            service.annotated("landfall.dev/monitor", "http")
        }
        _ => service,
    }
}

fn every_secret() -> World {
    let names = ["web-tls", "wildcard-tls", "members-ca", "client-tls"];
    world(names.map(|name| Fact::Secret(landfall_testkit::secret(name))))
}

#[test]
fn every_example_of_the_reference_page_is_valid_on_some_service() {
    for dialect in DIALECTS {
        for row in dialect.rows {
            let key = format!("{}{}", dialect.prefix, row.name);
            let option = row.effect.option();
            let mut service = able(option).annotated(&key, row.example);
            if option == Some(OptionId::Addresses) {
                service = service.families(
                    &[
                        landfall_model::rows::Family::V4,
                        landfall_model::rows::Family::V6,
                    ],
                    landfall_model::rows::FamilyPolicy::PreferDualStack,
                );
            }
            let outcome = resolve_in(&every_secret(), service);
            let remarks = outcome
                .unwrap_or_else(|reasons| panic!("{key}: {reasons:?}"))
                .remarks;
            let about_it = |remark: &&Reason| remark.field == Some(annotation_field(&key));
            let unused = remarks.iter().filter(about_it).any(|remark| {
                remark.code == Code::OptionNotApplicable && !remark.message.contains("is named")
            });
            let takes_effect = matches!(row.effect, Effect::Service { .. } | Effect::Port { .. });
            assert_eq!(unused, !takes_effect, "{key}: {remarks:?}");
        }
    }
}

#[test]
fn garbage_in_a_portable_option_is_an_error_of_this_service_only() {
    for dialect in DIALECTS.iter().filter(|dialect| dialect.per_port) {
        for row in dialect.rows {
            let key = format!("{}{}", dialect.prefix, row.name);
            let garbage = if matches!(row.name, "sharing-key" | "address-pool" | "monitor-body") {
                " "
            } else {
                "?,="
            };
            let errors = errors(able(None).annotated(&key, garbage));
            assert_eq!(errors.len(), 1, "{key}: {errors:?}");
            assert_eq!(errors[0].field, Some(annotation_field(&key)));
            assert_eq!(errors[0].value.as_deref(), Some(garbage));
            assert!(!errors[0].remedy.is_empty(), "{key}");
        }
    }
}

#[test]
fn options_that_only_a_cloud_has_are_a_warning_elsewhere() {
    let (_, remarks) = spec(web().annotated("loadbalancer.openstack.org/flavor-id", "big"));
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].code, Code::OptionNotApplicable);
    assert_eq!(remarks[0].severity, Severity::Warning);
    assert!(
        remarks[0].message.contains("a flavor of Octavia"),
        "{}",
        remarks[0]
    );
}

#[test]
fn monitor_options_without_a_monitor_are_remarked() {
    let (spec, remarks) =
        spec(web().annotated("loadbalancer.openstack.org/health-monitor-delay", "9"));
    assert_eq!(spec.listeners[0].pool.monitor, None);
    assert_eq!(remarks.len(), 1);
    assert_eq!(
        remarks[0].remedy,
        "set landfall.dev/monitor, or remove this"
    );
}

#[test]
fn an_option_that_every_port_overrides_is_not_remarked() {
    let service = svc("web")
        .named_port("web", 80)
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor.web", "tcp");
    assert_eq!(spec(service).1, []);
}

#[test]
fn several_forwarded_headers_of_openstack_count_as_one_option() {
    let service = web()
        .annotated("loadbalancer.openstack.org/x-forwarded-for", "true")
        .annotated("loadbalancer.openstack.org/x-forwarded-proto", "true");
    let listener = listener(service);
    let http = listener.mode.http().unwrap();
    assert!(http.forwarded_for && http.forwarded_proto && !http.forwarded_port);
}

#[test]
fn what_is_asked_of_the_nodes_is_remarked_on_where_the_provider_does_without() {
    let profile = ProviderProfile {
        provider: "test",
        support: |option| match option {
            OptionId::ExternalTrafficPolicy | OptionId::ExternalIps => Support::LeftOut {
                why: "it has one node",
                remedy: "write Cluster",
            },
            OptionId::InternalTrafficPolicy => Support::Emulated { how: "nodes do" },
            _ => Support::Supported,
        },
        ..ProviderProfile::default()
    };
    let plain = svc("web").port(80);
    let asking = plain.clone().local().with(|row| {
        row.node_fields = [
            ("externalIPs", "192.0.2.1"),
            ("internalTrafficPolicy", "Local"),
        ]
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .into();
    });
    let remarks = |row: &ServiceRow| {
        let intent = resolve(row, &World::default(), &profile).unwrap();
        let remarks = intent.remarks.into_iter();
        remarks
            .filter(|remark| remark.code == Code::OptionNotSupported)
            .map(|remark| (remark.field.unwrap_or_default(), remark.severity))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(remarks(&plain.row()), BTreeSet::new());
    let expected = [
        ("spec.externalIPs", Severity::Warning),
        ("spec.externalTrafficPolicy", Severity::Warning),
        ("spec.internalTrafficPolicy", Severity::Info),
    ];
    let expected = expected.map(|(field, severity)| (field.to_owned(), severity));
    assert_eq!(remarks(&asking.row()), expected.into());
}
