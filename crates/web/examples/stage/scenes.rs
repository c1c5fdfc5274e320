//! The scenes: a shop where one thing is wrong, one where nothing is, one where much is, an empty
//! one, a large one, and one with names that try to be markup.

#![expect(
    clippy::expect_used,
    reason = "canned facts are right, or the stage is broken"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_model::listener::{Algorithm, AllowedSources, ClientAffinity, ProxyProtocol};
use landfall_model::rows::Family;
use landfall_model::view::{
    AnnouncedView, BfdView, CloudCallsView, Health, HistogramView, InstanceView, ListenerView,
    MeasuredView, MetricsView, PeerMessages, PeerView, PoolView, ResourcesView, RouteView,
    SecretsView, ServiceView, SpeakerMetrics, TimesView,
};
use landfall_model::{
    Code, ConditionType, IngressAddress, PlannedKind, PlannedStep, Protocol, Reason, ServiceKey,
};

use super::build::{
    ago, http_monitor, left_out, listener, member, origin, refused, service, spec, turned, with,
};

/// A scene by name.
pub fn by_name(name: &str) -> Option<InstanceView> {
    Some(match name {
        "shop" => shop(),
        "healthy" => healthy(),
        "broken" => broken(),
        "empty" => empty(),
        "starting" => starting(),
        "many" => many(500),
        "hostile" => hostile(),
        "routers" => routers(),
        _ => return None,
    })
}

/// Every name that [`by_name`] knows.
pub const NAMES: [&str; 8] = [
    "shop", "healthy", "broken", "empty", "starting", "many", "hostile", "routers",
];

/// The session of a speaker with a router.
fn peer() -> PeerView {
    PeerView {
        name: "tor".to_owned(),
        node: "node-1".to_owned(),
        address: "192.0.2.254".to_owned(),
        port: 179,
        local_asn: 64_500,
        remote_asn: "64501".to_owned(),
        state: "Established".to_owned(),
        state_seconds: 90,
        bfd: Some(BfdView {
            state: "Up".to_owned(),
            ups: 2,
            downs: 1,
            ..BfdView::default()
        }),
        prefixes_wanted: 3,
        prefixes_sent: 2,
        messages: PeerMessages {
            opens_sent: 1,
            updates_sent: 4,
            keepalives_received: 7,
            ..PeerMessages::default()
        },
        ..PeerView::default()
    }
}

/// A speaker with two routers, one of which does not answer.
pub fn routers() -> InstanceView {
    let spare = PeerView {
        name: "spare".to_owned(),
        address: "192.0.2.253".to_owned(),
        state: "Idle".to_owned(),
        bfd: None,
        prefixes_sent: 0,
        problem: Some(
            Reason::warning(Code::NotAnnounced, "BGPPeer spare: no session")
                .remedy("start BGP on the router"),
        ),
        ..peer()
    };
    let route = |peer: &str, number: u8| RouteView {
        prefix: format!("192.0.2.{number}/32"),
        node: "node-1".to_owned(),
        peer: peer.to_owned(),
        established: peer == "tor",
        local_preference: (number == 1).then_some(300),
        communities: vec!["64500:7".to_owned()],
        services: vec![ServiceKey::new("shop", "web")],
    };
    let of_tor = (1..=25).map(|number| route("tor", number));
    InstanceView {
        peers: vec![peer(), spare],
        routes: of_tor.chain([route("spare", 1)]).collect(),
        pools: Vec::new(),
        ..empty()
    }
}

/// An instance that is up, with one pool and no Services.
pub fn empty() -> InstanceView {
    InstanceView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: ago(3 * 3600 + 1800).to_string(),
        ready: true,
        pools: vec![PoolView {
            name: "default".into(),
            addresses: vec!["192.0.2.0/24".into()],
            assigned_ipv4: 0,
            available_ipv4: 256,
            ..PoolView::default()
        }],
        ..InstanceView::default()
    }
}

/// An instance that does not know everything yet.
pub fn starting() -> InstanceView {
    InstanceView {
        ready: false,
        waiting: vec![
            "the first read of examples/shop".into(),
            "2 Services to be reconciled".into(),
        ],
        ..empty()
    }
}

/// A shop: web over HTTP and HTTPS, DNS over UDP with two families, a database; nothing is wrong.
pub fn healthy() -> InstanceView {
    let services = vec![web(), dns(), postgres()];
    InstanceView {
        services,
        pools: pools(2, 1),
        ..empty()
    }
}

/// The same shop with one member that fails its checks, as in `landfall demo`.
pub fn shop() -> InstanceView {
    let mut web = web();
    for listener in &mut web.listeners {
        if let Some(last) = listener.members.last_mut() {
            *last = turned(
                last.clone(),
                Health::Down,
                "HTTP 500 where 200-204 was expected, 3 times",
            );
        }
    }
    InstanceView {
        services: vec![web, dns(), postgres(), mail()],
        pools: pools(4, 1),
        ..empty()
    }
}

/// Everything that can be wrong, once.
pub fn broken() -> InstanceView {
    InstanceView {
        peers: vec![peer()],
        problems: vec![
            Reason::error(
                Code::InvalidManifest,
                "mapping values are not allowed in this context",
            )
            .remedy("correct the YAML; the last valid version is served meanwhile")
            .origin(Some(landfall_model::Origin {
                file: "examples/shop/cart.yaml".into(),
                line: 14,
            })),
        ],
        services: vec![
            mail(),
            pool_exhausted(),
            no_healthy(),
            port_in_use(),
            progressing(),
            previous_version(),
            web(),
            dns(),
        ],
        pools: pools(8, 1)
            .into_iter()
            .map(|pool| PoolView {
                available_ipv4: 0,
                ..pool
            })
            .collect(),
        ..empty()
    }
}

/// So many Services, some of them not well.
pub fn many(count: usize) -> InstanceView {
    let one = |number: usize| -> ServiceView {
        let key = format!("team-{:02}/app-{number:03}", number % 20);
        let address = format!("10.64.{}.{}", number / 250, number % 250 + 1);
        let backend = |at: usize| {
            member(
                &format!("app-{number:03}-{at}"),
                &format!("10.1.{}.{}:8080", number % 250, at + 1),
                (number % 9) as u64,
            )
        };
        let mut members: Vec<_> = (0..4).map(backend).collect();
        if number % 97 == 5 {
            members[1] = turned(members[1].clone(), Health::Down, "connection refused");
        }
        with(
            service(&key, &address, number as u32),
            vec![listener(80, Protocol::Tcp, "http", members)],
        )
    };
    InstanceView {
        services: (0..count).map(one).collect(),
        pools: vec![PoolView {
            name: "default".into(),
            addresses: vec!["10.64.0.0/16".into()],
            assigned_ipv4: count as u64,
            available_ipv4: 65_536_u64.saturating_sub(count as u64),
            ..PoolView::default()
        }],
        ..empty()
    }
}

/// Names, details and files that try to be markup, script, or to turn the writing direction.
pub fn hostile() -> InstanceView {
    const MARKUP: &str = "<img src=x onerror=\"window.pwned=1\">";
    const SCRIPT: &str = "</script><script>window.pwned=2</script>";
    let mut one = web();
    one.key = landfall_model::ServiceKey::new(MARKUP, SCRIPT);
    one.class = Some("javascript:window.pwned=3".into());
    one.reasons.push(
        Reason::warning(
            Code::UnknownAnnotation,
            format!("no option is called {MARKUP}"),
        )
        .at(format!("metadata.annotations[{SCRIPT}]"))
        .value("\u{202e}\"><svg onload=window.pwned=4>")
        .remedy(MARKUP)
        .origin(Some(landfall_model::Origin {
            file: format!("/{MARKUP}.yaml").into(),
            line: 1,
        })),
    );
    one.status.ingress[0].hostname = Some("javascript:alert(1)//".into());
    one.left_out.push(left_out(MARKUP, SCRIPT, MARKUP));
    one.pending.push(PlannedStep {
        step: MARKUP.into(),
        because: SCRIPT.into(),
        kind: PlannedKind::Change,
        detail: serde_json::Value::Null,
    });
    for listener in &mut one.listeners {
        listener.name = MARKUP.into();
        listener.members[0].name = Some(SCRIPT.into());
        listener.members[0].node = Some(MARKUP.into());
        listener.members[1].detail = "x".repeat(400);
    }
    let mut two = dns();
    two.key = landfall_model::ServiceKey::new("shop", &"a-name-without-an-end".repeat(12));
    let mut pools = pools(2, 1);
    pools[0].name = MARKUP.into();
    pools[0].addresses = vec![SCRIPT.into(), "9".repeat(300)];
    InstanceView {
        version: MARKUP.into(),
        problems: vec![Reason::error(Code::InvalidManifest, SCRIPT)],
        services: vec![one, two],
        pools,
        ..empty()
    }
}

/// What an engine counts in some hours.
pub fn metrics() -> MetricsView {
    let counts = |pairs: &[(&str, u64)]| {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    MetricsView {
        reconcile_seconds: HistogramView {
            buckets: vec![(0.001, 40), (0.01, 9), (0.1, 2), (1.0, 0)],
            sum: 0.75,
            count: 52,
        },
        reconciles: counts(&[("changed", 6), ("refused", 2), ("unchanged", 44)]),
        steps: counts(&[("assign", 4), ("listen", 7)]),
        failed_steps: counts(&[("listen", 1)]),
        queued: 1,
        events_aggregated: 3,
        events_dropped: 0,
        turns: 3600,
        status_rewrites: 2,
        cloud_calls: vec![CloudCallsView {
            instance: "cloud".into(),
            method: "GET".into(),
            resource: "loadbalancer".into(),
            outcome: "ok".into(),
            times: TimesView {
                buckets: vec![(100_000, 20), (1_000_000, 1)],
                sum: 1_500_000,
                count: 21,
            },
        }],
        lost_log_lines: 0,
        left_out_log_lines: 0,
        speaker: Some(SpeakerMetrics {
            announces: vec![AnnouncedView {
                protocol: "layer2".to_owned(),
                node: "node-1".to_owned(),
                address: [192, 0, 2, 20].into(),
                service: ServiceKey::new("shop", "web"),
            }],
            failing: 0,
            members: 3,
            members_died: 1,
            suspicions: 2,
            refuted: 1,
            pauses: 4,
            datagrams_refused: counts(&[("forged", 2), ("replayed", 5)]),
        }),
        secrets: Some(SecretsView {
            watched: 12,
            limit: 4096,
            refused: 0,
        }),
        resources: Some(ResourcesView {
            workers: 4,
            descriptors: 310,
            descriptor_limit: 20_000,
            listener_sockets: 28,
            flows: 12,
            flow_limit: 14_000,
            memory: 3 << 20,
            memory_limit: 256 << 20,
            shortages: 2,
            ..ResourcesView::default()
        }),
    }
}

fn pools(ipv4: u64, ipv6: u64) -> Vec<PoolView> {
    vec![
        PoolView {
            name: "default".into(),
            addresses: vec!["192.0.2.0/24".into()],
            assigned_ipv4: ipv4,
            available_ipv4: 256_u64.saturating_sub(ipv4),
            ..PoolView::default()
        },
        PoolView {
            name: "edge".into(),
            addresses: vec!["198.51.100.8/29".into(), "2001:db8:ed9e::/64".into()],
            assigned_ipv4: 7,
            available_ipv4: 1,
            assigned_ipv6: ipv6,
            available_ipv6: u64::MAX,
            limit_ipv4: Some(7),
            largest_ipv4: 6,
            ..PoolView::default()
        },
    ]
}

fn web() -> ServiceView {
    let members = || {
        vec![
            member("web-6d4b75cb6d-hj2kd", "10.244.1.17:8080", 34),
            member("web-6d4b75cb6d-n8x4t", "10.244.2.9:8080", 33),
            member("web-6d4b75cb6d-zq7vw", "10.244.3.21:8080", 31),
        ]
    };
    let mut http = ListenerView {
        monitor: Some(http_monitor()),
        measured: Some(Box::new(measured())),
        ..listener(80, Protocol::Tcp, "http", members())
    };
    http.traffic.failed = 1;
    let https = ListenerView {
        monitor: Some(http_monitor()),
        algorithm: Algorithm::LeastConnections,
        affinity: Some(ClientAffinity {
            timeout: Duration::from_secs(10_800),
        }),
        connection_limit: Some(20_000),
        ..listener(443, Protocol::Tcp, "https", members())
    };
    with(service("shop/web", "192.0.2.1", 3), vec![http, https])
}

/// What a listener counts that has served requests, and streams before that.
fn measured() -> MeasuredView {
    let counts = |name: &str, count| [(name.to_owned(), count)].into();
    let times = TimesView {
        buckets: vec![(1_000, 40), (10_000, 9), (1_000_000, 2)],
        sum: 750_000,
        count: 52,
    };
    let names = ["connect", "connection", "first_byte", "request"];
    MeasuredView {
        responses: counts("2xx", 51),
        refused: counts("no_member", 1),
        local_failures: counts("ports", 2),
        broken: counts("client_reset", 4),
        waiting: 3,
        times: names.map(|name| (name, times.clone())).into(),
    }
}

fn dns() -> ServiceView {
    let members = vec![
        member("dns-0", "10.244.1.40:5353", 3),
        turned(
            member("dns-1", "10.244.2.41:5353", 2),
            Health::Draining,
            "terminating; 2 flows left",
        ),
    ];
    let udp = listener(53, Protocol::Udp, "stream", members);
    let mut service = service("shop/dns", "198.51.100.9", 41);
    service.status.ingress.push(IngressAddress {
        ip: Some("2001:db8:ed9e::1".parse().expect("an address")),
        ..IngressAddress::default()
    });
    service.address = Some(landfall_model::AddressSpec {
        families: vec![Family::V4, Family::V6],
        pool: Some("edge".into()),
        ..spec()
    });
    service.left_out.push(left_out(
        "10.244.3.42:5353",
        "dns-2",
        "the endpoint is not ready",
    ));
    with(service, vec![udp])
}

fn postgres() -> ServiceView {
    let members = vec![
        member("postgres-0", "10.244.2.11:5432", 18),
        landfall_model::view::MemberView {
            backup: true,
            ..member("postgres-1", "10.244.3.12:5432", 0)
        },
    ];
    let sources = ["10.0.0.0/8", "192.168.0.0/16"].map(|text| text.parse().expect("a prefix"));
    let stream = ListenerView {
        name: "postgres".into(),
        allowed: AllowedSources::Only(BTreeSet::from(sources)),
        proxy_protocol: Some(ProxyProtocol::V2),
        ..listener(5432, Protocol::Tcp, "stream", members)
    };
    with(service("shop/postgres", "192.0.2.2", 66), vec![stream])
}

fn mail() -> ServiceView {
    let conflict = Reason::error(Code::AddressInUse, "192.0.2.1 is held by shop/web")
        .at_annotation("landfall.dev/addresses")
        .value("192.0.2.1")
        .remedy(
            "request another address, or give both Services the same \
             landfall.dev/sharing-key and different ports",
        )
        .origin(Some(origin(96)));
    let mut service = service("shop/mail", "192.0.2.1", 91);
    service.address = Some(landfall_model::AddressSpec {
        requested: vec!["192.0.2.1".parse().expect("an address")],
        ..spec()
    });
    refused(service, ConditionType::Addressed, conflict)
}

fn pool_exhausted() -> ServiceView {
    let full = Reason::error(
        Code::PoolExhausted,
        "every IPv4 address of pool \"default\" is in use",
    )
    .remedy("add a range to the pool, or delete a Service that is not needed");
    refused(
        service("shop/search", "192.0.2.4", 120),
        ConditionType::Addressed,
        full,
    )
}

fn no_healthy() -> ServiceView {
    let down = |name, address| {
        turned(
            member(name, address, 4),
            Health::Down,
            "connection refused, 3 times",
        )
    };
    let members = vec![
        down("cart-0", "10.244.1.60:8080"),
        down("cart-1", "10.244.2.61:8080"),
    ];
    let service = with(
        service("shop/cart", "192.0.2.5", 140),
        vec![listener(80, Protocol::Tcp, "http", members)],
    );
    let reason = Reason::error(
        Code::NoHealthyMembers,
        "both members of 80/TCP fail their health check",
    )
    .remedy("see why the pods refuse connections on port 8080");
    refused(service, ConditionType::Programmed, reason)
}

fn port_in_use() -> ServiceView {
    let busy = Reason::error(Code::PortInUse, "another process listens on 192.0.2.6:8443")
        .at("spec.ports[1].port")
        .value("8443")
        .remedy("stop that process (ss -ltnp shows it), or choose another port")
        .origin(Some(origin(163)));
    let members = || vec![member("api-0", "10.244.1.70:8080", 12)];
    let listeners = vec![
        listener(80, Protocol::Tcp, "http", members()),
        ListenerView {
            problem: Some(busy.clone()),
            ..listener(8443, Protocol::Tcp, "https", Vec::new())
        },
    ];
    let mut service = with(service("shop/api", "192.0.2.6", 155), listeners);
    service.reasons.push(busy);
    service
}

fn progressing() -> ServiceView {
    let mut service = service("shop/queue", "192.0.2.7", 180);
    let reason = Reason::info(Code::Progressing, "1 of 3 steps done");
    service = refused(service, ConditionType::Programmed, reason);
    let step = |step: &str, because: &str| PlannedStep {
        step: step.into(),
        because: because.into(),
        kind: PlannedKind::Change,
        detail: serde_json::Value::Null,
    };
    service.pending = vec![
        step("listen on 192.0.2.7:5672/TCP", "the Service has port amqp"),
        step(
            "add members 10.244.1.80:5672, 10.244.2.81:5672",
            "they are ready endpoints",
        ),
    ];
    service
}

fn previous_version() -> ServiceView {
    let mut service = with(
        service("shop/images", "192.0.2.8", 200),
        vec![listener(
            80,
            Protocol::Tcp,
            "http",
            vec![member("images-0", "10.244.1.90:8080", 9)],
        )],
    );
    let bad = Reason::error(Code::InvalidSourceRange, "not a prefix in CIDR notation")
        .at("spec.loadBalancerSourceRanges[0]")
        .value("10.0.0.0/33")
        .remedy("write ADDRESS/LENGTH with a length of at most 32, such as 10.0.0.0/8")
        .origin(Some(origin(212)));
    service.status.conditions[0] =
        landfall_model::Condition::unmet(ConditionType::Accepted, &bad, ago(42));
    service.reasons.push(bad);
    service.reasons.push(Reason::warning(
        Code::ServingPreviousVersion,
        "the version from before the last change is served",
    ));
    service
}
