//! A load balancer follows its Service and the nodes (rows C).

use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::status::RECORD;
use landfall_testkit::{node, svc};

use crate::addresses::lb;
use crate::create::web;
use crate::rig::Rig;
use crate::subnets::NOWHERE;
use crate::written::refusal;

/// The label that keeps a node out of load balancers.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

#[tokio::test(start_paused = true)]
async fn c05_a_service_that_is_no_load_balancer_any_more_stays_without_one() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.edit("web", |row| row.wants_load_balancer = false).await;
    assert!(rig.picture().await.is_empty());
    let service = rig.cluster.service("web").unwrap();
    assert!(!service.finalized);
    assert!(service.status.ingress.is_empty());
    assert!(!service.annotations.contains_key(LOAD_BALANCER_ID));
    assert!(!service.annotations.contains_key(LOAD_BALANCER_ADDRESS));
    assert_eq!(
        rig.cluster.events(),
        ["web DeletingLoadBalancer", "web DeletedLoadBalancer"]
    );
    // And back again: no stale id stands in the way.
    rig.edit("web", |row| row.wants_load_balancer = true).await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c09_another_node_port_is_one_write_of_members() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let (listener, pool) = (before.listener_at(80), before.pool_at(80));
    rig.forget();
    rig.apply(svc("web").port(80).node_port(30090)).await;
    let after = rig.picture().await;
    assert_eq!(after.listener_at(80).id, listener.id);
    assert_eq!(after.pool_at(80).id, pool.id);
    assert_eq!(after.members_at(80), ["10.0.0.4:30090", "10.0.0.5:30090"]);
    assert_eq!(
        rig.writes(),
        [format!("PUT /v2/lbaas/pools/{}/members", pool.id)]
    );
}

#[tokio::test(start_paused = true)]
async fn c10_another_port_is_served_before_the_old_one_goes() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let (listener, pool) = (before.listener_at(80), before.pool_at(80));
    rig.forget();
    rig.apply(svc("web").port(8080).node_port(30080)).await;
    let after = rig.picture().await;
    assert_eq!(after.listeners.len(), 1);
    assert_eq!(after.pools.len(), 1);
    assert_eq!(after.members_at(8080), ["10.0.0.4:30080", "10.0.0.5:30080"]);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    // What is behind the port stays as it is.
    assert_eq!(after.pool_at(8080).id, pool.id);
    assert_eq!(
        rig.writes(),
        [
            "POST /v2/lbaas/listeners".to_owned(),
            format!("DELETE /v2/lbaas/listeners/{}", listener.id)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn c13_without_any_node_the_members_go_and_the_load_balancer_stays() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.forget();
    rig.cluster.remove_node("a");
    rig.cluster.remove_node("b");
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers[0].id, before.balancers[0].id);
    assert_eq!(after.members_at(80), Vec::<String>::new());
    let pool = &before.pool_at(80).id;
    assert_eq!(
        rig.writes(),
        [format!("PUT /v2/lbaas/pools/{pool}/members")]
    );
    let events = rig.cluster.events();
    let reported = events
        .iter()
        .filter(|it| *it == "web UnAvailableLoadBalancer");
    assert_eq!(reported.count(), 1, "{events:?}");
    assert_eq!(rig.published("web").len(), 1);
    // Nodes that come back are members again.
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.6:30080"]);
}

#[tokio::test(start_paused = true)]
async fn c14_without_an_eligible_node_nothing_is_made_until_there_is_one() {
    let mut rig = Rig::new("");
    for (name, address) in [("a", "10.0.0.4"), ("b", "10.0.0.5")] {
        rig.cluster
            .put_node(node(name, address).labelled(EXCLUDED, "").row());
    }
    rig.apply(web()).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(
        rig.cluster
            .events()
            .iter()
            .filter(|it| *it == "web SyncLoadBalancerFailed")
            .count(),
        1,
        "{:?}",
        rig.cluster.events()
    );
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.6:30080"]);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c15_one_port_for_udp_and_tcp_is_two_listeners() {
    let mut rig = Rig::new("");
    let dns = svc("web")
        .udp_port("udp", 53)
        .node_port(30053)
        .named_port("tcp", 53)
        .node_port(30054);
    rig.apply(dns).await;
    let picture = rig.picture().await;
    let mut there: Vec<_> = picture
        .listeners
        .iter()
        .map(|it| {
            let pool = it.default_pool_id.as_ref().unwrap();
            let pool = picture.pools.iter().find(|one| one.id == *pool).unwrap();
            let port = picture.members[pool.id.as_str()][0].protocol_port;
            (
                it.protocol.to_string(),
                it.protocol_port,
                pool.protocol.to_string(),
                port,
            )
        })
        .collect();
    there.sort();
    let row = |protocol: &str, node_port| (protocol.to_owned(), 53, protocol.to_owned(), node_port);
    assert_eq!(there, [row("TCP", 30054), row("UDP", 30053)]);
}

#[tokio::test(start_paused = true)]
async fn c16_sctp_is_passed_on_as_sctp() {
    let mut rig = Rig::new("");
    let service = svc("web")
        .any_port("sctp", Protocol::Sctp, 9000)
        .node_port(30900);
    rig.apply(service).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(9000).protocol, "SCTP");
    assert_eq!(picture.pool_at(9000).protocol, "SCTP");
    assert_eq!(
        picture.members_at(9000),
        ["10.0.0.4:30900", "10.0.0.5:30900"]
    );
}

#[tokio::test(start_paused = true)]
async fn c16_sctp_on_an_old_octavia_is_refused_with_its_version() {
    let mut rig = Rig::new("");
    rig.sim.configure(|settings| settings.api_minor = 22);
    let service = svc("web")
        .any_port("sctp", Protocol::Sctp, 9000)
        .node_port(30900);
    rig.apply(service).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(
        reported.contains("2.23") && reported.contains("2.22"),
        "{reported}"
    );
}

#[tokio::test(start_paused = true)]
async fn c22_without_node_ports_there_are_listeners_and_no_members() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.apply(
        svc("web")
            .port(80)
            .with(|row| row.allocate_node_ports = false),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), Vec::<String>::new());
    let open = picture
        .groups
        .iter()
        .flat_map(|group| &group.rules)
        .filter(|rule| rule.direction == "ingress");
    assert_eq!(open.count(), 0);
    assert!(
        !rig.cluster
            .events()
            .contains(&"web SyncLoadBalancerFailed".to_owned())
    );
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c29_one_call_at_a_time_takes_out_one_member() {
    let mut rig = Rig::new("provider-requires-serial-api-calls=true");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
    let batches = rig.writes().into_iter().filter(|it| it.starts_with("PUT"));
    assert_eq!(batches.count(), 0);
    let pool = &picture.pool_at(80).id;
    let mut names: Vec<_> = picture.members[pool.as_str()]
        .iter()
        .map(|it| &it.name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["member_a_10.0.0.4_30080", "member_b_10.0.0.5_30080"]
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.cluster.remove_node("b");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80), ["10.0.0.4:30080"]);
    let writes = rig.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(
        writes[0].starts_with(&format!("DELETE /v2/lbaas/pools/{pool}/members/")),
        "{writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn c30_a_service_of_another_class_is_not_touched() {
    let mut rig = Rig::new("");
    rig.apply(web().with(|row| row.class = Some("example.com/other".into())))
        .await;
    assert_eq!(rig.calls(), Vec::<String>::new());
    assert_eq!(rig.cluster.writes(), 0);
    assert_eq!(rig.cluster.events(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn c04_a_service_goes_after_its_load_balancer_has_gone() {
    for refused in [
        None,
        Some(("member-subnet-id", NOWHERE)),
        Some(("class", "none")),
    ] {
        let mut rig = Rig::new("");
        rig.sim.settle_in(Duration::from_secs(20));
        rig.apply(web()).await;
        if let Some((name, value)) = refused {
            rig.edit("web", |row| {
                row.annotations.insert(lb(name), value.to_owned());
            })
            .await;
        }
        rig.cluster.delete("web");
        while rig.cluster.service("web").is_some() {
            rig.wait(Duration::from_millis(200)).await;
        }
        let left = rig.picture().await;
        assert!(left.is_empty(), "{refused:?}: {left:?}");
    }
}

/// Whether the record on the Service vouches for its load balancer as it is now.
fn is_recorded(rig: &Rig) -> bool {
    let record = rig.annotation("web", RECORD).unwrap();
    let id = record.split(' ').next().unwrap();
    let balancer = rig.sim.load_balancer(id);
    record.split(' ').nth(1) == balancer["updated_at"].as_str()
}

#[tokio::test(start_paused = true)]
async fn members_that_follow_nodes_cost_the_service_no_write() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    assert!(is_recorded(&rig));
    let before = rig.cluster.writes();
    for last in 6..9 {
        rig.add_node(&format!("n{last}"), &format!("10.0.0.{last}"));
        rig.settle().await;
    }
    rig.cluster.remove_node("a");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 4);
    assert_eq!(rig.cluster.writes(), before);
    assert_eq!(refusal(&rig, "web"), "");

    // What a restart finds on the Service does not vouch: it reads, and writes nothing either.
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.cluster.writes(), before);
    // Nor does it take what it finds for what there was.
    rig.kill();
    rig.cluster.put_node(node("a", "10.0.0.4").row());
    for last in 6..9 {
        rig.cluster.remove_node(&format!("n{last}"));
    }
    rig.restart().await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080"]
    );
    assert_eq!(rig.cluster.writes(), before);

    // With the next write it is up to date again, and the restart after that asks for one list.
    rig.apply(web().named_port("more", 81).node_port(30081))
        .await;
    assert!(is_recorded(&rig));
    assert!(rig.cluster.writes() > before);
    rig.forget();
    rig.restart().await;
    let calls = rig.calls();
    let read = |it: &&String| it.contains("/listeners") || it.contains("/pools");
    assert_eq!(calls.iter().find(read), None, "{calls:?}");
}
