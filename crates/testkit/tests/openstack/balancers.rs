//! Load balancers: creation, the lock, deletion, lists.

use landfall_testkit::openstack::{Fate, Service, Sim, Start};
use serde_json::{Value, json};

use crate::client::{BALANCERS, Client, fault, listener, settle};

#[tokio::test(start_paused = true)]
async fn children_of_a_populated_create_become_active_with_the_load_balancer() {
    let client = Client::new(Sim::new()).await;
    let spec = client.spec(json!({"tags": ["t"], "listeners": [listener(80), listener(443)]}));
    let (status, made) = client.lb("POST", BALANCERS, spec).await;
    assert_eq!(status, 201);
    let made = &made["loadbalancer"];
    assert_eq!(made["provisioning_status"], "PENDING_CREATE");
    assert_eq!(
        made["pools"][0]["members"][1]["provisioning_status"],
        "PENDING_CREATE"
    );
    assert_eq!(made["updated_at"], Value::Null);
    settle().await;
    let path = format!("{BALANCERS}/{}/status", made["id"].as_str().unwrap());
    let (_, tree) = client.lb("GET", &path, Value::Null).await;
    let tree = tree.to_string();
    assert!(!tree.contains("PENDING"), "{tree}");
    assert_eq!(
        tree.matches("\"provisioning_status\":\"ACTIVE\"").count(),
        11,
        "{tree}"
    );
    let lb = &client.sim.load_balancers()[0];
    let ids = |list: &Value| list.as_array().unwrap().len();
    assert_eq!((ids(&lb["listeners"]), ids(&lb["pools"])), (2, 2));
    assert_eq!(lb["listeners"][0]["default_pool_id"], lb["pools"][0]["id"]);
    assert!(lb["updated_at"].is_string());
}

#[tokio::test(start_paused = true)]
async fn the_vip_has_a_port_that_goes_with_the_load_balancer_and_frees_its_floating_ip() {
    let client = Client::new(Sim::new()).await;
    let lb = client.balancer(json!({})).await;
    let (id, port) = (
        lb["id"].as_str().unwrap(),
        lb["vip_port_id"].as_str().unwrap(),
    );
    let ports = client.sim.ports();
    assert_eq!(ports[0]["fixed_ips"][0]["ip_address"], lb["vip_address"]);
    assert_eq!(ports[0]["device_owner"], "Octavia");
    let network = client.sim.external_network();
    let body = json!({"floatingip": {"floating_network_id": network, "port_id": port}});
    assert_eq!(client.net("POST", "/floatingips", body).await.0, 201);
    let (status, _) = client
        .lb("DELETE", &format!("{BALANCERS}/{id}"), Value::Null)
        .await;
    assert_eq!(status, 204);
    assert_eq!(
        client.sim.load_balancers()[0]["provisioning_status"],
        "PENDING_DELETE"
    );
    settle().await;
    assert_eq!(
        client
            .lb("GET", &format!("{BALANCERS}/{id}"), Value::Null)
            .await
            .0,
        404
    );
    assert!(client.sim.ports().is_empty());
    assert_eq!(client.sim.floating_ips()[0]["port_id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_busy_load_balancer_refuses_writes_with_both_texts() {
    let client = Client::new(Sim::new()).await;
    let (lb, _, pool) = client.web().await;
    let path = format!("{BALANCERS}/{lb}");
    let rename = || json!({"loadbalancer": {"name": "x"}});
    assert_eq!(client.lb("PUT", &path, rename()).await.0, 200);
    let (status, reply) = client.lb("PUT", &path, rename()).await;
    let text = format!("Invalid state PENDING_UPDATE of loadbalancer resource {lb}");
    assert_eq!((status, fault(&reply)), (409, text.as_str()));
    let body = json!({"listener": {"loadbalancer_id": lb, "protocol": "TCP", "protocol_port": 81}});
    let (status, reply) = client.lb("POST", "/v2/lbaas/listeners", body).await;
    let text = format!("Load Balancer {lb} is immutable and cannot be updated.");
    assert_eq!((status, fault(&reply)), (409, text.as_str()));
    let (status, _) = client
        .lb("DELETE", &format!("/v2/lbaas/pools/{pool}"), Value::Null)
        .await;
    assert_eq!(status, 409);
    settle().await;
    let (status, _) = client
        .lb("DELETE", &format!("/v2/lbaas/pools/{pool}"), Value::Null)
        .await;
    assert_eq!(status, 204);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_in_error_can_only_be_deleted_or_failed_over() {
    let client = Client::new(Sim::new()).await;
    client.sim.next_fate(Fate::BalancerError);
    let (lb, listener, _) = client.web().await;
    let path = format!("{BALANCERS}/{lb}");
    assert_eq!(
        client.sim.load_balancers()[0]["provisioning_status"],
        "ERROR"
    );
    let (status, _) = client
        .lb(
            "DELETE",
            &format!("/v2/lbaas/listeners/{listener}"),
            Value::Null,
        )
        .await;
    assert_eq!(status, 409);
    let (_, reply) = client.lb("PUT", &path, json!({"loadbalancer": {}})).await;
    assert!(fault(&reply).starts_with("Invalid state ERROR"), "{reply}");
    let failover = format!("{path}/failover");
    assert_eq!(client.lb("PUT", &failover, Value::Null).await.0, 403);
    client
        .sim
        .configure(|settings| settings.failover_allowed = true);
    assert_eq!(client.lb("PUT", &failover, Value::Null).await.0, 202);
    settle().await;
    assert_eq!(
        client.sim.load_balancers()[0]["provisioning_status"],
        "ACTIVE"
    );
    client.sim.set_status(&lb, "ERROR");
    let (status, _) = client
        .lb("DELETE", &format!("{path}?cascade=true"), Value::Null)
        .await;
    assert_eq!(status, 204);
    settle().await;
    assert!(client.sim.load_balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_with_children_is_not_deleted_without_cascade() {
    let client = Client::new(Sim::new()).await;
    let (lb, ..) = client.web().await;
    let (status, reply) = client
        .lb("DELETE", &format!("{BALANCERS}/{lb}"), Value::Null)
        .await;
    assert_eq!(status, 400);
    assert!(fault(&reply).ends_with("it has children"), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn a_graph_that_is_wrong_anywhere_makes_nothing() {
    let client = Client::new(Sim::new()).await;
    let pool = |name: &str| json!({"name": name, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
    let front = |port: u16, pool: Value| {
        json!({"protocol": "TCP", "protocol_port": port,
        "default_pool": pool})
    };
    let cases = [
        (
            json!([front(1, pool("p")), front(2, pool("p"))]),
            400,
            "Pool names must be unique",
        ),
        (
            json!([front(1, json!({"name": "p"}))]),
            400,
            "Pool 'p' was referenced",
        ),
        (
            json!([front(
                1,
                json!({"protocol": "TCP", "lb_algorithm": "SOURCE_IP"})
            )]),
            400,
            "Pools must be named",
        ),
        (
            json!([front(1, json!({"name": "p", "protocol": "TCP"}))]),
            400,
            "missing required attribute: lb_algorithm",
        ),
        (
            json!([front(1, pool("p")), front(1, pool("q"))]),
            409,
            "Another Listener",
        ),
        (
            json!([front(
                1,
                json!({"name": "p", "protocol": "UDP", "lb_algorithm": "ROUND_ROBIN"})
            )]),
            400,
            "is invalid while",
        ),
    ];
    for (listeners, code, words) in cases {
        let spec = client.spec(json!({"listeners": listeners}));
        let (status, reply) = client.lb("POST", BALANCERS, spec).await;
        assert_eq!(status, code, "{reply}");
        assert!(fault(&reply).contains(words), "{reply}");
    }
    assert!(client.sim.load_balancers().is_empty());
    assert!(client.sim.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn members_in_a_subnet_that_is_not_there_are_taken_and_break_it_later() {
    let client = Client::new(Sim::new()).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let pool = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": [{"address": "10.0.0.4", "protocol_port": 1, "subnet_id": unknown}]});
    let front = json!({"protocol": "TCP", "protocol_port": 1, "default_pool": pool});
    let spec = client.spec(json!({"listeners": [front]}));
    let (status, reply) = client.lb("POST", BALANCERS, spec).await;
    assert_eq!(status, 201, "{reply}");
    let id = reply["loadbalancer"]["id"].as_str().unwrap();
    settle().await;
    let there = client.sim.load_balancer(id);
    assert_eq!(there["provisioning_status"], "ERROR", "{there}");
}

#[tokio::test(start_paused = true)]
async fn the_vip_must_be_possible() {
    let client = Client::new(Sim::new()).await;
    let refused = |body: Value| {
        let client = &client;
        async move {
            let body = json!({"loadbalancer": body});
            let (status, reply) = client.lb("POST", BALANCERS, body).await;
            (status, fault(&reply).to_owned())
        }
    };
    let subnet = client.sim.subnet();
    let (status, text) = refused(json!({"name": "x"})).await;
    assert_eq!(status, 400);
    assert!(text.contains("VIP must contain one of"), "{text}");
    assert_eq!(
        refused(json!({"vip_subnet_id": client.sim.network()}))
            .await
            .0,
        400
    );
    client.sim.add_node("a", "10.0.0.4".parse().unwrap());
    let (status, text) = refused(json!({"vip_subnet_id": subnet, "vip_address": "10.0.0.4"})).await;
    assert_eq!(status, 409);
    assert!(
        text.starts_with("The VIP IP address is already in use: "),
        "{text}"
    );
    for (key, value) in [
        ("provider", "nope"),
        ("availability_zone", "nope"),
        ("flavor_id", &subnet),
    ] {
        let (status, text) = refused(json!({"vip_subnet_id": subnet, key: value})).await;
        assert_eq!(status, 400, "{key}: {text}");
    }
    let lb = client.balancer(json!({"vip_address": "10.0.0.50"})).await;
    assert_eq!(lb["vip_address"], "10.0.0.50");
}

#[tokio::test(start_paused = true)]
async fn an_additional_vip_needs_version_2_26_and_lies_in_another_subnet_of_the_network() {
    let client = Client::new(Sim::new()).await;
    let network = client.sim.network();
    let six = client
        .sim
        .add_subnet(&network, "sub6", "fd00::/64".parse().unwrap(), &[]);
    let more = json!({"additional_vips": [{"subnet_id": six}],
        "listeners": [{"protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["fd00::/8",
            "10.0.0.0/8"]}]});
    let lb = client.balancer(more.clone()).await;
    assert_eq!(lb["additional_vips"][0]["ip_address"], "fd00::64");
    assert_eq!(
        client.sim.ports()[0]["fixed_ips"].as_array().unwrap().len(),
        2
    );
    let twice = client.spec(json!({"additional_vips": [{"subnet_id": client.sim.subnet()}]}));
    assert_eq!(client.lb("POST", BALANCERS, twice).await.0, 400);
    client.sim.configure(|settings| settings.api_minor = 25);
    let (status, reply) = client.lb("POST", BALANCERS, client.spec(more)).await;
    let text = "Unknown attribute for argument load_balancer.loadbalancer: additional_vips";
    assert_eq!((status, fault(&reply)), (400, text));
}

#[tokio::test(start_paused = true)]
async fn a_port_of_the_user_stays_when_the_load_balancer_goes() {
    let client = Client::new(Sim::new()).await;
    let body = json!({"port": {"network_id": client.sim.network()}});
    let (_, port) = client.net("POST", "/ports", body).await;
    let port = &port["port"]["id"];
    let spec = json!({"loadbalancer": {"vip_port_id": port}});
    let (status, made) = client.lb("POST", BALANCERS, spec.clone()).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(client.lb("POST", BALANCERS, spec).await.0, 400);
    settle().await;
    let path = format!(
        "{BALANCERS}/{}",
        made["loadbalancer"]["id"].as_str().unwrap()
    );
    client.lb("DELETE", &path, Value::Null).await;
    settle().await;
    assert_eq!(client.sim.ports()[0]["device_id"], "");
}

#[tokio::test(start_paused = true)]
async fn load_balancers_of_other_projects_are_forbidden_and_not_listed() {
    let client = Client::new(Sim::new()).await;
    let body = json!({"loadbalancer": {"name": "theirs", "vip_subnet_id": client.sim.subnet()}});
    let made = client.sim.hand_as(
        "other",
        Service::LoadBalancer,
        &http::Method::POST,
        BALANCERS,
        body,
    );
    let id = made.unwrap()["loadbalancer"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    client.sim.mark_foreign(&id);
    let before = client.sim.snapshot_foreign();
    assert_eq!(before[&id]["provisioning_status"], "ACTIVE");
    let path = format!("{BALANCERS}/{id}");
    for method in ["GET", "DELETE"] {
        assert_eq!(client.lb(method, &path, Value::Null).await.0, 403);
    }
    let (_, all) = client.lb("GET", BALANCERS, Value::Null).await;
    assert_eq!(all["loadbalancers"], json!([]));
    assert_eq!(client.sim.snapshot_foreign(), before);
    client.sim.edit(&id, |row| {
        row.insert("name".to_owned(), json!("mine"));
    });
    assert_ne!(client.sim.snapshot_foreign(), before);
}

#[tokio::test(start_paused = true)]
async fn lists_have_pages_filters_and_chosen_fields() {
    let client = Client::new(Sim::new()).await;
    client.sim.configure(|settings| settings.page_size = 2);
    for name in ["a", "b", "c"] {
        client
            .balancer(json!({"name": name, "tags": [name, "all"]}))
            .await;
    }
    let get = |query: &str| {
        let path = format!("{BALANCERS}?{query}");
        let client = &client;
        async move { client.lb("GET", &path, Value::Null).await }
    };
    let (_, first) = get("tags=all").await;
    assert_eq!(first["loadbalancers"].as_array().unwrap().len(), 2);
    let next = first["loadbalancers_links"][0]["href"].as_str().unwrap();
    // As the real server: the filter isn't in the link.
    assert!(
        next.contains("limit=2&marker=") && !next.contains("tags"),
        "{next}"
    );
    let (_, second) = client.call("GET", next, Value::Null).await;
    assert_eq!(second["loadbalancers"][0]["name"], "c");
    assert_eq!(second["loadbalancers_links"], json!([]));
    for (query, names) in [
        ("name=b", vec!["b"]),
        ("tags=a,all", vec!["a"]),
        ("tags-any=a,c", vec!["a", "c"]),
        ("not-tags-any=a,b", vec!["c"]),
        ("provisioning_status=ERROR", vec![]),
        ("fields=name&name=a", vec!["a"]),
    ] {
        let (_, found) = get(query).await;
        let found = found["loadbalancers"].as_array().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|lb| lb["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names, "{query}");
    }
    assert_eq!(
        get("fields=name&name=a").await.1["loadbalancers"],
        json!([{"name": "a"}])
    );
    assert_eq!(get("nonsense=1").await.0, 400);
    assert_eq!(get("marker=nope").await.0, 400);
    assert_eq!(get("limit=x").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn updated_at_moves_on_every_lock_and_unlock_in_whole_seconds() {
    let start = Start {
        epoch: Some(0),
        ..Start::default()
    };
    let client = Client::new(Sim::with(&start)).await;
    let (lb, ..) = client.web().await;
    let stamp = || client.sim.load_balancer(&lb)["updated_at"].clone();
    assert_eq!(stamp(), "1970-01-01T00:00:01");
    tokio::time::sleep(std::time::Duration::from_millis(1400)).await;
    client
        .lb(
            "PUT",
            &format!("{BALANCERS}/{lb}"),
            json!({"loadbalancer": {"name": "x"}}),
        )
        .await;
    assert_eq!(stamp(), "1970-01-01T00:00:02");
    settle().await;
    assert_eq!(stamp(), "1970-01-01T00:00:03");
}

#[tokio::test(start_paused = true)]
async fn too_many_objects_are_refused_by_quota() {
    let client = Client::new(Sim::new()).await;
    client
        .sim
        .configure(|settings| settings.quota.load_balancers = Some(1));
    client
        .sim
        .configure(|settings| settings.quota.members = Some(1));
    let spec = client.spec(json!({"listeners": [listener(80)]}));
    let (status, reply) = client.lb("POST", BALANCERS, spec).await;
    assert_eq!(
        (status, fault(&reply)),
        (403, "Quota has been met for resources: Member")
    );
    client.balancer(json!({})).await;
    let (status, reply) = client.lb("POST", BALANCERS, client.spec(json!({}))).await;
    assert_eq!(
        (status, fault(&reply)),
        (403, "Quota has been met for resources: Load Balancer")
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_above_the_limit_is_too_large() {
    let client = Client::new(Sim::new()).await;
    let spec = client.spec(json!({"description": "x".repeat(114_688)}));
    assert_eq!(client.lb("POST", BALANCERS, spec).await.0, 413);
}

#[tokio::test]
async fn the_versions_document_names_every_minor_version() {
    let client = Client::new(Sim::new()).await;
    client.sim.configure(|settings| settings.api_minor = 13);
    let (status, document) = client.lb("GET", "/", Value::Null).await;
    let versions = document["versions"].as_array().unwrap();
    assert_eq!((status, versions.len()), (200, 14));
    assert_eq!(versions[13]["id"], "v2.13");
}
