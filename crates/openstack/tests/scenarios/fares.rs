//! What the status states of a load balancer as it fares, and what events state of drift.

use std::time::Duration;

use landfall_model::status::ConditionType;
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::lb;
use crate::create::web;
use crate::rig::Rig;
use crate::written::refusal;

const AUDIT: Duration = Duration::from_secs(200);

fn flows(rig: &Rig, name: &str) -> bool {
    let status = rig.cluster.service(name).unwrap().status;
    status
        .condition(ConditionType::Programmed)
        .is_some_and(|it| it.status)
}

async fn only_balancer(rig: &Rig) -> String {
    rig.picture().await.balancers[0].id.to_string()
}

#[tokio::test(start_paused = true)]
async fn no_traffic_is_said_to_flow_while_octavia_reaches_no_member() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    assert!(flows(&rig, "web"));
    let id = only_balancer(&rig).await;
    rig.sim.relabel(&id, &json!({"operating_status": "ERROR"}));
    rig.wait(AUDIT).await;
    assert!(!flows(&rig, "web"));
    assert!(
        refusal(&rig, "web").contains("no member"),
        "{}",
        refusal(&rig, "web")
    );
    assert_eq!(rig.published("web").len(), 1);
    rig.sim.relabel(&id, &json!({"operating_status": "ONLINE"}));
    rig.wait(AUDIT).await;
    assert!(flows(&rig, "web"), "{}", refusal(&rig, "web"));
}

#[tokio::test(start_paused = true)]
async fn one_that_fares_badly_says_nothing_of_each_service_that_shares_it() {
    let (mut rig, id) = crate::sharing::shared("").await;
    rig.sim
        .relabel(id.as_str(), &json!({"operating_status": "ERROR"}));
    rig.wait(AUDIT).await;
    assert!(flows(&rig, "web") && flows(&rig, "second"));
    rig.delete("second").await;
    rig.sim
        .relabel(id.as_str(), &json!({"operating_status": "ERROR"}));
    rig.wait(AUDIT).await;
    assert!(!flows(&rig, "web"));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_switched_off_by_hand_is_reported() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = only_balancer(&rig).await;
    rig.sim.relabel(&id, &json!({"admin_state_up": false}));
    rig.wait(AUDIT).await;
    assert!(
        refusal(&rig, "web").contains("admin_state_up"),
        "{}",
        refusal(&rig, "web")
    );
    rig.sim.relabel(&id, &json!({"admin_state_up": true}));
    rig.wait(AUDIT).await;
    assert_eq!(refusal(&rig, "web"), "");
}

/// The pool behind a port, by id.
async fn pool_at(rig: &Rig, port: u16) -> String {
    rig.picture().await.pool_at(port).id.to_string()
}

#[tokio::test(start_paused = true)]
async fn of_services_that_share_one_only_that_has_no_traffic_whose_pools_reach_no_member() {
    let (mut rig, _) = crate::sharing::shared("create-monitor=true").await;
    let (first, second) = (pool_at(&rig, 80).await, pool_at(&rig, 8080).await);
    rig.sim
        .relabel(&second, &json!({"operating_status": "ERROR"}));
    rig.wait(AUDIT).await;
    assert!(flows(&rig, "web") && !flows(&rig, "second"));
    assert!(
        refusal(&rig, "second").contains("no member"),
        "{}",
        refusal(&rig, "second")
    );
    assert_eq!(rig.published("second").len(), 1);
    // Both are seen after a restart, too, once the cloud was read.
    rig.sim
        .relabel(&first, &json!({"operating_status": "ERROR"}));
    rig.restart().await;
    rig.wait(AUDIT).await;
    assert!(!flows(&rig, "web") && !flows(&rig, "second"));
    for pool in [first, second] {
        rig.sim
            .relabel(&pool, &json!({"operating_status": "ONLINE"}));
    }
    rig.wait(AUDIT).await;
    assert!(flows(&rig, "web") && flows(&rig, "second"));
}

#[tokio::test(start_paused = true)]
async fn traffic_flows_while_one_of_several_pools_reaches_members() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(crate::each_write::service(0..2)).await;
    let id = only_balancer(&rig).await;
    let failing = json!({"operating_status": "ERROR"});
    // Octavia says so of a load balancer as soon as one pool reaches none.
    rig.sim.relabel(&id, &failing);
    rig.sim.relabel(&pool_at(&rig, 81).await, &failing);
    rig.wait(AUDIT).await;
    assert!(flows(&rig, "web"), "{}", refusal(&rig, "web"));
    rig.sim.relabel(&pool_at(&rig, 80).await, &failing);
    rig.wait(AUDIT).await;
    assert!(!flows(&rig, "web"));
}

#[tokio::test(start_paused = true)]
async fn a_listener_or_pool_that_is_switched_off_by_hand_is_reported_and_left() {
    let (rig, _) = crate::sharing::shared("").await;
    let listener = rig.picture().await.listener_at(8080).id.to_string();
    let pool = pool_at(&rig, 8080).await;
    for id in [listener, pool] {
        rig.sim.relabel(&id, &json!({"admin_state_up": false}));
        rig.wait(AUDIT).await;
        assert!(flows(&rig, "web"));
        let reported = refusal(&rig, "second");
        assert!(reported.contains("admin_state_up"), "{reported}");
        rig.sim.relabel(&id, &json!({"admin_state_up": true}));
        rig.wait(AUDIT).await;
        assert_eq!(refusal(&rig, "second"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_while_it_serves_is_reported_in_the_status() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = only_balancer(&rig).await;
    rig.sim.set_status(&id, "PENDING_UPDATE");
    rig.apply(web().annotated(&lb("timeout-client-data"), "1234"))
        .await;
    rig.wait(Duration::from_secs(400)).await;
    assert!(!flows(&rig, "web"));
    assert!(
        refusal(&rig, "web").contains("PENDING_UPDATE"),
        "{}",
        refusal(&rig, "web")
    );
    assert_eq!(rig.published("web").len(), 1);
    rig.sim.set_status(&id, "ACTIVE");
    rig.wait(Duration::from_secs(40)).await;
    rig.settle().await;
    assert_eq!(refusal(&rig, "web"), "");
    let listener = rig.picture().await.listeners.remove(0);
    assert_eq!(listener.timeout_client_data, Some(1234));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_shares_publishes_its_address_once_its_listener_is_there() {
    let mut rig = Rig::new("");
    rig.sim.settle_in(Duration::from_secs(5));
    rig.apply(web()).await;
    let id = only_balancer(&rig).await;
    let second = svc("second").port(81).node_port(30081);
    let named = second.annotated(&lb("load-balancer-id"), &id);
    rig.cluster.apply(&named.row());
    while rig.published("second").is_empty() {
        rig.wait(Duration::from_millis(200)).await;
    }
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(81).len(), 2);
    assert_eq!(rig.published("second"), rig.published("web"));
    rig.settle().await;
    assert_eq!(refusal(&rig, "second"), "");
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_another_program_had_changed() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    let listener = rig.picture().await.listeners[0].id.to_string();
    rig.sim
        .relabel(&listener, &json!({"timeout_client_data": 77}));
    rig.wait(AUDIT).await;
    rig.settle().await;
    let listener = rig.picture().await.listeners.remove(0);
    assert_eq!(listener.timeout_client_data, Some(50_000));
    let reported = rig.cluster.messages("LoadBalancerDrift");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(reported[0].contains("timeout_client_data"), "{reported:?}");
    // Another time is another event.
    rig.forget();
    let pool = rig.picture().await.pools[0].id.to_string();
    rig.sim.delete(&pool);
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
    let reported = rig.cluster.messages("LoadBalancerDrift");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(reported[0].contains("create pool"), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_says_that_a_member_was_taken_out_by_another_program() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    let picture = rig.picture().await;
    let pool = &picture.pools[0].id;
    let member = &picture.members[pool.as_str()][0].id;
    rig.looker().delete_member(pool, member).await.unwrap();
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
    assert_eq!(rig.cluster.messages("LoadBalancerDrift").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_service_and_of_nodes_are_no_drift() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    rig.apply(web().annotated(&lb("timeout-client-data"), "1234"))
        .await;
    rig.apply(web().annotated(&lb("proxy-protocol"), "v2"))
        .await;
    rig.cluster.remove_node("a");
    rig.settle().await;
    rig.apply(svc("web").port(81).node_port(30080)).await;
    rig.restart().await;
    rig.wait(AUDIT).await;
    assert_eq!(
        rig.cluster.messages("LoadBalancerDrift"),
        Vec::<String>::new()
    );
    assert_eq!(
        rig.cluster.messages("LoadBalancerLost"),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_says_that_a_load_balancer_is_gone() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = only_balancer(&rig).await;
    rig.forget();
    rig.sim.delete(&id);
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    let reported = rig.cluster.messages("LoadBalancerLost");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(reported[0].contains(&id), "{reported:?}");
}
