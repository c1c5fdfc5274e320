//! The recommended manifests of docs/openstack.md, one after the other, by kubectl alone: what
//! comes of them in the real OpenStack.

use std::collections::BTreeSet;
use std::time::Instant;

use landfall_testkit::stack::{Call, Stack};
use serde_json::{Value, json};

use super::picture::{Picture, word};
use super::scene::{LOOK, SOON, Scene};
use crate::bed::address;

/// The manifests as people find them.
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/openstack");

/// The address that a manifest names in place of one that is there.
const SOME_ADDRESS: &str = "198.51.100.20";

/// What is made first; the address of one of them is used again later.
const FIRST: [&str; 5] = [
    "local-traffic",
    "proxy-protocol",
    "keep-address",
    "source-ranges",
    "long-connections",
];

fn file(name: &str) -> String {
    format!("{MANIFESTS}/{name}.yaml")
}

impl Scene {
    async fn picture(&self) -> Picture {
        Picture::of(self.project()).await
    }

    /// The name of a Service's load balancer.
    fn name(&self, service: &str) -> String {
        format!("kube_service_c1_{}_{service}", self.bed.namespace)
    }

    /// Waits until the cloud looks as wanted.
    async fn until(&self, what: &str, met: impl Fn(&Picture) -> bool) -> Picture {
        let began = Instant::now();
        loop {
            let picture = self.picture().await;
            if met(&picture) {
                return picture;
            }
            assert!(began.elapsed() < SOON, "{what}: not so");
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn ingress(service: &Value) -> &Value {
    &service["status"]["loadBalancer"]["ingress"]
}

fn port(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The ranges of a Service, or of a listener.
fn ranges(list: &Value) -> BTreeSet<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Only nodes with a pod of the Service get traffic, and a monitor finds which these are.
async fn local_traffic(scene: &Scene, picture: &Picture) {
    let service = scene.bed.service("local-traffic").await;
    let health_port = &service["spec"]["healthCheckNodePort"];
    assert!(health_port.as_u64().is_some_and(|port| port > 0));
    let balancer = picture.balancer(&scene.name("local-traffic"));
    let listeners = picture.listeners_of(balancer);
    assert_eq!(listeners.len(), 2);
    for listener in listeners {
        let pool = picture.pool_of(listener);
        let monitor = picture.monitor_of(pool);
        assert_eq!(monitor["type"], "HTTP", "{monitor:#}");
        assert_eq!(monitor["http_method"], "GET");
        assert_eq!(monitor["url_path"], "/healthz");
        assert_eq!(monitor["expected_codes"], "200");
        let members = pool["members"].as_array().unwrap();
        assert_eq!(members.len(), scene.nodes.len());
        for member in members {
            assert_eq!(member["monitor_port"], *health_port, "{member:#}");
        }
    }
    // Octavia can ask there, and reach the NodePorts: nothing else is opened.
    let ports = service["spec"]["ports"].as_array().unwrap();
    let mut opened: BTreeSet<u64> = ports.iter().map(|it| port(&it["nodePort"])).collect();
    opened.insert(port(health_port));
    let uid = word(&service["metadata"], "uid");
    let mut groups = picture.groups.iter();
    let group = groups.find(|it| word(it, "name").contains(uid)).unwrap();
    assert_eq!(Picture::opened(group), opened);
    assert_eq!(picture.guarded_by(group), scene.nodes.len());
    // Where addresses of clients are kept, kube-proxy may answer for the address by itself.
    assert_eq!(ingress(&service)[0]["ipMode"], "VIP");
}

/// Backends get a PROXY header, from clients inside of the cluster, too.
async fn proxy_protocol(scene: &Scene, picture: &Picture) {
    let balancer = picture.balancer(&scene.name("proxy-protocol"));
    let listeners = picture.listeners_of(balancer);
    assert_eq!(listeners.len(), 2);
    for listener in listeners {
        assert_eq!(listener["protocol"], "TCP");
        assert_eq!(picture.pool_of(listener)["protocol"], "PROXY");
    }
    let service = scene.bed.service("proxy-protocol").await;
    let floating_ip = picture.floating_ip_of(balancer);
    let expected = [json!({"ip": floating_ip["floating_ip_address"], "ipMode": "Proxy"})];
    assert_eq!(*ingress(&service), json!(expected));
}

fn long_connections(scene: &Scene, picture: &Picture) {
    let balancer = picture.balancer(&scene.name("long-connections"));
    let listeners = picture.listeners_of(balancer);
    assert_eq!(listeners.len(), 1);
    assert_eq!(listeners[0]["timeout_client_data"], 300_000);
    assert_eq!(listeners[0]["timeout_member_data"], 300_000);
    assert_eq!(listeners[0]["timeout_member_connect"], 5000);
}

/// Fifty ranges come and go with one request for each port.
async fn source_ranges(scene: &Scene, picture: &Picture) {
    let service = scene.bed.service("source-ranges").await;
    let wanted = ranges(&service["spec"]["loadBalancerSourceRanges"]);
    assert_eq!(wanted.len(), 50);
    let name = scene.name("source-ranges");
    let all_have = |picture: &Picture, wanted: &BTreeSet<&str>| {
        let listeners = picture.listeners_of(picture.balancer(&name));
        let has = |it: &&Value| {
            ranges(&it["allowed_cidrs"]) == *wanted && it["provisioning_status"] == "ACTIVE"
        };
        listeners.len() == 2 && listeners.iter().all(has)
    };
    assert!(all_have(picture, &wanted));

    let every_source = r#"[{"op": "remove", "path": "/spec/loadBalancerSourceRanges"}]"#;
    let patch = ["patch", "service", "source-ranges", "--type=json", "-p"];
    for (what, wanted) in [
        ("every source is allowed", BTreeSet::from(["0.0.0.0/0"])),
        ("fifty networks are allowed", wanted),
    ] {
        let mark = Stack::shared().await.mark().await.unwrap();
        if wanted.len() == 1 {
            scene.bed.run(&[&patch[..], &[every_source]].concat()).await;
        } else {
            let manifest = file("source-ranges");
            scene.bed.run(&["apply", "-f", &manifest]).await;
        }
        scene.until(what, |it| all_have(it, &wanted)).await;
        let calls = scene.project().calls_since(&mark, "landfall/").await;
        let mut calls = calls.unwrap();
        // One that came too early, while the first listener was still being changed, changed
        // nothing.
        calls.retain(|call| call.is_write() && call.status != 409);
        let routes: Vec<String> = calls.iter().map(Call::route).collect();
        assert_eq!(routes, ["PUT /v2/lbaas/listeners/{id}"; 2], "{what}");
    }
}

/// The floating IP stays when its Service goes, and serves the next one that asks for it.
async fn keep_and_reuse(scene: &Scene, picture: &Picture) {
    let service = scene.bed.service("keep-address").await;
    let kept = address(&service).unwrap();
    let balancer = picture.balancer(&scene.name("keep-address"));
    let before = picture.floating_ip_of(balancer);
    assert_eq!(word(before, "floating_ip_address"), kept);

    scene.delete(&["keep-address"]).await;
    let picture = scene.picture().await;
    assert!(picture.balancer(&scene.name("keep-address")).is_null());
    let mut floating_ips = picture.floating_ips.iter();
    let found = floating_ips.find(|it| it["id"] == before["id"]);
    assert!(found.is_some_and(|it| it["port_id"].is_null()), "{found:?}");

    let manifest = std::fs::read_to_string(file("reuse-address")).unwrap();
    assert!(manifest.contains(SOME_ADDRESS));
    scene.bed.apply(&manifest.replace(SOME_ADDRESS, kept)).await;
    scene.programmed(&["reuse-address"]).await;
    assert_eq!(
        address(&scene.bed.service("reuse-address").await),
        Some(kept)
    );
    let picture = scene.picture().await;
    let balancer = picture.balancer(&scene.name("reuse-address"));
    let after = picture.floating_ip_of(balancer);
    assert_eq!(after["id"], before["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recommended_manifests_become_what_they_promise_and_leave_nothing_behind() {
    let scene = Scene::open("guide").await;
    scene.configure("perService");
    let mut controller = scene.controller();
    controller.ready_within(SOON).await;

    for name in FIRST {
        scene.bed.run(&["apply", "-f", &file(name)]).await;
    }
    scene.programmed(&FIRST).await;
    let picture = scene.picture().await;
    assert_eq!(picture.balancers.len(), FIRST.len());
    assert_eq!(picture.floating_ips.len(), FIRST.len());
    for service in FIRST {
        let balancer = picture.balancer(&scene.name(service));
        let floating_ip = picture.floating_ip_of(balancer);
        let published = scene.bed.service(service).await;
        let held = word(floating_ip, "floating_ip_address");
        assert_eq!(address(&published), Some(held), "{service}");
    }
    local_traffic(&scene, &picture).await;
    proxy_protocol(&scene, &picture).await;
    long_connections(&scene, &picture);
    source_ranges(&scene, &picture).await;
    keep_and_reuse(&scene, &picture).await;

    scene
        .delete(&[
            "local-traffic",
            "proxy-protocol",
            "reuse-address",
            "source-ranges",
            "long-connections",
        ])
        .await;
    let picture = scene.picture().await;
    let left = json!([picture.balancers, picture.floating_ips, picture.groups]);
    assert_eq!(picture.count(), 0, "{left:#}");
    let guarded = |it: &&Value| {
        word(it, "device_owner") == "compute:nova"
            && it["security_groups"]
                .as_array()
                .is_some_and(|it| it.len() != 1)
    };
    assert_eq!(picture.ports.iter().find(guarded), None);
    controller.stop().await;
    scene.close().await;
}
