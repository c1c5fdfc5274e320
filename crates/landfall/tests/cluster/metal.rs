//! Bare metal: addresses from pools of MetalLB, for Services of its class.

use serde_json::Value;

use crate::bed::{Bed, address, condition, writes};
use crate::commands::POOL_KIND;
use crate::network::Range;
use crate::replica::Replica;

/// The note of the pool that MetalLB's controller writes.
const POOL_OF: &str = "metallb.io/ip-allocated-from-pool";

pub fn kind(kind: &str, plural: &str) -> String {
    POOL_KIND
        .replace("IPAddressPool", kind)
        .replace("ipaddresspools", plural)
        .replace("ipaddresspool", &kind.to_lowercase())
}

pub fn object(kind: &str, name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: metallb.io/v1beta1\nkind: {kind}\nmetadata: {{name: {name}, namespace: \
         {namespace}}}\nspec: {spec}\n"
    )
}

fn service(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: \
         {{{annotations}}}}}\nspec:\n  type: LoadBalancer\n  loadBalancerClass: metallb\n  ports: \
         [{{port: 80}}]\n"
    )
}

fn endpoints(name: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: \
         {name}-1\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: IPv4\nports: \
         [{{name: \"\", port: 8080, protocol: TCP}}]\nendpoints: [{{addresses: [10.8.0.1], \
         conditions: {{ready: true}}}}]\n"
    )
}

fn config(bed: &Bed) -> String {
    format!(
        "metallbNamespace: {}\ninstances:\n  - name: metal\n    provider: metal\n    classNames: \
         [metallb]\n",
        bed.namespace
    )
}

fn addresses(service: &Value) -> Vec<&str> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let ingress = ingress.into_iter().flatten();
    ingress.filter_map(|it| it["ip"].as_str()).collect()
}

fn programmed(service: &Value) -> Option<(String, String)> {
    condition(service, "Programmed")
}

#[tokio::test]
async fn services_of_the_class_of_metallb_get_addresses_of_its_pools_and_keep_them() {
    let bed = Bed::open("metal").await;
    let (range, audit) = (Range::claim(), bed.cluster.audit());
    for (name, plural) in [
        ("IPAddressPool", "ipaddresspools"),
        ("L2Advertisement", "l2advertisements"),
    ] {
        bed.kubectl().apply(&kind(name, plural)).await.unwrap();
        let kind = format!("crd/{plural}.metallb.io");
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            &kind,
        ];
        bed.kubectl().run(&established).await.unwrap();
    }
    let pools = [
        ("a", "{addresses: [192.0.2.0/30]}"),
        (
            "b",
            "{addresses: [198.51.100.4-198.51.100.7], autoAssign: false}",
        ),
    ];
    for (name, spec) in pools {
        let pool = object("IPAddressPool", name, &bed.namespace, spec);
        bed.kubectl().apply(&pool).await.unwrap();
    }
    let replica = Replica::alone(&bed, range.admin(1), &config(&bed)).await;
    bed.apply(&service("web", "")).await;
    bed.apply(&service("chosen", "metallb.universe.tf/address-pool: b"))
        .await;
    bed.apply(&endpoints("web")).await;
    bed.condition("landfall.dev/Addressed", &["web", "chosen"])
        .await;
    let silent = |it: &Value| programmed(it) == Some(("False".into(), "NotAnnounced".into()));
    let web = bed
        .until("web", "waiting for an advertisement", silent)
        .await;
    assert_eq!(address(&web), Some("192.0.2.0"));
    assert_eq!(web["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
    assert_eq!(web["metadata"]["annotations"][POOL_OF], "a");
    let chosen = bed.service("chosen").await;
    assert_eq!(address(&chosen), Some("198.51.100.4"));
    let two = "metallb.io/address-pool: b, landfall.dev/address-count: \"2\"";
    bed.apply(&service("many", two)).await;
    bed.condition("landfall.dev/Addressed", &["many"]).await;
    assert_eq!(
        addresses(&bed.service("many").await),
        ["198.51.100.5", "198.51.100.6"]
    );

    // An advertisement for all pools.
    let advertisement = object("L2Advertisement", "all", &bed.namespace, "{}");
    bed.kubectl().apply(&advertisement).await.unwrap();
    bed.programmed(&["web"]).await;
    let without = |it: &Value| programmed(it) == Some(("False".into(), "NoEndpoints".into()));
    bed.until("chosen", "without endpoints", without).await;
    replica.stop().await;

    // Another process knows what is held, and writes nothing for it.
    let before = writes(&audit).len();
    let replica = Replica::alone(&bed, range.admin(2), &config(&bed)).await;
    bed.apply(&service("late", "")).await;
    bed.condition("landfall.dev/Addressed", &["late"]).await;
    assert_eq!(address(&bed.service("late").await), Some("192.0.2.1"));
    let written = writes(&audit).split_off(before);
    let names: Vec<&str> = written.iter().map(|it| it.name.as_str()).collect();
    let known = ["web", "chosen", "many"];
    assert!(!known.iter().any(|it| names.contains(it)), "{names:?}");
    // Fewer: the first one stays, and the other one is free.
    bed.apply(&service("many", "metallb.io/address-pool: b"))
        .await;
    let one = |it: &Value| addresses(it) == ["198.51.100.5"];
    bed.until("many", "with one address", one).await;
    bed.apply(&service("after", two)).await;
    bed.condition("landfall.dev/Addressed", &["after"]).await;
    assert_eq!(
        addresses(&bed.service("after").await),
        ["198.51.100.6", "198.51.100.7"]
    );

    // A wrong object is reported with its field, and changes nothing.
    let wrong = object(
        "L2Advertisement",
        "wrong",
        &bed.namespace,
        "{interfaces: [7]}",
    );
    bed.kubectl().apply(&wrong).await.unwrap();
    bed.run(&["delete", "service", "web"]).await;
    bed.apply(&service("next", "")).await;
    bed.condition("landfall.dev/Addressed", &["next"]).await;
    assert_eq!(address(&bed.service("next").await), Some("192.0.2.0"));
    replica.stop().await;
}
