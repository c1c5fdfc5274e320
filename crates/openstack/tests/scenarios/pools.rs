//! Pools and members: which nodes are members, algorithms, and what a change costs (rows L).

use std::time::Duration;

use landfall_model::status::{ConditionType, IpMode};
use landfall_testkit::build::{ServiceBuilder, node, svc};
use landfall_testkit::openstack::Settle;
use serde_json::{Value, json};

use crate::create::web;
use crate::rig::stage::{Stage, is_real};
use crate::rig::{Picture, Rig};
use crate::written::{Watch, annotate, bodies, refusal, remove, short};

const BOTH: [&str; 2] = ["10.0.0.4:30080", "10.0.0.5:30080"];

async fn is_at_rest(rig: &mut Rig) {
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

fn subnets(picture: &Picture, port: u16) -> Vec<String> {
    let pool = picture.pool_at(port);
    picture.members[pool.id.as_str()]
        .iter()
        .map(|member| member.subnet_id.as_ref().unwrap().to_string())
        .collect()
}

// === PROXY headers ===

#[tokio::test(start_paused = true)]
async fn l19_proxy_headers_are_the_pools_protocol() {
    for (value, protocol) in [("true", "PROXY"), ("v1", "PROXY"), ("v2", "PROXYV2")] {
        let mut rig = Rig::new("");
        rig.apply(web().annotated(&short("proxy-protocol"), value))
            .await;
        let picture = rig.picture().await;
        assert_eq!(picture.pool_at(80).protocol, protocol);
        assert_eq!(picture.listener_at(80).protocol, "TCP");
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn l19_version_2_needs_an_octavia_that_has_it() {
    let sim = Stage::new();
    sim.configure(|settings| settings.api_minor = 21);
    let mut rig = Rig::on(sim, "");
    rig.apply(web().annotated(&short("proxy-protocol"), "v2"))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(refusal(&rig, "web").contains("2.22"));
}

/// The listener is never without a pool that has members: the next pool is filled beside the one
/// that serves.
#[tokio::test(start_paused = true)]
async fn l21_proxy_headers_are_toggled_without_an_outage() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let watch = Watch::over(&rig, 80);
    let mode = |rig: &Rig| rig.cluster.service("web").unwrap().status.ingress[0].ip_mode;
    assert_eq!(mode(&rig), Some(IpMode::Vip));
    for (value, protocol, shown) in [
        ("v1", "PROXY", IpMode::Proxy),
        ("v2", "PROXYV2", IpMode::Proxy),
        ("off", "TCP", IpMode::Vip),
    ] {
        rig.forget();
        annotate(&mut rig, &[("proxy-protocol", value)]).await;
        let picture = rig.picture().await;
        assert_eq!(picture.pool_at(80).protocol, protocol);
        assert_eq!(picture.members_at(80), BOTH);
        assert_eq!((picture.pools.len(), picture.monitors.len()), (1, 1));
        assert_eq!(picture.listeners[0].id, before.listeners[0].id);
        assert_eq!(picture.floating_ips, before.floating_ips);
        assert_eq!(mode(&rig), Some(shown));
        assert_eq!(rig.writes().len(), 5, "{:?}", rig.writes());
        assert!(watch.unserved().is_zero(), "{:?}", rig.writes());
    }
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn l22_proxy_and_x_forwarded_for_are_refused_together() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(
        &mut rig,
        &[("proxy-protocol", "true"), ("x-forwarded-for", "true")],
    )
    .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let why = refusal(&rig, "web");
    assert!(
        why.contains("proxy-protocol") && why.contains("x-forwarded-for"),
        "{why}"
    );
    assert!(
        rig.cluster
            .events()
            .contains(&"web SyncLoadBalancerFailed".to_owned()),
        "{:?}",
        rig.cluster.events()
    );
}

#[tokio::test(start_paused = true)]
async fn l23_datagrams_stay_as_they_are_beside_proxy_headers() {
    let mut rig = Rig::new("");
    rig.apply(
        svc("web")
            .named_port("http", 80)
            .node_port(30080)
            .udp_port("dns", 53)
            .node_port(30053)
            .annotated(&short("proxy-protocol"), "v2"),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.pool_at(80).protocol, "PROXYV2");
    assert_eq!(picture.pool_at(53).protocol, "UDP");
    is_at_rest(&mut rig).await;
}

// === How a member is chosen ===

#[tokio::test(start_paused = true)]
async fn l24_the_algorithm_is_one_write() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(&mut rig, &[("lb-method", "LEAST_CONNECTIONS")]).await;
    assert_eq!(
        bodies(&rig, "PUT", "pools"),
        [json!({"lb_algorithm": "LEAST_CONNECTIONS"})]
    );
    assert_eq!(rig.writes().len(), 1);
    rig.forget();
    remove(&mut rig, "lb-method").await;
    assert_eq!(
        bodies(&rig, "PUT", "pools"),
        [json!({"lb_algorithm": "ROUND_ROBIN"})]
    );
}

#[tokio::test(start_paused = true)]
async fn l25_an_unknown_algorithm_is_reported_and_the_rest_goes_on() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(
        &mut rig,
        &[("lb-method", "FOO"), ("timeout-client-data", "70000")],
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.pool_at(80).lb_algorithm, "ROUND_ROBIN");
    assert_eq!(picture.listener_at(80).timeout_client_data, Some(70_000));
    let events = rig.cluster.events();
    let reported = "web LoadBalancerLbMethodUnknown".to_owned();
    assert_eq!(
        events.iter().filter(|it| **it == reported).count(),
        1,
        "{events:?}"
    );
    assert!(!events.contains(&"web InvalidAnnotation".to_owned()));
    // And one that only the cloud refuses.
    let sim = Stage::new();
    sim.configure(|settings| settings.api_minor = 12);
    let mut rig = Rig::on(sim, "lb-provider=");
    rig.apply(web()).await;
    annotate(
        &mut rig,
        &[
            ("lb-method", "SOURCE_IP_PORT"),
            ("timeout-client-data", "70000"),
        ],
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.pool_at(80).lb_algorithm, "ROUND_ROBIN");
    assert_eq!(picture.listener_at(80).timeout_client_data, Some(70_000));
    assert!(
        rig.cluster
            .events()
            .contains(&"web LoadBalancerLbMethodUnknown".to_owned()),
        "{:?} {}",
        rig.cluster.events(),
        refusal(&rig, "web")
    );
}

#[tokio::test(start_paused = true)]
async fn l26_clients_keep_their_member() {
    let mut rig = Rig::new("");
    rig.apply(web().affinity(Duration::from_secs(10_800))).await;
    let picture = rig.picture().await;
    let pool = picture.pool_at(80);
    assert_eq!(
        pool.session_persistence.as_ref().map(|it| it.kind.as_str()),
        Some("SOURCE_IP")
    );
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn l27_affinity_comes_and_goes_by_one_write_each() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.apply(web().affinity(Duration::from_secs(10_800))).await;
    assert_eq!(
        changes_of_pools(&rig),
        [json!({"session_persistence": {"type": "SOURCE_IP"}})]
    );
    rig.forget();
    rig.apply(web()).await;
    assert_eq!(
        changes_of_pools(&rig),
        [json!({"session_persistence": null})]
    );
    assert_eq!(rig.writes().len(), bodies(&rig, "PUT", "pools").len());
    is_at_rest(&mut rig).await;
}

/// Returns the bodies of all changes of pools, without the one that repairs a pool. The driver of
/// OVN (11.0.0) answers a change of the affinity alone with ERROR after it has applied it (it reads
/// an `admin_state_up` that the request does not have), and so the next pass writes once more.
fn changes_of_pools(rig: &Rig) -> Vec<Value> {
    let mut changes = bodies(rig, "PUT", "pools");
    if is_real() && rig.sim.is_ovn() && changes.len() == 2 {
        assert_eq!(
            changes.pop(),
            Some(json!({"name": "pool_0_kube_service_c1_default_web"}))
        );
    }
    changes
}

// === Members ===

fn member_by_hand(rig: &Rig, picture: &Picture, address: &str, change: Value) {
    let pool = picture.pool_at(80);
    let members = &picture.members[pool.id.as_str()];
    let member = members
        .iter()
        .find(|it| it.address.unwrap().to_string() == address)
        .unwrap();
    rig.sim
        .hand(
            landfall_testkit::openstack::Service::LoadBalancer,
            &http::Method::PUT,
            &format!("/v2/lbaas/pools/{}/members/{}", pool.id, member.id),
            json!({"member": change}),
        )
        .unwrap();
}

fn weight_of(picture: &Picture, address: &str) -> Option<u16> {
    let pool = picture.pool_at(80);
    let members = &picture.members[pool.id.as_str()];
    let member = members
        .iter()
        .find(|it| it.address.unwrap().to_string() == address);
    member.unwrap().weight
}

#[tokio::test(start_paused = true)]
async fn l28_a_weight_set_by_hand_is_no_difference() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    member_by_hand(&rig, &picture, "10.0.0.4", json!({"weight": 7}));
    is_at_rest(&mut rig).await;
    assert_eq!(weight_of(&rig.picture().await, "10.0.0.4"), Some(7));
}

#[tokio::test(start_paused = true)]
async fn l29_weights_set_by_hand_outlive_nodes_that_come_and_go() {
    // Below 2.11 a batch replaces all members; from then on members can be added to those that are
    // there.
    for minor in [10, 27] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, "");
        rig.apply(web()).await;
        let picture = rig.picture().await;
        member_by_hand(&rig, &picture, "10.0.0.4", json!({"weight": 7}));
        member_by_hand(&rig, &picture, "10.0.0.5", json!({"backup": true}));
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(weight_of(&picture, "10.0.0.4"), Some(7), "2.{minor}");
        rig.cluster.remove_node("c");
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.members_at(80), BOTH);
        assert_eq!(weight_of(&picture, "10.0.0.4"), Some(7), "2.{minor}");
        let backup = picture.members.values().flatten().filter(|it| it.backup);
        assert_eq!(backup.count(), 1, "2.{minor}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_are_added_by_themselves_from_2_11_on() {
    for (minor, additive) in [(10, false), (11, true)] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, "");
        rig.apply(web()).await;
        rig.forget();
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        let writes = rig.writes();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(
            writes[0].ends_with("?additive_only=true"),
            additive,
            "{writes:?}"
        );
        let sent = bodies(&rig, "PUT", "members");
        let count = sent[0].as_array().unwrap().len();
        assert_eq!(count, if additive { 1 } else { 3 });
        assert_eq!(rig.picture().await.members_at(80).len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn l31_and_l32_a_node_has_an_address_of_its_own_or_is_left_out() {
    let mut rig = Rig::new("");
    // As the reader of Nodes gives it: an ExternalIP counts where there is no InternalIP.
    let text = |name: &str, addresses: Value| {
        let node: landfall_model::wire::Node = serde_json::from_value(json!({
            "metadata": {"name": name}, "status": {"addresses": addresses}
        }))
        .unwrap();
        std::sync::Arc::new(node.into_row().unwrap())
    };
    let external = json!([
        {"type": "ExternalIP", "address": "198.51.100.7"},
        {"type": "Hostname", "address": "out"}
    ]);
    let both = json!([
        {"type": "ExternalIP", "address": "198.51.100.8"},
        {"type": "InternalIP", "address": "10.0.0.9"}
    ]);
    rig.cluster.put_node(text("out", external));
    rig.cluster.put_node(text("both", both));
    rig.cluster.put_node(text(
        "none",
        json!([{"type": "Hostname", "address": "none"}]),
    ));
    rig.apply(web()).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        [
            "10.0.0.4:30080",
            "10.0.0.5:30080",
            "10.0.0.9:30080",
            "198.51.100.7:30080"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn l33_members_move_to_another_subnet_half_at_a_time() {
    for minor in [10, 27] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let network = sim.network();
        let other = sim.add_subnet(&network, "other", "10.0.1.0/24".parse().unwrap(), &[]);
        let mut rig = Rig::on(sim, "");
        rig.add_node("c", "10.0.0.6");
        rig.add_node("d", "10.0.0.7");
        rig.apply(web()).await;
        let first = rig.sim.subnet();
        assert_eq!(subnets(&rig.picture().await, 80), vec![first; 4]);
        let watch = Watch::over(&rig, 80);
        rig.forget();
        annotate(&mut rig, &[("member-subnet-id", &other)]).await;
        let picture = rig.picture().await;
        assert_eq!(subnets(&picture, 80), vec![other.clone(); 4], "2.{minor}");
        // How long the half that is out is seen to be out is Octavia's affair.
        assert!(watch.fewest() >= 2, "{:?}", rig.writes());
        let sent = rig.sent().into_iter().map(|it| it.body);
        let listed = |body: Vec<u8>| {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            body["members"].as_array().unwrap().len()
        };
        assert_eq!(sent.map(listed).min(), Some(2), "{:?}", rig.writes());
        assert!(rig.writes().len() <= 4, "2.{minor} {:?}", rig.writes());
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn l33_the_only_member_moves_too() {
    let sim = Stage::new();
    let network = sim.network();
    let other = sim.add_subnet(&network, "other", "10.0.1.0/24".parse().unwrap(), &[]);
    let mut rig = Rig::on(sim, "");
    rig.cluster.remove_node("b");
    rig.apply(web()).await;
    annotate(&mut rig, &[("member-subnet-id", &other)]).await;
    assert_eq!(subnets(&rig.picture().await, 80), [other]);
    is_at_rest(&mut rig).await;
}

fn label(rig: &Rig, name: &str, labels: &[(&str, &str)], address: &str) {
    let mut row = node(name, address);
    let provider = rig.servers.get(name).map(|id| format!("openstack:///{id}"));
    for (key, value) in labels {
        row = row.labelled(key, value);
    }
    rig.cluster.put_node(
        row.with(|row| row.provider_id = provider.map(Into::into))
            .row(),
    );
}

#[tokio::test(start_paused = true)]
async fn l34_only_nodes_that_the_selector_names_are_members() {
    let mut rig = Rig::new("");
    label(&rig, "a", &[("env", "prod"), ("zone", "z1")], "10.0.0.4");
    label(&rig, "b", &[("env", "prod")], "10.0.0.5");
    label(&rig, "c", &[("env", "test"), ("zone", "z1")], "10.0.0.6");
    label(&rig, "d", &[], "10.0.0.7");
    rig.apply(web().annotated(&short("node-selector"), "env=prod, zone"))
        .await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:30080"]);
}

#[tokio::test(start_paused = true)]
async fn l34_a_selector_that_matches_no_node_makes_a_load_balancer_without_members() {
    let mut rig = Rig::new("");
    let service = web().annotated(&short("node-selector"), "env=none");
    rig.apply(service).await;
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(rig.picture().await.members_at(80), Vec::<String>::new());
    assert_eq!(rig.published("web").len(), 1);
    assert!(rig.cluster.messages("UnAvailableLoadBalancer").is_empty());
}

#[tokio::test(start_paused = true)]
async fn l35_an_empty_selector_overrules_the_configured_one() {
    let mut rig = Rig::new("node-selector=env=prod");
    label(&rig, "a", &[("env", "prod")], "10.0.0.4");
    rig.apply(web().annotated(&short("node-selector"), ""))
        .await;
    assert_eq!(rig.picture().await.members_at(80), BOTH);
    remove(&mut rig, "node-selector").await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:30080"]);
}

#[tokio::test(start_paused = true)]
async fn l35_an_invalid_selector_is_reported_and_leaves_the_members_alone() {
    let key = short("node-selector");
    for conf in ["", "node-selector=env=prod"] {
        let mut rig = Rig::new(conf);
        label(&rig, "a", &[("env", "prod")], "10.0.0.4");
        let expected = if conf.is_empty() {
            &BOTH[..]
        } else {
            &BOTH[..1]
        };
        let reported = |rig: &Rig| {
            let service = rig.cluster.service("web").unwrap();
            let accepted = service.status.condition(ConditionType::Accepted).unwrap();
            assert!(accepted.status, "{accepted:?}");
            let reported = rig.cluster.messages("InvalidAnnotation");
            assert_eq!(reported.len(), 1, "{reported:?}");
            assert!(
                reported[0].contains(&key) && reported[0].contains("🦀"),
                "{reported:?}"
            );
        };
        rig.apply(web().annotated(&key, "🦀 =,;")).await;
        assert_eq!(rig.picture().await.members_at(80), expected, "{conf}");
        reported(&rig);
        // The same for one that works.
        rig.apply(web()).await;
        rig.forget();
        rig.apply(web().annotated(&key, "🦀 =,;")).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{conf}");
        assert_eq!(rig.picture().await.members_at(80), expected, "{conf}");
        reported(&rig);
        // One that is valid, and fits no node, empties the pool as ever.
        rig.apply(web().annotated(&key, "env=test")).await;
        assert_eq!(rig.picture().await.members_at(80), [""; 0], "{conf}");
    }
}

#[tokio::test(start_paused = true)]
async fn l36_a_label_is_followed_without_further_ado() {
    let mut rig = Rig::new("");
    label(&rig, "a", &[("env", "prod")], "10.0.0.4");
    rig.apply(web().annotated(&short("node-selector"), "env=prod"))
        .await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:30080"]);
    rig.forget();
    label(&rig, "b", &[("env", "prod")], "10.0.0.5");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), BOTH);
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn l37_an_excluded_node_is_no_member() {
    const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    label(&rig, "b", &[(EXCLUDE, "")], "10.0.0.5");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:30080"]);
    label(&rig, "b", &[(EXCLUDE, "false")], "10.0.0.5");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), BOTH);
}

#[tokio::test(start_paused = true)]
async fn l38_and_l39_a_leaving_node_goes_and_an_unready_one_stays() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    let changed = |rig: &Rig, leaving: bool, ready: bool| {
        let provider = format!("openstack:///{}", rig.servers["b"]);
        let row = node("b", "10.0.0.5").with(|row| {
            row.provider_id = Some(provider.into());
            row.leaving = leaving;
            row.ready = ready;
        });
        rig.cluster.put_node(row.row());
    };
    changed(&rig, false, false);
    rig.settle().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    changed(&rig, true, false);
    rig.settle().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.6:30080"]
    );
    // One that stays after all is a member again at once.
    changed(&rig, false, false);
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn l41_a_pool_deleted_by_hand_comes_back() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let before = rig.picture().await;
    assert!(rig.sim.delete(before.pool_at(80).id.as_str()));
    rig.restart().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), BOTH);
    assert_eq!(picture.monitors.len(), 1);
    assert_eq!(picture.listener_at(80).id, before.listener_at(80).id);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_monitor_deleted_in_the_second_of_its_creation_comes_back() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let (balancer, monitor) = (before.balancers[0].id.as_str(), &before.monitors[0].id);
    let made = rig.sim.load_balancer(balancer)["updated_at"].clone();
    assert!(rig.sim.delete(monitor.as_str()));
    rig.sim.edit(balancer, |row| {
        row.insert("updated_at".to_owned(), made);
    });
    rig.wait(Duration::from_secs(190)).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.monitors.len(), 1);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn ports_without_node_ports_have_no_members() {
    let mut rig = Rig::new("");
    rig.apply(svc("web").port(80)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), Vec::<String>::new());
    is_at_rest(&mut rig).await;
}

// === Many ===

fn many(rig: &Rig, nodes: std::ops::Range<u32>) {
    for index in nodes {
        let address = format!(
            "10.{}.{}.{}",
            64 + (index >> 16),
            (index >> 8) & 255,
            index & 255
        );
        rig.cluster
            .put_node(node(&format!("worker-{index:05}"), &address).row());
    }
}

fn ports(count: u16) -> ServiceBuilder {
    let mut service = svc("web");
    for index in 0..count {
        service = service
            .named_port(&format!("p{index}"), 8000 + index)
            .node_port(30000 + index);
    }
    service
}

fn largest_body(rig: &Rig) -> usize {
    let writes = rig.sent();
    writes.iter().map(|call| call.body.len()).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn l42_a_hundred_nodes_and_four_ports_are_one_request() {
    let mut rig = Rig::new("");
    many(&rig, 0..98);
    rig.apply(ports(4)).await;
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
    assert_eq!(rig.picture().await.members_at(8003).len(), 100);
}

#[tokio::test(start_paused = true)]
async fn l42_two_hundred_nodes_and_four_ports_are_one_request_for_each_pool() {
    let mut rig = Rig::new("");
    many(&rig, 0..198);
    rig.apply(ports(4)).await;
    let picture = rig.picture().await;
    for port in 8000..8004 {
        assert_eq!(picture.members_at(port).len(), 200);
    }
    assert!(rig.writes().len() <= 6, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn l43_a_node_on_ten_ports_is_ten_writes_as_fast_as_the_cloud_takes_them() {
    let sim = Stage::new();
    sim.configure(|settings| settings.settle = Settle::all(Duration::from_secs(2)));
    let mut rig = Rig::on(sim, "");
    rig.apply(ports(10)).await;
    rig.forget();
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let writes = rig.sim.writes();
    assert_eq!(writes.len(), 10, "{:?}", rig.writes());
    assert!(writes.iter().all(|call| call.status == 202));
    let took = writes[9].at.checked_sub(writes[0].at).unwrap();
    assert!(took <= Duration::from_secs(9 * 3), "{took:?}");
    for pair in writes.windows(2) {
        assert!(pair[1].at.checked_sub(pair[0].at).unwrap() <= Duration::from_secs(2 + 3));
    }
}

#[tokio::test(start_paused = true)]
async fn l44_ports_in_another_order_change_nothing() {
    let mut rig = Rig::new("create-monitor=true");
    let one = |service: ServiceBuilder| service.named_port("a", 80).node_port(30080);
    let two = |service: ServiceBuilder| service.named_port("b", 443).node_port(30443);
    rig.apply(two(one(svc("web")))).await;
    let before = rig.picture().await;
    rig.forget();
    rig.apply(one(two(svc("web")))).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // Nor does one that moves up make trouble for the next.
    rig.apply(two(svc("web"))).await;
    rig.apply(one(two(svc("web")))).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(443).id, before.listener_at(443).id);
    assert_eq!(picture.members_at(80).len(), 2);
    assert_eq!(picture.members_at(443).len(), 2);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_and_three_ports_are_made_by_at_most_ten_writes() {
    let mut rig = Rig::new("");
    many(&rig, 0..998);
    rig.apply(ports(3)).await;
    let picture = rig.picture().await;
    for port in 8000..8003 {
        assert_eq!(picture.members_at(port).len(), 1000);
    }
    assert!(rig.writes().len() <= 10, "{:?}", rig.writes());
    assert!(largest_body(&rig) <= 114_688);
    rig.forget();
    many(&rig, 998..999);
    rig.settle().await;
    assert_eq!(rig.writes().len(), 3, "{:?}", rig.writes());
    assert!(largest_body(&rig) < 1000);
    rig.forget();
    rig.cluster.remove_node("worker-00500");
    rig.settle().await;
    let picture = rig.picture().await;
    for port in 8000..8003 {
        let members = picture.members_at(port);
        assert_eq!(members.len(), 1000);
        assert!(!members.iter().any(|it| it.starts_with("10.64.1.244:")));
    }
    assert_eq!(rig.writes().len(), 3, "{:?}", rig.writes());
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_nodes_come_one_goes_and_one_more_comes() {
    let mut rig = Rig::new("");
    many(&rig, 0..4998);
    rig.apply(ports(1)).await;
    assert_eq!(rig.picture().await.members_at(8000).len(), 5000);
    assert!(rig.writes().len() <= 9, "{:?}", rig.writes());
    assert!(largest_body(&rig) <= 114_688);
    rig.forget();
    many(&rig, 4998..4999);
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(8000).len(), 5001);
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
    rig.forget();
    rig.cluster.remove_node("worker-03000");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(8000).len(), 5000);
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
    is_at_rest(&mut rig).await;
}
