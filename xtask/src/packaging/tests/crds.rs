//! The definitions of custom resources, as a real API server takes them: what it admits, what it
//! refuses and where, and that no field is lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use landfall_model::kinds::{ObjectKind, Watched};
use landfall_testkit::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::{deployed, read, root};
use crate::packaging::{CHART_CRDS, CRDS};

/// Objects with every field that MetalLB knows, in the version that is stored.
fn full() -> Vec<(&'static str, Value)> {
    let selector = json!({
        "matchLabels": {"tier": "front"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "zone", "operator": "NotIn", "values": ["c"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist", "values": []},
        ],
    });
    vec![
        (
            "IPAddressPool",
            json!({
                "addresses": ["192.0.2.0/28", "198.51.100.10/24", "203.0.113.5 - 203.0.113.9",
                    "2001:db8::/112", "2001:db8:1::1-2001:db8:1::ff", "203.0.113.1/32"],
                "autoAssign": false,
                "avoidBuggyIPs": true,
                "serviceAllocation": {
                    "priority": 50,
                    "namespaces": ["shop", "bank"],
                    "namespaceSelectors": [selector],
                    "serviceSelectors": [selector, {"matchLabels": {"tier": "back"}}],
                },
            }),
        ),
        (
            "L2Advertisement",
            json!({
                "ipAddressPools": ["one", "two"],
                "ipAddressPoolSelectors": [selector],
                "nodeSelectors": [selector],
                "serviceSelectors": [selector],
                "interfaces": ["eth0", "bond0.7"],
                "preferredNodeSelectors": [{"weight": 100, "preference": selector}],
            }),
        ),
        (
            "BGPAdvertisement",
            json!({
                "aggregationLength": 32,
                "aggregationLengthV6": 128,
                "localPref": 4_294_967_295_u32,
                "communities": ["65535:65282", "large:1:2:3", "no-advertise"],
                "ipAddressPools": ["one"],
                "ipAddressPoolSelectors": [selector],
                "nodeSelectors": [selector],
                "serviceSelectors": [selector],
                "peers": ["left", "right"],
            }),
        ),
        (
            "Community",
            json!({"communities": [
                {"name": "no-advertise", "value": "65535:65282"},
                {"name": "wide", "value": "large:4294967295:0:7"},
            ]}),
        ),
        (
            "BGPPeer",
            json!({
                "myASN": 64512, "peerASN": 4_200_000_000_u32, "localASN": 64999,
                "peerAddress": "2001:db8::1", "sourceAddress": "2001:db8::2", "peerPort": 1179,
                "holdTime": "1m30s", "keepaliveTime": "30s", "connectTime": "10s",
                "routerID": "10.0.0.1", "nodeSelectors": [selector],
                "passwordSecret": {"name": "peer", "namespace": "metallb-system"},
                "bfdProfile": "fast", "enableGracefulRestart": true, "ebgpMultiHop": true,
                "vrf": "red", "disableMP": false, "dualStackAddressFamily": true,
            }),
        ),
        (
            "BFDProfile",
            json!({
                "receiveInterval": 10, "transmitInterval": 60000, "echoInterval": 50,
                "detectMultiplier": 255, "echoMode": true, "passiveMode": true, "minimumTtl": 254,
            }),
        ),
    ]
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let row = ObjectKind::ALL.map(ObjectKind::row);
    let row = row.into_iter().find(|row| row.name == kind);
    json!({
        "apiVersion": row.map_or("metallb.io/v1beta1".to_owned(), |row| row.api_version()),
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    })
}

async fn create(cluster: &Cluster, object: &Value) -> Result<String, String> {
    let create = ["create", "--validate=strict", "-f", "-"];
    let kubectl = cluster.kubectl();
    let created = kubectl.run_with(&create, &object.to_string()).await;
    created.map_err(|error| error.to_string())
}

async fn spec(cluster: &Cluster, resource: &str, name: &str) -> Value {
    let object = cluster.kubectl().get(&[resource, name]).await.unwrap();
    object["spec"].clone()
}

async fn established(cluster: &Cluster) {
    let wait = ["wait", "--for=condition=Established", "crd", "--all"];
    cluster.kubectl().run(&wait).await.unwrap();
}

/// With the definitions in place.
async fn defined() -> Cluster {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let text = read(&root(), CRDS).unwrap();
    cluster.kubectl().apply(&text).await.unwrap();
    established(&cluster).await;
    cluster
}

#[test]
fn the_chart_has_the_same_definitions_and_every_kind_that_is_watched_has_one() {
    assert_eq!(
        read(&root(), CRDS).unwrap(),
        read(&root(), CHART_CRDS).unwrap()
    );
    let objects = deployed("crds");
    let defined: BTreeSet<String> = objects
        .all()
        .flat_map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap();
            let versions = object["spec"]["versions"].as_array().unwrap();
            let named = |it: &Value| format!("{name} {}", it["name"].as_str().unwrap());
            versions.iter().map(named).collect::<Vec<_>>()
        })
        .collect();
    let rows = ObjectKind::ALL.map(ObjectKind::row).into_iter();
    let watched = rows.filter(|row| row.watched == Watched::OneNamespace);
    let mut expected: BTreeSet<String> = watched
        .flat_map(|row| {
            let versions = [Some(row.version), row.older].into_iter().flatten();
            versions.map(move |version| format!("{} {version}", row.full_resource()))
        })
        .collect();
    for plural in ["servicel2statuses", "servicebgpstatuses"] {
        for version in ["v1alpha1", "v1beta1"] {
            expected.insert(format!("{plural}.metallb.io {version}"));
        }
    }
    expected.insert("bgpsessionstates.landfall.dev v1alpha1".to_owned());
    assert_eq!(defined, expected);
}

#[tokio::test]
async fn every_field_of_metallb_is_admitted_unchanged_and_defaults_are_its_own() {
    let cluster = defined().await;
    for (kind, full) in full() {
        create(&cluster, &object(kind, "full", &full))
            .await
            .unwrap();
        assert_eq!(spec(&cluster, kind, "full").await, full, "{kind}");
    }
    for (kind, least, defaults) in [
        (
            "IPAddressPool",
            json!({"addresses": ["192.0.2.0/28"]}),
            json!({"autoAssign": true, "avoidBuggyIPs": false}),
        ),
        ("L2Advertisement", json!({}), json!({})),
        (
            "BGPAdvertisement",
            json!({}),
            json!({"aggregationLength": 32, "aggregationLengthV6": 128}),
        ),
        ("Community", json!({}), json!({})),
        (
            "BGPPeer",
            json!({"myASN": 1, "dynamicASN": "external", "interface": "eth0"}),
            json!({"peerPort": 179, "disableMP": false, "dualStackAddressFamily": false}),
        ),
        ("BFDProfile", json!({}), json!({})),
    ] {
        create(&cluster, &object(kind, "least", &least))
            .await
            .unwrap();
        let mut expected = least;
        expected
            .as_object_mut()
            .unwrap()
            .extend(defaults.as_object().unwrap().clone());
        assert_eq!(spec(&cluster, kind, "least").await, expected, "{kind}");
    }
    // Without a spec at all, where MetalLB's definition asks for none.
    let mut bare = object("L2Advertisement", "bare", &Value::Null);
    bare.as_object_mut().unwrap().remove("spec");
    create(&cluster, &bare).await.unwrap();
}

/// Everything that one object alone shows to be wrong, and where.
fn invalid() -> Vec<(&'static str, &'static str, Value)> {
    let pool = |addresses: Value| json!({"addresses": addresses});
    let peer = |more: Value| {
        let mut spec = json!({"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1"});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        spec.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        spec
    };
    let matching = |expression: Value| json!([{"matchExpressions": [expression]}]);
    let a = json!({"matchLabels": {"a": "b"}});
    let mut all = vec![
        ("IPAddressPool", "spec.addresses", json!({})),
        ("IPAddressPool", "spec.addresses", pool(json!([]))),
        (
            "IPAddressPool",
            "spec.serviceAllocation.namespaces[1]",
            json!({"addresses": ["192.0.2.0/28"],
                "serviceAllocation": {"namespaces": ["shop", "shop"]}}),
        ),
        (
            "IPAddressPool",
            "spec.serviceAllocation.serviceSelectors[1]",
            json!({"addresses": ["192.0.2.0/28"],
                "serviceAllocation": {"serviceSelectors": [a, a]}}),
        ),
        (
            "L2Advertisement",
            "spec.ipAddressPools[1]",
            json!({"ipAddressPools": ["a", "a"]}),
        ),
        (
            "L2Advertisement",
            "spec.nodeSelectors[1]",
            json!({"nodeSelectors": [a, a]}),
        ),
        (
            "L2Advertisement",
            "spec.preferredNodeSelectors[0].weight",
            json!({"preferredNodeSelectors": [{"weight": 0, "preference": a}]}),
        ),
        (
            "L2Advertisement",
            "spec.preferredNodeSelectors[0].weight",
            json!({"preferredNodeSelectors": [{"weight": 101, "preference": a}]}),
        ),
        (
            "L2Advertisement",
            "spec.preferredNodeSelectors[0].preference",
            json!({"preferredNodeSelectors": [{"weight": 1}]}),
        ),
        (
            "L2Advertisement",
            "spec.nodeSelectors[0].matchExpressions[1]",
            json!({"nodeSelectors": [{"matchExpressions": [
                {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}]}),
        ),
        (
            "BGPAdvertisement",
            "spec.aggregationLength",
            json!({"aggregationLength": 0}),
        ),
        (
            "BGPAdvertisement",
            "spec.aggregationLength",
            json!({"aggregationLength": 33}),
        ),
        (
            "BGPAdvertisement",
            "spec.aggregationLengthV6",
            json!({"aggregationLengthV6": 129}),
        ),
        (
            "BGPAdvertisement",
            "spec.localPref",
            json!({"localPref": -1}),
        ),
        (
            "BGPAdvertisement",
            "spec.communities[1]",
            json!({"communities": ["1:2", "1:2"]}),
        ),
        (
            "BGPAdvertisement",
            "spec.peers[1]",
            json!({"peers": ["a", "a"]}),
        ),
        (
            "BGPAdvertisement",
            "spec.communities",
            json!({"communities": (0..64).map(|it| format!("1:{it}")).collect::<Vec<_>>()}),
        ),
        (
            "BGPAdvertisement",
            "spec.serviceSelectors",
            json!({"serviceSelectors": [a], "aggregationLength": 24}),
        ),
        (
            "BGPAdvertisement",
            "spec.serviceSelectors",
            json!({"serviceSelectors": [a], "aggregationLengthV6": 64}),
        ),
        (
            "Community",
            "spec.communities[1]",
            json!({"communities": [{"name": "a", "value": "1:2"}, {"name": "a", "value": "1:3"}]}),
        ),
        ("BGPPeer", "spec.myASN", peer(json!({"myASN": null}))),
        ("BGPPeer", "spec.myASN", peer(json!({"myASN": 0}))),
        (
            "BGPPeer",
            "spec.myASN",
            peer(json!({"myASN": 4_294_967_296_u64})),
        ),
        ("BGPPeer", "spec.peerASN", peer(json!({"peerASN": null}))),
        ("BGPPeer", "spec.peerASN", peer(json!({"peerASN": 0}))),
        (
            "BGPPeer",
            "spec.peerASN",
            peer(json!({"dynamicASN": "internal"})),
        ),
        (
            "BGPPeer",
            "spec.dynamicASN",
            peer(json!({"peerASN": null, "dynamicASN": "both"})),
        ),
        ("BGPPeer", "spec.localASN", peer(json!({"localASN": 0}))),
        (
            "BGPPeer",
            "spec.peerAddress",
            peer(json!({"peerAddress": null})),
        ),
        (
            "BGPPeer",
            "spec.peerAddress",
            peer(json!({"interface": "eth0"})),
        ),
        (
            "BGPPeer",
            "spec.peerAddress",
            peer(json!({"peerAddress": "router"})),
        ),
        (
            "BGPPeer",
            "spec.sourceAddress",
            peer(json!({"sourceAddress": "10.0.0.256"})),
        ),
        ("BGPPeer", "spec.peerPort", peer(json!({"peerPort": 0}))),
        ("BGPPeer", "spec.peerPort", peer(json!({"peerPort": 16385}))),
        ("BGPPeer", "spec.holdTime", peer(json!({"holdTime": "2s"}))),
        (
            "BGPPeer",
            "spec.holdTime",
            peer(json!({"holdTime": "soon"})),
        ),
        (
            "BGPPeer",
            "spec.keepaliveTime",
            peer(json!({"keepaliveTime": "-1s"})),
        ),
        (
            "BGPPeer",
            "spec.keepaliveTime",
            peer(json!({"holdTime": "9s", "keepaliveTime": "10s"})),
        ),
        (
            "BGPPeer",
            "spec.connectTime",
            peer(json!({"connectTime": "0s"})),
        ),
        (
            "BGPPeer",
            "spec.connectTime",
            peer(json!({"connectTime": "1500ms"})),
        ),
        (
            "BGPPeer",
            "spec.connectTime",
            peer(json!({"connectTime": "65536s"})),
        ),
        (
            "BGPPeer",
            "spec.routerID",
            peer(json!({"routerID": "2001:db8::1"})),
        ),
        (
            "BGPPeer",
            "spec.password",
            peer(json!({"password": "p", "passwordSecret": {"name": "s"}})),
        ),
        (
            "BGPPeer",
            "spec.ebgpMultiHop",
            peer(json!({"peerASN": 1, "ebgpMultiHop": true})),
        ),
        (
            "BFDProfile",
            "spec.receiveInterval",
            json!({"receiveInterval": 9}),
        ),
        (
            "BFDProfile",
            "spec.transmitInterval",
            json!({"transmitInterval": 60001}),
        ),
        (
            "BFDProfile",
            "spec.echoInterval",
            json!({"echoInterval": 9}),
        ),
        (
            "BFDProfile",
            "spec.detectMultiplier",
            json!({"detectMultiplier": 1}),
        ),
        (
            "BFDProfile",
            "spec.detectMultiplier",
            json!({"detectMultiplier": 256}),
        ),
        ("BFDProfile", "spec.minimumTtl", json!({"minimumTtl": 0})),
        ("BFDProfile", "spec.minimumTtl", json!({"minimumTtl": 255})),
    ];
    for range in [
        "192.0.2.1",
        "192.0.2.0/33",
        "192.0.2.0/",
        "2001:db8::/129",
        "192.0.2.1-",
        "192.0.2.1-192.0.2.2-192.0.2.3",
        "192.0.2.1-2001:db8::1",
        "192.0.2.300-192.0.2.301",
        "example.org/24",
        "",
    ] {
        all.push((
            "IPAddressPool",
            "spec.addresses[1]",
            pool(json!(["192.0.2.0/28", range])),
        ));
    }
    for expression in [
        json!({"key": "a", "operator": "In"}),
        json!({"key": "a", "operator": "NotIn", "values": []}),
        json!({"key": "a", "operator": "Exists", "values": ["b"]}),
        json!({"key": "a", "operator": "Equals", "values": ["b"]}),
        json!({"key": "", "operator": "Exists"}),
        json!({"key": "a", "operator": "In", "values": ["b", "b"]}),
    ] {
        for field in [
            "ipAddressPoolSelectors",
            "nodeSelectors",
            "serviceSelectors",
        ] {
            let mut spec = json!({});
            spec[field] = matching(expression.clone());
            let place = match field {
                "ipAddressPoolSelectors" => "spec.ipAddressPoolSelectors[0].matchExpressions[0]",
                "nodeSelectors" => "spec.nodeSelectors[0].matchExpressions[0]",
                _ => "spec.serviceSelectors[0].matchExpressions[0]",
            };
            all.push(("L2Advertisement", place, spec));
        }
    }
    for value in [
        "99999999:1",
        "lar:123:9999:123",
        "large:1:2",
        "large:1:2:4294967296",
        "1:65536",
        "1",
        "",
        "-1:2",
        "99999999999999999999:1",
    ] {
        let spec = json!({"communities": [{"name": "a", "value": value}]});
        all.push(("Community", "spec.communities[0].value", spec));
    }
    all
}

#[tokio::test]
async fn what_an_object_alone_shows_to_be_wrong_is_refused_with_the_field() {
    let cluster = defined().await;
    let mut admitted = Vec::new();
    for (kind, field, spec) in invalid() {
        match create(&cluster, &object(kind, "bad", &spec)).await {
            Ok(_) => admitted.push(format!("{kind} {spec}: admitted")),
            Err(error) if error.contains(field) => {}
            Err(error) => admitted.push(format!("{kind} {spec}: {error}")),
        }
    }
    assert!(admitted.is_empty(), "{}", admitted.join("\n"));
    // The messages say what would be right.
    for (value, word) in [
        (
            "99999999:1",
            "invalid community value: a section of A:B is above 65535",
        ),
        ("lar:123:9999:123", "large:A:B:C"),
    ] {
        let spec = json!({"communities": [{"name": "a", "value": value}]});
        let error = create(&cluster, &object("Community", "bad", &spec))
            .await
            .unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[tokio::test]
async fn what_may_not_change_can_t_be_changed() {
    let cluster = defined().await;
    let kubectl = cluster.kubectl();
    let mut peer = object(
        "BGPPeer",
        "fixed",
        &json!({"myASN": 1, "peerASN": 2,
        "peerAddress": "192.0.2.1", "enableGracefulRestart": true}),
    );
    create(&cluster, &peer).await.unwrap();
    peer["spec"]["enableGracefulRestart"] = json!(false);
    let refused = kubectl
        .apply(&peer.to_string())
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("spec.enableGracefulRestart"), "{refused}");

    create(&cluster, &object("ServiceL2Status", "l2-x", &json!({})))
        .await
        .unwrap();
    let patch = |status: Value| json!({"status": status}).to_string();
    let write = |text: String| async move {
        let patch = [
            "patch",
            "servicel2status",
            "l2-x",
            "--subresource=status",
            "--type=merge",
        ];
        kubectl
            .run(&[&patch[..], &["-p", &text]].concat())
            .await
            .map_err(|it| it.to_string())
    };
    let status = json!({"node": "n1", "serviceName": "web", "serviceNamespace": "shop",
        "interfaces": [{"name": "eth0"}]});
    write(patch(status.clone())).await.unwrap();
    let object = kubectl.get(&["servicel2status", "l2-x"]).await.unwrap();
    assert_eq!(object["status"], status);
    for field in ["node", "serviceName", "serviceNamespace"] {
        let refused = write(patch(json!({field: "other"}))).await.unwrap_err();
        assert!(refused.contains(&format!("status.{field}")), "{refused}");
    }
    write(patch(json!({"interfaces": []}))).await.unwrap();

    // A speaker creates it together with its status.
    let mut whole = self::object("ServiceL2Status", "l2-y", &json!({}));
    whole["apiVersion"] = json!("metallb.io/v1alpha1");
    whole["status"] = status.clone();
    create(&cluster, &whole).await.unwrap();
    let asked = ["servicel2statuses.v1beta1.metallb.io", "l2-y"];
    let object = kubectl.get(&asked).await.unwrap();
    assert_eq!(object["status"], status);
}

#[tokio::test]
async fn a_peer_in_the_older_version_is_the_same_object_with_all_of_its_fields() {
    let cluster = defined().await;
    let (_, full) = full()
        .into_iter()
        .find(|(kind, _)| *kind == "BGPPeer")
        .unwrap();
    create(&cluster, &object("BGPPeer", "new", &full))
        .await
        .unwrap();
    let older = spec(&cluster, "bgppeers.v1beta1.metallb.io", "new").await;
    assert_eq!(older, full);
    let least = json!({"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1"});
    let mut old = object("BGPPeer", "old", &least);
    old["apiVersion"] = json!("metallb.io/v1beta1");
    create(&cluster, &old).await.unwrap();
    let newer = spec(&cluster, "bgppeers.v1beta2.metallb.io", "old").await;
    assert_eq!(newer["peerAddress"], "192.0.2.1");
    assert_eq!(newer["peerPort"], 179);
    // It names what is deprecated, and asks for what the older version needs.
    let text = old.to_string().replace("\"old\"", "\"old2\"");
    let create_warning = ["create", "--warnings-as-errors", "-f", "-"];
    let warned = cluster.kubectl().run_with(&create_warning, &text).await;
    assert!(warned.unwrap_err().to_string().contains("warning"));
    old["spec"].as_object_mut().unwrap().remove("peerAddress");
    old["metadata"]["name"] = json!("without");
    let refused = create(&cluster, &old).await.unwrap_err();
    assert!(refused.contains("spec.peerAddress"), "{refused}");
}

/// Definitions as MetalLB has them, as far as that can lose anything: without our rules, and with
/// a webhook that converts.
fn predecessor() -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in [
                    "x-kubernetes-validations",
                    "x-kubernetes-list-type",
                    "x-kubernetes-list-map-keys",
                    "oneOf",
                    "minItems",
                    "maxItems",
                    "maxLength",
                    "minLength",
                    "conditions",
                ] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut text = String::new();
    for object in deployed("crds").all() {
        let mut object = object.clone();
        strip(&mut object["spec"]["versions"]);
        object["metadata"].as_object_mut().unwrap().remove("labels");
        object["spec"].as_object_mut().unwrap().remove("conversion");
        if object["metadata"]["name"] == "bgppeers.metallb.io" {
            object["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1beta1", "v1beta2"],
                    "clientConfig": {"service": {"namespace": "metallb-system",
                        "name": "metallb-webhook-service", "path": "/convert"}},
                },
            });
        }
        let _ = write!(text, "---\n{object}\n");
    }
    text
}

#[tokio::test]
async fn in_the_place_of_metallbs_definitions_no_object_loses_a_field() {
    // By kubectl apply, and by a program that leaves no annotation, as Helm does.
    for first in [["apply", "-f", "-"], ["create", "-f", "-"]] {
        let cluster = Cluster::start(Options::default()).await.unwrap();
        let kubectl = cluster.kubectl();
        kubectl.run_with(&first, &predecessor()).await.unwrap();
        established(&cluster).await;
        for (kind, full) in full() {
            create(&cluster, &object(kind, "full", &full))
                .await
                .unwrap();
        }
        let apply = ["apply", "-f", "-"];
        let text = read(&root(), CRDS).unwrap();
        for _ in 0..2 {
            kubectl.run_with(&apply, &text).await.unwrap();
        }
        established(&cluster).await;
        let crd = kubectl.get(&["crd", "bgppeers.metallb.io"]).await.unwrap();
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        for (kind, full) in full() {
            assert_eq!(spec(&cluster, kind, "full").await, full, "{kind}");
            // It can be written again as it is.
            let label = ["label", kind, "full", "touched=true"];
            kubectl.run(&label).await.unwrap();
            assert_eq!(spec(&cluster, kind, "full").await, full, "{kind}");
        }
    }
}
