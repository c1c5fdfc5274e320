//! What a process reports on itself, on a custom resource with a status as users define one.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_engine::report::{
    Event, OwnKind, OwnObject, OwnReport as _, Owner, ReportError, Version,
};
use landfall_kube::OwnReports;
use landfall_testkit::cluster::{Audit, Cluster};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{DEADLINE, cluster, connect_by, service};

const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodereports.own.example.com}
spec:
  group: own.example.com
  scope: Namespaced
  names: {kind: NodeReport, listKind: NodeReportList, plural: nodereports, singular: nodereport}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    - name: v1alpha1
      served: true
      storage: false
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A process that reports on itself in a namespace of its own.
struct Desk {
    cluster: &'static Cluster,
    namespace: String,
    agent: String,
    reports: OwnReports,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

// === impl Desk ===

impl Desk {
    async fn open(name: &str) -> Self {
        static KNOWN: OnceCell<()> = OnceCell::const_new();
        let cluster = cluster().await;
        KNOWN.get_or_init(|| make_known(cluster)).await;
        let namespace = cluster.namespace(name).await.unwrap();
        let agent = format!("landfall/{namespace}");
        let connection = connect_by(cluster.admin(), &agent).await;
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let controller = "landfall.dev/speaker";
        let reports = OwnReports::new(connection, controller, "node-a", &tasks, &cancel);
        Self {
            cluster,
            namespace,
            agent,
            reports,
            tasks,
            cancel,
        }
    }

    fn kind(&self) -> OwnKind {
        OwnKind {
            api_version: "own.example.com/v1",
            kind: "NodeReport",
            plural: "nodereports",
            whole: None,
            namespace: Some(self.namespace.clone()),
        }
    }

    fn object(&self, node: &str) -> OwnObject {
        OwnObject {
            kind: self.kind(),
            name: format!("of-{node}"),
            labels: BTreeMap::from([("example.com/node".to_owned(), node.to_owned())]),
            owner: None,
        }
    }

    async fn write(&self, node: &str, status: &Value) -> Version {
        let written = self.reports.write_own(&self.object(node), status).await;
        written.unwrap()
    }

    /// Deletes an object if it has a version, and returns whether it is gone.
    async fn delete(&self, node: &str, version: &Version) -> bool {
        match self.reports.delete_own(&self.object(node), version).await {
            Ok(()) => true,
            Err(ReportError::Conflict { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn names(&self, selector: &str) -> Vec<String> {
        let listed = self.reports.list_own::<Value>(&self.kind(), selector).await;
        let listed = listed.unwrap().into_iter();
        listed.map(|it| it.name).collect()
    }

    /// The successful writes in an audit, as verb and resource.
    fn writes(&self, audit: &Audit) -> Vec<String> {
        let entries = audit.entries().unwrap().into_iter();
        entries
            .filter(|it| it.user_agent == self.agent && it.is_write() && it.code < 300)
            .map(|it| format!("{} {}", it.verb, it.resource))
            .collect()
    }
}

async fn make_known(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(KIND).await.unwrap();
    let crd = "crd/nodereports.own.example.com";
    let wait = ["wait", "--for=condition=Established", crd];
    kubectl.run(&wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_once_and_then_only_its_status_is_written() {
    let desk = Desk::open("own-status").await;
    let audit = desk.cluster.audit();
    let owner = desk.cluster.kubectl();
    let owner = owner.get(&["namespace", &desk.namespace]).await.unwrap();
    let mut object = desk.object("a");
    object.owner = Some(Owner {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: desk.namespace.clone(),
        uid: owner["metadata"]["uid"].as_str().unwrap().to_owned(),
    });
    for status in [json!({"on": ["eth0"]}), json!({"at": 2})] {
        desk.reports.write_own(&object, &status).await.unwrap();
    }
    let kubectl = desk.cluster.kubectl();
    let asked = ["-n", &desk.namespace, "nodereport", "of-a"];
    let there = kubectl.get(&asked).await.unwrap();
    // Nothing of the first status remains in the second.
    assert_eq!(there["status"], json!({"at": 2}));
    assert_eq!(
        there["metadata"]["labels"],
        json!({"example.com/node": "a"})
    );
    assert_eq!(there["metadata"]["ownerReferences"][0]["kind"], "Namespace");
    assert_eq!(
        desk.writes(&audit),
        [
            "create nodereports",
            "patch nodereports/status",
            "patch nodereports/status"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_status_is_a_field_like_any_other_an_object_is_created_with_it_in_one_write() {
    let desk = Desk::open("own-whole").await;
    let audit = desk.cluster.audit();
    let mut object = desk.object("a");
    object.kind.whole = Some("own.example.com/v1alpha1");
    for status in [json!({"on": ["eth0"], "at": 1}), json!({"at": 2})] {
        desk.reports.write_own(&object, &status).await.unwrap();
    }
    let asked = ["-n", &desk.namespace, "nodereports.v1.own.example.com"];
    let kubectl = desk.cluster.kubectl();
    let there = kubectl.get(&[&asked[..], &["of-a"]].concat()).await;
    let there = there.unwrap();
    assert_eq!(there["status"], json!({"at": 2}));
    assert_eq!(
        there["metadata"]["labels"],
        json!({"example.com/node": "a"})
    );
    assert_eq!(
        desk.writes(&audit),
        ["patch nodereports", "patch nodereports"]
    );
    // A definition without that version.
    object.name = "of-b".to_owned();
    object.kind.whole = Some("own.example.com/v1alpha9");
    let status = json!({"at": 3});
    desk.reports.write_own(&object, &status).await.unwrap();
    let there = kubectl.get(&[&asked[..], &["of-b"]].concat()).await;
    assert_eq!(there.unwrap()["status"], status);
}

#[tokio::test(flavor = "multi_thread")]
async fn own_objects_are_listed_by_label_and_one_that_can_not_be_read_is_still_named() {
    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Counted {
        at: u32,
    }
    let desk = Desk::open("own-list").await;
    desk.write("a", &json!({"at": 1})).await;
    desk.write("b", &json!({"at": "text"})).await;
    let listed = |selector: &'static str| {
        let (kind, reports) = (desk.kind(), &desk.reports);
        async move { reports.list_own::<Counted>(&kind, selector).await.unwrap() }
    };
    for (selector, name, status) in [
        ("example.com/node=a", "of-a", Some(Counted { at: 1 })),
        ("example.com/node=b", "of-b", None),
    ] {
        let [found] = &listed(selector).await[..] else {
            panic!("{selector} does not select one object");
        };
        assert_eq!((&*found.name, &found.status), (name, &status));
    }
    // All but some, of those that have the label; of a kind that the cluster does not have, none.
    let others = "example.com/node,example.com/node notin (a,c)";
    assert_eq!(desk.names(others).await, ["of-b"]);
    let mut unknown = desk.kind();
    unknown.plural = "unknownreports";
    let listed = desk.reports.list_own::<Value>(&unknown, others).await;
    assert_eq!(listed.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_gone_is_deleted_without_an_error_and_others_only_if_they_match() {
    let desk = Desk::open("own-delete").await;
    for node in ["a", "b", "c"] {
        desk.write(node, &json!({})).await;
    }
    let version = desk.write("a", &json!({"at": 2})).await;
    for _ in 0..2 {
        assert!(desk.delete("a", &version).await);
    }
    assert_eq!(desk.names("example.com/node").await, ["of-b", "of-c"]);
    let others = "example.com/node,example.com/node!=c";
    let kind = desk.kind();
    desk.reports.delete_matching(&kind, others).await.unwrap();
    assert_eq!(desk.names("example.com/node").await, ["of-c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_another_process_wrote_or_made_again_meanwhile_is_not_deleted() {
    let desk = Desk::open("own-replaced").await;
    let read = async || {
        let kind = desk.kind();
        let listed = desk.reports.list_own::<Value>(&kind, "example.com/node");
        listed.await.unwrap().remove(0).version
    };
    let first = desk.write("a", &json!({"at": 1})).await;
    assert_eq!(first, read().await);
    let second = desk.write("a", &json!({"at": 2})).await;
    assert!(!desk.delete("a", &first).await);
    assert_eq!(desk.names("example.com/node").await, ["of-a"]);
    assert!(desk.delete("a", &second).await);
    let other = desk.write("a", &json!({"at": 3})).await;
    let of_other = Version {
        uid: second.uid,
        ..other.clone()
    };
    assert!(!desk.delete("a", &of_other).await);
    assert!(desk.delete("a", &other).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_written_is_an_error_that_names_it() {
    let desk = Desk::open("own-refused").await;
    let mut object = desk.object("a");
    object.kind.plural = "unknown";
    let error = desk.reports.write_own(&object, &json!({})).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("own status"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_about_a_service_names_the_speaker() {
    let desk = Desk::open("own-event").await;
    let kubectl = desk.cluster.kubectl();
    let web = service(&desk.namespace, "web", "");
    kubectl.apply(&web).await.unwrap();
    let asked = ["-n", &desk.namespace, "service", "web"];
    let there = kubectl.get(&asked).await.unwrap();
    let uid = landfall_model::Uid::new(there["metadata"]["uid"].as_str().unwrap());
    let event = Event {
        reason: "nodeAssigned",
        warning: false,
        message: "announced by node-a".to_owned(),
    };
    let key = landfall_model::ServiceKey::new(&desk.namespace, "web");
    desk.reports.own_event(&key, &uid, &event).await;
    let sent = async {
        loop {
            let asked = ["-n", &desk.namespace, "events.events.k8s.io"];
            let list = kubectl.get(&asked).await.unwrap();
            if let Some(event) = list["items"].as_array().and_then(|it| it.first()) {
                return event.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let sent = tokio::time::timeout(DEADLINE, sent).await.unwrap();
    assert_eq!(sent["reportingController"], "landfall.dev/speaker");
    assert_eq!(sent["regarding"]["uid"], uid.as_str());
    desk.cancel.cancel();
    desk.tasks.close();
    desk.tasks.wait().await;
}
