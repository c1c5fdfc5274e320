//! Changes of a Service: ports, health checks, strategies.

use landfall_model::Protocol;
use landfall_testkit::build::number;
use landfall_testkit::svc;
use serde_json::json;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();

/// A Service with ports 80 and 443.
fn two() -> landfall_testkit::build::ServiceBuilder {
    let web = svc("web").named_port("http", 80).node_port(32_672);
    web.named_port("https", 443).node_port(32_673)
}

#[tokio::test(start_paused = true)]
async fn s10_a_new_node_port_changes_the_service_in_place() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let before = rig.service(80)["id"].clone();
    rig.forget();
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    assert_eq!(rig.writes(), ["PUT /load-balancer/LB/service/SERVICE"]);
    let service = rig.service(80);
    assert_eq!(service["id"], before);
    assert_eq!(service["target-port"], 31_000);
    assert_eq!(service["healthcheck"]["port"], 31_000);
}

#[tokio::test(start_paused = true)]
async fn s11_a_new_port_takes_the_place_of_the_old_one() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.forget();
    rig.edit("web", |row| row.ports[0].port = number(8080))
        .await;
    assert_eq!(
        rig.writes(),
        [
            "DELETE /load-balancer/LB/service/SERVICE",
            "POST /load-balancer/LB/service"
        ]
    );
    assert_eq!(rig.service(8080)["name"], "uid-web-8080");
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s13_a_port_that_goes_is_one_deletion() {
    let mut rig = Rig::new();
    rig.apply(two()).await;
    rig.forget();
    rig.edit("web", |row| drop(row.ports.remove(0))).await;
    assert_eq!(rig.writes(), ["DELETE /load-balancer/LB/service/SERVICE"]);
    assert_eq!(rig.ports(), [443]);
}

#[tokio::test(start_paused = true)]
async fn s14_the_name_of_the_only_service_ends_with_the_second_port() {
    let mut rig = Rig::new();
    rig.apply(web().annotated(&key("service-name"), "front"))
        .await;
    assert_eq!(rig.service(80)["name"], "front");
    rig.forget();
    rig.apply(two().annotated(&key("service-name"), "front"))
        .await;
    assert_eq!(
        rig.writes(),
        [
            "PUT /load-balancer/LB/service/SERVICE",
            "POST /load-balancer/LB/service"
        ]
    );
    assert_eq!(rig.service(80)["name"], "uid-web-80");
    assert_eq!(rig.service(443)["name"], "uid-web-443");
}

#[tokio::test(start_paused = true)]
async fn s15_and_s16_udp_beside_tcp_is_a_service_of_its_own() {
    let mut rig = Rig::new();
    let dns = svc("web").named_port("tcp", 53).node_port(30_053);
    rig.apply(dns.udp_port("udp", 53).node_port(30_053)).await;
    assert_eq!(rig.ports(), [53, 53]);
    let nlb = rig.nlb();
    let names = nlb["services"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"uid-web-53") && names.contains(&"uid-web-53-udp"));
    assert_eq!(rig.refusal(), "");
    rig.edit("web", |row| {
        row.ports.retain(|it| it.protocol == Protocol::Tcp);
    })
    .await;
    assert_eq!(rig.service(53)["protocol"], "tcp");
    assert_eq!(rig.ports(), [53]);
}

#[tokio::test(start_paused = true)]
async fn s17_sctp_is_refused_and_nothing_is_created() {
    let mut rig = Rig::new();
    let service = svc("web").named_port("a", 80).node_port(30_080);
    let sctp = service.any_port("b", Protocol::Sctp, 90).node_port(30_090);
    rig.apply(sctp).await;
    assert!(rig.refusal().starts_with("ProtocolNotSupported"));
    assert_eq!(rig.writes(), NOTHING);
    assert_eq!(rig.cluster.events(), ["web SyncLoadBalancerFailed"]);
}

#[tokio::test(start_paused = true)]
async fn s19_s20_and_s21_nodes_of_local_services_are_asked_for_endpoints() {
    let local = || {
        let service = web().local();
        service.with(|row| row.health_check_node_port = Some(number(30_123)))
    };
    let mut rig = Rig::new();
    rig.apply(local()).await;
    let check = &rig.service(80)["healthcheck"];
    assert_eq!(
        check,
        &json!({
            "mode": "http", "uri": "/healthz", "port": 30_123,
            "interval": 10, "timeout": 5, "retries": 1,
        })
    );
    rig.apply(local().annotated(&key("service-healthcheck-port"), "31000"))
        .await;
    assert_eq!(rig.service(80)["healthcheck"]["port"], 31_000);
    rig.apply(local().annotated(&key("service-healthcheck-mode"), "tcp"))
        .await;
    assert_eq!(rig.service(80)["healthcheck"]["mode"], "tcp");
    let mut rig = Rig::new();
    rig.settings.local_http_checks = false;
    rig.apply(local()).await;
    let check = &rig.service(80)["healthcheck"];
    assert_eq!(
        (&check["mode"], &check["port"]),
        (&json!("tcp"), &json!(30_123))
    );
}

#[tokio::test(start_paused = true)]
async fn s22_health_checks_are_tuned_for_all_services() {
    let mut rig = Rig::new();
    let tuned = [
        ("mode", "http"),
        ("uri", "/h"),
        ("interval", "15s"),
        ("timeout", "4s"),
        ("retries", "3"),
    ];
    let service = tuned.into_iter().fold(two(), |service, (name, value)| {
        service.annotated(&key(&format!("service-healthcheck-{name}")), value)
    });
    rig.apply(service).await;
    for (port, node_port) in [(80, 32_672), (443, 32_673)] {
        assert_eq!(
            rig.service(port)["healthcheck"],
            json!({
                "mode": "http", "uri": "/h", "port": node_port,
                "interval": 15, "timeout": 4, "retries": 3,
            })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn s23_durations_are_those_of_go() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.annotate("service-healthcheck-interval", "1m30s").await;
    assert_eq!(rig.service(80)["healthcheck"]["interval"], 90);
    for value in ["10", "1500ms"] {
        rig.forget();
        rig.annotate("service-healthcheck-interval", value).await;
        assert_eq!(rig.writes(), NOTHING, "{value}");
        assert!(rig.refusal().contains("healthcheck-interval"), "{value}");
        assert!(rig.is_programmed());
        assert!(
            rig.cluster
                .events()
                .contains(&"web SyncLoadBalancerFailed".to_owned())
        );
        rig.annotate("service-healthcheck-interval", "1m30s").await;
        assert_eq!(rig.refusal(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn s25_and_s26_known_strategies_are_sent_and_others_change_nothing() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.annotate("service-strategy", "maglev-hash").await;
    assert_eq!(rig.service(80)["strategy"], "maglev-hash");
    rig.forget();
    rig.annotate("service-strategy", "least-conn").await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(rig.refusal().contains("least-conn") && rig.is_programmed());
    // What is refused keeps nothing else from following.
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    let service = rig.service(80);
    assert_eq!(service["target-port"], 31_000);
    assert_eq!(service["strategy"], "maglev-hash");
    rig.restart().await;
    assert!(rig.refusal().contains("least-conn") && rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s47_descriptions_change_and_are_emptied() {
    let mut rig = Rig::new();
    rig.apply(web().annotated(&key("description"), "x")).await;
    assert_eq!(rig.nlb()["description"], "x");
    rig.forget();
    rig.annotate("description", "y").await;
    assert_eq!(rig.nlb()["description"], "y");
    rig.edit("web", |row| {
        drop(row.annotations.remove(&key("description")));
    })
    .await;
    assert_eq!(
        rig.writes(),
        [
            "PUT /load-balancer/LB",
            "DELETE /load-balancer/LB/description"
        ]
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn s49_and_s50_what_the_cloud_adds_is_no_difference() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let (nlb, service) = (rig.nlb()["id"].clone(), rig.service(80));
    let mut check = service["healthcheck"].clone();
    check["uri"] = json!("/");
    let ids = (nlb.as_str().unwrap(), service["id"].as_str().unwrap());
    rig.sim.edit_service(ids.0, ids.1, "healthcheck", check);
    rig.sim.configure(|settings| settings.full_pools = true);
    rig.forget();
    rig.restart().await;
    rig.wait(std::time::Duration::from_secs(900)).await;
    assert_eq!(rig.writes(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn s79_without_a_node_port_nothing_is_created() {
    let mut rig = Rig::new();
    rig.apply(svc("web").port(80)).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(!rig.is_programmed());
    assert_eq!(rig.cluster.events(), ["web SyncLoadBalancerFailed"]);
}

#[tokio::test(start_paused = true)]
async fn s80_eleven_ports_are_too_many() {
    let mut rig = Rig::new();
    let ports = |count: u16| {
        (1..=count).fold(svc("web"), |service, port| {
            let service = service.named_port(&format!("p{port}"), port);
            service.node_port(30_000 + port)
        })
    };
    rig.apply(ports(11)).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(
        rig.condition("web", landfall_model::status::ConditionType::Programmed)
            .message
            .contains("at most 10 ports")
    );
    rig.apply(ports(10)).await;
    assert_eq!(rig.ports().len(), 10);
    rig.forget();
    rig.apply(ports(11)).await;
    rig.wait(std::time::Duration::from_secs(900)).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(
        rig.refusal().starts_with("LimitReached"),
        "{}",
        rig.refusal()
    );
}

#[tokio::test(start_paused = true)]
async fn s81_what_a_load_balancer_can_not_do_is_said() {
    let mut rig = Rig::new();
    let service = web()
        .source_range("192.0.2.0/24")
        .load_balancer_ip("192.0.2.9");
    rig.apply(service.annotated(&key("zone"), "ch-dk-2")).await;
    assert!(rig.is_programmed());
    let accepted = rig.condition("web", landfall_model::status::ConditionType::Accepted);
    assert!(accepted.status && accepted.reason == landfall_model::Code::OptionNotSupported);
}

#[tokio::test(start_paused = true)]
async fn s85_udp_is_checked_at_its_node_port_with_a_warning() {
    let mut rig = Rig::new();
    rig.apply(svc("web").udp_port("", 53).node_port(30_053))
        .await;
    assert_eq!(rig.service(53)["healthcheck"]["port"], 30_053);
    assert_eq!(rig.refusal(), "");
}

#[tokio::test(start_paused = true)]
async fn s86_https_checks_name_the_server() {
    let mut rig = Rig::new();
    let service = web().annotated(&key("service-healthcheck-mode"), "https");
    let service = service.annotated(&key("service-healthcheck-uri"), "/h");
    let sni = key("service-healthcheck-tls-sni");
    rig.apply(service.clone().annotated(&sni, "web.example.org"))
        .await;
    assert_eq!(rig.service(80)["healthcheck"]["tls-sni"], "web.example.org");
    rig.forget();
    rig.apply(service).await;
    rig.edit("web", |row| drop(row.annotations.remove(&sni)))
        .await;
    assert_eq!(rig.writes(), NOTHING, "the field is left as it is");
}
