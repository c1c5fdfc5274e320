//! Security groups of nodes that come and go, of renamed clusters, and of many nodes.

use std::time::Duration;

use landfall_openstack::Groups;
use landfall_openstack::objects::{Id, SecurityGroup};
use landfall_openstack::orphans::{self, OrphanKind};
use landfall_testkit::svc;
use serde_json::json;

use crate::create::web;
use crate::groups::lets_in;
use crate::rig::Rig;
use crate::two_clusters::neighbour;
use crate::written::refusal;

const MANAGED: &str = "manage-security-groups=true";
const AUDIT: Duration = Duration::from_secs(400);

fn per_cluster(conf: &str) -> Rig {
    let mut rig = Rig::new(&format!("{MANAGED}\n{conf}"));
    rig.settings.groups = Groups::PerCluster;
    rig
}

async fn group(rig: &Rig, name: &str) -> Option<SecurityGroup> {
    let groups = rig.picture().await.groups;
    groups.into_iter().find(|it| it.name == name)
}

async fn has(rig: &Rig, node: &str, group: &Id) -> bool {
    let query = [("device_id", rig.servers[node].as_str())];
    let ports = rig.looker().ports(&query).await.unwrap();
    ports[0].security_groups.contains(group)
}

#[tokio::test(start_paused = true)]
async fn the_group_of_a_cluster_s_former_name_leaves_the_nodes_once_the_new_one_is_there() {
    let mut rig = per_cluster("");
    rig.settings.cluster = "old".to_owned();
    rig.apply(web()).await;
    rig.apply(svc("other").port(81).node_port(30081)).await;
    let old = group(&rig, "landfall-nodes-old").await.unwrap();
    rig.kill();
    rig.settings.cluster = "c1".to_owned();
    rig.restart().await;
    rig.wait(AUDIT).await;
    rig.settle().await;
    let new = group(&rig, "landfall-nodes-c1").await.unwrap();
    for node in ["a", "b"] {
        assert!(has(&rig, node, &new.id).await, "{node}");
        assert!(!has(&rig, node, &old.id).await, "{node}");
    }
    assert!(
        group(&rig, "landfall-nodes-old").await.is_none(),
        "{:?}",
        rig.writes()
    );
    let ingress = new.rules.iter().filter(|it| it.direction == "ingress");
    assert_eq!(ingress.count(), 2);
    assert_eq!(refusal(&rig, "web"), "");
    // A node had one of the two at any time.
    let writes = rig.writes();
    let made = writes
        .iter()
        .position(|it| it == "POST /v2.0/security-groups");
    let gone = writes
        .iter()
        .position(|it| it.starts_with("DELETE /v2.0/security-groups/"));
    assert!(made.is_some() && made < gone, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn the_former_group_of_another_cluster_stays() {
    let mut theirs = per_cluster("");
    theirs.settings.cluster = "old".to_owned();
    theirs.settings.cluster_id = Some("ks-2".to_owned());
    theirs.apply(web()).await;
    theirs.kill();
    let mut ours = Rig::on(theirs.sim.again(), MANAGED);
    ours.settings.groups = Groups::PerCluster;
    ours.apply(svc("mine").port(81).node_port(30081)).await;
    ours.wait(AUDIT).await;
    let old = group(&ours, "landfall-nodes-old").await.unwrap();
    assert!(has(&theirs, "a", &old.id).await);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_cluster_leaves_its_former_group_to_another_cluster_of_that_name() {
    let mut ours = per_cluster("");
    ours.settings.cluster = "old".to_owned();
    ours.apply(web()).await;
    ours.kill();
    // Its rule would equal ours: it has the halves of it.
    let mut theirs = neighbour(&ours, "old", "ks-2");
    theirs.settings.conf.manage_security_groups = true;
    theirs.settings.groups = Groups::PerCluster;
    theirs.apply(svc("theirs").port(80).node_port(30080)).await;
    theirs.kill();
    let old = group(&ours, "landfall-nodes-old").await.unwrap();
    assert!(has(&theirs, "x", &old.id).await);
    let ingress = old.rules.iter().filter(|it| it.direction == "ingress");
    assert_eq!(ingress.count(), 3);
    ours.settings.cluster = "c1".to_owned();
    ours.restart().await;
    ours.wait(AUDIT).await;
    ours.settle().await;
    let new = group(&ours, "landfall-nodes-c1").await.unwrap();
    for node in ["a", "b"] {
        assert!(has(&ours, node, &new.id).await, "{node}");
        assert!(!has(&ours, node, &old.id).await, "{node}");
    }
    for node in ["x", "y"] {
        assert!(has(&theirs, node, &old.id).await, "{node}");
    }
    let left = group(&ours, "landfall-nodes-old").await.unwrap();
    assert_eq!(sources(&left), ["10.0.0.0/25", "10.0.0.128/25"]);
    assert_eq!(refusal(&ours, "web"), "");
}

fn sources(group: &SecurityGroup) -> Vec<String> {
    let rules = group.rules.iter().filter(|it| it.direction == "ingress");
    let mut sources: Vec<_> = rules.filter_map(|it| it.remote_ip_prefix.clone()).collect();
    sources.sort();
    sources
}

#[tokio::test(start_paused = true)]
async fn of_two_clusters_of_one_name_with_equal_rules_neither_closes_the_other_s_nodes() {
    let mut ours = per_cluster("");
    ours.apply(web()).await;
    let mut theirs = neighbour(&ours, "c1", "ks-2");
    theirs.settings.conf.manage_security_groups = true;
    theirs.settings.groups = Groups::PerCluster;
    theirs.apply(svc("theirs").port(80).node_port(30080)).await;
    let shared = group(&ours, "landfall-nodes-c1").await.unwrap();
    assert_eq!(
        sources(&shared),
        ["10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25"]
    );
    ours.forget();
    theirs.forget();
    for _ in 0..2 {
        ours.wait(AUDIT).await;
        ours.settle().await;
        theirs.settle().await;
    }
    assert_eq!(ours.writes(), Vec::<String>::new());
    assert_eq!(theirs.writes(), Vec::<String>::new());
    // The equal rule goes with its Service; the other cluster's stay, and its nodes'.
    ours.delete("web").await;
    ours.wait(AUDIT).await;
    theirs.settle().await;
    let shared = group(&ours, "landfall-nodes-c1").await.unwrap();
    assert!(!sources(&shared).is_empty(), "{shared:?}");
    for node in ["x", "y"] {
        assert!(has(&theirs, node, &shared.id).await, "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_service_needs_loses_the_group_that_all_share() {
    let mut rig = per_cluster("");
    rig.apply(web()).await;
    rig.apply(svc("other").port(81).node_port(30081)).await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    assert!(has(&rig, "c", &shared.id).await);
    // Its server goes on to run.
    rig.cluster.remove_node("c");
    rig.settle().await;
    rig.wait(AUDIT).await;
    assert!(!has(&rig, "c", &shared.id).await);
    assert!(has(&rig, "a", &shared.id).await && has(&rig, "b", &shared.id).await);
    // A process that begins later finds it, too.
    rig.add_node("d", "10.0.0.7");
    rig.settle().await;
    assert!(has(&rig, "d", &shared.id).await);
    rig.kill();
    rig.cluster.remove_node("d");
    rig.restart().await;
    rig.wait(AUDIT).await;
    assert!(!has(&rig, "d", &shared.id).await);
    assert!(has(&rig, "a", &shared.id).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_one_service_only_keeps_the_group_that_all_share() {
    let mut rig = per_cluster("");
    rig.apply(web().annotated("loadbalancer.openstack.org/node-selector", "zone=x"))
        .await;
    let row = landfall_testkit::node("a", "10.0.0.4");
    let id = format!("openstack:///{}", rig.servers["a"]);
    let row = row.with(|row| {
        row.provider_id = Some(id.into());
        row.labels.insert("zone".into(), "x".into());
    });
    rig.cluster.put_node(row.row());
    rig.apply(svc("other").port(81).node_port(30081)).await;
    rig.wait(AUDIT).await;
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    assert!(has(&rig, "a", &shared.id).await && has(&rig, "b", &shared.id).await);
    rig.delete("other").await;
    rig.wait(AUDIT).await;
    assert!(has(&rig, "a", &shared.id).await);
}

#[tokio::test(start_paused = true)]
async fn ports_of_many_nodes_are_changed_together_and_after_the_address_is_published() {
    let mut rig = per_cluster("");
    for number in 0..80 {
        rig.add_node(&format!("n{number}"), &format!("10.0.0.{}", 100 + number));
    }
    rig.sim.configure(|it| it.latency = Duration::from_secs(2));
    rig.sim.settle_in(Duration::from_secs(1));
    rig.cluster.apply(&web().row());
    rig.start();
    let begun = tokio::time::Instant::now();
    while rig.published("web").is_empty() {
        rig.wait(Duration::from_secs(1)).await;
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            rig.writes()
        );
    }
    let published = begun.elapsed();
    rig.settle().await;
    rig.wait(Duration::from_secs(60)).await;
    let writes = rig.writes();
    let ports = writes
        .iter()
        .filter(|it| it.starts_with("PUT /v2.0/ports/"))
        .count();
    assert_eq!(ports, 82, "{published:?}");
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    assert!(has(&rig, "n79", &shared.id).await);
    assert_eq!(refusal(&rig, "web"), "");
    assert!(published < Duration::from_secs(45), "{published:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_get_their_group_at_once_after_the_address_is_published() {
    let mut rig = per_cluster("");
    rig.sim.settle_in(Duration::from_secs(1));
    rig.cluster.apply(&web().row());
    rig.start();
    let begun = tokio::time::Instant::now();
    while rig.published("web").is_empty() {
        rig.wait(Duration::from_millis(50)).await;
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    rig.wait(Duration::from_millis(200)).await;
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    assert!(has(&rig, "a", &shared.id).await && has(&rig, "b", &shared.id).await);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_refused_keeps_no_other_from_the_group() {
    let mut rig = per_cluster("");
    let query = [("device_id", rig.servers["a"].as_str())];
    let port = rig.looker().ports(&query).await.unwrap()[0].id.clone();
    rig.sim.on_call(move |call| {
        let hit = call.is_write() && call.path.ends_with(port.as_str());
        hit.then(|| landfall_testkit::openstack::Fault::status(call.service, 403, "no"))
    });
    rig.apply(web()).await;
    rig.settle().await;
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    assert!(has(&rig, "b", &shared.id).await);
    assert!(
        refusal(&rig, "web").contains("manage-security-groups"),
        "{}",
        refusal(&rig, "web")
    );
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
}

const OVN: &str = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\nmanage-security-groups=true";

#[tokio::test(start_paused = true)]
async fn g04_on_ovn_monitors_may_ask_node_ports_that_are_open_to_some_clients_only() {
    let mut rig = Rig::new(&format!("{OVN}\ncreate-monitor=true"));
    rig.apply(web().source_range("192.0.2.0/24")).await;
    assert_eq!(refusal(&rig, "web"), "");
    let own = group(&rig, "lb-sg-uid-web-default-web").await.unwrap();
    let sources = own.rules.iter().filter(|it| it.direction == "ingress");
    let mut sources: Vec<_> = sources
        .filter_map(|it| it.remote_ip_prefix.clone())
        .collect();
    sources.sort();
    assert_eq!(sources, ["10.0.0.0/24", "192.0.2.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn g04_on_ovn_monitors_need_no_rule_where_every_client_is_let_in() {
    for local in [false, true] {
        let mut rig = Rig::new(&format!("{OVN}\ncreate-monitor=true"));
        let service = if local { web().local() } else { web() };
        let health = local.then(|| landfall_testkit::build::number(31000));
        rig.apply(service.with(|row| row.health_check_node_port = health))
            .await;
        let own = group(&rig, "lb-sg-uid-web-default-web").await.unwrap();
        let mut wanted = vec!["tcp 30080 0.0.0.0/0"];
        wanted.extend(local.then_some("tcp 31000 10.0.0.0/24"));
        assert_eq!(lets_in(&own), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn monitors_may_ask_a_port_of_their_own() {
    let mut rig = Rig::new("manage-security-groups=true\ncreate-monitor=true");
    let service = svc("web").named_port("a", 80).node_port(30080);
    let service = service.annotated("landfall.dev/monitor.a", "http");
    rig.apply(service.annotated("landfall.dev/monitor-port.a", "8081"))
        .await;
    let own = group(&rig, "lb-sg-uid-web-default-web").await.unwrap();
    assert_eq!(
        lets_in(&own),
        ["tcp 30080 10.0.0.0/24", "tcp 8081 10.0.0.0/24"]
    );
}

#[tokio::test(start_paused = true)]
async fn g12_on_ovn_a_wide_rule_of_another_group_is_reported() {
    let mut rig = Rig::new(OVN);
    let body = json!({"security_group": {"name": "node-ports", "description": "by hand"}});
    let made = rig
        .looker()
        .create_security_group(&body["security_group"])
        .await
        .unwrap();
    let rule = json!({"security_group_id": made.id, "direction": "ingress", "ethertype": "IPv4",
        "protocol": "tcp", "port_range_min": 30000, "port_range_max": 32767});
    rig.looker().create_rules(&[rule]).await.unwrap();
    let query = [("device_id", rig.servers["a"].as_str())];
    let port = rig.looker().ports(&query).await.unwrap().remove(0);
    let groups = json!({"security_groups": [made.id]});
    rig.looker()
        .update_port(&port.id, &groups, None)
        .await
        .unwrap();
    // Without source ranges there is nothing to keep out.
    rig.apply(svc("open").port(81).node_port(30081)).await;
    assert_eq!(
        rig.cluster.messages("LoadBalancerSourceRangesIgnored"),
        Vec::<String>::new()
    );
    rig.apply(web().source_range("192.0.2.0/24")).await;
    let reported = rig.cluster.messages("LoadBalancerSourceRangesIgnored");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("node-ports") && reported[0].contains("30080"),
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn g12_on_ovn_a_wide_rule_by_hand_in_the_group_that_all_share_is_reported() {
    let mut rig = Rig::new(OVN);
    rig.settings.groups = Groups::PerCluster;
    rig.apply(web().source_range("192.0.2.0/24")).await;
    rig.apply(svc("open").port(81).node_port(30081)).await;
    rig.wait(AUDIT).await;
    assert_eq!(
        rig.cluster.messages("LoadBalancerSourceRangesIgnored"),
        Vec::<String>::new()
    );
    let shared = group(&rig, "landfall-nodes-c1").await.unwrap();
    let rule = json!({"security_group_id": shared.id, "direction": "ingress",
        "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 30080,
        "port_range_max": 30080, "remote_ip_prefix": "0.0.0.0/0"});
    rig.looker().create_rules(&[rule]).await.unwrap();
    rig.wait(AUDIT).await;
    rig.settle().await;
    let reported = rig.cluster.messages("LoadBalancerSourceRangesIgnored");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("landfall-nodes-c1") && reported[0].contains("30080"),
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn g12_on_ovn_members_stay_while_neutron_lists_no_port_of_their_servers() {
    let mut rig = Rig::new(OVN);
    rig.apply(web().source_range("192.0.2.0/24")).await;
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
    rig.sim.on_call(|call| {
        let is_list = !call.is_write() && call.path.ends_with("/v2.0/ports");
        is_list.then(|| landfall_testkit::openstack::Fault::Status {
            code: 200,
            body: json!({"ports": []}),
            retry_after: None,
        })
    });
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    rig.wait(AUDIT).await;
    rig.settle().await;
    // Nothing shows yet that the new node is guarded.
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080"]
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_id_of_the_cluster_no_rule_of_the_group_that_all_share_is_an_orphan() {
    let mut theirs = per_cluster("");
    theirs.settings.cluster_id = None;
    theirs.apply(web()).await;
    theirs.kill();
    let found = orphans::find(theirs.looker(), &theirs.settings, &[]).await;
    let found = found.unwrap().orphans;
    let rules = found
        .iter()
        .filter(|it| it.kind == OrphanKind::SecurityGroupRule);
    assert_eq!(rules.count(), 0, "{found:?}");
}
