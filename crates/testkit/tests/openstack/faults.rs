//! Faults, the record of calls, hand edits.

use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::{Chaos, Fate, Fault, NoAnswer, Service, Sim};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::client::{BALANCERS, Client, listener, settle};

async fn create(client: &Client) -> Result<u16, NoAnswer> {
    let spec = client.spec(json!({}));
    let url = format!("http://load-balancer.sim{BALANCERS}");
    let reply = client.raw(client.request("POST", &url, &spec)).await?;
    Ok(reply.status().as_u16())
}

async fn with(fault: Fault) -> Client {
    let client = Client::new(Sim::new()).await;
    let mut once = Some(fault);
    client
        .sim
        .on_call(move |call| once.take_if(|_| call.is_write()));
    client
}

#[tokio::test(start_paused = true)]
async fn a_status_instead_of_an_answer_changes_nothing() {
    let mut fault = Fault::status(Some(Service::LoadBalancer), 503, "unwell");
    if let Fault::Status { retry_after, .. } = &mut fault {
        *retry_after = Some(7);
    }
    let client = with(fault).await;
    let url = format!("http://load-balancer.sim{BALANCERS}");
    let spec = client.spec(json!({}));
    let reply = client
        .raw(client.request("POST", &url, &spec))
        .await
        .unwrap();
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["retry-after"]),
        (503, &"7".parse::<http::HeaderValue>().unwrap())
    );
    assert!(client.sim.load_balancers().is_empty());
    assert_eq!(create(&client).await, Ok(201));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_lost_before_or_after_it_happened() {
    let before = with(Fault::NoAnswerBefore).await;
    assert_eq!(create(&before).await, Err(NoAnswer));
    assert!(before.sim.load_balancers().is_empty());
    let after = with(Fault::NoAnswerAfter).await;
    assert_eq!(create(&after).await, Err(NoAnswer));
    assert_eq!(after.sim.load_balancers().len(), 1);
    let call = after.sim.writes().pop().unwrap();
    assert_eq!((call.status, call.answered), (201, false));
}

#[tokio::test(start_paused = true)]
async fn a_call_hangs_before_or_after_it_happened() {
    for (fault, made) in [(Fault::HangBefore, 0), (Fault::HangAfter, 1)] {
        let client = with(fault).await;
        let waited = timeout(Duration::from_secs(1000), create(&client)).await;
        assert!(waited.is_err());
        assert_eq!(client.sim.load_balancers().len(), made);
    }
}

#[tokio::test(start_paused = true)]
async fn delay_and_latency_pass_in_virtual_time() {
    let client = with(Fault::Delay(Duration::from_secs(40))).await;
    client
        .sim
        .configure(|settings| settings.latency = Duration::from_secs(2));
    let start = Instant::now();
    assert_eq!(create(&client).await, Ok(201));
    assert_eq!(start.elapsed(), Duration::from_secs(42));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_dies_in_the_middle_gives_401() {
    let client = with(Fault::TokenDies).await;
    assert_eq!(create(&client).await, Ok(401));
    let client = Client::new(client.sim).await;
    assert_eq!(create(&client).await, Ok(201));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_load_balancer_waits_for_release_and_a_late_one_for_its_time() {
    let client = Client::new(Sim::new()).await;
    client.sim.next_fate(Fate::Stuck);
    let lb = client.balancer(json!({})).await;
    let id = lb["id"].as_str().unwrap();
    let status = || client.sim.load_balancer(id)["provisioning_status"].clone();
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert_eq!(status(), "PENDING_CREATE");
    client.sim.release(id);
    assert_eq!(status(), "ACTIVE");
    client.sim.next_fate(Fate::Late(Duration::from_secs(60)));
    let client = Client::new(client.sim.clone()).await;
    client
        .lb(
            "PUT",
            &format!("{BALANCERS}/{id}"),
            json!({"loadbalancer": {}}),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(status(), "PENDING_UPDATE");
    settle().await;
    assert_eq!(status(), "ACTIVE");
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_runs() {
    async fn run(seed: u64) -> (Vec<String>, Vec<Value>) {
        let client = Client::new(Sim::new()).await;
        client.sim.unleash(&Chaos {
            token_dies: 0.0,
            ..Chaos::new(seed)
        });
        let mut outcomes = Vec::new();
        for port in 1..60 {
            let spec = client.spec(json!({"listeners": [listener(port)]}));
            let url = format!("http://load-balancer.sim{BALANCERS}");
            let reply = client.raw(client.request("POST", &url, &spec)).await;
            outcomes.push(reply.map_or("lost".to_owned(), |reply| reply.status().to_string()));
            settle().await;
        }
        client.sim.heal();
        let mut balancers = client.sim.load_balancers();
        for balancer in &mut balancers {
            balancer.as_object_mut().unwrap().retain(|key, _| {
                ["id", "provisioning_status", "vip_address"].contains(&key.as_str())
            });
        }
        (outcomes, balancers)
    }
    let first = run(3).await;
    assert_eq!(first, run(3).await);
    assert_ne!(first.0, run(4).await.0);
    assert!(
        first.0.iter().any(|one| one == "lost") && first.0.iter().any(|one| one == "201 Created")
    );
}

#[tokio::test(start_paused = true)]
async fn the_log_knows_every_call_and_its_body() {
    let client = Client::new(Sim::new()).await;
    client.sim.forget_calls();
    client
        .lb("GET", &format!("{BALANCERS}?name=x"), Value::Null)
        .await;
    create(&client).await.unwrap();
    let calls = client.sim.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].line(), "GET /v2/lbaas/loadbalancers?name=x");
    assert_eq!(
        (calls[0].status, calls[0].user_agent.as_str()),
        (200, "test")
    );
    let writes = client.sim.writes();
    assert_eq!(
        (writes.len(), writes[0].status, writes[0].body.len()),
        (1, 201, writes[0].body_bytes)
    );
}

#[tokio::test(start_paused = true)]
async fn objects_change_and_vanish_behind_the_controllers_back() {
    let client = Client::new(Sim::new()).await;
    let (lb, listener, pool) = client.web().await;
    client.sim.forget_calls();
    let stamp = || client.sim.load_balancer(&lb)["updated_at"].clone();
    let before = stamp();
    settle().await;
    assert!(client.sim.edit(&listener, |row| {
        row.insert("connection_limit".to_owned(), json!(5));
    }));
    assert_ne!(stamp(), before);
    assert_eq!(client.sim.load_balancer(&listener)["connection_limit"], 5);
    assert!(client.sim.delete(&pool));
    assert!(!client.sim.delete(&pool));
    assert_eq!(
        client.sim.load_balancer(&listener)["default_pool_id"],
        Value::Null
    );
    let body =
        json!({"pool": {"listener_id": listener, "protocol": "TCP", "lb_algorithm": "SOURCE_IP"}});
    let made = client.sim.hand(
        Service::LoadBalancer,
        &Method::POST,
        "/v2/lbaas/pools",
        body,
    );
    let made = made.unwrap();
    let now = client
        .sim
        .load_balancer(made["pool"]["id"].as_str().unwrap());
    assert_eq!(now["provisioning_status"], "ACTIVE");
    assert!(client.sim.delete(&lb));
    assert!(client.sim.ports().is_empty() && client.sim.calls().is_empty());
}
