//! A simulated OpenStack that the real binary talks to over HTTP, and what cloud-provider-openstack
//! makes in one. Shared by the test binaries `it` and `cluster`.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::{Served, Service, Settle, Sim};
use serde_json::{Value, json};

/// A cloud that serves for as long as this lives.
pub struct Simulated {
    pub sim: Sim,
    pub served: Served,
}

/// The nodes of every simulated cluster, with their addresses in the cloud.
pub const NODES: [(&str, [u8; 4]); 2] = [("node-a", [10, 0, 0, 11]), ("node-b", [10, 0, 0, 12])];

/// How long Octavia takes for a change.
const SETTLE: Duration = Duration::from_millis(100);

/// The nodes as manifests.
pub fn nodes() -> String {
    let manifest = |(name, address)| {
        let address = IpAddr::from(address);
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             status:\n  addresses: [{{type: InternalIP, address: {address}}}]\n  \
             conditions: [{{type: Ready, status: \"True\"}}]\n"
        )
    };
    NODES.map(manifest).concat()
}

// === impl Simulated ===

impl Simulated {
    /// A cloud with the nodes in it.
    pub async fn start() -> Self {
        let sim = Sim::new();
        sim.configure(|settings| settings.settle = Settle::all(SETTLE));
        for (name, address) in NODES {
            sim.add_node(name, address.into());
        }
        let served = sim.serve().await.unwrap();
        Self { sim, served }
    }

    /// A `cloud.conf` that works, with further lines in its two sections.
    pub fn conf(&self, global: &str, load_balancer: &str) -> String {
        format!(
            "[Global]\nauth-url = {}\nusername = landfall\npassword = simulated-password\n\
             domain-name = Default\ntenant-name = demo\n{global}\n[LoadBalancer]\n\
             floating-network-id = {}\nsubnet-id = {}\n{load_balancer}\n",
            self.served.auth_url,
            self.sim.external_network(),
            self.sim.subnet(),
        )
    }

    /// Makes an object by hand.
    pub fn make(&self, service: Service, path: &str, kind: &str, body: &Value) -> Value {
        let body = json!({ kind: body });
        let made = self.sim.hand(service, &Method::POST, path, body);
        made.unwrap()[kind].clone()
    }

    /// The load balancer of a Service with port 80 as cloud-provider-openstack makes it, with its
    /// floating IP.
    pub fn reference_makes(
        &self,
        cluster: &str,
        (namespace, service): (&str, &str),
        node_port: u16,
    ) -> (Value, Value) {
        let name = format!("kube_service_{cluster}_{namespace}_{service}");
        let subnet = self.sim.subnet();
        let members = NODES.map(|(node, address)| {
            json!({"name": node, "address": IpAddr::from(address), "protocol_port": node_port,
                "subnet_id": subnet})
        });
        let pool = json!({"name": format!("pool_0_{name}"), "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN", "members": members});
        let listener = json!({"name": format!("listener_0_{name}"), "protocol": "TCP",
            "protocol_port": 80, "connection_limit": -1, "timeout_client_data": 50000,
            "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
            "allowed_cidrs": ["0.0.0.0/0"], "tags": [name], "default_pool": pool});
        let description =
            format!("Kubernetes external service {namespace}/{service} from cluster {cluster}");
        let body = json!({"name": name, "provider": "amphora", "vip_subnet_id": subnet,
            "tags": [name], "description": description, "listeners": [listener]});
        let path = "/v2/lbaas/loadbalancers";
        let balancer = self.make(Service::LoadBalancer, path, "loadbalancer", &body);
        let port = &balancer["vip_port_id"];
        let floating_ip = self.floating_ip(cluster, (namespace, service), port);
        (balancer, floating_ip)
    }

    /// A floating IP as cloud-provider-openstack makes it.
    pub fn floating_ip(
        &self,
        cluster: &str,
        (namespace, service): (&str, &str),
        port: &Value,
    ) -> Value {
        let description = format!(
            "Floating IP for Kubernetes external service {namespace}/{service} from cluster \
            {cluster}"
        );
        let body = json!({"floating_network_id": self.sim.external_network(), "port_id": port,
            "description": description});
        self.make(Service::Network, "/v2.0/floatingips", "floatingip", &body)
    }
}
