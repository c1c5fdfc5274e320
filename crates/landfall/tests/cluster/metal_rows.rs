//! Rows of the conformance table about addresses on a real API server, with the definitions that
//! are shipped: the rows that crates/metal/tests/rows plays in memory, in one cluster.

use std::net::SocketAddr;
use std::time::Instant;

use base64::Engine as _;
use landfall_testkit::cluster::Options;
use serde_json::{Value, json};

use crate::bed::{Bed, DEADLINE, LOOK, text, writes};
use crate::metal::object;
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::http;

const DEFINITIONS: &str = include_str!("../../../../deploy/crds.yaml");
const POOL_OF: &str = "metallb.io/ip-allocated-from-pool";
const ADDRESSES: &str = "metallb.io/loadBalancerIPs";
const POOL: &str = "metallb.io/address-pool";
const KEY: &str = "metallb.io/allow-shared-ip";

/// A cluster, its pools and a controller.
struct Stage {
    bed: Bed,
    range: Range,
    replica: Option<Replica>,
}

/// A Service: annotations, and fields of its spec.
fn service(name: &str, annotations: &[(&str, &str)], spec: &Value) -> String {
    let annotations = annotations.iter().map(|(key, value)| {
        let value = (*value).into();
        ((*key).to_owned(), value)
    });
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": annotations.collect::<serde_json::Map<_, _>>()},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "metallb",
            "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}],
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    let fields = service["spec"].as_object_mut().unwrap();
    fields.retain(|_, value| !value.is_null());
    service.to_string()
}

fn addresses(service: &Value) -> Vec<&str> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let entries = ingress.into_iter().flatten();
    entries.filter_map(|entry| entry["ip"].as_str()).collect()
}

// === impl Stage ===

impl Stage {
    async fn open(pools: &[(&str, Value)]) -> Self {
        let bed = Bed::with("rows", Options::default()).await;
        bed.kubectl().apply(DEFINITIONS).await.unwrap();
        for plural in ["ipaddresspools", "l2advertisements"] {
            let kind = format!("crd/{plural}.metallb.io");
            let wait = [
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                &kind,
            ];
            bed.kubectl().run(&wait).await.unwrap();
        }
        let mut stage = Self {
            bed,
            range: Range::claim(),
            replica: None,
        };
        for (name, spec) in pools {
            stage.pool(name, spec).await;
        }
        stage.start(1).await;
        stage
    }

    async fn start(&mut self, number: u8) {
        let config = format!(
            "metallbNamespace: {}\ninstances:\n  - name: metal\n    provider: metal\n    \
             classNames: [metallb]\n",
            self.bed.namespace
        );
        let admin = self.range.admin(number);
        self.replica = Some(Replica::alone(&self.bed, admin, &config).await);
    }

    async fn stop(&mut self) {
        self.replica.take().unwrap().stop().await;
    }

    async fn pool(&self, name: &str, spec: &Value) {
        let pool = object(
            "IPAddressPool",
            name,
            &self.bed.namespace,
            &spec.to_string(),
        );
        self.bed.kubectl().apply(&pool).await.unwrap();
    }

    /// Deletes a pool, and waits until that is known: a Service comes by another watch, and may
    /// be seen first and get an address.
    async fn drop_pool(&self, name: &str) {
        self.bed.run(&["delete", "ipaddresspool", name]).await;
        let admin = self.replica.as_ref().unwrap().admin;
        let (began, of_pool) = (Instant::now(), format!("pool=\"{name}\""));
        loop {
            let (_, metrics) = http(admin, "/metrics").await.unwrap();
            if !metrics.contains(&of_pool) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{name} is still there");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Applies a Service.
    async fn put(&self, name: &str, annotations: &[(&str, &str)], spec: Value) {
        self.bed.apply(&service(name, annotations, &spec)).await;
    }

    /// Publishes an address as another controller does, for a Service without a class.
    async fn publish_for_others(&self, name: &str, address: &str) {
        self.put(name, &[], json!({"loadBalancerClass": null}))
            .await;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        let patch = status.to_string();
        let [kind, subresource] = ["--type=merge", "--subresource=status"];
        self.bed
            .run(&["patch", "service", name, subresource, kind, "-p", &patch])
            .await;
    }

    /// Waits until a Service holds these addresses.
    async fn holds(&self, name: &str, wanted: &[&str]) -> Value {
        let met = |service: &Value| addresses(service) == wanted;
        let what = format!("at {wanted:?}");
        self.bed.until(name, &what, met).await
    }

    /// Waits until a Service without an address was refused one; returns why.
    async fn refused(&self, name: &str) -> String {
        let why = self.bed.event(name, "AllocationFailed").await;
        assert!(addresses(&self.bed.service(name).await).is_empty());
        why
    }
}

#[tokio::test]
async fn rows_of_requests_for_addresses_hold_on_a_real_api_server() {
    let stage = Stage::open(&[
        ("a", json!({"addresses": ["10.0.0.5 - 10.0.0.7"]})),
        (
            "b",
            json!({"addresses": ["10.0.1.10/24"], "autoAssign": false}),
        ),
        (
            "buggy",
            json!({"addresses": ["10.0.2.0/24"], "autoAssign": false, "avoidBuggyIPs": true}),
        ),
    ])
    .await;
    // 1: address, note and event; and no write beside these two.
    let audit = stage.bed.cluster.audit();
    stage.put("s1", &[], json!({})).await;
    let first = stage.holds("s1", &["10.0.0.5"]).await;
    assert_eq!(first["metadata"]["annotations"][POOL_OF], "a");
    let said = stage.bed.event("s1", "IPAllocated").await;
    assert!(said.contains("10.0.0.5"), "{said}");
    let mut written: Vec<String> = writes(&audit).into_iter().map(|it| it.resource).collect();
    // How much of a pool is used is written once in a while, however many Services came.
    written.retain(|resource| resource != "ipaddresspools/status");
    written.sort();
    assert_eq!(written, ["events", "services/status"]);
    // 2: a range to its end.
    for (name, address) in [("s2", "10.0.0.6"), ("s3", "10.0.0.7")] {
        stage.put(name, &[], json!({})).await;
        stage.holds(name, &[address]).await;
    }
    stage.put("s4", &[], json!({})).await;
    stage.refused("s4").await;
    // 5: what is released goes to the one that waits.
    stage.bed.run(&["delete", "service", "s2"]).await;
    stage.holds("s4", &["10.0.0.6"]).await;
    // 3 and 15: host bits are masked; a pool by name, and another one.
    stage.put("named", &[(POOL, "b")], json!({})).await;
    stage.holds("named", &["10.0.1.0"]).await;
    stage.put("named", &[(POOL, "buggy")], json!({})).await;
    // 4: not .0, also on request.
    let named = stage.holds("named", &["10.0.2.1"]).await;
    assert_eq!(named["metadata"]["annotations"][POOL_OF], "buggy");
    stage.bed.event("named", "ClearAssignment").await;
    stage
        .put("low", &[(ADDRESSES, "10.0.2.0")], json!({}))
        .await;
    assert!(stage.refused("low").await.contains("10.0.2.0"));
    // 8, 9 and 10: by annotation, by field, by both.
    stage
        .put("by-note", &[(ADDRESSES, "10.0.1.8")], json!({}))
        .await;
    stage.holds("by-note", &["10.0.1.8"]).await;
    let field = json!({"loadBalancerIP": "10.0.1.9"});
    stage.put("by-field", &[], field.clone()).await;
    stage.holds("by-field", &["10.0.1.9"]).await;
    stage
        .put("by-both", &[(ADDRESSES, "10.0.1.20")], field)
        .await;
    stage.refused("by-both").await;
    // 11: in no pool.
    stage
        .put("outside", &[(ADDRESSES, "192.0.2.1")], json!({}))
        .await;
    assert!(stage.refused("outside").await.contains("192.0.2.1"));
    // 13 and 14: to a free address, and to a taken one.
    stage
        .put("by-note", &[(ADDRESSES, "10.0.1.11")], json!({}))
        .await;
    stage.holds("by-note", &["10.0.1.11"]).await;
    stage
        .put("by-note", &[(ADDRESSES, "10.0.1.9")], json!({}))
        .await;
    let said = stage.bed.event("by-note", "LoadBalancerFailed").await;
    assert!(said.contains("by-field"), "{said}");
    stage.holds("by-note", &["10.0.1.11"]).await;
    // 16: of another pool than the named one.
    let both = [(ADDRESSES, "10.0.1.30"), (POOL, "a")];
    stage.put("mismatch", &both, json!({})).await;
    stage.refused("mismatch").await;
    // 17: the old prefix.
    let old = ("metallb.universe.tf/loadBalancerIPs", "10.0.1.40");
    stage.put("old", &[old], json!({})).await;
    stage.holds("old", &["10.0.1.40"]).await;
    stage.bed.event("old", "deprecatedAnnotation").await;
    stage
        .put("old", &[old, (ADDRESSES, "10.0.1.41")], json!({}))
        .await;
    stage.holds("old", &["10.0.1.41"]).await;
    // 26, 28 and 29: one key, two protocols, another key.
    let shared = [(ADDRESSES, "10.0.1.50"), (KEY, "k")];
    stage
        .put("tcp", &shared, json!({"ports": [{"port": 53}]}))
        .await;
    stage.holds("tcp", &["10.0.1.50"]).await;
    let udp = json!({"ports": [{"port": 53, "protocol": "UDP"}]});
    stage.put("udp", &shared, udp).await;
    stage.holds("udp", &["10.0.1.50"]).await;
    let other = [(ADDRESSES, "10.0.1.50"), (KEY, "j")];
    stage
        .put("other", &other, json!({"ports": [{"port": 54}]}))
        .await;
    stage.refused("other").await;
    stage
        .put("clash", &shared, json!({"ports": [{"port": 53}]}))
        .await;
    stage.refused("clash").await;
    // 44: no other class.
    let foreign = json!({"loadBalancerClass": "example.com/other"});
    stage.put("foreign", &[], foreign).await;
    assert!(addresses(&stage.bed.service("foreign").await).is_empty());
}

#[tokio::test]
async fn rows_of_pools_that_change_and_of_restarts_hold_on_a_real_api_server() {
    let mut stage = Stage::open(&[
        ("a", json!({"addresses": ["10.0.0.0/24"]})),
        (
            "b",
            json!({"addresses": ["10.0.1.0/24", "fd00::-fd00::ff"]}),
        ),
    ])
    .await;
    stage.put("web", &[], json!({})).await;
    stage.holds("web", &["10.0.0.0"]).await;
    // 32 and 33: both families, IPv4 first, from a pool with both.
    let dual = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]});
    stage.put("dual", &[], dual.clone()).await;
    stage.holds("dual", &["10.0.1.0", "fd00::"]).await;
    stage.put("dual-of-one", &[(POOL, "a")], dual).await;
    stage.refused("dual-of-one").await;
    stage.bed.run(&["delete", "service", "dual-of-one"]).await;
    // 47: what others put into the status stays.
    let patch = json!([
        {"op": "add", "path": "/status/loadBalancer/ingress/0/ports",
         "value": [{"port": 80, "protocol": "TCP"}]},
        {"op": "add", "path": "/status/conditions/-", "value": {
            "type": "example.com/Checked", "status": "True", "reason": "Fine", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}},
    ])
    .to_string();
    let patch = [
        "patch",
        "service",
        "web",
        "--subresource=status",
        "--type=json",
        "-p",
        &patch,
    ];
    stage.bed.run(&patch).await;
    stage
        .put("web", &[], json!({"ports": [{"port": 81}]}))
        .await;
    let seen = |service: &Value| {
        let conditions = service["status"]["conditions"].as_array();
        let mut ours = conditions.into_iter().flatten();
        ours.any(|it| {
            it["type"] == "landfall.dev/Accepted"
                && it["observedGeneration"] == service["metadata"]["generation"]
        })
    };
    let web = stage.bed.until("web", "seen again", seen).await;
    let conditions = web["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|it| it["type"] == "example.com/Checked")
    );
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"][0]["ports"][0]["port"],
        80
    );
    // 43: outside of its pool.
    stage
        .pool("a", &json!({"addresses": ["10.0.0.8/31"]}))
        .await;
    stage.holds("web", &["10.0.0.8"]).await;
    let said = stage.bed.event("web", "ClearAssignment").await;
    assert!(said.contains("10.0.0.0"), "{said}");
    // 40: to another pool.
    stage.drop_pool("a").await;
    stage.holds("web", &["10.0.1.1"]).await;
    stage.publish_for_others("theirs", "10.0.1.2").await;
    // 7 and 46: a restart with a Service that came meanwhile writes for that one alone.
    stage.stop().await;
    stage.put("a-new-one", &[], json!({})).await;
    let audit = stage.bed.cluster.audit();
    stage.start(2).await;
    // What another controller publishes is not given out, and was on record before the start.
    stage.holds("a-new-one", &["10.0.1.3"]).await;
    stage.bed.event("a-new-one", "IPAllocated").await;
    let named = |name: &str| name.starts_with("a-new-one");
    let written = writes(&audit);
    let services = written
        .iter()
        .filter(|it| it.resource.starts_with("services"));
    assert!(services.clone().count() == 1, "{written:?}");
    assert!(services.clone().all(|it| named(&it.name)), "{written:?}");
    stage.holds("web", &["10.0.1.1"]).await;
    // 41: without any pool nothing is lost, over a restart, too.
    stage.drop_pool("b").await;
    stage.put("waits", &[], json!({})).await;
    stage.refused("waits").await;
    stage.stop().await;
    stage.start(3).await;
    for (name, held) in [
        ("web", &["10.0.1.1"][..]),
        ("dual", &["10.0.1.0", "fd00::"]),
        ("a-new-one", &["10.0.1.3"]),
    ] {
        stage.holds(name, held).await;
    }
    stage
        .pool(
            "b",
            &json!({"addresses": ["10.0.1.0/24", "fd00::-fd00::ff"]}),
        )
        .await;
    stage.holds("waits", &["10.0.1.4"]).await;
    stage.holds("web", &["10.0.1.1"]).await;
    // What others publish is followed at once, and what they do not publish any more is free.
    stage.publish_for_others("theirs", "10.0.1.5").await;
    for (name, free) in [("one", "10.0.1.2"), ("two", "10.0.1.6")] {
        stage.put(name, &[], json!({})).await;
        stage.holds(name, &[free]).await;
    }
    stage.bed.run(&["delete", "service", "theirs"]).await;
    stage.put("three", &[], json!({})).await;
    stage.holds("three", &["10.0.1.5"]).await;
    stage.stop().await;
}

/// As the chart makes it, at an address instead of a Service.
fn asking(address: SocketAddr, certificate: &str) -> String {
    let authority = base64::engine::general_purpose::STANDARD.encode(certificate);
    let kinds = [
        "ipaddresspools",
        "l2advertisements",
        "bgpadvertisements",
        "bgppeers",
        "bfdprofiles",
        "communities",
    ];
    let rule = |operations: &[&str], kinds: &[&str]| {
        json!({"apiGroups": ["metallb.io"], "apiVersions": ["v1beta1", "v1beta2"],
            "operations": operations, "resources": kinds})
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "landfall-metallb"},
        "webhooks": [{
            "name": "metallb.landfall.dev",
            "clientConfig": {
                "url": format!("https://{address}/validate"), "caBundle": authority,
            },
            "rules": [rule(&["CREATE", "UPDATE"], &kinds), rule(&["DELETE"], &["bfdprofiles"])],
            "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
        }],
    })
    .to_string()
}

impl Stage {
    /// Starts a controller that the API server asks.
    async fn ask(&mut self) {
        let address = SocketAddr::new(self.range.admin(9).ip(), 9443);
        let names = vec![address.ip().to_string()];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        self.bed.write("tls.crt", &certificate);
        self.bed.write("tls.key", &key.serialize_pem());
        let config = format!("metallbNamespace: {}\n", self.bed.namespace);
        let config = format!(
            "{config}instances:\n  - {{name: metal, provider: metal, classNames: [metallb]}}\n"
        );
        let config = self.bed.write("asked.yaml", &config);
        let (address_text, folder) = (address.to_string(), self.bed.cluster.directory());
        let arguments = [
            "--leader-elect=false",
            "--config",
            text(&config),
            "--webhook",
            &address_text,
            "--webhook-tls-dir",
            text(folder),
        ];
        let mut replica = Replica::spawn(&self.bed, "asked", self.range.admin(8), &arguments);
        replica.ready().await;
        self.replica = Some(replica);
        let configuration = asking(address, &certificate);
        self.bed.kubectl().apply(&configuration).await.unwrap();
    }

    /// Creates an object of a kind, or looks whether it could be; `Err`: why not.
    async fn create(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        spec: Value,
        dry: bool,
    ) -> Answer {
        let version = if kind == "BGPPeer" {
            "v1beta2"
        } else {
            "v1beta1"
        };
        let object = json!({"apiVersion": format!("metallb.io/{version}"), "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
        .to_string();
        let how = if dry {
            "--dry-run=server"
        } else {
            "--dry-run=none"
        };
        let create = ["create", how, "-f", "-"];
        let created = self.bed.kubectl().run_with(&create, &object).await;
        created.map_err(|error| error.to_string())
    }

    async fn refusal(&self, kind: &str, spec: Value) -> String {
        let namespace = &self.bed.namespace;
        let created = self.create(namespace, kind, "proposed", spec, true).await;
        created.unwrap_err()
    }
}

/// What kubectl says.
type Answer = Result<String, String>;

/// Waits until something is refused: the API server asks, and the controller knows.
async fn refused(what: impl AsyncFn() -> Answer) -> String {
    let began = Instant::now();
    loop {
        if let Err(refusal) = what().await {
            return refusal;
        }
        assert!(began.elapsed() < DEADLINE, "it is not refused");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test]
async fn rows_of_admission_hold_on_a_real_api_server() {
    let mut stage = Stage::open(&[("small", json!({"addresses": ["10.0.0.0/28"]}))]).await;
    stage.stop().await;
    stage.ask().await;
    let peer = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "10.9.0.1",
        "bfdProfile": "fast"});
    // 79: outside of the namespace.
    for (kind, spec) in [
        ("IPAddressPool", json!({"addresses": ["10.1.0.0/24"]})),
        ("L2Advertisement", json!({})),
        ("BGPAdvertisement", json!({})),
        ("BGPPeer", peer.clone()),
        ("BFDProfile", json!({})),
        ("Community", json!({})),
    ] {
        let outside = async || {
            stage
                .create("default", kind, "outside", spec.clone(), true)
                .await
        };
        let refusal = refused(outside).await;
        assert!(refusal.contains(&stage.bed.namespace), "{kind}: {refusal}");
    }
    // 80: more than a pool has.
    let wide = json!({"aggregationLength": 26});
    let refusal = stage.refusal("BGPAdvertisement", wide).await;
    assert!(refusal.contains("pool small"), "{refusal}");
    stage
        .refusal("BGPAdvertisement", json!({"aggregationLength": 33}))
        .await;
    // 81: no community.
    for value in ["99999999:1", "lar:1:2:3"] {
        let spec = json!({"communities": [{"name": "x", "value": value}]});
        stage.refusal("Community", spec).await;
    }
    // Pools that overlap.
    let overlapping = json!({"addresses": ["10.0.0.8/29"]});
    let refusal = stage.refusal("IPAddressPool", overlapping).await;
    assert!(refusal.contains("spec.addresses[0]"), "{refusal}");
    // 82: a profile in use. What a peer names may come after it.
    let home = stage.bed.namespace.clone();
    for (kind, name, spec) in [
        ("BGPPeer", "tor", peer.clone()),
        ("BFDProfile", "fast", json!({})),
    ] {
        let created = stage.create(&home, kind, name, spec, false).await;
        created.unwrap();
    }
    let delete = [
        "-n",
        &home,
        "delete",
        "--dry-run=server",
        "bfdprofile",
        "fast",
    ];
    let deletion = async || {
        let deleted = stage.bed.kubectl().run(&delete).await;
        deleted.map_err(|error| error.to_string())
    };
    assert!(refused(deletion).await.contains("tor"));
    // 83: it repeats another one.
    let refusal = stage.refusal("BGPPeer", peer).await;
    assert!(refusal.contains("tor"), "{refusal}");
    // Without an answer everything is admitted.
    stage.stop().await;
    let outside = stage
        .create("default", "Community", "outside", json!({}), true)
        .await;
    outside.unwrap();
}
