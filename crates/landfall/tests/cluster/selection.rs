//! Which Services are ours, and how little is written for those that are.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};

use crate::bed::{Bed, DEADLINE, LOOK, condition, only, writes};
use crate::network::Range;
use crate::replica::Replica;

/// A Service of a class, or of none.
fn service(name: &str, class: Option<&str>, range: &Range) -> String {
    let mut text = format!(
        "---\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: {name}\n  \
        annotations: {{landfall.dev/endpoints: \"{}\"}}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports: [{{port: 8080}}]\n",
        range.member(1)
    );
    if let Some(class) = class {
        let _ = writeln!(text, "  loadBalancerClass: {class}");
    }
    text
}

fn is_untouched(service: &Value) -> bool {
    service["metadata"]["finalizers"].is_null() && service["status"] == json!({"loadBalancer": {}})
}

/// Waits until there has been nothing to do for a while: the queue is empty and reconciles stand
/// still.
pub async fn at_rest(replica: &Replica) {
    let began = Instant::now();
    let (mut reconciles, mut quiet) = (-1.0, 0);
    while quiet < 5 {
        let now = replica.metric("landfall_reconciles_total").await;
        quiet = if now.total_cmp(&reconciles).is_eq() {
            quiet + 1
        } else {
            0
        };
        reconciles = now;
        assert!(began.elapsed() < DEADLINE, "it does not come to rest");
        tokio::time::sleep(LOOK * 5).await;
    }
}

#[tokio::test]
async fn the_class_of_a_service_and_the_default_decide_whether_it_is_served() {
    let bed = Bed::open("class").await;
    let range = Range::claim();
    let audit = bed.cluster.audit();
    let config = only(&range.pool());
    for (default, suffix) in [(true, "with"), (false, "without")] {
        let config = config.replace("default: true", &format!("default: {default}"));
        let replica = Replica::alone(&bed, range.admin(1), &config).await;
        let name = |name: &str| format!("{name}-{suffix}");
        let manifests = [
            service(&name("plain"), None, &range),
            service(&name("ours"), Some("landfall.dev/local"), &range),
            service(&name("other"), Some("example.com/local"), &range),
            service(&name("unknown"), Some("landfall.dev/unserved"), &range),
        ];
        bed.apply(&manifests.concat()).await;
        bed.programmed(&[&name("ours")]).await;
        at_rest(&replica).await;
        let served = condition(&bed.service(&name("plain")).await, "Programmed");
        assert_eq!(served.is_some(), default, "{served:?}");
        let mut left = vec!["other", "unknown"];
        if !default {
            left.push("plain");
        }
        for left in left.into_iter().map(name) {
            let service = bed.service(&left).await;
            assert!(is_untouched(&service), "{service:#}");
            assert_eq!(bed.events(&left).await, []);
            let written = writes(&audit);
            assert!(
                written.iter().all(|entry| entry.name != left),
                "{written:?}"
            );
        }
        replica.stop().await;
    }
    // Without a default, what the default had served is left as it was: no edit asks for removal.
    let service = bed.service("plain-with").await;
    assert_eq!(condition(&service, "Programmed").unwrap().0, "True");
}

#[tokio::test]
async fn a_namespace_can_have_a_default_class_of_its_own() {
    let bed = Bed::open("of-namespace").await;
    let range = Range::claim();
    let config = only(&range.pool()).replace("default: true", "default: false");
    let replica = Replica::alone(&bed, range.admin(1), &config).await;
    bed.apply(&service("web", None, &range)).await;
    at_rest(&replica).await;
    assert!(is_untouched(&bed.service("web").await));
    let annotate = |class: &'static str| {
        let (bed, namespace) = (&bed, bed.namespace.clone());
        async move {
            let annotation = format!("landfall.dev/default-class={class}");
            let all = [
                "annotate",
                "--overwrite",
                "namespace",
                &namespace,
                &annotation,
            ];
            bed.kubectl().run(&all).await.unwrap();
        }
    };
    annotate("local").await;
    bed.programmed(&["web"]).await;
}

#[tokio::test]
async fn a_converged_cluster_costs_no_write_however_often_it_is_reconciled() {
    let bed = Bed::open("quiet").await;
    let range = Range::claim();
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    let manifests = ["web", "dns", "api"].map(|name| service(name, None, &range));
    bed.apply(&manifests.concat()).await;
    bed.programmed(&["web", "dns", "api"]).await;
    bed.event("web", "EnsuredLoadBalancer").await;
    bed.event("dns", "EnsuredLoadBalancer").await;
    bed.event("api", "EnsuredLoadBalancer").await;
    at_rest(&replica).await;
    let before: Vec<Value> = [bed.service("web").await, bed.service("dns").await].into();

    let audit = bed.cluster.audit();
    let reconciles = replica.metric("landfall_reconciles_total").await;
    for round in 1..=50 {
        let touch = format!("touched={round}");
        let seen = replica.metric("landfall_reconciles_total").await;
        bed.run(&["annotate", "--overwrite", "service", "web", &touch])
            .await;
        // One reconcile for the Service, and one for each by the labels of their namespace.
        let namespace = ["label", "--overwrite", "namespace", &bed.namespace, &touch];
        bed.kubectl().run(&namespace).await.unwrap();
        let began = Instant::now();
        while replica.metric("landfall_reconciles_total").await < seen + 3.0 {
            assert!(
                began.elapsed() < DEADLINE,
                "round {round} caused no reconciles"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
    at_rest(&replica).await;
    let made = replica.metric("landfall_reconciles_total").await - reconciles;
    assert!(made >= 100.0, "only {made} reconciles");
    assert_eq!(writes(&audit), []);
    let after = [bed.service("web").await, bed.service("dns").await];
    assert_eq!(after[0]["status"], before[0]["status"]);
    assert_eq!(after[1], before[1]);
}

#[tokio::test]
async fn what_others_wrote_into_the_status_stays() {
    let bed = Bed::open("foreign").await;
    let range = Range::claim();
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;
    bed.apply(&service("web", None, &range)).await;
    bed.programmed(&["web"]).await;
    bed.event("web", "EnsuredLoadBalancer").await;
    at_rest(&replica).await;

    let audit = bed.cluster.audit();
    let foreign_condition = json!({
        "type": "example.com/Seen", "status": "True", "reason": "Seen", "message": "by another",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = json!([
        {"op": "add", "path": "/status/conditions/-", "value": foreign_condition},
        {"op": "add", "path": "/status/loadBalancer/ingress/0/ports",
         "value": [{"port": 8080, "protocol": "TCP"}]},
        {"op": "add", "path": "/status/loadBalancer/ingress/0/hostname", "value": "a.example.org"},
        {"op": "add", "path": "/status/loadBalancer/ingress/-",
         "value": {"hostname": "b.example.org"}},
    ]);
    let patch = patch.to_string();
    let arguments = [
        "patch",
        "service",
        "web",
        "--subresource=status",
        "--type=json",
        "-p",
        &patch,
    ];
    bed.run(&arguments).await;
    let put = bed.service("web").await;
    at_rest(&replica).await;
    assert_eq!(writes(&audit), []);
    assert_eq!(bed.service("web").await, put);

    // Our own entries change, and only they.
    bed.run(&[
        "annotate",
        "service",
        "web",
        "landfall.dev/algorithm=FASTEST",
    ])
    .await;
    let refused = bed
        .until("web", "refused", |service| {
            condition(service, "Accepted").is_some_and(|(truth, _)| truth == "False")
        })
        .await;
    assert_eq!(
        refused["status"]["loadBalancer"],
        put["status"]["loadBalancer"]
    );
    let conditions = refused["status"]["conditions"].as_array().unwrap();
    assert!(conditions.contains(&foreign_condition), "{refused:#}");

    // Even where the whole load balancer goes.
    bed.run(&[
        "patch",
        "service",
        "web",
        "-p",
        r#"{"spec": {"type": "ClusterIP"}}"#,
    ])
    .await;
    let gone = bed
        .until("web", "let go", |service| {
            service["metadata"]["finalizers"].is_null()
        })
        .await;
    assert_eq!(gone["status"]["conditions"], json!([foreign_condition]));
}
