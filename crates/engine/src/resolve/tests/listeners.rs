use landfall_model::listener::{
    Algorithm, AllowedSources, Check, ClientAffinity, Http, HttpMethod, Mode, Monitor,
    ProxyProtocol, Timeouts,
};
use landfall_testkit::build::{bad_secret, secret};

use super::*;

fn https() -> ServiceBuilder {
    svc("web")
        .port(443)
        .annotated("landfall.dev/mode", "https")
        .annotated("landfall.dev/tls-secret", "web-tls,other")
}

#[test]
fn where_secrets_cant_be_read_only_the_ports_that_need_one_stay_closed() {
    let service = svc("web")
        .named_port("plain", 80)
        .named_port("secure", 443)
        .annotated("landfall.dev/mode.secure", "https")
        .annotated("landfall.dev/tls-secret.secure", "web-tls");
    let (spec, remarks) = spec_in(&world([Fact::SecretsUnavailable]), service.clone());
    let ports: Vec<u16> = spec.listeners.iter().map(|it| it.key.port.get()).collect();
    assert_eq!(ports, [80]);
    let reported = remarks
        .iter()
        .find(|it| it.code == Code::CertificateNotFound);
    assert_eq!(reported.map(|it| it.severity), Some(Severity::Warning));
    let known = [Fact::SecretsUnavailable, Fact::Secret(secret("web-tls"))];
    let (spec, remarks) = spec_in(&world(known), service);
    assert_eq!(spec.listeners.len(), 2);
    assert!(
        remarks
            .iter()
            .all(|it| it.code != Code::CertificateNotFound)
    );
}

fn with_secrets() -> World {
    world([
        Fact::Secret(secret("web-tls")),
        Fact::Secret(secret("other")),
    ])
}

#[test]
fn a_plain_port_is_a_listener_with_every_default() {
    assert_eq!(listener(web()), Listener::new(Protocol::Tcp, number(80)));
    let named = listener(svc("web").named_port("http", 80));
    assert_eq!(named.name, "http");
}

#[test]
fn listeners_are_sorted_by_protocol_and_port() {
    let (spec, _) = spec(
        svc("web")
            .udp_port("u", 1)
            .named_port("b", 90)
            .named_port("a", 80),
    );
    let keys: Vec<String> = spec
        .listeners
        .iter()
        .map(|listener| listener.key.to_string())
        .collect();
    assert_eq!(keys, ["80/TCP", "90/TCP", "1/UDP"]);
}

#[test]
fn options_of_a_port_win_over_those_of_the_service() {
    let (spec, remarks) = spec(
        svc("web")
            .named_port("web", 80)
            .named_port("admin", 81)
            .annotated("landfall.dev/drain", "10s")
            .annotated("landfall.dev/drain.admin", "0s")
            .annotated("landfall.dev/connection-limit.81", "5"),
    );
    assert_eq!(remarks, []);
    let [web, admin] = &spec.listeners[..] else {
        panic!("{spec:?}")
    };
    assert_eq!(
        (web.drain, web.connection_limit),
        (Duration::from_secs(10), None)
    );
    assert_eq!(
        (admin.drain, admin.connection_limit),
        (Duration::ZERO, Some(5))
    );
}

#[test]
fn plain_options_reach_the_listener() {
    let asked = listener(
        web()
            .annotated("landfall.dev/algorithm", "LEAST_CONNECTIONS")
            .annotated("landfall.dev/proxy-protocol", "v2")
            .annotated("landfall.dev/accept-proxy-protocol-from", "10.0.0.0/8")
            .annotated("landfall.dev/timeout-client-data", "1s")
            .annotated("landfall.dev/timeout-member-connect", "2s")
            .annotated("landfall.dev/timeout-member-data", "3s")
            .annotated("landfall.dev/timeout-tcp-inspect", "4s")
            .affinity(Duration::from_secs(60)),
    );
    let mut expected = Listener::new(Protocol::Tcp, number(80));
    expected.timeouts = Timeouts {
        client_data: Duration::from_secs(1),
        member_connect: Duration::from_secs(2),
        member_data: Duration::from_secs(3),
        tcp_inspect: Duration::from_secs(4),
    };
    expected.accept_proxy_from = vec!["10.0.0.0/8".parse().unwrap()];
    expected.pool.algorithm = Algorithm::LeastConnections;
    expected.pool.proxy_protocol = Some(ProxyProtocol::V2);
    expected.pool.affinity = Some(ClientAffinity {
        timeout: Duration::from_secs(60),
    });
    assert_eq!(asked, expected);
}

#[test]
fn http_adds_every_header_by_default() {
    let http = |service: ServiceBuilder| {
        listener(service.annotated("landfall.dev/mode", "http"))
            .mode
            .http()
    };
    let all = Http {
        forwarded_for: true,
        forwarded_proto: true,
        forwarded_port: true,
        member_http2: false,
        trusted_hops: None,
    };
    assert_eq!(http(web()), Some(all));
    assert_eq!(
        http(web().annotated("landfall.dev/forwarded-headers", "none")),
        Some(Http::default())
    );
    assert_eq!(
        http(web().annotated("landfall.dev/member-protocol", "http2")),
        Some(Http {
            member_http2: true,
            ..all
        })
    );
    assert_eq!(
        http(web().annotated("landfall.dev/trusted-hops", "0")),
        Some(Http {
            trusted_hops: Some(0),
            ..all
        })
    );
    let openstack = listener(web().annotated("loadbalancer.openstack.org/x-forwarded-for", "true"));
    assert_eq!(
        openstack.mode,
        Mode::Http(Http {
            forwarded_for: true,
            ..Http::default()
        })
    );
}

#[test]
fn the_application_protocol_hints_at_http2_only_where_requests_are_read() {
    let h2c = || web().app_protocol("kubernetes.io/h2c");
    let http = |service: ServiceBuilder| {
        listener(service.annotated("landfall.dev/mode", "http"))
            .mode
            .http()
            .unwrap()
    };
    assert!(http(h2c()).member_http2);
    assert!(!http(h2c().annotated("landfall.dev/member-protocol", "http1")).member_http2);
    assert!(!http(web().app_protocol("http")).member_http2);
    assert_eq!(listener(h2c()).mode, Mode::Stream);
}

#[test]
fn members_that_expect_tls_behind_http_are_remarked() {
    let service = web()
        .app_protocol("https")
        .annotated("landfall.dev/mode", "http");
    let (_, remarks) = spec(service);
    assert_eq!(remarks.len(), 1);
    assert_eq!(
        remarks[0].field.as_deref(),
        Some("spec.ports[0].appProtocol")
    );
    assert_eq!(spec_remarks(web().app_protocol("https")), []);
}

fn spec_remarks(service: ServiceBuilder) -> Vec<Reason> {
    spec(service).1
}

#[test]
fn certificates_keep_the_order_in_which_they_are_named() {
    let (spec, _) = spec_in(&with_secrets(), https());
    let certificates = spec.listeners[0].mode.certificates().unwrap();
    let sources: Vec<&str> = certificates
        .0
        .iter()
        .map(|one| one.source.as_str())
        .collect();
    assert_eq!(sources, ["default/web-tls", "default/other"]);
}

#[test]
fn missing_and_broken_certificates_are_all_named() {
    let world = world([Fact::Secret(bad_secret("web-tls", "tls.key is missing"))]);
    let errors = errors_in(&world, https());
    let reported: Vec<(Code, &str)> = errors
        .iter()
        .map(|error| (error.code, error.message.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (
                Code::InvalidCertificate,
                "the Secret default/web-tls is not usable: tls.key is missing"
            ),
            (
                Code::CertificateNotFound,
                "there is no Secret default/other"
            ),
        ]
    );
    let at = |error: &Reason| error.field == Some(annotation_field("landfall.dev/tls-secret"));
    assert!(errors.iter().all(at));
}

#[test]
fn an_earlier_version_falls_back_to_the_certificates_that_it_had() {
    let (spec, _) = spec_in(&with_secrets(), https());
    let certificates = &spec.listeners[0].mode.certificates().unwrap().0;
    let broken = world([Fact::Secret(bad_secret("web-tls", "tls.key is missing"))]);
    let again = resolve_previous(
        &https().row(),
        certificates,
        &broken,
        &ProviderProfile::default(),
    );
    let again = again.unwrap().load_balancer.unwrap();
    assert_eq!(again.listeners, spec.listeners);
    let some = resolve_previous(
        &https().row(),
        &certificates[..1],
        &broken,
        &ProviderProfile::default(),
    );
    let errors = some.unwrap_err();
    assert_eq!(errors[0].code, Code::CertificateNotFound, "{errors:?}");
}

#[test]
fn modes_that_end_tls_need_a_certificate_and_certificates_need_such_a_mode() {
    let without = error(web().annotated("landfall.dev/mode", "tls"));
    assert_eq!(without.field, Some(annotation_field("landfall.dev/mode")));
    let unused = error(web().annotated("landfall.dev/tls-secret", "web-tls"));
    assert_eq!(
        unused.field,
        Some(annotation_field("landfall.dev/tls-secret"))
    );
    assert_eq!(unused.severity, Severity::Error);
}

#[test]
fn one_certificate_for_the_service_serves_the_port_that_ends_tls() {
    let service = svc("web")
        .named_port("http", 80)
        .named_port("https", 443)
        .annotated("landfall.dev/tls-secret", "web-tls")
        .annotated("landfall.dev/mode.http", "http")
        .annotated("landfall.dev/mode.https", "https");
    let (spec, remarks) = spec_in(&with_secrets(), service);
    let modes: Vec<&str> = spec.listeners.iter().map(|one| one.mode.as_str()).collect();
    assert_eq!(modes, ["http", "https"]);
    assert!(
        remarks
            .iter()
            .all(|remark| remark.code == Code::NoEndpoints)
    );
}

fn tcp_and_udp() -> ServiceBuilder {
    svc("web").named_port("tcp", 443).udp_port("udp", 443)
}

#[test]
fn what_the_service_says_about_tcp_never_touches_its_udp_ports() {
    for (key, value) in [
        ("loadbalancer.openstack.org/proxy-protocol", "v1"),
        ("loadbalancer.openstack.org/proxy-protocol", "v2"),
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
        ("landfall.dev/proxy-protocol", "v2"),
        ("landfall.dev/mode", "http"),
        ("landfall.dev/accept-proxy-protocol-from", "10.0.0.0/8"),
        ("landfall.dev/timeout-tcp-inspect", "1s"),
        ("landfall.dev/timeout-member-connect", "1s"),
    ] {
        let (spec, remarks) = spec(tcp_and_udp().annotated(key, value));
        assert_eq!(remarks, [], "{key}");
        let [tcp, udp] = &spec.listeners[..] else {
            panic!("{spec:?}")
        };
        let mut plain = Listener::new(Protocol::Udp, number(443));
        plain.name = "udp".to_owned();
        assert_eq!(udp, &plain, "{key}");
        plain.key = tcp.key;
        plain.name = "tcp".to_owned();
        assert_ne!(tcp, &plain, "{key}");
    }
}

#[test]
fn what_no_port_can_use_is_remarked() {
    for (key, value) in [
        ("landfall.dev/mode", "http"),
        ("landfall.dev/proxy-protocol", "v1"),
        ("landfall.dev/timeout-tcp-inspect", "1s"),
        ("landfall.dev/forwarded-headers", "for"),
        ("landfall.dev/monitor-path", "/"),
        ("loadbalancer.openstack.org/x-forwarded-for", "true"),
    ] {
        let remarks = spec_remarks(svc("dns").udp_port("", 53).annotated(key, value));
        assert_eq!(remarks.len(), 1, "{key}: {remarks:?}");
        assert_eq!(remarks[0].code, Code::OptionNotApplicable, "{key}");
        assert_eq!(remarks[0].severity, Severity::Warning, "{key}");
        assert_eq!(remarks[0].field, Some(annotation_field(key)));
        assert!(!remarks[0].remedy.is_empty());
    }
}

#[test]
fn what_is_written_for_a_udp_port_itself_and_can_not_be_is_an_error() {
    for (key, value) in [
        ("landfall.dev/mode.udp", "http"),
        ("landfall.dev/proxy-protocol.udp", "v1"),
        ("landfall.dev/accept-proxy-protocol-from.udp", "10.0.0.0/8"),
        ("landfall.dev/timeout-tcp-inspect.udp", "1s"),
        ("landfall.dev/monitor.tcp", "udp-connect"),
    ] {
        let reason = error(tcp_and_udp().annotated(key, value));
        assert_eq!(reason.code, Code::ConflictingOptions, "{key}");
        assert_eq!(reason.field, Some(annotation_field(key)));
        assert_eq!(reason.value.as_deref(), Some(value));
    }
}

#[test]
fn a_udp_port_carries_proxy_headers_where_that_was_asked_of_it() {
    let (spec, remarks) = spec(tcp_and_udp().annotated("landfall.dev/proxy-protocol.udp", "v2"));
    assert_eq!(remarks, []);
    let headers: Vec<_> = spec
        .listeners
        .iter()
        .map(|one| one.pool.proxy_protocol)
        .collect();
    assert_eq!(headers, [None, Some(ProxyProtocol::V2)]);
}

#[test]
fn proxy_headers_and_forwarded_headers_exclude_each_other() {
    let reason = error(
        web()
            .annotated("loadbalancer.openstack.org/x-forwarded-for", "true")
            .annotated("loadbalancer.openstack.org/proxy-protocol", "v1"),
    );
    assert_eq!(reason.code, Code::ConflictingOptions);
    assert_eq!(
        reason.field,
        Some(annotation_field(
            "loadbalancer.openstack.org/proxy-protocol"
        ))
    );
    assert!(reason.message.contains("x-forwarded-for"), "{reason}");

    let both_for_one_port = svc("web")
        .named_port("web", 80)
        .annotated("landfall.dev/mode", "http")
        .annotated("landfall.dev/proxy-protocol.web", "v2");
    assert_eq!(error(both_for_one_port).code, Code::ConflictingOptions);
}

#[test]
fn a_port_in_http_is_an_exception_from_proxy_headers_for_all() {
    let service = svc("web")
        .named_port("http", 80)
        .named_port("raw", 90)
        .annotated("landfall.dev/proxy-protocol", "v1")
        .annotated("landfall.dev/mode.http", "http");
    let (spec, remarks) = spec(service);
    assert_eq!(remarks, []);
    let headers: Vec<_> = spec
        .listeners
        .iter()
        .map(|one| one.pool.proxy_protocol)
        .collect();
    assert_eq!(headers, [None, Some(ProxyProtocol::V1)]);
}

#[test]
fn a_monitor_is_what_was_asked_and_defaults_elsewhere() {
    let monitor = |service: ServiceBuilder| listener(service).pool.monitor;
    assert_eq!(monitor(web()), None);
    assert_eq!(
        monitor(web().annotated("landfall.dev/monitor", "off")),
        None
    );
    assert_eq!(
        monitor(web().annotated("landfall.dev/monitor", "tcp")),
        Some(Monitor::new(Check::Tcp))
    );
    let http = web()
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor-method", "HEAD")
        .annotated("landfall.dev/monitor-path", "/healthz")
        .annotated("landfall.dev/monitor-codes", "200-204")
        .annotated("landfall.dev/monitor-delay", "2s")
        .annotated("landfall.dev/monitor-timeout", "2s")
        .annotated("landfall.dev/monitor-max-retries", "2")
        .annotated("landfall.dev/monitor-max-retries-down", "4")
        .annotated("landfall.dev/monitor-port", "8081");
    assert_eq!(
        monitor(http),
        Some(Monitor {
            check: Check::Http {
                method: HttpMethod::Head,
                path: "/healthz".to_owned(),
                codes: "200-204".parse().unwrap(),
            },
            delay: Duration::from_secs(2),
            timeout: Duration::from_secs(2),
            max_retries: 2,
            max_retries_down: 4,
            port: Some(number(8081)),
            tls: false,
            host: None,
            body: None,
        })
    );
}

#[test]
fn a_monitor_that_is_just_on_fits_the_protocol_of_each_port() {
    let service =
        tcp_and_udp().annotated("loadbalancer.openstack.org/enable-health-monitor", "true");
    let (spec, remarks) = spec(service);
    assert_eq!(remarks, []);
    let checks: Vec<_> = spec
        .listeners
        .iter()
        .map(|one| one.pool.monitor.clone().unwrap().check)
        .collect();
    assert_eq!(checks, [Check::Tcp, Check::UdpConnect]);
}

#[test]
fn a_check_fits_between_two_checks() {
    let short = web()
        .annotated("landfall.dev/monitor", "tcp")
        .annotated("landfall.dev/monitor-delay", "1s");
    let monitor = listener(short.clone()).pool.monitor.unwrap();
    assert_eq!(monitor.timeout, Duration::from_secs(1));

    let reason = error(short.annotated("landfall.dev/monitor-timeout", "1500ms"));
    assert_eq!(
        reason,
        Reason::error(
            Code::ConflictingOptions,
            "a check may not take longer than the delay between checks, 1s"
        )
        .at_annotation("landfall.dev/monitor-timeout")
        .value("1500ms")
        .remedy("write at most 1s, or make the delay longer")
    );
}

#[test]
fn source_ranges_of_the_spec_win_and_become_networks() {
    let only = |prefixes: &[&str]| {
        AllowedSources::Only(
            prefixes
                .iter()
                .map(|prefix| prefix.parse().unwrap())
                .collect(),
        )
    };
    assert_eq!(
        listener(
            web()
                .source_range("192.168.32.1/24")
                .source_range("2001:db8::/32")
        )
        .allowed,
        only(&["192.168.32.0/24", "2001:db8::/32"])
    );
    let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
    assert_eq!(
        listener(web().annotated(key, "10.0.0.0/8")).allowed,
        only(&["10.0.0.0/8"])
    );
    let every_source = web().source_range("0.0.0.0/0").source_range("::/0");
    assert_eq!(listener(every_source).allowed, AllowedSources::All);

    let (spec, remarks) = spec(
        web()
            .source_range("192.0.2.0/24")
            .annotated(key, "10.0.0.0/8"),
    );
    assert_eq!(spec.listeners[0].allowed, only(&["192.0.2.0/24"]));
    assert_eq!(
        remarks,
        [Reason::warning(
            Code::ConflictingOptions,
            "spec.loadBalancerSourceRanges has another value and takes precedence"
        )
        .at_annotation(key)
        .value("10.0.0.0/8")
        .remedy("remove one of the two")]
    );
}

#[test]
fn source_ranges_of_a_port_win_over_all_others() {
    let service = svc("web")
        .named_port("web", 80)
        .named_port("admin", 81)
        .source_range("192.0.2.0/24")
        .annotated("landfall.dev/source-ranges.admin", "10.0.0.0/8");
    let (spec, remarks) = spec(service);
    assert_eq!(remarks, []);
    let allowed = |index: usize| format!("{:?}", spec.listeners[index].allowed);
    assert!(allowed(0).contains("192.0.2.0/24"), "{}", allowed(0));
    assert!(allowed(1).contains("10.0.0.0/8"), "{}", allowed(1));
}

#[test]
fn a_bad_source_range_never_opens_the_port() {
    let reason = error(web().source_range("10.0.0.0/8").source_range("10.0.0.1"));
    assert_eq!(
        reason,
        Reason::error(
            Code::InvalidSourceRange,
            "\"10.0.0.1\" is not a prefix in CIDR notation"
        )
        .at("spec.loadBalancerSourceRanges[1]")
        .value("10.0.0.1")
        .remedy("write 10.0.0.1/32 for this one address")
    );
    let annotated = web().annotated("landfall.dev/source-ranges", "10.0.0.0/8,inside");
    assert_eq!(error(annotated).code, Code::InvalidSourceRange);
}
