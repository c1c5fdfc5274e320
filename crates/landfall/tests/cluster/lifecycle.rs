//! The life of one Service, with kubectl only.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::bed::{Bed, address, condition, only};
use crate::network::{Range, inside};
use crate::replica::Replica;
use crate::traffic::{Backend, answered_by, refused};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{name: web, port: 8080}]
";

fn slice(addresses: &[&str]) -> String {
    let mut endpoints = String::new();
    for address in addresses {
        let _ = writeln!(
            endpoints,
            "- {{addresses: [{address}], conditions: {{ready: true}}}}"
        );
    }
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  \
         name: web-1\n  labels: {{kubernetes.io/service-name: web}}\n\
         ports: [{{name: web, port: 8000}}]\nendpoints:\n{endpoints}"
    )
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn is_finalized(service: &serde_json::Value) -> bool {
    let finalizers = service["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER))
}

#[tokio::test]
async fn as_root_a_service_lives_its_whole_life_by_kubectl_alone() {
    if !inside("lifecycle::as_root_a_service_lives_its_whole_life_by_kubectl_alone").await {
        return;
    }
    let bed = Bed::open("life").await;
    let range = Range::claim();
    let _one = Backend::start("one", at("10.77.0.11", 8000)).await;
    let _two = Backend::start("two", at("10.77.0.12", 8000)).await;
    let replica = Replica::alone(&bed, range.admin(1), &only(&range.pool())).await;

    bed.apply(&format!("{}---{SERVICE}", slice(&["10.77.0.11"])))
        .await;
    bed.programmed(&["web"]).await;
    let service = bed.service("web").await;
    let held = address(&service).unwrap().to_owned();
    assert!(is_finalized(&service), "{service:#}");
    assert_eq!(
        service["status"]["loadBalancer"],
        serde_json::json!({"ingress": [{"ip": held, "ipMode": "Proxy"}]})
    );
    for (kind, reason) in [
        ("Accepted", "Accepted"),
        ("Addressed", "Assigned"),
        ("Programmed", "Ready"),
    ] {
        let reported = condition(&service, kind);
        assert_eq!(
            reported,
            Some(("True".to_owned(), reason.to_owned())),
            "{kind}"
        );
    }
    answered_by(at(&held, 8080), &["one"]).await;
    bed.event("web", "EnsuredLoadBalancer").await;

    // Endpoints come and go.
    bed.apply(&slice(&["10.77.0.11", "10.77.0.12"])).await;
    answered_by(at(&held, 8080), &["one", "two"]).await;
    bed.apply(&slice(&["10.77.0.12"])).await;
    answered_by(at(&held, 8080), &["two"]).await;
    bed.apply(&slice(&[])).await;
    bed.until("web", "without members", |service| {
        condition(service, "Programmed").is_some_and(|(truth, _)| truth == "False")
    })
    .await;
    bed.apply(&slice(&["10.77.0.11"])).await;
    bed.programmed(&["web"]).await;

    // Another port, at the same address.
    let ports = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 8081}]"#;
    bed.run(&["patch", "service", "web", "--type=json", "-p", ports])
        .await;
    answered_by(at(&held, 8081), &["one"]).await;
    refused(at(&held, 8080)).await;
    assert_eq!(address(&bed.service("web").await), Some(held.as_str()));

    // A spec that can't be had is reported, and what was there goes on.
    let bad = "landfall.dev/algorithm=FASTEST";
    bed.run(&["annotate", "service", "web", bad]).await;
    let service = bed
        .until("web", "refused", |service| {
            condition(service, "Accepted").is_some_and(|(truth, _)| truth == "False")
        })
        .await;
    assert_eq!(
        condition(&service, "Accepted").unwrap().1,
        "InvalidAnnotation"
    );
    let failed = bed.event("web", "SyncLoadBalancerFailed").await;
    assert_eq!(
        failed,
        "Error syncing load balancer: metadata.annotations[landfall.dev/algorithm]: \"FASTEST\": \
        not a value of this option; write one of ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, \
        SOURCE_IP_PORT"
    );
    answered_by(at(&held, 8081), &["one"]).await;
    bed.run(&["annotate", "service", "web", "landfall.dev/algorithm-"])
        .await;
    bed.condition("landfall.dev/Accepted", &["web"]).await;

    // Away and back.
    let away = r#"{"spec": {"type": "ClusterIP"}}"#;
    bed.run(&["patch", "service", "web", "-p", away]).await;
    let service = bed
        .until("web", "let go", |service| !is_finalized(service))
        .await;
    assert_eq!(service["status"], serde_json::json!({"loadBalancer": {}}));
    refused(at(&held, 8081)).await;
    bed.event("web", "DeletedLoadBalancer").await;
    let back = r#"{"spec": {"type": "LoadBalancer"}}"#;
    bed.run(&["patch", "service", "web", "-p", back]).await;
    bed.programmed(&["web"]).await;
    let service = bed.service("web").await;
    assert!(is_finalized(&service), "{service:#}");
    let held = address(&service).unwrap().to_owned();
    answered_by(at(&held, 8081), &["one"]).await;

    // kubectl waits for the finalizer.
    bed.run(&["delete", "service", "web", "--timeout=60s"])
        .await;
    refused(at(&held, 8081)).await;
    replica.stop().await;
    let mut reported: Vec<(String, String)> = bed
        .events("web")
        .await
        .into_iter()
        .map(|(reason, kind, _)| (reason, kind))
        .collect();
    // What is said again becomes a count, but for its time: each saying stands once.
    reported.sort();
    reported.dedup();
    let normal = |reason: &str| (reason.to_owned(), "Normal".to_owned());
    assert_eq!(
        reported,
        [
            normal("DeletedLoadBalancer"),
            normal("EnsuredLoadBalancer"),
            ("SyncLoadBalancerFailed".to_owned(), "Warning".to_owned()),
        ]
    );
}
