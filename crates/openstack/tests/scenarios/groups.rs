//! Security groups on the nodes (rows G).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use landfall_model::Protocol;
use landfall_openstack::Groups;
use landfall_openstack::objects::{Id, SecurityGroup};
use landfall_testkit::openstack::{Service, Sim, Start};
use landfall_testkit::{build, svc};
use serde_json::{Value, json};

use crate::create::web;
use crate::rig::Rig;

const MANAGED: &str = "manage-security-groups=true";
const OWN: &str = "lb-sg-uid-web-default-web";
const SHARED: &str = "landfall-nodes-c1";

fn per_cluster(conf: &str) -> Rig {
    let mut rig = Rig::new(&format!("{MANAGED}\n{conf}"));
    rig.settings.groups = Groups::PerCluster;
    rig
}

async fn group(rig: &Rig, name: &str) -> Option<SecurityGroup> {
    let groups = rig.picture().await.groups;
    groups.into_iter().find(|it| it.name == name)
}

/// What a group lets in: `tcp 30080 10.0.0.0/24`.
pub fn lets_in(group: &SecurityGroup) -> Vec<String> {
    let rules = group.rules.iter().filter(|it| it.direction == "ingress");
    let mut texts: Vec<String> = rules
        .map(|it| {
            assert_eq!(it.port_range_min, it.port_range_max);
            format!(
                "{} {} {}",
                it.protocol.as_deref().unwrap(),
                it.port_range_min.unwrap(),
                it.remote_ip_prefix.as_deref().unwrap()
            )
        })
        .collect();
    texts.sort();
    texts
}

/// The groups of a node's port in S.
async fn groups_of(rig: &Rig, node: &str) -> Vec<Id> {
    let query = [("device_id", rig.servers[node].as_str())];
    let ports = rig.looker().ports(&query).await.unwrap();
    ports[0].security_groups.clone()
}

async fn guards(rig: &Rig, group: &SecurityGroup, node: &str) -> bool {
    groups_of(rig, node).await.contains(&group.id)
}

async fn restart_writes_nothing(rig: &mut Rig) {
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// What a group says of a node port. OVN leaves clients' addresses as they are: the nodes see
/// those.
fn from_outside(port: &str) -> String {
    #[cfg(feature = "stack")]
    if crate::rig::real::provider() == Some("ovn") {
        return format!("{port} 0.0.0.0/0");
    }
    format!("{port} 10.0.0.0/24")
}

#[tokio::test(start_paused = true)]
async fn g01_and_g02_nodes_let_in_the_load_balancer_and_no_other_source() {
    let mut rig = Rig::new(MANAGED);
    let before = groups_of(&rig, "a").await;
    rig.apply(web()).await;
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(
        group.description,
        "Security Group for default/web Service LoadBalancer in cluster c1"
    );
    assert_eq!(lets_in(&group), [from_outside("tcp 30080")]);
    for node in ["a", "b"] {
        assert!(guards(&rig, &group, node).await);
    }
    let after = groups_of(&rig, "a").await;
    assert!(before.iter().all(|it| after.contains(it)));
    restart_writes_nothing(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn g03_a_node_port_that_changes_is_opened_and_the_old_one_closed() {
    let mut rig = Rig::new(MANAGED);
    rig.apply(web()).await;
    rig.apply(svc("web").port(80).node_port(30090)).await;
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(lets_in(&group), [from_outside("tcp 30090")]);
    assert_eq!(rig.picture().await.members_at(80)[0], "10.0.0.4:30090");
    restart_writes_nothing(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn g04_monitors_may_ask_the_health_port() {
    let mut rig = Rig::new(MANAGED);
    let service = web().local();
    rig.apply(service.with(|row| row.health_check_node_port = Some(build::number(31000))))
        .await;
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(
        lets_in(&group),
        [
            from_outside("tcp 30080"),
            "tcp 31000 10.0.0.0/24".to_owned()
        ]
    );
}

/// Puts a group of another owner on a node's port.
async fn add_group(rig: &Rig, node: &str) -> Id {
    let body = json!({"name": "theirs", "description": ""});
    let theirs = rig.looker().create_security_group(&body).await.unwrap().id;
    let query = [("device_id", rig.servers[node].as_str())];
    let port = rig.looker().ports(&query).await.unwrap().remove(0);
    let mut groups = port.security_groups.clone();
    groups.push(theirs.clone());
    let body = json!({"security_groups": groups});
    rig.looker()
        .update_port(&port.id, &body, None)
        .await
        .unwrap();
    theirs
}

#[tokio::test(start_paused = true)]
async fn g05_the_group_goes_with_the_service_and_others_stay() {
    let mut rig = Rig::new(MANAGED);
    let theirs = add_group(&rig, "a").await;
    let before = groups_of(&rig, "a").await;
    rig.apply(web()).await;
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert_eq!(picture.groups.len(), 1);
    assert_eq!(picture.groups[0].id, theirs);
    assert_eq!(groups_of(&rig, "a").await, before);
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn g05_a_node_that_leaves_loses_the_group() {
    let mut rig = Rig::new(MANAGED);
    rig.apply(web()).await;
    let group = group(&rig, OWN).await.unwrap();
    rig.cluster.remove_node("b");
    rig.settle().await;
    assert!(guards(&rig, &group, "a").await);
    assert!(!guards(&rig, &group, "b").await);
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert!(guards(&rig, &group, "c").await);
}

#[tokio::test(start_paused = true)]
async fn g06_ports_that_can_not_or_need_not_be_guarded_are_left() {
    let mut rig = Rig::new(MANAGED);
    let network = rig.sim.network();
    let cidr = "10.9.0.0/24".parse().unwrap();
    rig.sim.add_subnet(&network, "other", cidr, &[]);
    // A node whose port has no port security, and a second port of node a elsewhere.
    let server = "00000000-0000-4000-8000-00000000000c";
    let bare = rig
        .sim
        .add_nic("c", server, "10.0.0.6".parse().unwrap(), false);
    let elsewhere = rig.sim.add_nic(
        "a2",
        &rig.servers["a"].clone(),
        "10.9.0.4".parse().unwrap(),
        true,
    );
    let row = landfall_testkit::node("c", "10.0.0.6");
    let row = row.with(|row| row.provider_id = Some(format!("openstack:///{server}").into()));
    rig.cluster.put_node(row.row());
    let revision = |port: &str| {
        let ports = rig.sim.ports();
        let found = ports.iter().find(|it| it["id"] == port).unwrap();
        found["revision_number"].clone()
    };
    let before = (revision(&bare), revision(&elsewhere));
    rig.apply(web()).await;
    let ports = rig.sim.ports();
    let now = |port: &str| {
        let found = ports.iter().find(|it| it["id"] == port).unwrap();
        found["revision_number"].clone()
    };
    assert_eq!((now(&bare), now(&elsewhere)), before);
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert_eq!(
        rig.cluster.messages("SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn g08_the_group_goes_where_groups_are_not_managed_any_more() {
    let mut rig = Rig::new(MANAGED);
    rig.apply(web()).await;
    assert!(group(&rig, OWN).await.is_some());
    rig.settings.conf.manage_security_groups = false;
    rig.restart().await;
    assert_eq!(rig.picture().await.groups, []);
    assert_eq!(rig.published("web").len(), 1);
    restart_writes_nothing(&mut rig).await;
}

const OVN: &str = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT";

#[tokio::test(start_paused = true)]
async fn g09_behind_ovn_the_nodes_filter() {
    let mut rig = Rig::new(&format!("{OVN}\n{MANAGED}"));
    rig.apply(web().source_range("1.2.3.0/24")).await;
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(lets_in(&group), ["tcp 30080 1.2.3.0/24"]);
    let picture = rig.picture().await;
    let allowed = picture.listener_at(80).allowed_cidrs.as_deref();
    assert!(allowed.is_none_or(<[String]>::is_empty), "{allowed:?}");
    assert_eq!(
        rig.cluster.messages("LoadBalancerSourceRangesIgnored"),
        Vec::<String>::new()
    );
    restart_writes_nothing(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn g10_source_ranges_that_nothing_enforces_keep_the_service_from_being_exposed() {
    let mut rig = Rig::new(OVN);
    rig.apply(web().source_range("1.2.3.0/24")).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("loadBalancerSourceRanges"), "{failed:?}");
    assert_eq!(rig.writes(), Vec::<String>::new());
    let mut rig = Rig::new(OVN);
    rig.settings.strict_source_ranges = false;
    rig.apply(web().source_range("1.2.3.0/24")).await;
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(
        rig.cluster
            .messages("LoadBalancerSourceRangesIgnored")
            .len(),
        1
    );
}

fn hand(sim: &Sim, method: &Method, path: &str, body: Value) -> Value {
    sim.hand(Service::Network, method, path, body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn g11_a_rule_that_is_there_or_gone_already_is_as_good() {
    let mut rig = Rig::new(MANAGED);
    rig.apply(web()).await;
    let sim = rig.sim.clone();
    let id = group(&rig, OWN).await.unwrap().id.to_string();
    // Another client makes the same rule just before us, and removes the old one just before us.
    let made = AtomicBool::new(false);
    rig.sim.on_call(move |call| {
        let rules = "/v2.0/security-group-rules";
        if call.method == Method::POST && call.path == rules && !made.swap(true, Ordering::Relaxed)
        {
            let rule = json!({
                "security_group_id": id, "direction": "ingress", "ethertype": "IPv4",
                    "protocol": "tcp",
                "port_range_min": 30090, "port_range_max": 30090, "remote_ip_prefix": "10.0.0.0/24",
            });
            hand(
                &sim,
                &Method::POST,
                rules,
                json!({"security_group_rule": rule}),
            );
        }
        if call.method == Method::DELETE
            && let Some(rule) = call.path.strip_prefix("/v2.0/security-group-rules/")
        {
            sim.delete(rule);
        }
        None
    });
    rig.add_node("c", "10.0.0.6");
    rig.apply(svc("web").port(80).node_port(30090)).await;
    rig.sim.heal();
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(lets_in(&group), [from_outside("tcp 30090")]);
    assert!(guards(&rig, &group, "c").await);
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert_eq!(
        rig.cluster.messages("SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn g12_a_port_that_another_client_changes_meanwhile_loses_nothing() {
    let mut rig = Rig::new(MANAGED);
    let body = json!({"name": "theirs", "description": ""});
    let theirs = rig.looker().create_security_group(&body).await.unwrap().id;
    let sim = rig.sim.clone();
    let done = AtomicBool::new(false);
    let added = theirs.to_string();
    rig.sim.on_call(move |call| {
        if call.method == Method::PUT
            && call.path.starts_with("/v2.0/ports/")
            && !done.swap(true, Ordering::Relaxed)
        {
            let port = hand(&sim, &Method::GET, &call.path, Value::Null);
            let mut groups = port["port"]["security_groups"].as_array().unwrap().clone();
            groups.push(json!(added));
            let body = json!({"port": {"security_groups": groups}});
            hand(&sim, &Method::PUT, &call.path, body);
        }
        None
    });
    rig.apply(web()).await;
    rig.sim.heal();
    let group = group(&rig, OWN).await.unwrap();
    let mut having = 0;
    for node in ["a", "b"] {
        assert!(guards(&rig, &group, node).await);
        having += usize::from(groups_of(&rig, node).await.contains(&theirs));
    }
    assert_eq!(having, 1);
    assert_eq!(
        rig.cluster.messages("SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn g13_udp_and_tcp_of_one_number_are_two_rules() {
    let mut rig = Rig::new(MANAGED);
    let service = svc("web")
        .any_port("tcp", Protocol::Tcp, 53)
        .node_port(30053)
        .any_port("udp", Protocol::Udp, 53)
        .node_port(30053);
    rig.apply(service).await;
    let group = group(&rig, OWN).await.unwrap();
    assert_eq!(
        lets_in(&group),
        [from_outside("tcp 30053"), from_outside("udp 30053")]
    );
}

#[tokio::test(start_paused = true)]
async fn g14_a_node_that_is_no_server_is_reported_and_skipped() {
    let mut rig = Rig::new(MANAGED);
    let row = landfall_testkit::node("metal", "10.0.0.7");
    let row = row.with(|row| row.provider_id = Some("metal3://x/y".into()));
    rig.cluster.put_node(row.row());
    rig.apply(web()).await;
    let reported = rig.cluster.messages("LoadBalancerNodesUnguarded");
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains("metal"), "{reported:?}");
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    let group = group(&rig, OWN).await.unwrap();
    assert!(guards(&rig, &group, "a").await && guards(&rig, &group, "b").await);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_group_of_the_cluster_holds_the_rules_of_all_services() {
    let mut rig = per_cluster("");
    rig.apply(web()).await;
    rig.apply(svc("other").port(81).node_port(30081)).await;
    let both = [from_outside("tcp 30080"), from_outside("tcp 30081")];
    let there = group(&rig, SHARED).await.unwrap();
    assert_eq!(rig.picture().await.groups.len(), 1);
    assert_eq!(lets_in(&there), both);
    let marked = there
        .rules
        .iter()
        .filter(|it| it.description.starts_with("landfall uid-web"));
    assert_eq!(marked.count(), 1);
    assert!(guards(&rig, &there, "a").await && guards(&rig, &there, "b").await);
    restart_writes_nothing(&mut rig).await;
    rig.apply(svc("web").port(80).node_port(30090)).await;
    let there = group(&rig, SHARED).await.unwrap();
    assert_eq!(
        lets_in(&there),
        [from_outside("tcp 30081"), from_outside("tcp 30090")]
    );
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert!(guards(&rig, &there, "c").await);
    rig.delete("web").await;
    let there = group(&rig, SHARED).await.unwrap();
    assert_eq!(lets_in(&there), [from_outside("tcp 30081")]);
    rig.delete("other").await;
    let left = group(&rig, SHARED).await;
    assert!(left.is_none_or(|it| lets_in(&it).is_empty()));
    assert_eq!(rig.picture().await.balancers, []);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_service_s_own_is_kept_where_new_ones_share() {
    let mut rig = Rig::new(MANAGED);
    rig.apply(web()).await;
    let own = group(&rig, OWN).await.unwrap();
    rig.settings.groups = Groups::PerCluster;
    restart_writes_nothing(&mut rig).await;
    rig.apply(svc("web").port(80).node_port(30090)).await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let there = group(&rig, OWN).await.unwrap();
    assert_eq!(there.id, own.id);
    assert_eq!(lets_in(&there), [from_outside("tcp 30090")]);
    assert!(guards(&rig, &there, "c").await);
    assert_eq!(rig.picture().await.groups.len(), 1);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rule_removed_by_hand_is_recreated() {
    for mut rig in [Rig::new(MANAGED), per_cluster("")] {
        rig.apply(web()).await;
        let groups = rig.picture().await.groups;
        let rule = groups[0].rules.iter().find(|it| it.direction == "ingress");
        rig.sim.delete(rule.unwrap().id.as_str());
        rig.wait(Duration::from_secs(200)).await;
        let groups = rig.picture().await.groups;
        assert_eq!(lets_in(&groups[0]), [from_outside("tcp 30080")]);
    }
}

/// Calls that creating a Service of three ports takes, beside looking and putting the group on
/// nodes.
async fn calls_of_create(nodes: u16) -> Vec<String> {
    let sim = Sim::with(&Start {
        tenant: "10.0.0.0/16".parse().unwrap(),
        ..Start::default()
    });
    let mut rig = Rig::in_world(sim, MANAGED);
    rig.settings.groups = Groups::PerCluster;
    for number in 2..nodes {
        let address = format!("10.0.{}.{}", 8 + number / 250, 1 + number % 250);
        rig.add_node(&format!("node-{number}"), &address);
    }
    let service = svc("web")
        .named_port("a", 80)
        .node_port(30080)
        .named_port("b", 443)
        .node_port(30443)
        .named_port("c", 8080)
        .node_port(30880);
    rig.apply(service).await;
    let picture = rig.picture().await;
    for port in [80, 443, 8080] {
        assert_eq!(picture.members_at(port).len(), usize::from(nodes));
    }
    assert_eq!(rig.published("web").len(), 1);
    let there = group(&rig, SHARED).await.unwrap();
    assert_eq!(lets_in(&there).len(), 3);
    let guarded = rig.sim.ports();
    let guarded = guarded.iter().filter(|port| {
        let groups = port["security_groups"].as_array().unwrap();
        groups.iter().any(|it| it == there.id.as_str())
    });
    assert_eq!(guarded.count(), usize::from(nodes));
    let mut calls = rig.calls();
    calls.retain(|it| {
        let poll = it.starts_with("GET /v2/lbaas/loadbalancers")
            || it.starts_with("GET /v2.0/lbaas/loadbalancers");
        !poll && !it.starts_with("PUT /v2.0/ports/") && !it.contains("/auth/tokens")
    });
    calls
}

/// Lists of what is there, which all Services share, and what is asked once in a process's life.
fn is_shared(call: &str) -> bool {
    let lists = [
        "GET /v2.0/floatingips",
        "GET /v2.0/security-groups",
        "GET /v2.0/ports",
        "GET /v2.0/subnets/",
    ];
    call == "GET /" || call == "GET " || lists.iter().any(|it| call.starts_with(it))
}

#[tokio::test(start_paused = true)]
async fn a_service_of_three_ports_takes_few_calls_at_80_and_at_1000_nodes() {
    for (nodes, most) in [(80, 6), (1000, 10)] {
        let calls = calls_of_create(nodes).await;
        let own: Vec<&String> = calls.iter().filter(|it| !is_shared(it)).collect();
        assert!(own.len() <= most, "{nodes}: {} {own:#?}", own.len());
        // Whatever is shared is asked once.
        assert!(calls.len() <= own.len() + 10, "{nodes}: {calls:#?}");
    }
}
