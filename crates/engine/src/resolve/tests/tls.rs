//! TLS of clients, TLS toward members, redirects, and checks over TLS.

use landfall_model::listener::{
    Check, MemberTls, Monitor, Redirect, RedirectStatus, TlsPolicy, TlsVersion,
};
use landfall_testkit::build::{bad_secret, secret};

use super::*;

const VERIFY: &str = "landfall.dev/member-tls";
const AUTHORITY: &str = "landfall.dev/member-ca-secret";

fn with_secrets() -> World {
    let names = ["web-tls", "members-ca", "client-tls"];
    world(names.map(|name| Fact::Secret(secret(name))))
}

fn verified() -> ServiceBuilder {
    web()
        .annotated(VERIFY, "verify")
        .annotated(AUTHORITY, "members-ca")
}

fn only(world: &World, service: ServiceBuilder) -> Listener {
    let (mut spec, remarks) = spec_in(world, service);
    assert!(remarks.iter().all(|it| it.code == Code::NoEndpoints));
    assert_eq!(spec.listeners.len(), 1);
    spec.listeners.remove(0)
}

fn sources(tls: &MemberTls) -> [Option<&str>; 2] {
    [
        tls.authorities.as_ref().map(|it| it.source.as_str()),
        tls.certificate.as_ref().map(|it| it.source.as_str()),
    ]
}

#[test]
fn a_port_that_ends_tls_may_ask_for_more_of_its_clients() {
    let service = || {
        web()
            .annotated("landfall.dev/mode", "https")
            .annotated("landfall.dev/tls-secret", "web-tls")
    };
    assert_eq!(only(&with_secrets(), service()).tls, TlsPolicy::default());
    let strict = service()
        .annotated("landfall.dev/tls-minimum-version", "1.3")
        .annotated("landfall.dev/tls-strict-names", "true");
    assert_eq!(
        only(&with_secrets(), strict).tls,
        TlsPolicy {
            minimum: TlsVersion::V13,
            strict_names: true,
        }
    );
    let passing = error(web().annotated("landfall.dev/tls-strict-names.80", "true"));
    assert_eq!(passing.code, Code::ConflictingOptions);
}

#[test]
fn members_are_verified_by_the_named_authority_for_the_name_of_their_service() {
    let tls = only(&with_secrets(), verified()).pool.tls.unwrap();
    assert_eq!(sources(&tls), [Some("default/members-ca[ca.crt]"), None]);
    assert_eq!(tls.server_name, "web.default.svc");
    let named = verified()
        .annotated("landfall.dev/member-server-name", "web.example.org")
        .annotated("landfall.dev/member-client-secret", "client-tls");
    let tls = only(&with_secrets(), named).pool.tls.unwrap();
    assert_eq!(sources(&tls)[1], Some("default/client-tls"));
    assert_eq!(tls.server_name, "web.example.org");
}

#[test]
fn members_are_never_verified_by_nothing_unless_it_is_called_insecure() {
    let nothing = error(web().annotated(VERIFY, "verify"));
    assert_eq!(nothing.code, Code::ConflictingOptions);
    assert_eq!(nothing.field, Some(annotation_field(VERIFY)));
    assert!(nothing.remedy.contains(AUTHORITY), "{nothing:?}");
    let (spec, remarks) = spec(web().annotated(VERIFY, "insecure"));
    let tls = spec.listeners[0].pool.tls.as_ref().unwrap();
    assert_eq!(sources(tls), [None, None]);
    let reported: Vec<_> = remarks.iter().map(|it| (it.code, it.severity)).collect();
    assert_eq!(reported, [(Code::MembersNotVerified, Severity::Warning)]);
    // An authority without verification is a contradiction.
    for mode in ["insecure", "off"] {
        let service = web()
            .annotated(VERIFY, mode)
            .annotated(AUTHORITY, "members-ca");
        let errors = errors_in(&with_secrets(), service);
        assert_eq!(errors[0].field, Some(annotation_field(AUTHORITY)));
    }
}

#[test]
fn a_missing_or_broken_authority_refuses_the_version() {
    let missing = error(verified());
    assert_eq!(missing.code, Code::CertificateNotFound);
    assert_eq!(missing.field, Some(annotation_field(AUTHORITY)));
    let broken = world([Fact::Secret(bad_secret("members-ca", "it has no ca.crt"))]);
    let broken = errors_in(&broken, verified());
    assert_eq!(broken[0].code, Code::InvalidCertificate);
    assert!(broken[0].message.contains("it has no ca.crt"));
    assert!(broken[0].remedy.contains("ca.crt"));
}

#[test]
fn an_earlier_version_keeps_the_authority_that_it_had() {
    let listener = only(&with_secrets(), verified());
    let tls = listener.pool.tls.as_ref().unwrap();
    let held: Vec<_> = certificates_of(tls).cloned().collect();
    let broken = world([Fact::Secret(bad_secret("members-ca", "it has no ca.crt"))]);
    let row = verified().row();
    let again = resolve_previous(&row, &held, &broken, &one_machine()).unwrap();
    let again = again.load_balancer.unwrap();
    assert_eq!(again.listeners, [listener]);
    resolve_previous(&row, &[], &broken, &one_machine()).unwrap_err();
}

#[test]
fn where_secrets_cant_be_read_a_port_with_verified_members_stays_closed() {
    let (spec, remarks) = spec_in(&world([Fact::SecretsUnavailable]), verified());
    assert_eq!(spec.listeners, []);
    let reported = remarks.iter().map(|it| (it.code, it.severity));
    assert!(
        reported
            .clone()
            .any(|it| it == (Code::CertificateNotFound, Severity::Warning))
    );
}

#[test]
fn a_port_that_reads_plain_requests_may_send_them_to_https() {
    let both = svc("web")
        .named_port("http", 80)
        .named_port("https", 443)
        .annotated("landfall.dev/mode.http", "http")
        .annotated("landfall.dev/mode.https", "https")
        .annotated("landfall.dev/tls-secret", "web-tls")
        .annotated("landfall.dev/https-redirect", "301 port=8443");
    let (spec, _) = spec_in(&with_secrets(), both);
    let redirects: Vec<_> = spec.listeners.iter().map(|it| it.redirect).collect();
    let expected = Redirect {
        status: RedirectStatus::Moved,
        port: number(8443),
    };
    assert_eq!(redirects, [Some(expected), None]);
    for wrong in [
        "302",
        "301 8443",
        "301 port=0",
        "308 port=1 port=2",
        "true",
        "off port=1",
    ] {
        let service = web()
            .annotated("landfall.dev/mode", "http")
            .annotated("landfall.dev/https-redirect", wrong);
        let wrong = error(service);
        assert!(wrong.remedy.contains("308 port=8443"), "{wrong:?}");
    }
}

fn monitor(service: ServiceBuilder) -> Monitor {
    only(&with_secrets(), service).pool.monitor.unwrap()
}

#[test]
fn checks_use_tls_where_members_do_or_where_an_option_says_so() {
    for (service, over_tls) in [
        (web().annotated("landfall.dev/monitor", "http"), false),
        (web().annotated("landfall.dev/monitor", "https"), true),
        (verified().annotated("landfall.dev/monitor", "http"), true),
        (verified().annotated("landfall.dev/monitor", "grpc"), true),
        (verified().annotated("landfall.dev/monitor", "tcp"), false),
    ] {
        assert_eq!(monitor(service).tls, over_tls);
    }
    let elsewhere = verified()
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor-port", "8081");
    assert!(!monitor(elsewhere).tls);
}

#[test]
fn checks_take_a_host_a_text_and_the_name_of_a_grpc_service() {
    let http = web()
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor-host", "web.example.org:8080")
        .annotated("landfall.dev/monitor-body", "all is well");
    let http = monitor(http);
    assert_eq!(http.host.as_deref(), Some("web.example.org:8080"));
    assert_eq!(http.body.as_deref(), Some("all is well"));
    let grpc = web()
        .annotated("landfall.dev/monitor", "grpc")
        .annotated("landfall.dev/monitor-grpc-service", "shop.v1.Cart");
    let check = Check::Grpc {
        service: "shop.v1.Cart".to_owned(),
    };
    assert_eq!(monitor(grpc).check, check);
    for host in [
        "a b",
        "web.example.org/x",
        "web:0",
        "[::1",
        "user@web",
        "web\r\nX: y",
    ] {
        let service = web()
            .annotated("landfall.dev/monitor", "http")
            .annotated("landfall.dev/monitor-host", host);
        let wrong = error(service);
        assert!(wrong.remedy.contains("web.example.org"), "{wrong:?}");
    }
    let of_tcp = error(
        web()
            .annotated("landfall.dev/monitor", "tcp")
            .annotated("landfall.dev/monitor-body.80", "x"),
    );
    assert_eq!(of_tcp.code, Code::ConflictingOptions);
    let of_udp = svc("dns")
        .udp_port("", 53)
        .annotated("landfall.dev/monitor.53", "grpc");
    assert_eq!(error(of_udp).code, Code::ConflictingOptions);
}

#[test]
fn grpc_checks_are_refused_on_openstack() {
    let service = web()
        .node_port(30080)
        .annotated("landfall.dev/monitor", "grpc");
    let reasons = resolve(&service.row(), &World::default(), &in_cloud()).unwrap_err();
    let reported = reasons.iter().find(|it| it.severity == Severity::Error);
    assert_eq!(reported.map(|it| it.code), Some(Code::OptionNotSupported));
}
