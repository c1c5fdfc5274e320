//! What can't be had from the real OpenStack is reported with its name, and what works is left
//! alone.

use std::time::{Duration, Instant};

use landfall_testkit::stack::{Project, Service, Stack};
use serde_json::{Value, json};

use super::picture::{Picture, word};
use super::scene::{LOOK, SOON, Scene};
use crate::bed::text;
use crate::replica::landfall;

/// No cloud has anything of this id.
const NOWHERE: &str = "00000000-0000-4000-8000-00000000dead";

/// A Service by its name, what it asks for, and what is reported of it.
type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);

fn service(name: &str, annotations: &[(&str, &str)]) -> String {
    let annotations = annotations
        .iter()
        .map(|(key, value)| format!("    loadbalancer.openstack.org/{key}: {value:?}\n"));
    let annotations: String = annotations.collect();
    format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations:\n\
        {annotations}spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: 80}}]\n"
    )
}

/// What a start that fails says.
async fn refused(scene: &Scene, conf: &str) -> String {
    let conf = scene.bed.write("refused.conf", conf);
    let kubeconfig = scene.bed.kubeconfig();
    let mut command = landfall(scene.bed.cluster.directory());
    command
        .args([
            "controller",
            "--admin",
            "127.0.0.1:0",
            "--leader-elect=false",
        ])
        .args([
            "--kubeconfig",
            text(&kubeconfig),
            "--cloud-config",
            text(&conf),
        ]);
    let ended = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(SOON, ended).await;
    let ended = ended.expect("the command ends").unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    said
}

async fn an_impossible_start_is_reported(scene: &Scene) {
    let project = scene.project();
    let wrong = "a-wrong-password";
    let conf = project.cloud_conf().replace(&project.password, wrong);
    let said = refused(scene, &conf).await;
    for part in [&project.auth_url, "401", "check user, password"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains(wrong), "{said}");

    let region = format!("region=\"{}\"", project.region);
    let conf = project.cloud_conf().replace(&region, "region=\"nowhere\"");
    let said = refused(scene, &conf).await;
    for part in ["load-balancer", "nowhere", "check region"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains(&project.password), "{said}");
}

/// A load balancer that a person has in another project.
async fn theirs(project: &Project) -> Value {
    let body = json!({"loadbalancer": {"name": "theirs", "vip_subnet_id": project.subnet_id}});
    let path = "/v2/lbaas/loadbalancers";
    let made = project.post(Service::LoadBalancer, path, body).await;
    let made = made.unwrap();
    let id = word(&made["loadbalancer"], "id");
    let active = project.wait_for_load_balancer(id, "ACTIVE", SOON).await;
    active.unwrap()
}

/// The first failure that is reported of a Service.
async fn failure(scene: &Scene, name: &str) -> String {
    let began = Instant::now();
    loop {
        let events = scene.bed.events(name).await;
        let mut failures = events.iter().filter(|it| it.0 == "SyncLoadBalancerFailed");
        if let Some((_, _, note)) = failures.next() {
            return note.clone();
        }
        assert!(began.elapsed() < SOON, "{name}: {events:?}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_impossible_is_reported_and_what_works_is_left_alone() {
    let scene = Scene::open("refusals").await;
    an_impossible_start_is_reported(&scene).await;
    let other = Stack::shared().await.project("theirs").await.unwrap();
    let theirs = theirs(&other).await;
    let id = word(&theirs, "id");

    scene.configure("perService");
    let mut controller = scene.controller();
    controller.ready_within(SOON).await;
    scene.bed.apply(&service("works", &[])).await;
    scene.programmed(&["works"]).await;
    let before = Picture::of(scene.project()).await;

    let refused: [Refused; 8] = [
        ("subnet", &[("subnet-id", NOWHERE)], &[NOWHERE]),
        ("network", &[("network-id", NOWHERE)], &[NOWHERE]),
        ("port", &[("port-id", NOWHERE)], &[NOWHERE]),
        // Octavia does not repeat the id.
        ("flavor", &[("flavor-id", NOWHERE)], &["flavor"]),
        ("balancer", &[("load-balancer-id", NOWHERE)], &[NOWHERE]),
        ("theirs", &[("load-balancer-id", id)], &[id]),
        ("class", &[("class", "nowhere")], &["nowhere", "class"]),
        (
            "contradiction",
            &[("proxy-protocol", "true"), ("x-forwarded-for", "true")],
            &["proxy-protocol", "x-forwarded-for"],
        ),
    ];
    let manifests: String = refused
        .iter()
        .map(|(name, annotations, _)| service(name, annotations))
        .collect();
    scene.bed.apply(&manifests).await;
    for (name, _, parts) in &refused {
        let reported = failure(&scene, name).await;
        for part in *parts {
            assert!(reported.contains(part), "{name}: {part}: {reported}");
        }
    }
    // A working Service that asks for what can't be keeps what it has.
    let bad = format!("loadbalancer.openstack.org/member-subnet-id={NOWHERE}");
    scene.bed.run(&["annotate", "service", "works", &bad]).await;
    let reported = failure(&scene, "works").await;
    assert!(reported.contains(NOWHERE), "{reported}");
    tokio::time::sleep(Duration::from_secs(2)).await;

    let after = Picture::of(scene.project()).await;
    assert_eq!(after.balancers, before.balancers);
    assert_eq!(after.listeners, before.listeners);
    assert_eq!(after.pools, before.pools);
    assert_eq!(after.floating_ips, before.floating_ips);
    let path = format!("/v2/lbaas/loadbalancers/{id}");
    let now = other.get(Service::LoadBalancer, &path).await.unwrap();
    assert_eq!(now["loadbalancer"], theirs);

    let names = refused.iter().map(|(name, ..)| *name);
    let names: Vec<&str> = names.chain(["works"]).collect();
    scene.delete(&names).await;
    let left = Picture::of(scene.project()).await;
    assert_eq!(
        left.count(),
        0,
        "{:#}",
        json!([left.balancers, left.groups])
    );
    controller.stop().await;
    other.delete().await.unwrap();
    scene.close().await;
}
