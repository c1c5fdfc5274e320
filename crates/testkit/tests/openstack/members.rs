//! Members: the batch and its reset rules.

use landfall_testkit::openstack::Sim;
use serde_json::{Value, json};

use crate::client::{BALANCERS, Client, fault, member, settle};

async fn put(client: &Client, pool: &str, members: Value) -> (u16, String) {
    let path = format!("/v2/lbaas/pools/{pool}/members");
    let (status, reply) = client.lb("PUT", &path, json!({"members": members})).await;
    (status, fault(&reply).to_owned())
}

fn members(sim: &Sim) -> Vec<Value> {
    sim.load_balancers()[0]["pools"][0]["members"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test(start_paused = true)]
async fn the_batch_keeps_matches_deletes_the_rest_and_resets_what_is_not_named() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    let kept = members(&client.sim)[0].clone();
    let heavy = json!([{"address": "10.0.0.4", "protocol_port": 30080, "weight": 7, "backup": true,
        "admin_state_up": false,
        "monitor_port": 9, "monitor_address": "10.0.0.9", "name": "a", "tags": ["t"]}]);
    assert_eq!(put(&client, &pool, heavy).await.0, 202);
    assert_eq!(
        members(&client.sim)[1]["provisioning_status"],
        "PENDING_DELETE"
    );
    settle().await;
    let (_, page) = client
        .lb(
            "GET",
            &format!("/v2/lbaas/pools/{pool}/members"),
            Value::Null,
        )
        .await;
    assert_eq!(page["members"][0]["weight"], 7);
    assert_eq!(
        put(
            &client,
            &pool,
            json!([member("10.0.0.4"), member("10.0.0.6")])
        )
        .await
        .0,
        202
    );
    settle().await;
    let now = members(&client.sim);
    assert_eq!(now.len(), 2);
    assert_eq!(
        (&now[0]["id"], &now[0]["name"], &now[0]["tags"]),
        (&kept["id"], &json!("a"), &json!(["t"]))
    );
    assert_eq!(
        (
            &now[0]["weight"],
            &now[0]["backup"],
            &now[0]["admin_state_up"]
        ),
        (&json!(1), &json!(false), &json!(true))
    );
    assert_eq!(
        (&now[0]["monitor_port"], &now[0]["monitor_address"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn an_additive_batch_deletes_nothing_from_version_2_11_on() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    let path = format!("/v2/lbaas/pools/{pool}/members?additive_only=true");
    let body = || json!({"members": [member("10.0.0.6")]});
    assert_eq!(client.lb("PUT", &path, body()).await.0, 202);
    settle().await;
    assert_eq!(members(&client.sim).len(), 3);
    client.sim.configure(|settings| settings.api_minor = 10);
    assert_eq!(client.lb("PUT", &path, body()).await.0, 202);
    settle().await;
    assert_eq!(members(&client.sim).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_from_nothing_to_nothing_locks_nothing_but_an_equal_one_does() {
    let client = Client::new(Sim::new()).await;
    let (lb, _, pool) = client.web().await;
    let status = || client.sim.load_balancer(&lb)["provisioning_status"].clone();
    put(
        &client,
        &pool,
        json!([member("10.0.0.4"), member("10.0.0.5")]),
    )
    .await;
    assert_eq!(status(), "PENDING_UPDATE");
    settle().await;
    put(&client, &pool, json!([])).await;
    settle().await;
    assert_eq!(put(&client, &pool, json!([])).await.0, 202);
    assert_eq!(status(), "ACTIVE");
}

#[tokio::test(start_paused = true)]
async fn a_batch_names_each_member_once_and_only_subnets_that_exist() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    let (status, text) = put(
        &client,
        &pool,
        json!([member("10.0.0.7"), member("10.0.0.7")]),
    )
    .await;
    assert_eq!(status, 409);
    assert_eq!(
        text,
        "Another member on this pool is already using ip 10.0.0.7 on protocol_port 30080"
    );
    let (status, text) = put(
        &client,
        &pool,
        json!([member("10.0.0.4"), member("10.0.0.4")]),
    )
    .await;
    assert_eq!(
        (status, text.as_str()),
        (
            400,
            "Validation failure: Member must be updated only once in the same request."
        )
    );
    let strange =
        json!([{"address": "10.0.0.7", "protocol_port": 1, "subnet_id": client.sim.network()}]);
    assert_eq!(put(&client, &pool, strange).await.0, 400);
    assert_eq!(members(&client.sim).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_busy_names_itself() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    assert_eq!(put(&client, &pool, json!([])).await.0, 202);
    let (status, text) = put(&client, &pool, json!([])).await;
    let words = format!("Pool {pool} is immutable and cannot be updated.");
    assert_eq!((status, text), (409, words));
}

#[tokio::test(start_paused = true)]
async fn about_a_thousand_members_fit_into_one_batch_and_lists_are_paged() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    let node = |n: u32, name: &str| {
        json!({"address": format!("10.1.{}.{}", n / 250, n % 250 + 1),
        "protocol_port": 30080, "name": name})
    };
    let lean: Vec<Value> = (0..1000).map(|n| node(n, "")).collect();
    let fat: Vec<Value> = (0..1000).map(|n| node(n, &"x".repeat(60))).collect();
    assert_eq!(put(&client, &pool, json!(fat)).await.0, 413);
    assert_eq!(put(&client, &pool, json!(lean)).await.0, 202);
    settle().await;
    let path = format!("/v2/lbaas/pools/{pool}/members?fields=id");
    let (_, page) = client.lb("GET", &path, Value::Null).await;
    assert_eq!(page["members"].as_array().unwrap().len(), 1000);
    // A full page has a next one, even if that is empty.
    let next = page["members_links"][0]["href"].as_str().unwrap();
    let (_, last) = client.call("GET", next, Value::Null).await;
    assert_eq!(last["members"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn single_members_are_made_changed_and_deleted() {
    let client = Client::new(Sim::new()).await;
    let (_, _, pool) = client.web().await;
    let path = format!("/v2/lbaas/pools/{pool}/members");
    let (status, _) = client
        .lb("POST", &path, json!({"member": member("10.0.0.4")}))
        .await;
    assert_eq!(status, 409);
    let (status, made) = client
        .lb("POST", &path, json!({"member": member("10.0.0.6")}))
        .await;
    assert_eq!(status, 201);
    settle().await;
    let one = format!("{path}/{}", made["member"]["id"].as_str().unwrap());
    let (_, changed) = client
        .lb("PUT", &one, json!({"member": {"weight": 0}}))
        .await;
    assert_eq!(changed["member"]["weight"], 0);
    settle().await;
    assert_eq!(client.lb("DELETE", &one, Value::Null).await.0, 204);
    settle().await;
    assert_eq!(client.lb("GET", &one, Value::Null).await.0, 404);
    let lost = format!("/v2/lbaas/pools/{}/members", client.sim.subnet());
    assert_eq!(client.lb("GET", &lost, Value::Null).await.0, 404);
    assert_eq!(client.lb("GET", BALANCERS, Value::Null).await.0, 200);
}
