//! Listeners, pools and monitors.

use landfall_testkit::openstack::{Fate, Sim};
use serde_json::{Value, json};

use crate::client::{Client, fault, settle};

const LISTENERS: &str = "/v2/lbaas/listeners";
const POOLS: &str = "/v2/lbaas/pools";
const MONITORS: &str = "/v2/lbaas/healthmonitors";

async fn refused(client: &Client, lb: &str, more: Value) -> (u16, String) {
    let mut spec = json!({"loadbalancer_id": lb, "protocol": "TCP", "protocol_port": 90});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let (status, reply) = client
        .lb("POST", LISTENERS, json!({"listener": spec}))
        .await;
    (status, fault(&reply).to_owned())
}

#[tokio::test(start_paused = true)]
async fn two_listeners_share_a_port_only_with_different_layers_below() {
    let client = Client::new(Sim::new()).await;
    let (lb, ..) = client.web().await;
    for protocol in ["TCP", "HTTP", "HTTPS", "PROMETHEUS"] {
        let (status, text) = refused(
            &client,
            &lb,
            json!({"protocol": protocol, "protocol_port": 80}),
        )
        .await;
        let words = "Another Listener on this Load Balancer is already using protocol TCP and \
                    protocol_port 80";
        assert_eq!((status, text.as_str()), (409, words));
    }
    for protocol in ["UDP", "SCTP"] {
        let (status, _) = refused(
            &client,
            &lb,
            json!({"protocol": protocol, "protocol_port": 80}),
        )
        .await;
        assert_eq!(status, 201);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_refuse_what_their_protocol_or_the_bounds_forbid() {
    let client = Client::new(Sim::new()).await;
    let (lb, ..) = client.web().await;
    let header = json!({"X-Forwarded-For": "true"});
    let lost = "http://key-manager.sim/v1/secrets/none";
    for (more, words) in [
        (
            json!({"insert_headers": header}),
            "insert-headers is not a valid option for a TCP protocol listener.",
        ),
        (
            json!({"protocol": "HTTP", "insert_headers": {"X-Foo": "true"}}),
            "dict_keys(['X-Foo']) is not a valid option for insert_headers",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS"}),
            "An SNI or default certificate container reference must be provided",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": lost}),
            "Could not retrieve certificate: ['http",
        ),
        (
            json!({"default_tls_container_ref": lost}),
            "Certificate container references are not allowed on TCP",
        ),
        (
            json!({"allowed_cidrs": ["fd00::/8"]}),
            "CIDR fd00::/8 IP version incompatible with all VIPs ['10.0.0.100'] IP version.",
        ),
        (
            json!({"allowed_cidrs": ["x"]}),
            "Value should be IPv4 or IPv6 CIDR format",
        ),
        (
            json!({"connection_limit": -2}),
            "Value should be greater or equal to -1",
        ),
        (
            json!({"timeout_client_data": 2_073_600_001_u32}),
            "Value should be lower or equal to 2073600000",
        ),
        (
            json!({"protocol_port": 0}),
            "Value should be greater or equal to 1",
        ),
        (
            json!({"name": "x".repeat(256)}),
            "maximum character requirement of 255",
        ),
        (
            json!({"tags": ["x".repeat(256)]}),
            "maximum character requirement of 255",
        ),
        (
            json!({"nonsense": 1}),
            "Unknown attribute for argument listener_.listener: nonsense",
        ),
    ] {
        let (status, text) = refused(&client, &lb, more.clone()).await;
        assert_eq!(status, 400, "{more}: {text}");
        assert!(text.contains(words), "{more}: {text}");
    }
    let secret = client.sim.add_secret();
    let more = json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": secret,
        "insert_headers": header});
    assert_eq!(refused(&client, &lb, more).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_pool_must_suit_its_listener() {
    let good = [
        ("TCP", "HTTP,HTTPS,PROXY,PROXYV2,TCP"),
        ("HTTP", "HTTP,PROXY,PROXYV2"),
        ("HTTPS", "HTTPS,PROXY,PROXYV2,TCP"),
        ("UDP", "UDP"),
        ("SCTP", "SCTP"),
    ];
    let client = Client::new(Sim::new()).await;
    for (front, backs) in good {
        for back in ["TCP", "HTTP", "HTTPS", "PROXY", "PROXYV2", "UDP", "SCTP"] {
            let spec = client.spec(json!({"listeners": [{"protocol": front, "protocol_port": 1,
                "default_pool": {"name": "p", "protocol": back, "lb_algorithm": "ROUND_ROBIN"}}]}));
            let (status, reply) = client.lb("POST", "/v2/lbaas/loadbalancers", spec).await;
            let want = if backs.split(',').any(|one| one == back) {
                201
            } else {
                400
            };
            assert_eq!(status, want, "{front} {back}: {reply}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pool_takes_members_and_monitor_and_clears_the_listeners_default() {
    let client = Client::new(Sim::new()).await;
    let (_, listener, pool) = client.web().await;
    let path = format!("{POOLS}/{pool}");
    assert_eq!(client.lb("DELETE", &path, Value::Null).await.0, 204);
    let (_, found) = client.lb("GET", &path, Value::Null).await;
    assert_eq!(found["pool"]["provisioning_status"], "PENDING_DELETE");
    settle().await;
    assert_eq!(client.lb("GET", &path, Value::Null).await.0, 404);
    let (_, monitors) = client.lb("GET", MONITORS, Value::Null).await;
    assert_eq!(monitors["healthmonitors"], json!([]));
    let (_, found) = client
        .lb("GET", &format!("{LISTENERS}/{listener}"), Value::Null)
        .await;
    assert_eq!(found["listener"]["default_pool_id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_listener_has_one_default_pool_and_a_pool_one_monitor() {
    let client = Client::new(Sim::new()).await;
    let (lb, listener, pool) = client.web().await;
    let body = json!({"pool": {"listener_id": listener, "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN"}});
    let (status, reply) = client.lb("POST", POOLS, body).await;
    assert_eq!(
        (status, fault(&reply)),
        (409, "This listener already has a default pool")
    );
    let body = json!({"healthmonitor": {"pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3,
        "max_retries": 1}});
    let (status, reply) = client.lb("POST", MONITORS, body).await;
    assert_eq!(
        (status, fault(&reply)),
        (409, "This pool already has a health monitor")
    );
    let spare = json!({"pool": {"loadbalancer_id": lb, "protocol": "PROXY",
        "lb_algorithm": "SOURCE_IP",
        "session_persistence": {"type": "SOURCE_IP"}}});
    let (status, spare) = client.lb("POST", POOLS, spare).await;
    assert_eq!(status, 201);
    assert!(spare["pool"].get("healthmonitor_id").is_none(), "{spare}");
    settle().await;
    let swap = json!({"listener": {"default_pool_id": spare["pool"]["id"]}});
    let (status, swapped) = client
        .lb("PUT", &format!("{LISTENERS}/{listener}"), swap)
        .await;
    assert_eq!(
        (status, &swapped["listener"]["default_pool_id"]),
        (200, &spare["pool"]["id"])
    );
    let (_, pools) = client
        .lb("GET", &format!("{POOLS}?loadbalancer_id={lb}"), Value::Null)
        .await;
    assert_eq!(pools["pools"][0]["listeners"], json!([]));
    assert_eq!(pools["pools"][1]["listeners"], json!([{"id": listener}]));
}

#[tokio::test(start_paused = true)]
async fn null_in_an_update_restores_the_default() {
    let client = Client::new(Sim::new()).await;
    let (_, listener, pool) = client.web().await;
    let path = format!("{LISTENERS}/{listener}");
    let set = json!({"listener": {"timeout_client_data": 7, "allowed_cidrs": ["10.0.0.0/8"]}});
    let (_, changed) = client.lb("PUT", &path, set).await;
    assert_eq!(changed["listener"]["timeout_client_data"], 7);
    settle().await;
    let reset = json!({"listener": {"timeout_client_data": null, "allowed_cidrs": null}});
    let (_, changed) = client.lb("PUT", &path, reset).await;
    assert_eq!(changed["listener"]["timeout_client_data"], 50_000);
    assert_eq!(changed["listener"]["allowed_cidrs"], Value::Null);
    settle().await;
    let (status, reply) = client
        .lb(
            "PUT",
            &format!("{POOLS}/{pool}"),
            json!({"pool": {"protocol": "HTTP"}}),
        )
        .await;
    assert_eq!(
        (status, fault(&reply)),
        (400, "Unknown attribute for argument pool_.pool: protocol")
    );
}

#[tokio::test(start_paused = true)]
async fn monitors_obey_their_bounds_and_the_pools_protocol() {
    let client = Client::new(Sim::new()).await;
    let mut ids = Vec::new();
    let lb = client.balancer(json!({})).await;
    for protocol in ["TCP", "UDP"] {
        let body = json!({"pool": {"loadbalancer_id": lb["id"], "protocol": protocol,
            "lb_algorithm": "ROUND_ROBIN"}});
        ids.push(client.lb("POST", POOLS, body).await.1["pool"]["id"].clone());
        settle().await;
    }
    let monitor = |pool: &Value, kind: &str, delay: i64, retries: i64| {
        let body = json!({"healthmonitor": {"pool_id": pool, "type": kind, "delay": delay,
            "timeout": 9, "max_retries": retries}});
        let client = &client;
        async move { client.lb("POST", MONITORS, body).await }
    };
    assert_eq!(monitor(&ids[0], "UDP-CONNECT", 5, 1).await.0, 400);
    assert_eq!(monitor(&ids[1], "PING", 5, 1).await.0, 400);
    assert_eq!(monitor(&ids[0], "TCP", 5, 11).await.0, 400);
    assert_eq!(monitor(&ids[0], "TCP", -1, 1).await.0, 400);
    assert_eq!(monitor(&ids[1], "UDP-CONNECT", 2, 1).await.0, 400);
    client.sim.configure(|settings| settings.api_minor = 15);
    assert_eq!(monitor(&ids[1], "HTTP", 5, 1).await.0, 400);
    client.sim.configure(|settings| settings.api_minor = 16);
    let (status, made) = monitor(&ids[1], "HTTP", 5, 1).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["healthmonitor"]["url_path"], "/");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_is_in_error_while_the_load_balancer_is_active_again() {
    let client = Client::new(Sim::new()).await;
    let (lb, listener, _) = client.web().await;
    client.sim.next_fate(Fate::ChildError);
    client
        .lb(
            "PUT",
            &format!("{LISTENERS}/{listener}"),
            json!({"listener": {"name": "x"}}),
        )
        .await;
    settle().await;
    let lb = client.sim.load_balancer(&lb);
    assert_eq!(lb["provisioning_status"], "ACTIVE");
    assert_eq!(lb["listeners"][0]["provisioning_status"], "ERROR");
}
