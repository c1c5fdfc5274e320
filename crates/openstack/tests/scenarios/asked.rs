//! What a Service asks for outright: sent as is, where the cloud can have it; reported, where
//! it can't. What a Service of cloud-provider-openstack was served with is served on.

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::rows::FamilyPolicy;
use landfall_testkit::build::{ServiceBuilder, svc};
use serde_json::{Value, json};

use crate::addresses::INTERNAL;
use crate::create::web;
use crate::rig::stage::Stage;
use crate::rig::{Picture, Rig};
use crate::subnets::dual;
use crate::written::{annotate, bodies, refusal, short};

const OVN: &str = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT";
const WEIGHTS: &str = "landfall.dev/member-weights";
const BACKUPS: &str = "landfall.dev/backup-members";

/// The only warning of a kind.
fn only(rig: &Rig, reason: &str) -> String {
    let mut reported = rig.cluster.messages(reason);
    assert_eq!(reported.len(), 1, "{reported:?} {:?}", rig.cluster.events());
    reported.remove(0)
}

async fn is_at_rest(rig: &mut Rig) {
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

// === Numbers ===

#[tokio::test(start_paused = true)]
async fn numbers_that_octavia_takes_are_sent_as_they_are() {
    let mut rig = Rig::new("create-monitor=true");
    let service = web()
        .annotated(&short("connection-limit"), "0")
        .annotated(&short("timeout-client-data"), "172800000")
        .annotated(&short("timeout-member-data"), "0")
        .annotated(&short("health-monitor-delay"), "2");
    rig.apply(service).await;
    let picture = rig.picture().await;
    let listener = picture.listener_at(80);
    assert_eq!(listener.connection_limit, Some(0));
    assert_eq!(listener.timeout_client_data, Some(172_800_000));
    assert_eq!(listener.timeout_member_data, Some(0));
    let times = |picture: &Picture| (picture.monitors[0].delay, picture.monitors[0].timeout);
    assert_eq!(times(&picture), (2, 3));
    annotate(&mut rig, &[("health-monitor-timeout", "9")]).await;
    assert_eq!(times(&rig.picture().await), (2, 9));
    assert_eq!(refusal(&rig, "web"), "");
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_monitor_is_made_of_what_is_configured_though_its_time_out_is_longer_than_its_delay() {
    let mut rig = Rig::new("create-monitor=true\nmonitor-delay=2500ms\nmonitor-timeout=7s");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let monitor = &picture.monitors[0];
    assert_eq!((monitor.delay, monitor.timeout), (2, 7));
    assert_eq!(
        rig.cluster.messages("OptionNotSupported"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn time_outs_hold_on_ports_of_every_protocol() {
    let mut rig = Rig::new("");
    let service = svc("web")
        .named_port("tcp", 80)
        .node_port(30080)
        .udp_port("udp", 53)
        .node_port(30053)
        .annotated(&short("timeout-member-connect"), "700")
        .annotated(&short("timeout-tcp-inspect"), "70");
    rig.apply(service).await;
    let picture = rig.picture().await;
    for port in [80, 53] {
        let listener = picture.listener_at(port);
        assert_eq!(listener.timeout_member_connect, Some(700));
        assert_eq!(listener.timeout_tcp_inspect, Some(70));
    }
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_number_for_an_absent_monitor_keeps_no_service_from_being_served() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&short("health-monitor-max-retries"), "20"))
        .await;
    assert_eq!(rig.published("web").len(), 1);
    assert!(only(&rig, "InvalidAnnotation").contains("health-monitor-max-retries"));
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_second_are_rounded_up_and_that_is_reported() {
    let mut rig = Rig::new("");
    let monitored = |delay: &str| {
        web()
            .annotated("landfall.dev/monitor", "tcp")
            .annotated("landfall.dev/monitor-delay", delay)
    };
    rig.apply(monitored("500ms")).await;
    assert_eq!(rig.picture().await.monitors[0].delay, 1);
    assert!(only(&rig, "OptionNotSupported").contains("1s instead of 500ms"));
    rig.apply(monitored("1500ms")).await;
    assert_eq!(rig.picture().await.monitors[0].delay, 2);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn udp_ports_are_checked_no_more_often_than_octavia_lets() {
    let mut rig = Rig::new("create-monitor=true");
    let service = svc("web")
        .udp_port("dns", 53)
        .node_port(30053)
        .annotated(&short("health-monitor-delay"), "1");
    rig.apply(service).await;
    assert_eq!(rig.picture().await.monitors[0].delay, 3);
    assert!(only(&rig, "OptionNotSupported").contains("3s"));
}

#[tokio::test(start_paused = true)]
async fn codes_are_a_range_or_a_list() {
    for (codes, sent) in [
        ("200-299", "200-299"),
        ("200, 204", "200,204"),
        ("200,204,300-302", "200,204,300,301,302"),
        ("200-201,201-202", "200,201,202"),
    ] {
        let mut rig = Rig::new("");
        rig.apply(coded(codes)).await;
        let picture = rig.picture().await;
        let there = picture.monitors[0].expected_codes.as_deref();
        assert_eq!(there, Some(sent));
        is_at_rest(&mut rig).await;
    }
    let mut rig = Rig::new("");
    rig.apply(coded("200-299,404")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(refusal(&rig, "web").contains("200-299,404"));
}

fn coded(codes: &str) -> ServiceBuilder {
    web()
        .annotated("landfall.dev/monitor", "http")
        .annotated("landfall.dev/monitor-codes", codes)
}

// === Members ===

fn shares(picture: &Picture) -> Vec<(String, u16, bool)> {
    let pool = picture.pool_at(80);
    let members = picture.members[pool.id.as_str()].iter();
    let mut shares: Vec<_> = members
        .map(|it| (it.name.clone(), it.weight.unwrap(), it.backup))
        .collect();
    shares.sort();
    shares
}

fn share(name: &str, weight: u16, backup: bool) -> (String, u16, bool) {
    (name.to_owned(), weight, backup)
}

async fn say(rig: &mut Rig, key: &str, value: Option<&str>) {
    rig.edit("web", |row| {
        match value {
            Some(value) => row.annotations.insert(key.to_owned(), value.to_owned()),
            None => row.annotations.remove(key),
        };
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn members_get_the_weights_that_the_service_says() {
    // Batches, batches that replace all, and one by one.
    for (minor, conf) in [
        (27, ""),
        (10, ""),
        (27, "provider-requires-serial-api-calls=true"),
    ] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, conf);
        rig.apply(web().annotated(WEIGHTS, "a=3,10.0.0.5=2")).await;
        let reported = |picture: &Picture| -> Vec<(u16, bool)> {
            let mut reported: Vec<_> = shares(picture).into_iter().map(|it| (it.1, it.2)).collect();
            reported.sort_unstable();
            reported
        };
        assert_eq!(reported(&rig.picture().await), [(2, false), (3, false)]);
        is_at_rest(&mut rig).await;
        say(&mut rig, WEIGHTS, Some("a=0")).await;
        assert_eq!(reported(&rig.picture().await), [(0, false), (1, false)]);
        say(&mut rig, BACKUPS, Some("b")).await;
        assert_eq!(reported(&rig.picture().await), [(0, false), (1, true)]);
        is_at_rest(&mut rig).await;
        say(&mut rig, BACKUPS, Some("a")).await;
        assert_eq!(reported(&rig.picture().await), [(0, true), (1, false)]);
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        let three = [(0, true), (1, false), (1, false)];
        assert_eq!(reported(&rig.picture().await), three, "2.{minor} {conf}");
        // What no option sets any more stays as it is.
        rig.forget();
        say(&mut rig, WEIGHTS, None).await;
        say(&mut rig, BACKUPS, None).await;
        assert_eq!(rig.writes(), Vec::<String>::new());
        assert_eq!(reported(&rig.picture().await), three);
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn members_of_a_pool_that_is_too_large_for_a_request_get_their_weights_too() {
    for minor in [27, 10] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, "");
        rig.body_limit = Some(1200);
        for last in 10..24 {
            rig.add_node(&format!("n{last}"), &format!("10.0.0.{last}"));
        }
        rig.apply(web().annotated(WEIGHTS, "n10=3,n23=4")).await;
        let picture = rig.picture().await;
        let of = |picture: &Picture, last: u8| {
            let address = std::net::IpAddr::from([10, 0, 0, last]);
            let pool = picture.pool_at(80);
            let mut members = picture.members[pool.id.as_str()].iter();
            members
                .find(|it| it.address == Some(address))
                .unwrap()
                .weight
        };
        assert_eq!(picture.members_at(80).len(), 16);
        assert_eq!([10, 11, 23].map(|it| of(&picture, it)), [3, 1, 4].map(Some));
        say(&mut rig, WEIGHTS, Some("n11=0,n23=5")).await;
        let picture = rig.picture().await;
        assert_eq!(
            [10, 11, 23].map(|it| of(&picture, it)),
            [1, 0, 5].map(Some),
            "2.{minor}"
        );
        assert_eq!(picture.members_at(80).len(), 16);
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_weight_changed_by_hand_is_reset_to_what_the_service_says() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(WEIGHTS, "a=3")).await;
    let picture = rig.picture().await;
    let pool = picture.pool_at(80);
    let member = &picture.members[pool.id.as_str()][0];
    let path = format!("/v2/lbaas/pools/{}/members/{}", pool.id, member.id);
    let service = landfall_testkit::openstack::Service::LoadBalancer;
    let change = json!({"member": {"weight": 9}});
    rig.sim
        .hand(service, &http::Method::PUT, &path, change)
        .unwrap();
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let named = [
        share("a", 3, false),
        share("b", 1, false),
        share("c", 1, false),
    ];
    assert_eq!(shares(&rig.picture().await), named);
}

// === Modes and headers ===

#[tokio::test(start_paused = true)]
async fn a_port_in_stream_mode_does_not_terminate_tls() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    let mut rig = Rig::on(sim, "");
    let service = svc("web")
        .named_port("plain", 80)
        .node_port(30080)
        .named_port("tls", 443)
        .node_port(30443)
        .annotated(&short("default-tls-container-ref"), &reference)
        .annotated("landfall.dev/mode.plain", "stream");
    rig.apply(service).await;
    let picture = rig.picture().await;
    let protocols = [80, 443].map(|port| picture.listener_at(port).protocol.clone());
    assert_eq!(protocols, ["TCP", "TERMINATED_HTTPS"]);
    assert_eq!(picture.listener_at(80).default_tls_container_ref, None);
    assert_eq!(picture.pool_at(80).protocol, "TCP");
    is_at_rest(&mut rig).await;
    say(&mut rig, "landfall.dev/mode.tls", Some("stream")).await;
    assert!(only(&rig, "OptionNotApplicable").contains("no port terminates TLS"));
}

fn by_hand(rig: &Rig, picture: &Picture, headers: Value) {
    let path = format!("/v2/lbaas/listeners/{}", picture.listener_at(80).id);
    let service = landfall_testkit::openstack::Service::LoadBalancer;
    let change = json!({"listener": {"insert_headers": headers}});
    rig.sim
        .hand(service, &http::Method::PUT, &path, change)
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn headers_that_the_reference_does_not_know_stay_as_they_were_set_by_hand() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&short("x-forwarded-for"), "true"))
        .await;
    let picture = rig.picture().await;
    let all =
        json!({"X-Forwarded-For": "true", "X-Forwarded-Proto": "true", "X-Forwarded-Port": "true"});
    by_hand(&rig, &picture, all);
    is_at_rest(&mut rig).await;
    annotate(&mut rig, &[("timeout-client-data", "70000")]).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"timeout_client_data": 70000})]
    );
    // The portable dialect lists what there is.
    rig.forget();
    say(&mut rig, "landfall.dev/forwarded-headers", Some("for,port")).await;
    assert_eq!(
        bodies(&rig, "PUT", "listeners"),
        [json!({"insert_headers": {"X-Forwarded-For": "true", "X-Forwarded-Port": "true"}})]
    );
    is_at_rest(&mut rig).await;
}

// === Which clients may connect, and where ===

#[tokio::test(start_paused = true)]
async fn everybody_of_the_services_families_is_everybody() {
    let open = || web().source_range("0.0.0.0/0");
    let mut rig = Rig::new(OVN);
    rig.apply(open()).await;
    assert_eq!(rig.published("web").len(), 1, "{}", refusal(&rig, "web"));
    let mut rig = Rig::new("");
    rig.apply(open()).await;
    let allowed = rig.picture().await.listener_at(80).allowed_cidrs.clone();
    if !rig.sim.is_ovn() {
        assert_eq!(allowed.unwrap(), ["0.0.0.0/0"]);
    }
    // No client comes from there.
    let mut rig = Rig::new(OVN);
    rig.apply(web().source_range("::/0")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_service_of_two_families_may_ask_for_one_address() {
    for policy in [
        FamilyPolicy::RequireDualStack,
        FamilyPolicy::PreferDualStack,
    ] {
        let mut rig = Rig::new("");
        let cidr = "2001:db8::/64".parse().unwrap();
        rig.sim.add_subnet(&rig.sim.network(), "sub6", cidr, &[]);
        let service = dual(policy)
            .annotated(INTERNAL, "true")
            .load_balancer_ip("10.0.0.77");
        rig.apply(service).await;
        let picture = rig.picture().await;
        let balancer = &picture.balancers[0];
        assert_eq!(balancer.vip_address.unwrap().to_string(), "10.0.0.77");
        let six = balancer.additional_vips[0].ip_address.unwrap();
        assert_eq!(
            rig.published("web"),
            ["10.0.0.77".to_owned(), six.to_string()]
        );
        is_at_rest(&mut rig).await;
    }
}

// === What a provider lacks ===

#[tokio::test(start_paused = true)]
async fn what_ovn_leaves_out_is_reported_where_the_service_asks_for_it() {
    let cases = [
        (short("timeout-client-data"), "70000", "timeouts"),
        (short("flavor-id"), "f-1", "flavors"),
        ("landfall.dev/monitor".to_owned(), "http", "requests"),
        ("landfall.dev/monitor-port".to_owned(), "8081", "own port"),
        (WEIGHTS.to_owned(), "a=3", "weights"),
        (BACKUPS.to_owned(), "a", "backup"),
    ];
    for (key, value, says) in cases {
        let mut rig = Rig::new(&format!("{OVN}\ncreate-monitor=true"));
        rig.apply(web().annotated(&key, value)).await;
        let reported = only(&rig, "OptionNotSupported");
        assert!(
            reported.contains(says) && reported.contains("ovn"),
            "{reported}"
        );
        let body = bodies(&rig, "POST", "loadbalancers")[0].to_string();
        assert!(
            !body.contains("weight") && !body.contains("backup"),
            "{body}"
        );
        assert_eq!(rig.published("web").len(), 1);
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ovn_leaves_out_of_defaults_is_not_reported() {
    let mut rig = Rig::new(&format!("{OVN}\ncreate-monitor=true"));
    let local = web()
        .local()
        .with(|row| row.health_check_node_port = Some(landfall_testkit::build::number(31000)));
    rig.apply(local).await;
    assert_eq!(
        rig.cluster.messages("OptionNotSupported"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn an_algorithm_that_amphorae_never_learn_gives_way_to_the_next() {
    let mut rig = Rig::new("lb-provider=amphora");
    rig.apply(web().annotated(&short("lb-method"), "SOURCE_IP_PORT"))
        .await;
    assert_eq!(rig.picture().await.pool_at(80).lb_algorithm, "SOURCE_IP");
    assert!(only(&rig, "OptionNotSupported").contains("SOURCE_IP_PORT"));
    is_at_rest(&mut rig).await;
}

// === What others left ===

#[tokio::test(start_paused = true)]
async fn annotations_of_metallb_keep_no_service_from_being_served() {
    let mut rig = Rig::new("");
    let service = web()
        .annotated("metallb.io/address-pool", "public")
        .annotated("metallb.universe.tf/allow-shared-ip", "office")
        .annotated("metallb.io/loadBalancerIPs", "192.168.7.7");
    rig.apply(service).await;
    assert_eq!(rig.published("web").len(), 1, "{}", refusal(&rig, "web"));
    assert_eq!(rig.cluster.messages("OptionNotApplicable").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_reference_was_stopped_in_the_middle_of_clearing_away_is_cleared_away() {
    for deleting in [false, true] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        let id = rig.picture().await.balancers[0].id.to_string();
        rig.kill();
        // As the reference leaves it.
        rig.cluster.edit("web", |row| {
            row.status.conditions.clear();
            row.status.marks.clear();
            row.annotations.retain(|key, _| !key.starts_with("state."));
            row.annotations.insert(LOAD_BALANCER_ID.to_owned(), id);
            row.wants_load_balancer = false;
            row.deleting = deleting;
        });
        rig.restart().await;
        assert!(rig.picture().await.is_empty(), "{:?}", rig.writes());
        let left = rig.cluster.service("web");
        assert_eq!(left.is_none(), deleting);
        if let Some(service) = left {
            assert!(!service.finalized);
            assert_eq!(service.status.ingress, []);
        }
        rig.forget();
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_without_a_mark_belongs_to_another_controller() {
    let mut rig = Rig::new("");
    let service = web().with(|row| {
        row.wants_load_balancer = false;
        row.finalized = true;
    });
    rig.apply(service).await;
    assert!(rig.cluster.service("web").unwrap().finalized);
    assert_eq!(rig.writes(), Vec::<String>::new());
}
