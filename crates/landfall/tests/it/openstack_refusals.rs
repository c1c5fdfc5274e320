//! Specs that can't be had on OpenStack: each is reported with the annotation's name, and what
//! works goes on untouched.

use std::time::Instant;

use landfall_model::dialect::reference_page;
use landfall_model::reason::Severity;
use landfall_model::view::ServiceView;

use crate::lab::{DEADLINE, LOOK};
use crate::manifest::{Svc, svc};
use crate::scene::Scene;
use crate::view::is_ready;

/// No option takes this, unless it takes any text.
const GARBAGE: &str = "\u{1f980} =,;";

/// Prefixes of the annotations that cloud-provider-openstack reads.
const PREFIXES: [&str; 2] = ["loadbalancer.openstack.org/", "service.beta.kubernetes.io/"];

/// The prefix of annotations that only Exoscale's controller reads.
const OF_ANOTHER: &str = "service.beta.kubernetes.io/exoscale-";

/// Every annotation that cloud-provider-openstack reads, from the page that is made of the table.
fn annotations() -> Vec<String> {
    let page = reference_page();
    let rows = page.lines().filter_map(|line| {
        let (key, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(key.to_owned())
    });
    let keys: Vec<String> = rows
        .filter(|key| PREFIXES.iter().any(|it| key.starts_with(it)))
        .filter(|key| !key.starts_with(OF_ANOTHER))
        .collect();
    assert!(keys.len() > 35, "{keys:?}");
    keys
}

fn web() -> Svc {
    svc("web").tcp(80)
}

/// What is decided when a load balancer or a floating IP is made: a word about it later would come
/// too late.
const WHEN_MADE: [&str; 10] = [
    "floating-network-id",
    "floating-subnet-id",
    "floating-subnet",
    "floating-subnet-tags",
    "subnet-id",
    "network-id",
    "port-id",
    "flavor-id",
    "availability-zone",
    "lb-provider",
];

/// Where every text is a value, or none is read.
const ANY_TEXT: [&str; 6] = [
    "floating-ip-tags",
    "load-balancer-address",
    "load-balancer-tags",
    "security-group-tags",
    "listener-tags",
    "pool-tags",
];

fn is_one_of(key: &str, names: &[&str]) -> bool {
    let name = key.rsplit('/').next().unwrap();
    names.contains(&name)
}

/// A value that the option does not take.
fn wrong(key: &str) -> &'static str {
    // Whatever has a name may be a label of nodes.
    if key.ends_with("/node-selector") {
        return "=edge";
    }
    GARBAGE
}

/// Whether something is said about the annotation: by its name, or in the cloud's words by the
/// value.
fn is_reported(service: &ServiceView, key: &str) -> bool {
    let field = format!("metadata.annotations[{key}]");
    let (value, name) = (wrong(key), key.rsplit('/').next().unwrap());
    let mut reasons = service.reasons.iter();
    reasons.any(|it| {
        it.severity != Severity::Info
            && (it.field.as_deref() == Some(&field)
                || it.message.contains(value)
                || it.message.contains(&name.replace('-', " "))
                || it.remedy.contains(name))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_annotation_with_a_wrong_value_is_reported_and_leaves_what_works_alone() {
    let mut scene = Scene::set().await;
    scene.write("web", &web());
    scene.lab.start().await;
    let before = scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    let cloud = (scene.sim.load_balancers(), scene.sim.floating_ips());
    scene.sim.forget_calls();
    for key in annotations() {
        if is_one_of(&key, &WHEN_MADE) || is_one_of(&key, &ANY_TEXT) {
            continue;
        }
        scene.write("web", &web().annotation(&key, wrong(&key)));
        let what = format!("reports {key}");
        let now = scene
            .lab
            .until("default/web", &what, |it| is_reported(it, &key))
            .await;
        assert_eq!(now.status.ingress, before.status.ingress, "{key}");
    }
    scene.write("web", &web());
    scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    assert!(scene.sim.writes().is_empty(), "{:?}", scene.sim.writes());
    let after = (scene.sim.load_balancers(), scene.sim.floating_ips());
    assert_eq!(after, cloud);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_decided_when_it_is_made_is_reported_then_and_leaves_what_works_alone() {
    let mut scene = Scene::set().await;
    scene.write("web", &web());
    scene.lab.start().await;
    scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    let cloud = (scene.sim.load_balancers(), scene.sim.floating_ips());
    let keys = annotations();
    let keys: Vec<&String> = keys
        .iter()
        .filter(|key| is_one_of(key, &WHEN_MADE))
        .collect();
    assert_eq!(keys.len(), WHEN_MADE.len());
    for (number, key) in keys.iter().enumerate() {
        let name = format!("new{number}");
        let service = svc(&name).tcp(80).annotation(key, wrong(key));
        scene.write(&name, &service);
    }
    for (number, key) in keys.iter().enumerate() {
        let service = format!("default/new{number}");
        let what = format!("reports {key}");
        let reported = scene.lab.until(&service, &what, |it| is_reported(it, key));
        assert!(!is_ready(&reported.await), "{key}");
    }
    for number in 0..keys.len() {
        scene.lab.remove(&format!("new{number}.yaml"));
    }
    for number in 0..keys.len() {
        scene.lab.gone(&format!("default/new{number}")).await;
    }
    let began = Instant::now();
    while scene.sim.load_balancers().len() > cloud.0.len() && began.elapsed() < DEADLINE {
        tokio::time::sleep(LOOK).await;
    }
    let after = (scene.sim.load_balancers(), scene.sim.floating_ips());
    assert_eq!(after, cloud);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_that_contradict_each_other_are_reported_and_leave_what_works_alone() {
    let mut scene = Scene::set().await;
    scene.write("web", &web());
    scene.lab.start().await;
    scene.lab.ready("default/web").await;
    scene.lab.settled().await;
    scene.sim.forget_calls();
    let cases: [&[(&str, &str)]; 2] = [
        &[
            ("loadbalancer.openstack.org/proxy-protocol", "true"),
            ("loadbalancer.openstack.org/x-forwarded-for", "true"),
        ],
        // What is written for the very port that can't have it.
        &[("landfall.dev/monitor.80", "udp-connect")],
    ];
    for case in cases {
        let mut service = web();
        for (key, value) in case {
            service = service.annotation(key, value);
        }
        scene.write("web", &service);
        let is_refused = |it: &ServiceView| {
            let mut reasons = it.reasons.iter();
            reasons.any(|it| it.severity == Severity::Error)
        };
        let what = format!("reports {case:?}");
        scene.lab.until("default/web", &what, is_refused).await;
        assert!(scene.sim.writes().is_empty(), "{case:?}");
        scene.write("web", &web());
        scene.lab.ready("default/web").await;
    }
}
