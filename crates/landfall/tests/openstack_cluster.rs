//! The command line of cloud-provider-openstack's deployment, against a real API server and the simulated cloud, as the
//! identity that `deploy/rbac.yaml` grants.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use landfall_testkit::cluster::{Cluster, Options};
use landfall_testkit::openstack::{Settle, Sim};
use serde_json::Value;

const USER: &str = "system:serviceaccount:landfall-system:landfall";
const HOME: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: landfall-system}\n---\n";
const ROLES: &str = include_str!("../../../deploy/rbac.yaml");

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-a}
status:
  addresses: [{type: InternalIP, address: 10.0.0.11}]
  conditions: [{type: Ready, status: \"True\"}]
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{name: web, port: 80}]
";

fn landfall(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.env_clear().env("HOME", folder).current_dir(folder);
    command
}

/// A program that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; then there is nobody to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command prints; it has to succeed.
async fn printed(mut command: Command, arguments: &[&str]) -> String {
    command.args(arguments);
    let command = tokio::process::Command::from(command).output();
    let output = tokio::time::timeout(Duration::from_secs(60), command).await;
    let output = output.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_references_command_line_serves_a_cluster_and_marks_what_it_makes_with_its_id() {
    let sim = Sim::new();
    sim.configure(|settings| settings.settle = Settle::all(Duration::from_millis(100)));
    sim.add_node("node-a", IpAddr::from([10, 0, 0, 11]));
    let served = sim.serve().await.unwrap();
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let kubectl = cluster.kubectl();
    kubectl.apply(&[HOME, ROLES].concat()).await.unwrap();
    kubectl.apply(NODE).await.unwrap();
    let kubeconfig = cluster.identity(USER, &["system:serviceaccounts"]).unwrap();
    let folder = cluster.directory();
    let conf = format!(
        "[Global]\nauth-url = {}\nusername = landfall\npassword = simulated-password\n\
         domain-name = Default\ntenant-name = demo\n[LoadBalancer]\n\
         floating-network-id = {}\nsubnet-id = {}\n",
        served.auth_url,
        sim.external_network(),
        sim.subnet(),
    );
    std::fs::write(folder.join("cloud.conf"), conf).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let cloud = [
        "--kubeconfig",
        kubeconfig,
        "--cloud-config",
        "cloud.conf",
        "--cluster-name",
        "c1",
    ];
    let namespace = cluster.namespace("shop").await.unwrap();
    let apply = ["-n", &namespace, "apply", "-f", "-"];
    kubectl.run_with(&apply, SERVICE).await.unwrap();
    let key = format!("{namespace}/web");

    // Before: what would be done, for who looks at the cluster.
    let explain = [&["explain", &key], &cloud[..]].concat();
    let told = printed(landfall(folder), &explain).await;
    assert!(told.contains("Steps still to be done"), "{told}");
    assert!(told.contains("create load balancer"), "{told}");
    assert_eq!(sim.writes().len(), 0);

    let log = std::fs::File::create(folder.join("controller.log")).unwrap();
    let mut command = landfall(folder);
    command.arg("controller").args(cloud).args([
        "--namespace",
        "landfall-system",
        "--admin",
        "127.0.0.1:0",
    ]);
    let started = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let _running = Running(started);
    let programmed = "--for=condition=landfall.dev/Programmed";
    let wait = ["-n", &namespace, "wait", "--timeout=60s", programmed];
    let waited = kubectl.run(&[&wait[..], &["service/web"]].concat()).await;
    let log = std::fs::read_to_string(folder.join("controller.log")).unwrap();
    assert!(waited.is_ok(), "{waited:?}\n{log}");

    let get = ["-n", &namespace, "service", "web"];
    let service = kubectl.get(&get).await.unwrap();
    let address = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(*address, sim.floating_ips()[0]["floating_ip_address"]);
    let balancer = &sim.load_balancers()[0];
    assert_eq!(balancer["name"], format!("kube_service_c1_{namespace}_web"));
    let system = kubectl.get(&["namespace", "kube-system"]).await.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    let marked = |tag: &Value| tag.as_str().is_some_and(|tag| tag.contains(id));
    let tags = balancer["tags"].as_array().unwrap();
    assert!(tags.iter().any(marked), "{id}: {tags:?}");

    // After: nothing more is to be done, for who looks at the cluster.
    let told = printed(landfall(folder), &explain).await;
    assert!(!told.contains("Steps still to be done"), "{told}");
    std::fs::write(
        folder.join("web.yaml"),
        SERVICE.replace(
            "{name: web}\n",
            &format!("{{name: web, namespace: {namespace}}}\n"),
        ),
    )
    .unwrap();
    let plan = [&["plan", "-f", "web.yaml"], &cloud[..]].concat();
    let told = printed(landfall(folder), &plan).await;
    let settled = "0 steps for 1 Services, 1 of them unchanged; planned against the cluster";
    assert!(told.contains(settled), "{told}");

    kubectl
        .run(&[
            "-n",
            &namespace,
            "delete",
            "service",
            "web",
            "--timeout=60s",
        ])
        .await
        .unwrap();
    assert_eq!(sim.load_balancers().len(), 0);
    assert_eq!(sim.floating_ips().len(), 0);
}
