//! Reports touch our own entries, only where they differ, and only while we may.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::report::{Event, Report, ReportError};
use landfall_kube::{Connection, KubeReports, SourceConfig, WriteGuard, access};
use landfall_model::reason::Code;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{
    Condition, ConditionType, FINALIZER, IngressAddress, IpMode, ServiceStatus,
};
use landfall_testkit::cluster::{AuditEntry, Cluster};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Relay, USER, Watching, cluster, connect, connect_by, service};

/// Reports as ourselves, and the rows that they speak of.
struct Desk {
    cluster: &'static Cluster,
    namespace: String,
    agent: String,
    reports: KubeReports,
    watching: Watching,
}

impl Desk {
    async fn open(name: &str) -> Self {
        let cluster = cluster().await;
        let namespace = cluster.namespace(name).await.unwrap();
        let agent = format!("landfall/{namespace}");
        let connection = connect(cluster, &agent).await;
        let mut watching = Watching::start(&connection, SourceConfig::default());
        watching.until("synced").await;
        Self {
            cluster,
            reports: reports(connection),
            namespace,
            agent,
            watching,
        }
    }

    /// Makes a Service; the answer is its row.
    async fn make(&mut self, name: &str) -> Arc<ServiceRow> {
        self.cluster
            .kubectl()
            .apply(&service(&self.namespace, name, ""))
            .await
            .unwrap();
        self.row(name, |_| true).await
    }

    /// The first row of a Service from here on that fits.
    async fn row(&mut self, name: &str, fits: impl Fn(&ServiceRow) -> bool) -> Arc<ServiceRow> {
        loop {
            if let Fact::Service(row) = self.watching.next().await
                && row.key.namespace() == self.namespace
                && row.key.name() == name
                && fits(&row)
            {
                return row;
            }
        }
    }

    async fn object(&self, name: &str) -> Value {
        self.cluster
            .kubectl()
            .get(&["-n", &self.namespace, "service", name])
            .await
            .unwrap()
    }

    /// kubectl as the administrator, on this namespace.
    async fn kubectl(&self, arguments: &[&str]) {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        self.cluster.kubectl().run(&all).await.unwrap();
    }

    async fn patch_status(&self, name: &str, patch: &Value) {
        let patch = patch.to_string();
        self.kubectl(&[
            "patch",
            "service",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await;
    }

    fn writes(&self, audit: &landfall_testkit::cluster::Audit) -> Vec<AuditEntry> {
        let mut writes = audit.writes_of(USER).unwrap();
        writes.retain(|entry| entry.user_agent == self.agent);
        writes
    }
}

fn reports(connection: Connection) -> KubeReports {
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    KubeReports::new(
        connection,
        WriteGuard::always(),
        "replica-1",
        &tasks,
        &cancel,
    )
}

fn at(address: &str) -> IngressAddress {
    let ip = Some(address.parse().unwrap());
    IngressAddress {
        ip,
        ip_mode: Some(IpMode::Vip),
        ..IngressAddress::default()
    }
}

fn status(addresses: &[&str]) -> ServiceStatus {
    let now = Timestamp::UNIX_EPOCH;
    let message = format!("clients connect to {}", addresses.join(", "));
    ServiceStatus {
        ingress: addresses.iter().map(|address| at(address)).collect(),
        conditions: vec![
            Condition::met(ConditionType::Accepted, Code::Accepted, "fine", now),
            Condition::met(ConditionType::Addressed, Code::Assigned, &message, now),
            Condition::met(ConditionType::Programmed, Code::Ready, "traffic flows", now),
        ],
        ..ServiceStatus::default()
    }
}

fn types(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter_map(|condition| condition["type"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_finalizer_comes_and_goes_without_touching_others() {
    let mut desk = Desk::open("finalizer").await;
    desk.make("web").await;
    let others = r#"{"metadata": {"finalizers": ["example.com/guard"]}}"#;
    desk.kubectl(&["patch", "service", "web", "-p", others])
        .await;
    let row = desk.make("web2").await;
    // A row that knows nothing of the other one.
    let row_of_web = oldest_row(&desk, "web").await;
    desk.reports.add_finalizer(&row_of_web, None).await.unwrap();
    let object = desk.object("web").await;
    let mut both: Vec<_> = object["metadata"]["finalizers"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    both.sort_by_key(ToString::to_string);
    assert_eq!(both, ["example.com/guard", FINALIZER]);
    let audit = desk.cluster.audit();
    desk.reports.add_finalizer(&row_of_web, None).await.unwrap();
    assert_eq!(desk.writes(&audit), []);

    desk.reports.remove_finalizer(&row_of_web).await.unwrap();
    assert_eq!(
        desk.object("web").await["metadata"]["finalizers"],
        json!(["example.com/guard"])
    );
    desk.reports.remove_finalizer(&row_of_web).await.unwrap();
    assert_eq!(
        desk.object("web2").await["metadata"]["finalizers"],
        Value::Null
    );
    desk.reports.remove_finalizer(&row).await.unwrap();
    desk.kubectl(&[
        "patch",
        "service",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata": {"finalizers": null}}"#,
    ])
    .await;
}

/// A row without anything but the identity of a Service: as old as a row can be.
async fn oldest_row(desk: &Desk, name: &str) -> ServiceRow {
    let object = desk.object(name).await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let namespace = desk.namespace.clone();
    let row = landfall_testkit::svc(name).in_namespace(&namespace);
    let row = row.with(|row| {
        row.uid = landfall_model::Uid::new(&uid);
        row.resource_version = Some("1".into());
        row.finalized = false;
    });
    ServiceRow::clone(&row.row())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_into_the_status_stays() {
    let mut desk = Desk::open("foreign").await;
    let row = desk.make("web").await;
    desk.reports
        .write_status(&row, &status(&["192.0.2.1"]))
        .await
        .unwrap();
    let row = desk.row("web", |row| !row.status.ingress.is_empty()).await;
    let object = desk.object("web").await;
    assert_eq!(
        object["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.0.2.1", "ipMode": "VIP"}])
    );
    assert_eq!(
        types(&object),
        [
            "landfall.dev/Accepted",
            "landfall.dev/Addressed",
            "landfall.dev/Programmed"
        ]
    );

    // Another program adds fields to our entry, an entry, and a condition. We do not know yet.
    let mut conditions = object["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(
        json!({"type": "example.com/Checked", "status": "True", "reason": "Fine",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let theirs = json!({"status": {"conditions": conditions, "loadBalancer": {"ingress": [
        {"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "web.example.com", "ports": ports},
        {"hostname": "cdn.example.com"}]}}});
    desk.patch_status("web", &theirs).await;
    let audit = desk.cluster.audit();
    desk.reports
        .write_status(&row, &status(&["192.0.2.1", "192.0.2.2"]))
        .await
        .unwrap();
    let object = desk.object("web").await;
    assert_eq!(
        object["status"]["loadBalancer"]["ingress"],
        json!([
            {"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "web.example.com", "ports": ports},
            {"ip": "192.0.2.2", "ipMode": "VIP"},
            {"hostname": "cdn.example.com"}])
    );
    assert!(types(&object).contains(&"example.com/Checked"), "{object}");
    let codes: Vec<_> = desk.writes(&audit).iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [409, 200]);

    // Knowing it, there is nothing to do; and what goes is ours alone.
    let row = desk.row("web", |row| row.status.ingress.len() == 3).await;
    let audit = desk.cluster.audit();
    desk.reports
        .write_status(&row, &status(&["192.0.2.1", "192.0.2.2"]))
        .await
        .unwrap();
    assert_eq!(desk.writes(&audit), []);
    desk.reports
        .write_status(&row, &ServiceStatus::default())
        .await
        .unwrap();
    let object = desk.object("web").await;
    assert_eq!(
        object["status"]["loadBalancer"]["ingress"],
        json!([{"hostname": "cdn.example.com"}])
    );
    assert_eq!(types(&object), ["example.com/Checked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_writes_no_more_than_it_has_to() {
    let mut desk = Desk::open("writes").await;
    let row = desk.make("web").await;
    let audit = desk.cluster.audit();
    // As in a pass: the row is the same all the time, whatever was written meanwhile.
    desk.reports.add_finalizer(&row, None).await.unwrap();
    desk.reports
        .write_status(&row, &status(&["192.0.2.1"]))
        .await
        .unwrap();
    desk.reports
        .write_status(&row, &status(&["192.0.2.1"]))
        .await
        .unwrap();
    let mut other = status(&["192.0.2.1"]);
    other.conditions[2].message = "traffic flows, too".to_owned();
    desk.reports.write_status(&row, &other).await.unwrap();
    desk.reports
        .write_status(&row, &status(&["192.0.2.7"]))
        .await
        .unwrap();
    let writes: Vec<_> = desk
        .writes(&audit)
        .into_iter()
        .map(|entry| (entry.verb, entry.resource, entry.code))
        .collect();
    let patch = || ("patch".to_owned(), "services/status".to_owned(), 200);
    assert_eq!(writes, [patch(), patch(), patch(), patch()]);
    let reads = audit.entries().unwrap();
    assert!(
        !reads
            .iter()
            .any(|entry| entry.user_agent == desk.agent && entry.verb == "get")
    );

    let row = desk
        .row("web", |row| {
            row.status
                .addresses()
                .any(|address| address.to_string() == "192.0.2.7")
        })
        .await;
    assert!(row.finalized);
    assert_eq!(row.status, status(&["192.0.2.7"]));
    // A converged Service costs nothing, also for a process that has just been started.
    let fresh = reports(connect(desk.cluster, &desk.agent).await);
    let audit = desk.cluster.audit();
    for _ in 0..100 {
        fresh.add_finalizer(&row, None).await.unwrap();
        fresh
            .write_status(&row, &status(&["192.0.2.7"]))
            .await
            .unwrap();
    }
    assert_eq!(desk.writes(&audit), []);
    desk.reports.remove_finalizer(&row).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_the_same_name_is_not_taken_for_the_one_before() {
    let mut desk = Desk::open("again").await;
    let old = desk.make("web").await;
    desk.kubectl(&["delete", "service", "web"]).await;
    let conflict = |result: Result<(), ReportError>| {
        assert!(
            matches!(result, Err(ReportError::Conflict { .. })),
            "{result:?}"
        );
    };
    conflict(
        desk.reports
            .write_status(&old, &status(&["192.0.2.1"]))
            .await,
    );
    conflict(desk.reports.add_finalizer(&old, None).await);
    desk.reports.remove_finalizer(&old).await.unwrap();
    desk.make("web").await;
    let before = desk.object("web").await;
    conflict(
        desk.reports
            .write_status(&old, &status(&["192.0.2.1"]))
            .await,
    );
    conflict(desk.reports.add_finalizer(&old, None).await);
    desk.reports.remove_finalizer(&old).await.unwrap();
    assert_eq!(desk.object("web").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_being_deleted_gets_no_finalizer() {
    let mut desk = Desk::open("deleting").await;
    let row = desk.make("web").await;
    let others = r#"{"metadata": {"finalizers": ["example.com/guard"]}}"#;
    desk.kubectl(&["patch", "service", "web", "-p", others])
        .await;
    desk.kubectl(&["delete", "service", "web", "--wait=false"])
        .await;
    let refused = desk.reports.add_finalizer(&row, None).await;
    assert_eq!(refused, Err(ReportError::Conflict { what: "finalizer" }));
    desk.kubectl(&[
        "patch",
        "service",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata": {"finalizers": null}}"#,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_without_an_answer_is_found_before_it_counts_as_not_there() {
    let mut desk = Desk::open("unanswered").await;
    let row = desk.make("web").await;
    let relay = Relay::to(desk.cluster).await;
    let reports = reports(connect_by(relay.kubeconfig(), "landfall/unanswered").await);
    let (before, after) = (status(&["192.0.2.1"]), status(&["192.0.2.2"]));
    reports.write_status(&row, &before).await.unwrap();
    let row = desk.row("web", |row| row.status == before).await;
    relay.stall();
    let write = reports.write_status(&row, &after);
    let given_up = tokio::time::timeout(Duration::from_secs(2), write).await;
    assert!(given_up.is_err(), "it was answered: {given_up:?}");
    desk.row("web", |row| row.status == after).await;
    // The row is older than the write, as it is as long as the watch is behind.
    let written = async {
        while let Err(error) = reports.write_status(&row, &before).await {
            assert!(matches!(error, ReportError::Unavailable { .. }), "{error}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written)
        .await
        .unwrap();
    let object = desk.object("web").await;
    let published = &object["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(published, "192.0.2.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named() {
    let mut desk = Desk::open("denied").await;
    let row = desk.make("web").await;
    let reporter = desk.cluster.identity("reporter", &[]).unwrap();
    let connection = connect_by(&reporter, "landfall/denied").await;
    let missing = access::missing(&connection, access::to_report())
        .await
        .unwrap();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            "get services",
            "patch services/status",
            "create events.events.k8s.io",
            "patch events.events.k8s.io"
        ]
    );
    let error = reports(connection)
        .write_status(&row, &status(&["192.0.2.1"]))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("to patch services/status") && text.contains("User \"reporter\""),
        "{text}"
    );

    // And the identity of the manifests lacks nothing.
    let ours = connect(desk.cluster, &desk.agent).await;
    let all = [
        access::to_watch(),
        access::to_report(),
        access::to_elect("landfall-system", "landfall"),
    ];
    assert_eq!(access::missing(&ours, all.concat()).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_admission_is_reported_in_its_own_words() {
    let mut desk = Desk::open("admission").await;
    let row = desk.make("web").await;
    let policy = format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {0}}}
spec:
  matchConstraints:
    resourceRules:
      - {{apiGroups: [\"\"], apiVersions: [v1], operations: [UPDATE], resources: [services/status]}}
  validations:
    - {{expression: \"object.metadata.namespace != '{0}'\", message: \"not on Fridays\"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {0}}}
spec: {{policyName: {0}, validationActions: [Deny]}}
",
        desk.namespace
    );
    desk.cluster.kubectl().apply(&policy).await.unwrap();
    // It takes a moment until the API server acts on it.
    let refused = async {
        let mut number = 0;
        loop {
            number += 1;
            let wanted = status(&[&format!("192.0.2.{}", number % 250)]);
            match desk.reports.write_status(&row, &wanted).await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(30), refused)
        .await
        .unwrap();
    assert!(matches!(&error, ReportError::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("not on Fridays"), "{error}");
    let name = desk.namespace.clone();
    desk.kubectl(&["delete", "validatingadmissionpolicybinding", &name])
        .await;
    desk.kubectl(&["delete", "validatingadmissionpolicy", &name])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_seen_by_kubectl_and_repeated_ones_counted() {
    let mut desk = Desk::open("events").await;
    let row = desk.make("web").await;
    let event = |reason, warning, message: &str| Event {
        reason,
        warning,
        message: message.to_owned(),
    };
    let failed = event(
        "SyncLoadBalancerFailed",
        true,
        "Error syncing load balancer: no",
    );
    desk.reports
        .event(
            &row,
            &event("EnsuringLoadBalancer", false, "Ensuring load balancer"),
        )
        .await;
    for _ in 0..3 {
        desk.reports.event(&row, &failed).await;
    }
    let kubectl = desk.cluster.kubectl();
    let described = async {
        loop {
            let text = kubectl
                .run(&["-n", &desk.namespace, "describe", "service", "web"])
                .await
                .unwrap();
            if text.contains("(x3") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let text = tokio::time::timeout(Duration::from_secs(30), described)
        .await
        .unwrap();
    assert!(text.contains("landfall.dev/controller"), "{text}");
    let object = desk
        .cluster
        .kubectl()
        .get(&["-n", &desk.namespace, "events.events.k8s.io"])
        .await
        .unwrap();
    let mut events: Vec<_> = object["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            (
                text("reason"),
                text("type"),
                text("note"),
                event["series"]["count"].as_i64(),
            )
        })
        .collect();
    events.sort();
    let expected = |reason: &str, kind: &str, note: &str, count| {
        (reason.to_owned(), kind.to_owned(), note.to_owned(), count)
    };
    assert_eq!(
        events,
        [
            expected(
                "EnsuringLoadBalancer",
                "Normal",
                "Ensuring load balancer",
                None
            ),
            expected(
                "SyncLoadBalancerFailed",
                "Warning",
                "Error syncing load balancer: no",
                Some(3)
            ),
        ]
    );
    let counts = desk.reports.event_counts();
    assert_eq!((counts.aggregated, counts.dropped), (2, 0));
}
