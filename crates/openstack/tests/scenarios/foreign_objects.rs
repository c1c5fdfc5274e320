//! Objects of other owners in the project, which must never be touched.

use http::Method;
use landfall_testkit::openstack::{Service, Sim};
use serde_json::{Value, json};

/// Puts foreign objects into the cloud: by hand, of another cluster, and of another cluster of
/// our name.
pub fn settle_in(sim: &Sim, node_port: Option<&str>) {
    let by_hand = balancer(sim, "by-hand", "mine", &[]);
    let other = "kube_service_c2_default_web";
    let theirs = balancer(
        sim,
        other,
        "Kubernetes external service default/web from cluster c2",
        &[other],
    );
    let name = "kube_service_c1_default_web";
    let namesake = balancer(
        sim,
        name,
        "Kubernetes external service default/web from cluster c1",
        &[name, "kube_cluster_id_ks-2"],
    );
    let network = sim.external_network();
    let text = "Floating IP for Kubernetes external service default/web from cluster c";
    let floating = [
        json!({"description": "mine"}),
        json!({"description": "mine", "port_id": by_hand["vip_port_id"]}),
        json!({"description": format!("{text}2"), "port_id": theirs["vip_port_id"]}),
        json!({"description": format!("{text}1"), "port_id": namesake["vip_port_id"]}),
    ];
    for mut body in floating {
        body["floating_network_id"] = json!(network);
        let made = hand(
            sim,
            Service::Network,
            "/v2.0/floatingips",
            "floatingip",
            &body,
        );
        mark(sim, &made);
    }
    let body = json!({"name": "mine", "description": "mine"});
    let group = hand(
        sim,
        Service::Network,
        "/v2.0/security-groups",
        "security_group",
        &body,
    );
    let rule = json!({
        "security_group_id": group["id"], "direction": "ingress", "ethertype": "IPv4",
            "protocol": "tcp",
        "port_range_min": 30080, "port_range_max": 30080, "remote_ip_prefix": "10.0.0.0/24",
    });
    hand(
        sim,
        Service::Network,
        "/v2.0/security-group-rules",
        "security_group_rule",
        &rule,
    );
    mark(sim, &group);
    if let Some(port) = node_port {
        sim.edit(port, |row| {
            row.insert("security_groups".to_owned(), json!([group["id"]]));
        });
    }
}

fn balancer(sim: &Sim, name: &str, description: &str, tags: &[&str]) -> Value {
    let body = json!({
        "name": name, "description": description, "tags": tags, "vip_subnet_id": sim.subnet(),
        "listeners": [{
            "name": format!("listener_0_{name}"), "protocol": "TCP", "protocol_port": 80,
                "tags": tags,
            "default_pool": {
                "name": format!("pool_0_{name}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": [{"address": "10.0.0.9", "protocol_port": 30080}],
            },
        }],
    });
    let path = "/v2/lbaas/loadbalancers";
    let made = hand(sim, Service::LoadBalancer, path, "loadbalancer", &body);
    mark(sim, &made);
    made
}

fn mark(sim: &Sim, object: &Value) {
    sim.mark_foreign(object["id"].as_str().unwrap());
}

fn hand(sim: &Sim, service: Service, path: &str, envelope: &str, body: &Value) -> Value {
    let answer = sim.hand(service, &Method::POST, path, json!({ envelope: body }));
    answer.unwrap()[envelope].clone()
}
