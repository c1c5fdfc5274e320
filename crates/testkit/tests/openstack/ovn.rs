//! What the `ovn` provider refuses.

use landfall_testkit::openstack::Sim;
use serde_json::{Value, json};

use crate::client::{BALANCERS, Client, fault};

async fn refused(client: &Client, listener: Value) -> (u16, String) {
    let spec = client.spec(json!({"provider": "ovn", "listeners": [listener]}));
    let (status, reply) = client.lb("POST", BALANCERS, spec).await;
    (status, fault(&reply).to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_ovn_provider_refuses_what_it_cannot_do_with_501() {
    let client = Client::new(Sim::new()).await;
    let with = |pool: Value| {
        json!({"protocol": "TCP", "protocol_port": 80,
        "timeout_client_data": 7, "default_pool": pool})
    };
    let pool = |more: Value| {
        let mut pool = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"});
        for (key, value) in more.as_object().unwrap() {
            pool[key] = value.clone();
        }
        pool
    };
    let monitor = |kind: &str| {
        json!({"healthmonitor": {"type": kind, "delay": 5, "timeout": 3,
        "max_retries": 1}})
    };
    let member =
        json!({"members": [{"address": "10.0.0.4", "protocol_port": 1, "monitor_port": 2}]});
    for (listener, words) in [
        (
            json!({"protocol": "HTTP", "protocol_port": 80}),
            "OVN provider does not support HTTP protocol",
        ),
        (
            json!({"protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["0.0.0.0/0"]}),
            "OVN provider does not support allowed_cidrs option",
        ),
        (
            with(pool(json!({"lb_algorithm": "ROUND_ROBIN"}))),
            "OVN provider does not support ROUND_ROBIN algorithm",
        ),
        (
            with(pool(json!({"lb_algorithm": "SOURCE_IP"}))),
            "OVN provider does not support SOURCE_IP algorithm",
        ),
        (
            with(pool(json!({"protocol": "PROXY"}))),
            "OVN provider does not support PROXY protocol",
        ),
        (
            with(pool(monitor("HTTP"))),
            "OVN provider does not support HTTP health monitor type",
        ),
        (with(pool(member)), "member monitor address or port"),
    ] {
        let (status, text) = refused(&client, listener.clone()).await;
        assert_eq!(status, 501, "{listener}: {text}");
        assert!(
            text.starts_with("Provider 'ovn' does not support a requested option: "),
            "{text}"
        );
        assert!(text.contains(words), "{text}");
    }
    assert!(client.sim.load_balancers().is_empty());
    assert_eq!(refused(&client, with(pool(monitor("TCP")))).await.0, 201);
    client
        .sim
        .configure(|settings| settings.ovn_source_ip = true);
    assert_eq!(
        refused(&client, with(pool(json!({"lb_algorithm": "SOURCE_IP"}))))
            .await
            .0,
        201
    );
}
