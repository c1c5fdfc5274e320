//! From cloud-provider-openstack to Landfall on a real API server and the simulated cloud: `adopt`, `adopt --apply`,
//! and `orphans` with the cluster's id.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::net::IpAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use http::Method;
use landfall_testkit::cluster::{Cluster, Options};
use landfall_testkit::openstack::{Service, Settle, Sim};
use serde_json::{Value, json};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-a}
status:
  addresses: [{type: InternalIP, address: 10.0.0.11}]
  conditions: [{type: Ready, status: \"True\"}]
";

fn service(name: &str, node_port: u16, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec:\n  type: LoadBalancer\n  ports: [{{name: web, port: 80, nodePort: {node_port}}}]\n"
    )
}

/// How a command ends.
async fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_landfall"));
    command
        .args(arguments)
        .env_clear()
        .env("HOME", folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(120), command.output()).await;
    output.unwrap().unwrap()
}

/// What a command prints; it has to succeed.
async fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{errors}");
    text
}

fn make(sim: &Sim, service: Service, path: &str, kind: &str, body: &Value) -> Value {
    let made = sim.hand(service, &Method::POST, path, json!({ kind: body }));
    made.unwrap()[kind].clone()
}

/// A load balancer with a floating IP, as cloud-provider-openstack makes them.
fn reference_makes(sim: &Sim, namespace: &str, service: &str, node_port: u16) -> String {
    let name = format!("kube_service_c1_{namespace}_{service}");
    let member = json!({"name": "node-a", "address": "10.0.0.11", "protocol_port": node_port,
        "subnet_id": sim.subnet()});
    let pool = json!({"name": format!("pool_0_{name}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": [member]});
    let listener = json!({"name": format!("listener_0_{name}"), "protocol": "TCP", "protocol_port": 80,
        "connection_limit": -1, "timeout_client_data": 50000, "timeout_member_connect": 5000,
        "timeout_member_data": 50000, "timeout_tcp_inspect": 0, "allowed_cidrs": ["0.0.0.0/0"],
        "tags": [name], "default_pool": pool});
    let of = format!("Kubernetes external service {namespace}/{service} from cluster c1");
    let body = json!({"name": name, "provider": "amphora", "vip_subnet_id": sim.subnet(), "tags": [name],
        "description": of, "listeners": [listener]});
    let path = "/v2/lbaas/loadbalancers";
    let balancer = make(sim, Service::LoadBalancer, path, "loadbalancer", &body);
    let body = json!({"floating_network_id": sim.external_network(), "port_id": balancer["vip_port_id"],
        "description": format!("Floating IP for {of}")});
    let path = "/v2.0/floatingips";
    make(sim, Service::Network, path, "floatingip", &body);
    balancer["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_taken_over_with_its_addresses_and_only_what_nobody_owns_is_an_orphan() {
    let sim = Sim::new();
    sim.configure(|settings| settings.settle = Settle::all(Duration::from_millis(100)));
    sim.add_node("node-a", IpAddr::from([10, 0, 0, 11]));
    let served = sim.serve().await.unwrap();
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let (kubectl, folder) = (cluster.kubectl(), cluster.directory());
    kubectl.apply(NODE).await.unwrap();
    let conf = format!(
        "[Global]\nauth-url = {}\nusername = landfall\npassword = simulated-password\n\
         domain-name = Default\ntenant-name = demo\n[LoadBalancer]\n\
         floating-network-id = {}\nsubnet-id = {}\n",
        served.auth_url,
        sim.external_network(),
        sim.subnet(),
    );
    std::fs::write(folder.join("cloud.conf"), conf).unwrap();
    let kubeconfig = cluster.admin().to_str().unwrap();
    let with = |command: &'static str, more: &[&'static str]| {
        let cloud = ["--cloud-config", "cloud.conf", "--cluster-name", "c1"];
        let arguments = [&[command, "--kubeconfig", kubeconfig], &cloud[..], more].concat();
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let namespace = cluster.namespace("shop").await.unwrap();
    let differing = "loadbalancer.openstack.org/timeout-client-data: \"60000\"";
    let services = service("web", 30080, "") + &service("api", 30081, differing);
    let apply = ["-n", &namespace, "apply", "-f", "-"];
    kubectl.run_with(&apply, &services).await.unwrap();
    let web = reference_makes(&sim, &namespace, "web", 30080);
    let api = reference_makes(&sim, &namespace, "api", 30081);
    let before = sim.load_balancer(&web);
    let addresses = sim.floating_ips();

    // To look changes nothing.
    let call = with("adopt", &[]);
    let call: Vec<&str> = call.iter().map(String::as_str).collect();
    let told = printed(folder, &call).await;
    let summary = "2 Services, 1 taken over with no write, 1 steps for 1 others\n";
    assert!(told.ends_with(summary), "{told}");
    assert!(sim.writes().is_empty());

    let apply = with(
        "adopt",
        &["--apply", "--timeout", "60", "--namespace", "default"],
    );
    let apply: Vec<&str> = apply.iter().map(String::as_str).collect();
    let told = printed(folder, &apply).await;
    assert!(told.contains("2 of 2 Services are taken over"), "{told}");
    let writes = sim.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(sim.load_balancer(&web), before);
    let listener = &sim.load_balancer(&api)["listeners"][0];
    assert_eq!(listener["timeout_client_data"], 60000);
    assert_eq!(sim.floating_ips(), addresses);
    let get = ["-n", &namespace, "service", "web"];
    let published = kubectl.get(&get).await.unwrap();
    let address = &published["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(*address, addresses[0]["floating_ip_address"]);
    let told = printed(folder, &call).await;
    let summary = "2 Services, 2 taken over with no write, 0 steps for 0 others\n";
    assert!(told.ends_with(summary), "{told}");

    // A Service that is still being cleared away owns its load balancer, until that is done.
    let delete = ["-n", &namespace, "delete", "service", "api", "--wait=false"];
    kubectl.run(&delete).await.unwrap();
    let orphans = with("orphans", &[]);
    let orphans: Vec<&str> = orphans.iter().map(String::as_str).collect();
    let told = printed(folder, &orphans).await;
    assert!(told.starts_with("0 orphans; looked at 2 load"), "{told}");
    assert!(told.ends_with("for 2 Services\n"), "{told}");

    // What is marked by this cluster is its own under whatever name; by another cluster, never.
    let system = kubectl.get(&["namespace", "kube-system"]).await.unwrap();
    let own = system["metadata"]["uid"].as_str().unwrap();
    for (name, id) in [
        ("kube_service_old_a_b", own),
        ("kube_service_c1_a_c", "else"),
    ] {
        let body = json!({"name": name, "vip_subnet_id": sim.subnet(), "tags": [format!("kube_cluster_id_{id}")]});
        let path = "/v2/lbaas/loadbalancers";
        make(&sim, Service::LoadBalancer, path, "loadbalancer", &body);
    }
    let delete = with("orphans", &["--delete", "--yes"]);
    let delete: Vec<&str> = delete.iter().map(String::as_str).collect();
    let told = printed(folder, &delete).await;
    assert!(
        told.contains("deleted load balancer kube_service_old_a_b"),
        "{told}"
    );
    assert!(told.ends_with("1 deleted, 0 could not be\n"), "{told}");
    assert_eq!(sim.writes().len(), 2);
}
