//! From cloud-provider-openstack itself to Landfall and back, on the real OpenStack: what the one
//! has made costs the other no write, and the one that comes last removes it.

use std::fs::File;
use std::process::Command;
use std::time::Instant;

use landfall_testkit::cluster::CloudProviderOpenStack;
use landfall_testkit::stack::{Call, Mark, Stack};
use serde_json::{Value, json};

use super::picture::{Picture, word};
use super::scene::{LOOK, SOON, Scene};
use crate::bed::{Bed, address, text};
use crate::speakers::Running;

/// What it reports once a load balancer is as it wants it.
const ENSURED: &str = "EnsuredLoadBalancer";

/// How requests to the cloud name their sender.
pub const REFERENCE: &str = "openstack-cloud-controller-manager/";
pub const LANDFALL: &str = "landfall/";

const NAMES: [&str; 2] = ["ranges", "proxy"];

/// Source ranges and monitors, and the PROXY protocol; both with a floating IP and a security
/// group.
const SERVICES: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: ranges
  annotations: {loadbalancer.openstack.org/enable-health-monitor: "true"}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [192.0.2.0/24, 198.51.100.7/32]
  ports: [{name: http, port: 80}, {name: https, port: 443}]
---
apiVersion: v1
kind: Service
metadata:
  name: proxy
  annotations:
    loadbalancer.openstack.org/proxy-protocol: "true"
    loadbalancer.openstack.org/timeout-client-data: "300000"
spec:
  type: LoadBalancer
  ports: [{name: http, port: 8080}]
"#;

/// The controller of cloud-provider-openstack, with the `cloud.conf` of Landfall's.
pub fn start(bed: &Bed, program: &CloudProviderOpenStack, cluster: &str) -> Running {
    let home = bed.cluster.directory();
    let log = home.join("reference.log");
    let log = File::options().create(true).append(true).open(log);
    let mut command = Command::new(&program.controller);
    command
        .args(["--kubeconfig", text(bed.cluster.admin())])
        .args(["--cloud-provider=openstack", "--cloud-config=cloud.conf"])
        .args([
            "--cluster-name",
            cluster,
            "--controllers=service-lb-controller",
        ])
        .args(["--leader-elect=false", "--secure-port=0", "--v=2"])
        .args(["--use-service-account-credentials=false"])
        .env_clear()
        .current_dir(home)
        .stderr(log.unwrap());
    Running::start(&mut command)
}

/// How often it has reported that of each Service.
pub async fn reports<const N: usize>(bed: &Bed, names: [&str; N]) -> [u64; N] {
    let events = bed.kubectl().get(&["-n", &bed.namespace, "events"]).await;
    let events = events.unwrap();
    let events = events["items"].as_array().unwrap();
    names.map(|name| {
        let is_of = |it: &&Value| it["reason"] == ENSURED && it["involvedObject"]["name"] == name;
        let of = events.iter().filter(is_of);
        of.map(|it| it["count"].as_u64().unwrap_or(1)).sum()
    })
}

/// Waits until it has reported that again of each Service.
pub async fn until_ensured<const N: usize>(bed: &Bed, names: [&str; N], since: [u64; N]) {
    let began = Instant::now();
    loop {
        let now = reports(bed, names).await;
        if now.iter().zip(since).all(|(now, since)| *now > since) {
            return;
        }
        let log = bed.cluster.directory().join("reference.log");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(30).collect();
        assert!(began.elapsed() < SOON, "{now:?} of {since:?}: {tail:#?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// What was changed since then by one of the two.
async fn writes(scene: &Scene, mark: &Mark, by: &str) -> Vec<String> {
    let calls = scene.project().calls_since(mark, by).await.unwrap();
    assert!(!calls.is_empty(), "{by} has asked nothing");
    let writes = calls.iter().filter(|call| call.is_write());
    writes.map(Call::route).collect()
}

async fn published(bed: &Bed) -> Vec<Value> {
    let mut all = Vec::new();
    for name in NAMES {
        let mut service = bed.service(name).await;
        all.push(service["status"]["loadBalancer"].take());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_reference_has_made_is_taken_over_and_given_back_without_a_write() {
    let program = CloudProviderOpenStack::find().await.unwrap();
    let scene = Scene::open("reference").await;
    scene.configure("perService");
    let mut reference = start(&scene.bed, &program, "c1");
    scene.bed.apply(SERVICES).await;
    until_ensured(&scene.bed, NAMES, [0; 2]).await;
    reference.kill();
    let made = Picture::of(scene.project()).await;
    assert_eq!(made.balancers.len(), NAMES.len());
    assert_eq!(made.floating_ips.len(), NAMES.len());
    assert_eq!(made.groups.len(), NAMES.len());
    assert_eq!(made.monitors.len(), 2);
    let name = format!("kube_service_c1_{}_ranges", scene.bed.namespace);
    let floating_ip = made.floating_ip_of(made.balancer(&name));
    let service = scene.bed.service("ranges").await;
    assert_eq!(
        address(&service),
        Some(word(floating_ip, "floating_ip_address"))
    );
    let given = published(&scene.bed).await;
    assert_eq!(given[1]["ingress"][0]["ipMode"], "Proxy", "{given:#?}");

    let stack = Stack::shared().await;
    let mark = stack.mark().await.unwrap();
    let mut landfall = scene.controller();
    landfall.ready_within(SOON).await;
    scene.programmed(&NAMES).await;
    landfall.stop().await;
    let taken = writes(&scene, &mark, LANDFALL).await;
    assert_eq!(taken, Vec::<String>::new());
    assert_eq!(published(&scene.bed).await, given);

    let before = reports(&scene.bed, NAMES).await;
    let mark = stack.mark().await.unwrap();
    let mut reference = start(&scene.bed, &program, "c1");
    until_ensured(&scene.bed, NAMES, before).await;
    let returned = writes(&scene, &mark, REFERENCE).await;
    assert_eq!(returned, Vec::<String>::new());
    assert_eq!(published(&scene.bed).await, given);

    scene.delete(&NAMES).await;
    reference.kill();
    // A group whose deletion was refused at first is not deleted later by the reference.
    let picture = Picture::of(scene.project()).await;
    let left = json!([picture.balancers, picture.floating_ips]);
    assert_eq!(picture.count() - picture.groups.len(), 0, "{left:#}");
    scene.close().await;
}
