//! Listeners: source ranges, timeouts, limits, protocols, certificates (rows L).

use std::time::Duration;

use landfall_testkit::build::{ServiceBuilder, svc};

use serde_json::{Value, json};

use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::written::{annotate, bodies, refusal, remove, short};

fn ranges(rig_picture: &crate::rig::Picture, port: u16) -> Vec<String> {
    let mut ranges = rig_picture
        .listener_at(port)
        .allowed_cidrs
        .clone()
        .unwrap_or_default();
    ranges.sort();
    ranges
}

const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

// === Source ranges ===

#[tokio::test(start_paused = true)]
async fn l01_source_ranges_are_written_as_networks() {
    let mut rig = Rig::new("");
    rig.apply(web().source_range("192.168.32.1/24")).await;
    assert_eq!(ranges(&rig.picture().await, 80), ["192.168.32.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn l02_source_ranges_come_and_go_by_one_write_each() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"allowed_cidrs": ["10.0.0.0/8"]})]
    );
    rig.forget();
    rig.apply(web()).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"allowed_cidrs": ["0.0.0.0/0"]})]
    );
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn l03_the_annotation_does_what_the_field_does_and_the_field_wins() {
    let mut rig = Rig::new("");
    let annotated = || web().annotated(RANGES, "10.0.0.0/8, 172.16.0.0/12");
    rig.apply(annotated()).await;
    assert_eq!(
        ranges(&rig.picture().await, 80),
        ["10.0.0.0/8", "172.16.0.0/12"]
    );
    rig.apply(annotated().source_range("192.0.2.0/24")).await;
    assert_eq!(ranges(&rig.picture().await, 80), ["192.0.2.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn l04_an_invalid_range_is_refused_and_nothing_is_written() {
    let mut rig = Rig::new("");
    rig.apply(web().source_range("10.0.0.0/8")).await;
    rig.forget();
    rig.apply(web().source_range("10.0.0.0/33")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(ranges(&rig.picture().await, 80), ["10.0.0.0/8"]);
    let why = refusal(&rig, "web");
    assert!(why.contains("10.0.0.0/33"), "{why}");
    assert!(
        rig.cluster
            .events()
            .contains(&"web SyncLoadBalancerFailed".to_owned()),
        "{:?}",
        rig.cluster.events()
    );
    // Nor is one made that would let every client in.
    let mut rig = Rig::new("");
    rig.apply(web().source_range("nonsense")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn l05_the_same_ranges_in_another_order_change_nothing() {
    let mut rig = Rig::new("");
    rig.apply(
        web()
            .source_range("10.0.0.0/8")
            .source_range("172.16.0.0/12"),
    )
    .await;
    rig.forget();
    rig.apply(
        web()
            .source_range("172.16.5.0/12")
            .source_range("10.0.0.0/8")
            .source_range("10.1.0.0/8"),
    )
    .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn l06_fifty_ranges_on_two_ports_are_two_writes() {
    let two = || {
        svc("web")
            .named_port("a", 80)
            .node_port(30080)
            .named_port("b", 443)
            .node_port(30443)
    };
    let mut rig = Rig::new("");
    rig.apply(two()).await;
    rig.forget();
    let mut service = two();
    for index in 0..50 {
        service = service.source_range(&format!("10.{index}.0.0/16"));
    }
    rig.apply(service).await;
    assert_eq!(bodies(&rig, "PUT", "listeners").len(), 2);
    assert_eq!(rig.writes().len(), 2);
    let picture = rig.picture().await;
    assert_eq!(ranges(&picture, 80).len(), 50);
    assert_eq!(ranges(&picture, 80), ranges(&picture, 443));
}

// === Timeouts and limits ===

#[tokio::test(start_paused = true)]
async fn l07_and_l08_one_time_out_is_one_field_of_one_write() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(&mut rig, &[("timeout-client-data", "300000")]).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"timeout_client_data": 300_000})]
    );
    assert_eq!(rig.writes().len(), 1);
    rig.forget();
    remove(&mut rig, "timeout-client-data").await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"timeout_client_data": 50_000})]
    );
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn l07_all_four_time_outs_are_one_write() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(
        &mut rig,
        &[
            ("timeout-client-data", "1000"),
            ("timeout-member-connect", "2000"),
            ("timeout-member-data", "3000"),
            ("timeout-tcp-inspect", "4000"),
        ],
    )
    .await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({
            "timeout_client_data": 1000,
            "timeout_member_connect": 2000,
            "timeout_member_data": 3000,
            "timeout_tcp_inspect": 4000,
        })]
    );
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn l09_a_connection_limit_comes_and_goes() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(&mut rig, &[("connection-limit", "100")]).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"connection_limit": 100})]
    );
    rig.forget();
    remove(&mut rig, "connection-limit").await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"connection_limit": -1})]
    );
    assert_eq!(rig.writes().len(), 1);
}

// === HTTP ===

fn is_http(picture: &crate::rig::Picture) {
    let listener = picture.listener_at(80);
    assert_eq!(listener.protocol, "HTTP");
    assert_eq!(listener.insert_headers["X-Forwarded-For"], "true");
    assert_eq!(picture.pool_at(80).protocol, "HTTP");
    assert_eq!(picture.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
}

#[tokio::test(start_paused = true)]
async fn l11_x_forwarded_for_makes_an_http_listener() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&short("x-forwarded-for"), "true"))
        .await;
    let picture = rig.picture().await;
    is_http(&picture);
    assert_eq!(picture.listener_at(80).insert_headers.len(), 1);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn l12_x_forwarded_for_is_toggled_behind_the_same_address() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let published = rig.published("web");
    let before = rig.picture().await;
    annotate(&mut rig, &[("x-forwarded-for", "true")]).await;
    let picture = rig.picture().await;
    is_http(&picture);
    assert_eq!((picture.listeners.len(), picture.pools.len()), (1, 1));
    assert_eq!(picture.balancers[0].id, before.balancers[0].id);
    assert_eq!(picture.floating_ips, before.floating_ips);
    assert_eq!(rig.published("web"), published);
    remove(&mut rig, "x-forwarded-for").await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "TCP");
    assert_eq!(picture.pool_at(80).protocol, "TCP");
    assert_eq!((picture.listeners.len(), picture.pools.len()), (1, 1));
    assert_eq!(rig.published("web"), published);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// The port is closed only from the deletion of one listener to the making of the next: the pool of
/// the next is filled before.
#[tokio::test(start_paused = true)]
async fn l12_the_port_is_closed_for_no_longer_than_one_settle() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let watch = crate::written::Watch::over(&rig, 80);
    annotate(&mut rig, &[("x-forwarded-for", "true")]).await;
    let outage = watch.unserved();
    assert!(
        outage <= Duration::from_millis(2500),
        "{outage:?}: {:?}",
        rig.writes()
    );
}

#[tokio::test(start_paused = true)]
async fn x_forwarded_port_and_proto_are_further_headers() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&short("x-forwarded-for"), "true"))
        .await;
    rig.forget();
    annotate(
        &mut rig,
        &[("x-forwarded-port", "true"), ("x-forwarded-proto", "true")],
    )
    .await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"insert_headers": {
            "X-Forwarded-For": "true",
            "X-Forwarded-Port": "true",
            "X-Forwarded-Proto": "true",
        }})]
    );
}

// === Certificates ===

pub const TLS: &str = "default-tls-container-ref";

fn barbican_reads(rig: &Rig) -> usize {
    let calls = rig.calls();
    calls
        .iter()
        .filter(|call| call.contains("/containers/") || call.contains("/secrets/"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn l13_a_certificate_is_looked_for_and_ends_tls() {
    for secret in [true, false] {
        let sim = Stage::new();
        let reference = if secret {
            sim.add_secret()
        } else {
            sim.add_container()
        };
        let mut rig = Rig::on(sim, "");
        rig.apply(web().annotated(&short(TLS), &reference)).await;
        let picture = rig.picture().await;
        let listener = picture.listener_at(80);
        assert_eq!(listener.protocol, "TERMINATED_HTTPS");
        assert_eq!(listener.default_tls_container_ref, Some(reference));
        assert_eq!(listener.insert_headers.len(), 0);
        assert_eq!(picture.pool_at(80).protocol, "HTTP");
        assert_eq!(barbican_reads(&rig), 1, "{:?}", rig.calls());
        rig.forget();
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn l14_a_certificate_and_x_forwarded_for_go_together() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let mut rig = Rig::on(sim, "");
    rig.apply(
        web()
            .annotated(&short(TLS), &reference)
            .annotated(&short("x-forwarded-for"), "true"),
    )
    .await;
    let picture = rig.picture().await;
    let listener = picture.listener_at(80);
    assert_eq!(listener.protocol, "TERMINATED_HTTPS");
    assert_eq!(listener.insert_headers["X-Forwarded-For"], "true");
    assert_eq!(picture.pool_at(80).protocol, "HTTP");
}

#[tokio::test(start_paused = true)]
async fn l15_another_certificate_is_one_write() {
    let sim = Stage::new();
    let (first, second) = (sim.add_secret(), sim.add_container());
    let mut rig = Rig::on(sim, "");
    rig.apply(web().annotated(&short(TLS), &first)).await;
    rig.forget();
    annotate(&mut rig, &[(TLS, &second)]).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"default_tls_container_ref": second})]
    );
    assert_eq!(rig.writes().len(), 1);
    assert_eq!(barbican_reads(&rig), 1);
}

#[tokio::test(start_paused = true)]
async fn tls_comes_and_goes_behind_the_same_address() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let mut rig = Rig::on(sim, "");
    rig.apply(web()).await;
    let before = rig.picture().await;
    annotate(&mut rig, &[(TLS, &reference)]).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "TERMINATED_HTTPS");
    assert_eq!((picture.listeners.len(), picture.pools.len()), (1, 1));
    assert_eq!(picture.floating_ips, before.floating_ips);
    remove(&mut rig, TLS).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "TCP");
    assert_eq!((picture.listeners.len(), picture.pools.len()), (1, 1));
    assert_eq!(picture.floating_ips, before.floating_ips);
}

#[tokio::test(start_paused = true)]
async fn l16_a_certificate_that_is_not_there_is_refused_and_nothing_is_written() {
    let gone = |sim: &Stage| {
        let reference = sim.add_secret();
        sim.remove_secret(&reference);
        reference
    };
    let order = |sim: &Stage| sim.add_secret().replace("/secrets/", "/orders/");
    let no_service = |sim: &Stage| {
        let reference = sim.add_secret();
        sim.configure(|settings| {
            settings
                .services
                .retain(|service| service.name() != "key-manager");
        });
        reference
    };
    let cases: [(&dyn Fn(&Stage) -> String, &str); 3] = [
        (&gone, "Barbican"),
        (&order, "neither a secret nor a container"),
        (&no_service, "key-manager"),
    ];
    for (make, says) in cases {
        let sim = Stage::new();
        let reference = make(&sim);
        let mut rig = Rig::on(sim, "");
        rig.apply(web().annotated(&short(TLS), &reference)).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{says}");
        let why = refusal(&rig, "web");
        assert!(why.contains(says) && why.contains(TLS), "{why}");
        assert!(
            rig.cluster
                .events()
                .contains(&"web SyncLoadBalancerFailed".to_owned()),
            "{:?}",
            rig.cluster.events()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn l16_a_load_balancer_that_works_goes_on_when_a_wrong_certificate_is_named() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let wrong = sim.add_secret();
    sim.remove_secret(&wrong);
    let mut rig = Rig::on(sim, "");
    rig.apply(web().annotated(&short(TLS), &reference)).await;
    let published = rig.published("web");
    rig.forget();
    annotate(&mut rig, &[(TLS, &wrong)]).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.published("web"), published);
    assert!(refusal(&rig, "web").contains("Barbican"));
    annotate(&mut rig, &[(TLS, &reference)]).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_was_seen_and_is_gone_is_refused_without_a_restart() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let mut rig = Rig::on(sim, "");
    rig.apply(web().annotated(&short(TLS), &reference)).await;
    assert_eq!(refusal(&rig, "web"), "");
    rig.sim.remove_secret(&reference);
    rig.wait(std::time::Duration::from_secs(700)).await;
    rig.forget();
    let second = svc("second").port(443).node_port(30081);
    rig.apply(second.annotated(&short(TLS), &reference)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(
        refusal(&rig, "second").contains("Barbican"),
        "{}",
        refusal(&rig, "second")
    );
    // What serves goes on.
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn l17_an_external_store_is_not_asked() {
    let sim = Stage::new();
    sim.configure(|settings| {
        settings
            .services
            .retain(|service| service.name() != "key-manager");
    });
    let mut rig = Rig::on(sim, "container-store=external");
    rig.apply(web().annotated(&short(TLS), "some free text"))
        .await;
    let sent = bodies(&rig, "POST", "loadbalancers");
    assert_eq!(
        sent[0]["listeners"][0]["default_tls_container_ref"],
        "some free text"
    );
    assert_eq!(barbican_reads(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn l18_an_empty_annotation_overrules_the_configured_certificate() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let mut rig = Rig::on(sim, &format!("default-tls-container-ref={reference}"));
    rig.apply(web().annotated(&short(TLS), "")).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "TCP");
    assert_eq!(picture.listener_at(80).default_tls_container_ref, None);
    remove(&mut rig, TLS).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "TERMINATED_HTTPS");
}

// === Values and options of single ports ===

#[tokio::test(start_paused = true)]
async fn wrong_values_fall_back_with_a_warning_and_the_load_balancer_stays() {
    for (key, value, stays) in [
        ("x-forwarded-for", "True", "protocol"),
        ("x-forwarded-for", "", "protocol"),
        ("enable-health-monitor", "yes", "monitor"),
        ("timeout-client-data", "5m", "timeout"),
        ("timeout-client-data", "", "timeout"),
        ("connection-limit", "many", "limit"),
        ("health-monitor-delay", "soon", "monitor"),
        ("proxy-protocol", "v3", "proxy"),
        ("proxy-protocol", "True", "proxy"),
        ("keep-floatingip", "1", "keep"),
    ] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        rig.forget();
        annotate(&mut rig, &[(key, value)]).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{key}={value} {stays}");
        let warnings = rig.cluster.messages("InvalidAnnotation");
        assert!(
            warnings.iter().any(|it| it.contains(&short(key))),
            "{key}={value}: {:?} {warnings:?}",
            rig.cluster.events()
        );
        assert_eq!(refusal(&rig, "web"), "", "{key}={value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_value_counts_as_none_at_all() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(
        web()
            .annotated(&short("enable-health-monitor"), "no")
            .annotated(&short("timeout-member-data"), "70000"),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.monitors.len(), 1);
    assert_eq!(picture.listener_at(80).timeout_member_data, Some(70_000));
}

fn three_ports() -> ServiceBuilder {
    svc("web")
        .named_port("http", 80)
        .node_port(30080)
        .named_port("raw", 443)
        .node_port(30443)
        .udp_port("dns", 53)
        .node_port(30053)
}

#[tokio::test(start_paused = true)]
async fn options_of_single_ports_hold_for_these() {
    let mut rig = Rig::new("");
    rig.apply(
        three_ports()
            .annotated("landfall.dev/mode.http", "http")
            .annotated("landfall.dev/proxy-protocol.443", "v2")
            .annotated("landfall.dev/timeout-client-data.raw", "2m")
            .annotated("landfall.dev/source-ranges.dns", "10.0.0.0/8")
            .annotated("landfall.dev/algorithm.raw", "LEAST_CONNECTIONS")
            .annotated("landfall.dev/monitor.http", "on")
            .annotated("landfall.dev/connection-limit.http", "7"),
    )
    .await;
    assert_eq!(refusal(&rig, "web"), "");
    let picture = rig.picture().await;
    let (http, raw, dns) = (
        picture.listener_at(80),
        picture.listener_at(443),
        picture.listener_at(53),
    );
    assert_eq!(
        (http.protocol.as_str(), http.connection_limit),
        ("HTTP", Some(7))
    );
    assert_eq!(
        (raw.protocol.as_str(), raw.connection_limit),
        ("TCP", Some(-1))
    );
    assert_eq!(dns.protocol, "UDP");
    assert_eq!(raw.timeout_client_data, Some(120_000));
    assert_eq!(http.timeout_client_data, Some(50_000));
    assert_eq!(ranges(&picture, 53), ["10.0.0.0/8"]);
    assert_eq!(ranges(&picture, 80), ["0.0.0.0/0"]);
    let pools = [80, 443, 53].map(|port| picture.pool_at(port));
    assert_eq!(
        pools.map(|pool| (pool.protocol.as_str(), pool.lb_algorithm.as_str())),
        [
            ("HTTP", "ROUND_ROBIN"),
            ("PROXYV2", "LEAST_CONNECTIONS"),
            ("UDP", "ROUND_ROBIN")
        ]
    );
    assert_eq!(picture.monitors.len(), 1);
    assert_eq!(picture.monitors[0].pools[0].id, pools[0].id);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_option_of_one_port_that_octavia_has_not_is_refused_before_anything_is_written() {
    let mut rig = Rig::new("");
    rig.apply(three_ports().annotated("landfall.dev/proxy-protocol.dns", "v2"))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let why = refusal(&rig, "web");
    assert!(why.contains("UDP"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_mode_of_one_port_changes_nothing_on_the_others() {
    let mut rig = Rig::new("");
    rig.apply(three_ports()).await;
    let before = rig.picture().await;
    rig.forget();
    rig.edit("web", |row| {
        row.annotations
            .insert("landfall.dev/mode.http".to_owned(), "http".to_owned());
    })
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(80).protocol, "HTTP");
    for port in [443, 53] {
        assert_eq!(picture.listener_at(port), before.listener_at(port));
        assert_eq!(picture.pool_at(port).id, before.pool_at(port).id);
    }
}

// === Tags ===

#[tokio::test(start_paused = true)]
async fn tags_of_ones_own_are_there_from_the_start_or_come_later() {
    const NAME: &str = "kube_service_c1_default_web";
    let tags = [
        ("load-balancer-tags", "team=a,prod"),
        ("listener-tags", "edge"),
        ("pool-tags", "pooled,two"),
    ];
    let mut later = Rig::new("");
    later.apply(web()).await;
    let plain = later.picture().await.balancers[0].tags.clone();
    later.forget();
    annotate(&mut later, &tags).await;
    assert_eq!(later.writes().len(), 3, "{:?}", later.writes());
    let mut service = web();
    for (key, value) in tags {
        service = service.annotated(&short(key), value);
    }
    let mut first = Rig::new("");
    first.apply(service).await;
    for rig in [&mut later, &mut first] {
        let picture = rig.picture().await;
        let mut wanted = plain.clone();
        wanted.extend(["team=a".to_owned(), "prod".to_owned()]);
        let mut there = picture.balancers[0].tags.clone();
        wanted.sort();
        there.sort();
        assert_eq!(there, wanted);
        assert_eq!(picture.listener_at(80).tags, [NAME, "edge"]);
        assert_eq!(picture.pool_at(80).tags, ["pooled", "two"]);
        rig.forget();
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn tags_that_a_user_put_there_stay() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let add = |row: &mut serde_json::Map<String, Value>| {
        let mut tags = row["tags"].as_array().cloned().unwrap_or_default();
        tags.push("mine".into());
        row.insert("tags".to_owned(), tags.into());
    };
    rig.sim.edit(before.balancers[0].id.as_str(), add);
    rig.sim.edit(before.listeners[0].id.as_str(), add);
    annotate(
        &mut rig,
        &[("load-balancer-tags", "a"), ("listener-tags", "b")],
    )
    .await;
    let picture = rig.picture().await;
    for tag in ["mine", "a"] {
        assert!(picture.balancers[0].tags.contains(&tag.to_owned()));
    }
    for tag in ["mine", "b"] {
        assert!(picture.listeners[0].tags.contains(&tag.to_owned()));
    }
}
