//! The test bed itself: a cloud that is real, separate per project, and empty when a test has
//! left.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use landfall_testkit::stack::{Call, Method, Project, Service, Stack, StackError};
use serde_json::json;

/// A load balancer takes seconds, and many seconds where other tests have theirs made, too.
const SOON: Duration = Duration::from_secs(180);

const LOAD_BALANCERS: &str = "/v2/lbaas/loadbalancers";

async fn create_load_balancer(project: &Project, provider: &str) -> String {
    let body = json!({"loadbalancer": {
        "name": provider, "provider": provider, "vip_subnet_id": project.subnet_id,
    }});
    let answer = project.post(Service::LoadBalancer, LOAD_BALANCERS, body);
    let answer = answer.await.unwrap();
    answer["loadbalancer"]["id"].as_str().unwrap().to_owned()
}

fn addresses(count: u16) -> Vec<(String, IpAddr)> {
    let address = |number: u16| {
        let [high, low] = (number + 256).to_be_bytes();
        let address = Ipv4Addr::new(10, 0, high, low);
        (format!("node-{number}"), address.into())
    };
    (0..count).map(address).collect()
}

#[tokio::test]
async fn load_balancers_of_both_providers_become_active_and_nothing_is_left_of_their_project() {
    let stack = Stack::shared().await;
    let project = stack.project("both").await.unwrap();
    let id = project.id.clone();
    for provider in ["amphora", "ovn"] {
        let load_balancer = create_load_balancer(&project, provider).await;
        let active = project.wait_for_load_balancer(&load_balancer, "ACTIVE", SOON);
        let active = active.await.unwrap();
        // The VIP is a real port, so that a floating IP can be attached to it.
        let body = json!({"floatingip": {
            "floating_network_id": project.external_network_id, "port_id": active["vip_port_id"],
        }});
        let floating_ip = project.post(Service::Network, "/v2.0/floatingips", body);
        let floating_ip = floating_ip.await.unwrap();
        assert_eq!(
            floating_ip["floatingip"]["fixed_ip_address"],
            active["vip_address"]
        );
    }
    let secret = json!({"name": "x", "payload": "x", "payload_content_type": "text/plain"});
    let secret = project.post(Service::KeyManager, "/v1/secrets", secret);
    secret.await.unwrap();
    project.nodes(&addresses(3)).await.unwrap();

    project.delete().await.unwrap();
    for (service, path, name) in [
        (Service::LoadBalancer, LOAD_BALANCERS, "loadbalancers"),
        (Service::LoadBalancer, "/v2/lbaas/listeners", "listeners"),
        (Service::Network, "/v2.0/floatingips", "floatingips"),
        (Service::Network, "/v2.0/ports", "ports"),
        (Service::Network, "/v2.0/routers", "routers"),
        (Service::Network, "/v2.0/networks", "networks"),
        (Service::Network, "/v2.0/subnets", "subnets"),
        // Asking for one project's groups would make its default group again.
        (Service::Network, "/v2.0/security-groups", "security_groups"),
    ] {
        let answer = stack.ask_as_admin(Method::GET, service, path, None).await;
        let answer = answer.unwrap().body;
        let all = answer[name].as_array().unwrap().iter();
        let left: Vec<_> = all.filter(|item| item["project_id"] == id).collect();
        assert_eq!(left, Vec::<&serde_json::Value>::new(), "{path}");
    }
    let path = format!("/v3/projects/{id}");
    let gone = stack.ask_as_admin(Method::GET, Service::Identity, &path, None);
    assert_eq!(gone.await.unwrap().status, 404);
}

#[tokio::test]
async fn a_project_starts_empty_and_sees_nothing_of_another() {
    let stack = Stack::shared().await;
    let one = stack.project("one").await.unwrap();
    let other = stack.project("other").await.unwrap();
    one.node("node", "10.0.1.1".parse().unwrap()).await.unwrap();
    // The same address: their networks are apart.
    other
        .node("node", "10.0.1.1".parse().unwrap())
        .await
        .unwrap();
    let servers = "/v2.0/ports?device_owner=compute:nova";
    let ports = one.list(Service::Network, servers, "ports").await.unwrap();
    assert_eq!(ports.len(), 1, "{ports:?}");
    let path = format!("/v2.0/networks/{}", other.network_id);
    let foreign = one.ask(Method::GET, Service::Network, &path, None).await;
    assert_eq!(foreign.unwrap().status, 404);
    let load_balancers = one.list(Service::LoadBalancer, LOAD_BALANCERS, "loadbalancers");
    assert_eq!(
        load_balancers.await.unwrap(),
        Vec::<serde_json::Value>::new()
    );
    one.delete().await.unwrap();
    other.delete().await.unwrap();
}

#[tokio::test]
async fn calls_between_two_marks_are_counted_by_project_and_user_agent() {
    let stack = Stack::shared().await;
    let project = stack.project("calls").await.unwrap();
    let bystander = stack.project("bystander").await.unwrap();
    let before = stack.mark().await.unwrap();
    for _ in 0..3 {
        project
            .list(Service::LoadBalancer, LOAD_BALANCERS, "loadbalancers")
            .await
            .unwrap();
        bystander
            .list(Service::LoadBalancer, LOAD_BALANCERS, "loadbalancers")
            .await
            .unwrap();
    }
    // Not a node's port: Neutron lets only the administrator delete what is Nova's.
    let group = json!({"security_group": {"name": "group"}});
    let group = project.post(Service::Network, "/v2.0/security-groups", group);
    let group = group.await.unwrap()["security_group"]["id"].take();
    let group = format!("/v2.0/security-groups/{}", group.as_str().unwrap());
    project.remove(Service::Network, &group).await.unwrap();

    let calls = project.calls_since(&before, "landfall-testkit").await;
    let counts: Vec<_> = Call::count(&calls.unwrap()).into_iter().collect();
    assert_eq!(
        counts,
        [
            ("DELETE /v2.0/security-groups/{id}".to_owned(), 1),
            ("GET /v2/lbaas/loadbalancers".to_owned(), 3),
            ("POST /v2.0/security-groups".to_owned(), 1),
        ]
    );
    let others = stack.calls_since(&before, "somebody-else/").await.unwrap();
    assert_eq!(others, []);
    let after = stack.mark().await.unwrap();
    let calls = project.calls_since(&after, "").await.unwrap();
    assert_eq!(calls, []);
    project.delete().await.unwrap();
    bystander.delete().await.unwrap();
}

#[tokio::test]
async fn a_quota_refuses_what_is_beyond_it_and_there_is_none_at_first() {
    let stack = Stack::shared().await;
    let project = stack.project("quota").await.unwrap();
    let path = format!("/v2/lbaas/quotas/{}", project.id);
    let quotas = project.get(Service::LoadBalancer, &path).await.unwrap();
    for resource in [
        "loadbalancer",
        "listener",
        "pool",
        "member",
        "healthmonitor",
    ] {
        assert_eq!(quotas["quota"][resource], -1, "{resource}");
    }
    let path = format!("/v2.0/quotas/{}", project.id);
    let quotas = project.get(Service::Network, &path).await.unwrap();
    for resource in [
        "port",
        "floatingip",
        "security_group",
        "security_group_rule",
    ] {
        assert_eq!(quotas["quota"][resource], -1, "{resource}");
    }
    project
        .set_quota(Service::Network, "floatingip", 0)
        .await
        .unwrap();
    let body = json!({"floatingip": {"floating_network_id": project.external_network_id}});
    let refused = project.post(Service::Network, "/v2.0/floatingips", body);
    match refused.await.unwrap_err() {
        StackError::Refused { status, body, .. } => {
            assert_eq!(status, 409);
            assert!(body.contains("OverQuota"), "{body}");
        }
        other => panic!("{other}"),
    }
    project.delete().await.unwrap();
}

#[tokio::test]
async fn a_failing_amphora_is_an_error_in_its_own_project_and_until_the_guard_is_dropped() {
    let stack = Stack::shared().await;
    let broken = stack.project("broken").await.unwrap();
    let sound = stack.project("sound").await.unwrap();
    let fault = broken.failing_amphorae(&[]).unwrap();
    let lost = create_load_balancer(&broken, "amphora").await;
    let made = create_load_balancer(&sound, "amphora").await;
    let lost = broken.wait_for_load_balancer(&lost, "ERROR", SOON).await;
    lost.unwrap();
    let made = sound.wait_for_load_balancer(&made, "ACTIVE", SOON).await;
    made.unwrap();
    drop(fault);
    let next = create_load_balancer(&broken, "amphora").await;
    let next = broken.wait_for_load_balancer(&next, "ACTIVE", SOON).await;
    next.unwrap();
    broken.delete().await.unwrap();
    sound.delete().await.unwrap();
}

#[tokio::test]
async fn a_load_balancer_stays_pending_for_as_long_as_its_amphora_is_slow() {
    let stack = Stack::shared().await;
    let project = stack.project("slow").await.unwrap();
    let fault = project.slow_amphorae(Duration::from_secs(3)).unwrap();
    let id = create_load_balancer(&project, "amphora").await;
    let busy = project.wait_for_load_balancer(&id, "ACTIVE", Duration::from_secs(3));
    match busy.await.unwrap_err() {
        StackError::TooSlow { seen, .. } => assert_eq!(seen, "PENDING_CREATE"),
        other => panic!("{other}"),
    }
    drop(fault);
    let active = project.wait_for_load_balancer(&id, "ACTIVE", SOON).await;
    active.unwrap();
    project.delete().await.unwrap();
}

#[tokio::test]
async fn a_paused_worker_leaves_the_api_answering_and_goes_on_when_the_guard_is_dropped() {
    let stack = Stack::shared().await;
    let project = stack.project("paused").await.unwrap();
    let fault = stack.pause_worker().unwrap();
    let id = create_load_balancer(&project, "amphora").await;
    let path = format!("{LOAD_BALANCERS}/{id}");
    for _ in 0..5 {
        let seen = project.get(Service::LoadBalancer, &path).await.unwrap();
        assert_eq!(
            seen["loadbalancer"]["provisioning_status"],
            "PENDING_CREATE"
        );
    }
    drop(fault);
    let active = project.wait_for_load_balancer(&id, "ACTIVE", SOON).await;
    active.unwrap();
    project.delete().await.unwrap();
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_every_service_and_a_new_login_works() {
    let stack = Stack::shared().await;
    let project = stack.project("revoked").await.unwrap();
    let questions = [
        (Service::LoadBalancer, LOAD_BALANCERS),
        (Service::Network, "/v2.0/networks"),
        (Service::KeyManager, "/v1/secrets"),
    ];
    for (service, path) in questions {
        project.get(service, path).await.unwrap();
    }
    let old = project.token().await.unwrap();
    project.revoke_tokens().await.unwrap();
    for (service, path) in questions {
        let refused = project.ask_with(&old, Method::GET, service, path).await;
        assert_eq!(refused.unwrap().status, 401, "{path}");
        project.get(service, path).await.unwrap();
    }
    project.delete().await.unwrap();
}

#[tokio::test]
async fn more_nodes_than_one_request_takes_have_a_port_each() {
    let stack = Stack::shared().await;
    let project = stack.project("nodes").await.unwrap();
    let nodes = project.nodes(&addresses(120)).await.unwrap();
    let path = "/v2.0/ports?device_owner=compute:nova&fields=id&fields=device_id&fields=fixed_ips";
    let ports = project.list(Service::Network, path, "ports").await.unwrap();
    assert_eq!(ports.len(), 120);
    for (node, (name, address)) in nodes.iter().zip(addresses(120)) {
        assert_eq!((&node.name, node.address), (&name, address));
        let port = ports.iter().find(|port| port["id"] == node.port_id);
        let port = port.unwrap();
        assert_eq!(port["device_id"], node.server_id);
        assert_eq!(port["fixed_ips"][0]["ip_address"], address.to_string());
        assert_eq!(node.provider_id, format!("openstack:///{}", node.server_id));
    }
    project.delete().await.unwrap();
}
