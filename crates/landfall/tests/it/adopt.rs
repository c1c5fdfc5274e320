//! `landfall adopt`: what cloud-provider-openstack has made, as the real binary sees it in the simulated cloud.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::{Served, Service, Settle, Sim};
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::manifest::{Svc, svc};
use crate::process::Ended;

/// A cloud with two nodes and a lab whose manifests are a cluster's: with NodePorts and UIDs.
pub struct Scene {
    pub lab: Lab,
    pub sim: Sim,
    _served: Served,
}

const NODES: [(&str, [u8; 4]); 2] = [("node-a", [10, 0, 0, 11]), ("node-b", [10, 0, 0, 12])];

/// How every command names cloud and cluster.
pub const OPTIONS: [&str; 4] = ["--cloud-config", "cloud.conf", "--cluster-name", "c1"];

// === impl Scene ===

impl Scene {
    pub async fn set() -> Self {
        let sim = Sim::new();
        sim.configure(|settings| settings.settle = Settle::all(Duration::from_millis(50)));
        let served = sim.serve().await.unwrap();
        let lab = Lab::new();
        let mut nodes = String::new();
        for (name, address) in NODES {
            let address = IpAddr::from(address);
            sim.add_node(name, address);
            let node = format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
                 status:\n  addresses: [{{type: InternalIP, address: {address}}}]\n  \
                 conditions: [{{type: Ready, status: \"True\"}}]\n"
            );
            nodes.push_str(&node);
        }
        lab.write("nodes.yaml", &nodes);
        let conf = format!(
            "[Global]\nauth-url = {}\nusername = landfall\npassword = simulated-password\n\
             domain-name = Default\ntenant-name = demo\n[LoadBalancer]\n\
             floating-network-id = {}\nsubnet-id = {}\n",
            served.auth_url,
            sim.external_network(),
            sim.subnet(),
        );
        fs::write(lab.path("cloud.conf"), conf).unwrap();
        Self {
            lab,
            sim,
            _served: served,
        }
    }

    /// Runs a command on the manifests.
    pub async fn run(&self, command: &str, more: &[&str]) -> Ended {
        let arguments = [&[command], &OPTIONS[..], more, &["-f"]].concat();
        self.lab.landfall(&arguments, &[&self.lab.folder()]).await
    }

    /// A Service of a cluster.
    pub fn write(&self, name: &str, service: &Svc) {
        let service = service.clone().spec("allocateLoadBalancerNodePorts: true");
        let text = service
            .yaml()
            .replace("{port: 80}", "{port: 80, nodePort: 30080}");
        self.lab.write(&format!("{name}.yaml"), &text);
    }

    /// Makes an object by hand.
    pub fn make(&self, service: Service, path: &str, kind: &str, body: &Value) -> Value {
        let made = self
            .sim
            .hand(service, &Method::POST, path, json!({ kind: body }));
        made.unwrap()[kind].clone()
    }

    /// A load balancer of default/NAME as cloud-provider-openstack makes it, with its floating IP.
    pub fn reference_makes(&self, cluster: &str, service: &str) -> (Value, Value) {
        let name = format!("kube_service_{cluster}_default_{service}");
        let subnet = self.sim.subnet();
        let members = NODES.map(|(node, address)| {
            json!({"name": node, "address": IpAddr::from(address), "protocol_port": 30080, "subnet_id": subnet})
        });
        let pool = json!({"name": format!("pool_0_{name}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
            "members": members});
        let listener = json!({"name": format!("listener_0_{name}"), "protocol": "TCP", "protocol_port": 80,
            "connection_limit": -1, "timeout_client_data": 50000, "timeout_member_connect": 5000,
            "timeout_member_data": 50000, "timeout_tcp_inspect": 0, "allowed_cidrs": ["0.0.0.0/0"],
            "tags": [name], "default_pool": pool});
        let description =
            format!("Kubernetes external service default/{service} from cluster {cluster}");
        let body = json!({"name": name, "provider": "amphora", "vip_subnet_id": subnet, "tags": [name],
            "description": description, "listeners": [listener]});
        let path = "/v2/lbaas/loadbalancers";
        let balancer = self.make(Service::LoadBalancer, path, "loadbalancer", &body);
        let port = &balancer["vip_port_id"];
        (balancer.clone(), self.floating_ip(cluster, service, port))
    }

    /// A floating IP as cloud-provider-openstack makes it.
    pub fn floating_ip(&self, cluster: &str, service: &str, port: &Value) -> Value {
        let description = format!(
            "Floating IP for Kubernetes external service default/{service} from cluster {cluster}"
        );
        let body = json!({"floating_network_id": self.sim.external_network(), "port_id": port,
            "description": description});
        self.make(Service::Network, "/v2.0/floatingips", "floatingip", &body)
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_reference_made_is_shown_as_taken_over_without_a_write() {
    let scene = Scene::set().await;
    let (balancer, floating_ip) = scene.reference_makes("c1", "web");
    scene.write("web", &svc("web").tcp(80));
    let ended = scene.run("adopt", &[]).await;
    assert!(ended.stderr.contains("two controllers"), "{}", ended.stderr);
    let told = ended.good();
    for line in [
        format!(
            "  takes over load balancer kube_service_c1_default_web ({})\n",
            text(&balancer["id"])
        ),
        format!(
            "  takes over floating IP {} ({})\n",
            text(&floating_ip["floating_ip_address"]),
            text(&floating_ip["id"])
        ),
        "  writes nothing to the cloud\n".to_owned(),
    ] {
        assert!(told.contains(&line), "{line}{told}");
    }
    let summary = "1 Services, 1 taken over with no write, 0 steps for 0 others\n";
    assert!(told.ends_with(summary), "{told}");
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_a_step_and_what_can_not_be_had_is_told() {
    let scene = Scene::set().await;
    scene.reference_makes("c1", "web");
    let key = "loadbalancer.openstack.org/timeout-client-data";
    let web = svc("web").tcp(80).annotation(key, "60000");
    scene.write("web", &web);
    let told = scene.run("adopt", &[]).await.good();
    assert!(told.contains("takes over load balancer"), "{told}");
    assert!(told.contains("60000") || told.contains("timeout"), "{told}");
    let summary = "1 Services, 0 taken over with no write, 1 steps for 1 others\n";
    assert!(told.ends_with(summary), "{told}");

    let told = scene.run("adopt", &["-o", "json"]).await.good();
    let told: Value = serde_json::from_str(&told).unwrap();
    let service = &told["services"][0];
    assert_eq!(service["service"], "default/web");
    assert_eq!(service["instance"], "openstack");
    assert_eq!(service["adopted"][0]["kind"], "load balancer");
    assert_eq!(service["steps"].as_array().unwrap().len(), 1);
    assert_eq!(service["waits"], json!([]));

    // A new one, and one that is refused.
    let named = "loadbalancer.openstack.org/load-balancer-id";
    scene.write("new", &svc("new").tcp(80));
    scene.write("bad", &svc("bad").tcp(80).annotation(named, "no-such-id"));
    let ended = scene.run("adopt", &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stdout);
    let told = ended.stdout;
    assert!(told.contains("create load balancer"), "{told}");
    assert!(told.contains("no load balancer of this id"), "{told}");
    assert!(told.contains("3 Services, 0 taken over"), "{told}");
    assert!(told.contains("of 1 it can't be said"), "{told}");
    assert!(scene.sim.writes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_is_busy_is_not_said_to_be_as_wanted() {
    let scene = Scene::set().await;
    let (balancer, _) = scene.reference_makes("c1", "web");
    scene
        .sim
        .set_status(text(&balancer["id"]), "PENDING_UPDATE");
    scene.write("web", &svc("web").tcp(80));
    let told = scene.run("adopt", &[]).await.good();
    assert!(
        told.contains("1 Services, 0 taken over with no write"),
        "{told}"
    );
    assert!(told.contains("one change at a time"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_apply_takes_a_cluster_and_a_cloud() {
    let scene = Scene::set().await;
    let ended = scene.run("adopt", &["--apply"]).await;
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    let nobody: &[&Path] = &[&scene.lab.folder()];
    let ended = scene.lab.landfall(&["adopt", "-f"], nobody).await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("--cloud-config"), "{}", ended.stderr);
    assert!(scene.sim.calls().is_empty());
}
