//! What the leader reports on custom resources, with the definitions and the role of `deploy/`.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_engine::report::Event;
use landfall_kube::{CustomResources, KubeReports, SourceConfig, WriteGuard};
use landfall_model::rows::{Fact, ResourceKind, ResourceRow};
use landfall_testkit::cluster::{Cluster, Options};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Watching, connect, install};

const DEFINITIONS: &str = include_str!("../../../../deploy/crds.yaml");

const POOL: ResourceKind = ResourceKind::IpAddressPool;

fn manifest(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{namespace: {namespace}, \
         name: {name}}}\nspec: {{addresses: [192.0.2.0/28]}}\n---\n"
    )
}

async fn row(watching: &mut Watching, name: &str) -> Arc<ResourceRow> {
    loop {
        if let Fact::Pool(row) = watching.next().await
            && row.name == name
        {
            return row.resource.clone().unwrap();
        }
    }
}

async fn pool(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    let get = ["-n", namespace, "ipaddresspool", name];
    cluster.kubectl().get(&get).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_written_to_the_object_that_was_meant() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let kubectl = cluster.kubectl();
    kubectl.apply(DEFINITIONS).await.unwrap();
    let wait = ["wait", "--for=condition=Established", "crd", "--all"];
    kubectl.run(&wait).await.unwrap();
    let namespace = &cluster.namespace("resources").await.unwrap();
    kubectl.apply(&manifest(namespace, "edge")).await.unwrap();
    let connection = connect(&cluster, "landfall/resources").await;
    let config = SourceConfig {
        resources: CustomResources {
            namespace: namespace.clone(),
            kinds: BTreeSet::from([POOL]),
        },
        ..SourceConfig::default()
    };
    let mut watching = Watching::start(&connection, config);
    let edge = row(&mut watching, "edge").await;
    watching.until("synced").await;
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let guard = WriteGuard::always();
    let reports = KubeReports::new(connection, guard, "landfall-0", &tasks, &cancel).on_resources();

    let condition = json!({"type": "landfall.dev/Accepted", "status": "False",
        "reason": "InvalidPool", "message": "it overlaps",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    let counts = json!({"assignedIPv4": 1, "availableIPv4": 15, "assignedIPv6": 0,
        "availableIPv6": 9_223_372_036_854_775_807_u64});
    reports.write_status(&edge, &counts).await.unwrap();
    let mut expected = counts.clone();
    expected["conditions"] = json!([condition]);
    reports.write_status(&edge, &expected).await.unwrap();
    let object = pool(&cluster, namespace, "edge").await;
    assert_eq!(object["status"], expected);
    assert_eq!(object["spec"]["addresses"], json!(["192.0.2.0/28"]));
    assert_eq!(object["metadata"]["generation"], 1);
    let statuses = reports.statuses(POOL, namespace).await.unwrap();
    assert_eq!(statuses["edge"], expected);

    let event = Event {
        reason: "InvalidPool",
        warning: true,
        message: "it overlaps".to_owned(),
    };
    reports.event(&edge, &event);
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
    let get = ["-n", namespace, "events.v1.events.k8s.io"];
    let events = kubectl.get(&get).await.unwrap();
    let events = events["items"].as_array().unwrap();
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    let regarding = &event["regarding"];
    assert_eq!(regarding["kind"], "IPAddressPool");
    assert_eq!(regarding["apiVersion"], "metallb.io/v1beta1");
    assert_eq!(regarding["uid"], object["metadata"]["uid"]);
    assert_eq!(
        (&event["reason"], &event["type"]),
        (&json!("InvalidPool"), &json!("Warning"))
    );

    // Another object of the name is left alone, and one that is gone is no failure.
    let delete = ["-n", namespace, "delete", "ipaddresspool", "edge"];
    kubectl.run(&delete).await.unwrap();
    reports.write_status(&edge, &counts).await.unwrap();
    kubectl.apply(&manifest(namespace, "edge")).await.unwrap();
    reports.write_status(&edge, &counts).await.unwrap();
    let object = pool(&cluster, namespace, "edge").await;
    assert_eq!(object["status"], Value::Null);
}
