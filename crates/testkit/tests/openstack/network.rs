//! Neutron: floating IPs, security groups, ports, tags, revisions.

use landfall_testkit::openstack::Sim;
use serde_json::{Value, json};

use crate::client::{Client, trouble};

async fn floating(client: &Client, more: Value) -> (u16, Value) {
    let mut spec = json!({"floating_network_id": client.sim.external_network()});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    client
        .net("POST", "/floatingips", json!({"floatingip": spec}))
        .await
}

#[tokio::test(start_paused = true)]
async fn a_port_has_one_floating_ip_per_external_network() {
    let client = Client::new(Sim::new()).await;
    let lb = client.balancer(json!({})).await;
    let (status, made) = floating(
        &client,
        json!({"port_id": lb["vip_port_id"], "description": "d"}),
    )
    .await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["floatingip"]["fixed_ip_address"], lb["vip_address"]);
    let (status, reply) = floating(&client, json!({"port_id": lb["vip_port_id"]})).await;
    assert_eq!(
        (status, trouble(&reply).0),
        (409, "FloatingIPPortAlreadyAssociated")
    );
    assert_eq!(client.sim.floating_ips().len(), 1);
    let other = client.sim.add_network("ext2", true);
    client
        .sim
        .add_subnet(&other, "ext2", "198.51.100.0/24".parse().unwrap(), &[]);
    let (status, _) = floating(
        &client,
        json!({"floating_network_id": other, "port_id": lb["vip_port_id"]}),
    )
    .await;
    assert_eq!(status, 201);
    let path = format!(
        "/floatingips?port_id={}",
        lb["vip_port_id"].as_str().unwrap()
    );
    let (_, found) = client.net("GET", &path, Value::Null).await;
    assert_eq!(found["floatingips"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_is_detached_by_null_and_by_an_empty_body_but_not_by_a_description() {
    let client = Client::new(Sim::new()).await;
    let lb = client.balancer(json!({})).await;
    let (_, made) = floating(&client, json!({})).await;
    let path = format!(
        "/floatingips/{}",
        made["floatingip"]["id"].as_str().unwrap()
    );
    for detach in [json!({"port_id": null}), json!({})] {
        let attach = json!({"floatingip": {"port_id": lb["vip_port_id"]}});
        assert_eq!(
            client.net("PUT", &path, attach).await.1["floatingip"]["port_id"],
            lb["vip_port_id"]
        );
        let text = json!({"floatingip": {"description": "x"}});
        assert_eq!(
            client.net("PUT", &path, text).await.1["floatingip"]["port_id"],
            lb["vip_port_id"]
        );
        let (_, off) = client
            .net("PUT", &path, json!({"floatingip": detach}))
            .await;
        assert_eq!(off["floatingip"]["port_id"], Value::Null);
    }
    assert_eq!(client.net("DELETE", &path, Value::Null).await.0, 204);
    assert_eq!(client.net("GET", &path, Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn floating_ips_refuse_addresses_tags_strange_subnets_and_too_many() {
    let client = Client::new(Sim::new()).await;
    let (status, reply) = floating(&client, json!({"floating_ip_address": "198.18.0.9"})).await;
    assert_eq!((status, trouble(&reply).0), (403, "PolicyNotAuthorized"));
    let (status, reply) = floating(&client, json!({"tags": ["a"]})).await;
    assert_eq!(
        (status, trouble(&reply).1),
        (400, "Attribute 'tags' not allowed in POST")
    );
    assert_eq!(
        floating(&client, json!({"subnet_id": client.sim.subnet()}))
            .await
            .0,
        400
    );
    assert_eq!(
        floating(&client, json!({"port_id": client.sim.subnet()}))
            .await
            .0,
        404
    );
    assert_eq!(
        floating(
            &client,
            json!({"floating_network_id": client.sim.network()})
        )
        .await
        .0,
        400
    );
    client
        .sim
        .configure(|settings| settings.floating_address_allowed = true);
    assert_eq!(
        floating(&client, json!({"floating_ip_address": "198.18.0.9"}))
            .await
            .0,
        201
    );
    assert_eq!(
        floating(&client, json!({"floating_ip_address": "198.18.0.9"}))
            .await
            .0,
        409
    );
    client
        .sim
        .configure(|settings| settings.quota.floating_ips = Some(1));
    let (status, reply) = floating(&client, json!({})).await;
    assert_eq!(
        (status, trouble(&reply)),
        (
            409,
            ("OverQuota", "Quota exceeded for resources: ['floatingip'].")
        )
    );
}

#[tokio::test]
async fn tags_filter_as_the_real_server_does_and_not_as_documented_elsewhere() {
    let client = Client::new(Sim::new()).await;
    let net = client.sim.add_network("tagged", false);
    for (third, tags) in [(1, &["a"][..]), (2, &["b"]), (3, &["a", "b"]), (4, &["c"])] {
        let cidr = format!("10.9.{third}.0/24").parse().unwrap();
        client.sim.add_subnet(&net, &tags.join("+"), cidr, tags);
    }
    for (query, names) in [
        ("tags-any=a,b", "a b a+b"),
        ("tags=a,b", "a+b"),
        ("not-tags=a,b", "a b c"),
        ("not-tags-any=a,b", "c"),
    ] {
        let path = format!("/subnets?network_id={net}&{query}");
        let (_, found) = client.net("GET", &path, Value::Null).await;
        let found = found["subnets"].as_array().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert_eq!(found.join(" "), names, "{query}");
    }
    assert_eq!(
        client
            .net("GET", "/subnets?nonsense=1", Value::Null)
            .await
            .0,
        400
    );
}

async fn group(client: &Client) -> String {
    let (status, made) = client
        .net(
            "POST",
            "/security-groups",
            json!({"security_group": {"name": "g"}}),
        )
        .await;
    assert_eq!(status, 201);
    let rules = made["security_group"]["security_group_rules"]
        .as_array()
        .unwrap();
    assert!(rules.len() == 2 && rules.iter().all(|rule| rule["direction"] == "egress"));
    made["security_group"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn rules_are_made_one_by_one_or_in_bulk_and_never_twice() {
    let client = Client::new(Sim::new()).await;
    let group = group(&client).await;
    let rule = |port: u16| {
        json!({"security_group_id": group, "direction": "ingress", "ethertype": "IPv4",
        "protocol": "tcp", "port_range_min": port, "port_range_max": port,
            "remote_ip_prefix": "10.0.0.0/24"})
    };
    let path = "/security-group-rules";
    let one = || json!({"security_group_rule": rule(80)});
    assert_eq!(client.net("POST", path, one()).await.0, 201);
    let (status, reply) = client.net("POST", path, one()).await;
    assert_eq!(
        (status, trouble(&reply).0),
        (409, "SecurityGroupRuleExists")
    );
    let bulk = |ports: &[u16]| {
        let rules: Vec<_> = ports.iter().map(|port| rule(*port)).collect();
        json!({ "security_group_rules": rules })
    };
    assert_eq!(
        trouble(&client.net("POST", path, bulk(&[81, 81])).await.1).0,
        "DuplicateSecurityGroupRuleInPost"
    );
    assert_eq!(client.net("POST", path, bulk(&[82, 80])).await.0, 409);
    let (status, made) = client.net("POST", path, bulk(&[81, 82])).await;
    assert_eq!(
        (
            status,
            made["security_group_rules"].as_array().unwrap().len()
        ),
        (201, 2)
    );
    let (_, found) = client
        .net("GET", "/security-groups?name=g", Value::Null)
        .await;
    let rules = found["security_groups"][0]["security_group_rules"]
        .as_array()
        .unwrap();
    assert_eq!(rules.len(), 5);
    let id = made["security_group_rules"][0]["id"].as_str().unwrap();
    assert_eq!(
        client
            .net("DELETE", &format!("{path}/{id}"), Value::Null)
            .await
            .0,
        204
    );
    assert_eq!(
        client
            .net("DELETE", &format!("{path}/{id}"), Value::Null)
            .await
            .0,
        404
    );
    let six = json!({"security_group_rule": {"security_group_id": group, "direction": "ingress",
        "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/24"}});
    assert_eq!(client.net("POST", path, six).await.0, 400);
    client
        .sim
        .configure(|settings| settings.quota.security_group_rules = Some(5));
    assert_eq!(
        trouble(&client.net("POST", path, bulk(&[90, 91])).await.1).0,
        "OverQuota"
    );
}

#[tokio::test]
async fn groups_of_a_port_are_replaced_as_a_whole_and_one_in_use_stays() {
    let client = Client::new(Sim::new()).await;
    let (first, second) = (group(&client).await, group(&client).await);
    let server = client.sim.add_node("a", "10.0.0.4".parse().unwrap());
    let (_, ports) = client
        .net("GET", &format!("/ports?device_id={server}"), Value::Null)
        .await;
    let port = format!("/ports/{}", ports["ports"][0]["id"].as_str().unwrap());
    let put = |groups: Value| {
        let client = &client;
        let port = &port;
        async move {
            client
                .net("PUT", port, json!({"port": {"security_groups": groups}}))
                .await
        }
    };
    assert_eq!(put(json!([first, second])).await.0, 200);
    let (status, reply) = client
        .net("DELETE", &format!("/security-groups/{first}"), Value::Null)
        .await;
    assert_eq!((status, trouble(&reply).0), (409, "SecurityGroupInUse"));
    let (_, found) = client
        .net(
            "GET",
            &format!("/ports?security_groups={first}"),
            Value::Null,
        )
        .await;
    assert_eq!(found["ports"].as_array().unwrap().len(), 1);
    assert_eq!(put(json!([first, first])).await.0, 400);
    assert_eq!(put(json!([client.sim.subnet()])).await.0, 404);
    assert_eq!(
        put(json!([second])).await.1["port"]["security_groups"],
        json!([second])
    );
    assert_eq!(
        client
            .net("DELETE", &format!("/security-groups/{first}"), Value::Null)
            .await
            .0,
        204
    );
    let open = client
        .sim
        .add_nic("b", &server, "10.0.0.5".parse().unwrap(), false);
    let body = json!({"port": {"security_groups": [second]}});
    assert_eq!(
        client.net("PUT", &format!("/ports/{open}"), body).await.0,
        400
    );
}

#[tokio::test]
async fn a_write_on_an_older_revision_is_refused() {
    let client = Client::new(Sim::new()).await;
    let group = group(&client).await;
    client.sim.add_node("a", "10.0.0.4".parse().unwrap());
    let port = client.sim.ports()[0].clone();
    let url = format!(
        "http://network.sim/v2.0/ports/{}",
        port["id"].as_str().unwrap()
    );
    let write = || {
        let body = json!({"port": {"security_groups": [group]}});
        let mut request = client.request("PUT", &url, &body);
        let wanted = format!("revision_number={}", port["revision_number"]);
        request
            .headers_mut()
            .insert("if-match", wanted.parse().unwrap());
        client.raw(request)
    };
    assert_eq!(write().await.unwrap().status(), 200);
    let late = write().await.unwrap();
    assert_eq!(late.status(), 412);
    let late: Value = serde_json::from_slice(late.body()).unwrap();
    assert_eq!(trouble(&late).0, "RevisionNumberConstraintFailed");
}

#[tokio::test]
async fn tags_are_replaced_added_and_removed_by_their_own_path() {
    let client = Client::new(Sim::new()).await;
    let group = group(&client).await;
    let path = format!("/security-groups/{group}/tags");
    let (status, tags) = client.net("PUT", &path, json!({"tags": ["a", "b"]})).await;
    assert_eq!((status, tags), (200, json!({"tags": ["a", "b"]})));
    assert_eq!(
        client
            .net("DELETE", &format!("{path}/a"), Value::Null)
            .await
            .0,
        204
    );
    assert_eq!(
        client
            .net("DELETE", &format!("{path}/a"), Value::Null)
            .await
            .0,
        404
    );
    assert_eq!(
        client
            .net("PUT", &format!("{path}/c%20d"), Value::Null)
            .await
            .0,
        201
    );
    assert_eq!(client.sim.security_groups()[0]["tags"], json!(["b", "c d"]));
}

#[tokio::test]
async fn links_to_further_pages_keep_the_filters() {
    let client = Client::new(Sim::new()).await;
    for _ in 0..3 {
        group(&client).await;
    }
    let (_, page) = client
        .net("GET", "/security-groups?name=g&limit=2", Value::Null)
        .await;
    let next = page["security_groups_links"][0]["href"].as_str().unwrap();
    assert!(next.contains("name=g&"), "{next}");
    let (_, last) = client.call("GET", next, Value::Null).await;
    assert_eq!(last["security_groups"].as_array().unwrap().len(), 1);
    assert!(last.get("security_groups_links").is_none());
}
