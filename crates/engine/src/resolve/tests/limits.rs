//! Services that ask for more than they may.

use landfall_model::Member;
use landfall_model::limits::{self, Limits};
use landfall_testkit::{secret, slice};

use super::*;
use crate::resolve::members::MemberResolver;

fn limited(limits: Limits) -> ProviderProfile {
    ProviderProfile {
        limits,
        ..one_machine()
    }
}

fn few() -> ProviderProfile {
    limited(Limits {
        ports_per_service: 2,
        members_per_service: 4,
        certificates_per_service: 2,
        ..Limits::default()
    })
}

fn of_limits(reasons: &[Reason]) -> Vec<&Reason> {
    let found = reasons.iter().filter(|it| it.code == Code::LimitReached);
    found.collect()
}

#[test]
fn a_service_with_too_many_ports_is_refused_and_one_accepted_earlier_is_served() {
    let ports = |count: u16| {
        let ports = (0..count).map(|it| (format!("p{it}"), 80 + it));
        ports.fold(svc("web"), |svc, (name, port)| svc.named_port(&name, port))
    };
    let world = World::default();
    assert!(resolve(&ports(2).row(), &world, &few()).is_ok());
    let row = ports(3).row();
    let refused = resolve(&row, &world, &few()).unwrap_err();
    let expected = Reason::error(
        Code::LimitReached,
        "the Service has 3 ports, and may have 2",
    )
    .at("spec.ports")
    .value("3")
    .remedy(
        "distribute the ports over several Services, which may share an address, or ask the \
        operator for a higher limits.portsPerService in landfall.yaml",
    );
    assert_eq!(of_limits(&refused), [&expected]);
    let before = resolve_previous(&row, &[], &world, &few()).unwrap();
    assert_eq!(before.load_balancer.unwrap().listeners.len(), 3);
}

#[test]
fn a_service_that_names_too_many_certificates_is_refused() {
    let names = ["a", "b", "c"];
    let world = world(names.map(|name| Fact::Secret(secret(name))));
    let service = |named: &str| {
        web()
            .annotated("landfall.dev/mode", "tls")
            .annotated("landfall.dev/tls-secret", named)
            .row()
    };
    assert!(resolve(&service("a,b"), &world, &few()).is_ok());
    let refused = resolve(&service("a,b,c"), &world, &few()).unwrap_err();
    assert_eq!(
        of_limits(&refused)[0].message,
        "the Service names 3 Secrets with certificates, and may name 2"
    );
    let field = annotation_field("landfall.dev/tls-secret");
    assert_eq!(of_limits(&refused)[0].field, Some(field));
}

#[test]
fn an_annotation_that_names_too_many_members_is_refused() {
    let service = |members: &str| {
        let service = svc("web").named_port("a", 80).named_port("b", 81);
        service.annotated("landfall.dev/endpoints", members).row()
    };
    let world = World::default();
    assert!(resolve(&service("10.0.0.1:1,10.0.0.2:1"), &world, &few()).is_ok());
    let many = service("10.0.0.1:1,10.0.0.2:1,10.0.0.3:1");
    let refused = resolve(&many, &world, &few()).unwrap_err();
    assert_eq!(
        of_limits(&refused)[0].message,
        "the ports of the Service have 6 members, and may have 4"
    );
}

#[test]
fn of_too_many_endpoints_each_port_serves_its_share() {
    let world = slices([
        (1..=5).fold(slice("web").port("a", 80).port("b", 81), |slice, last| {
            slice.ready(&format!("10.0.0.{last}"))
        }),
    ]);
    let service = svc("web").named_port("a", 80).named_port("b", 81);
    let intent = resolve(&service.row(), &world, &few()).unwrap();
    let reported: Vec<&str> = of_limits(&intent.remarks)
        .iter()
        .map(|it| it.message.as_str())
        .collect();
    assert_eq!(
        reported,
        ["of 10 members of all ports 6 are left out: a Service may have 4"]
    );
    let listeners = intent.load_balancer.unwrap().listeners;
    let counts: Vec<usize> = listeners.iter().map(|it| it.pool.members.len()).collect();
    assert_eq!(counts, [2, 2]);
}

#[test]
fn a_service_whose_endpoints_are_left_out_for_lack_of_room_says_so() {
    let remarks = |slice: SliceBuilder, service: &ServiceRow| {
        let intent = resolve(service, &slices([slice]), &few()).unwrap();
        let spec = intent.load_balancer.unwrap();
        (spec.listeners[0].pool.members.len(), intent.remarks)
    };
    let of_web = || slice("web").port("", 80);
    let row = web().row();
    let expected = limits::endpoints_left_out();
    let some = remarks(of_web().ready("10.0.0.1").cut(), &row);
    assert_eq!(some, (1, vec![expected.clone()]));
    assert!(
        expected
            .message
            .ends_with("of the namespace take more than 32 MiB of memory")
    );
    // Without any it says why, and not that pods should be started.
    let none = Reason {
        code: Code::NoEndpoints,
        ..expected.clone()
    };
    assert_eq!(remarks(slice("web").cut(), &row), (0, vec![expected, none]));
    assert_eq!(remarks(of_web().ready("10.0.0.1"), &row), (1, vec![]));
    let named = web()
        .annotated("landfall.dev/endpoints", "10.0.0.7:80")
        .row();
    assert_eq!(remarks(slice("web").cut(), &named), (1, vec![]));
}

#[test]
fn a_check_takes_a_minute_at_most_and_a_longer_timeout_is_reported() {
    let service = |timeout: &str| {
        web()
            .annotated("landfall.dev/monitor", "tcp")
            .annotated("landfall.dev/monitor-delay", "1h")
            .annotated("landfall.dev/monitor-timeout", timeout)
            .row()
    };
    let world = World::default();
    let timeout = |intent: &Intent| {
        let spec = intent.load_balancer.as_ref().unwrap();
        spec.listeners[0].pool.monitor.as_ref().unwrap().timeout
    };
    let minute = Duration::from_secs(60);
    let intent = resolve(&service("60s"), &world, &one_machine()).unwrap();
    assert_eq!(
        (timeout(&intent), of_limits(&intent.remarks).len()),
        (minute, 0)
    );
    let intent = resolve(&service("1h"), &world, &one_machine()).unwrap();
    assert_eq!(timeout(&intent), minute);
    let reported = of_limits(&intent.remarks);
    assert_eq!(reported[0].severity, Severity::Warning);
    assert_eq!(reported[0].value.as_deref(), Some("1h"));
    // Checks of Octavia are Octavia's own.
    let octavia = ProviderProfile {
        target: Target::Pod,
        ..in_cloud()
    };
    let intent = resolve(&service("1h"), &world, &octavia).unwrap();
    assert_eq!(timeout(&intent), Duration::from_hours(1));
}

#[test]
fn members_beyond_the_limit_are_counted_and_never_built() {
    let ports: Vec<(String, u16)> = (1..=200).map(|it| (format!("p{it}"), it)).collect();
    let crowd = |number: u16| {
        let empty = slice("web").named(&format!("web-{number}"));
        let slice = ports
            .iter()
            .fold(empty, |it, (name, port)| it.port(name, *port));
        (0..500).fold(slice, |slice, last| {
            slice.ready(&format!("10.{number}.{}.{}", last / 250, last % 250 + 1))
        })
    };
    let world = slices([crowd(1), crowd(2)]);
    let service = ports
        .iter()
        .fold(svc("web"), |svc, (name, port)| svc.named_port(name, *port));
    let row = service.row();
    let reading = dialect::read(&row.annotations, &row.ports, &one_machine().vocabulary);
    let profile = limited(Limits {
        members_per_service: 1000,
        ..Limits::default()
    });
    let scene = ResolveContext {
        service: &row,
        world: &world,
        profile: &profile,
        options: &reading.options,
        target: profile.target,
        certificates: &[],
        previous: false,
    };
    let rows: Vec<_> = world.slices_of(&row.key).collect();
    let mut findings = Findings::new(&row, Vec::new());
    let mut resolver = MemberResolver::gather(&scene, &rows);
    let mut most = 0;
    for port in &row.ports {
        let own = scene.options.own(port);
        let layers = scene.layers(&own);
        let built = resolver
            .members(&scene, (port, None), layers, &mut findings)
            .len();
        resolver.collected += built;
        most = resolver.collected.max(most);
    }
    // Two ports whole, the others five members each.
    assert_eq!((most, resolver.skipped), (2 * 1000 + 198 * 5, 198 * 995));
    let intent = resolve(&row, &world, &profile).unwrap();
    assert_eq!(
        of_limits(&intent.remarks)[0].message,
        "of 200000 members of all ports 199000 are left out: a Service may have 1000"
    );
    let listeners = intent.load_balancer.unwrap().listeners;
    assert!(listeners.iter().all(|it| it.pool.members.len() == 5));
    assert_eq!(
        listeners[0].pool.members,
        listeners[199]
            .pool
            .members
            .iter()
            .map(|it| {
                Member {
                    address: (it.address.ip(), 1).into(),
                    ..it.clone()
                }
            })
            .collect::<Vec<_>>()
    );
}
