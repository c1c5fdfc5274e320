//! What is watched, and how an object of each kind becomes a fact: pure.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::kinds::{ObjectKind, Watched, WatchedKind};
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, PoolRow, ResourceKind, ResourceRow, ServiceRow};
use landfall_model::wire::{self, ObjectMeta};
use landfall_model::{ServiceKey, dialect};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of object that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Services of every namespace.
    Services,
    /// Slices that belong to a Service.
    Slices,
    /// Nodes.
    Nodes,
    /// Namespaces.
    Namespaces,
    /// The custom resources of a kind in one namespace, where that kind exists.
    Resources {
        kind: ResourceKind,
        namespace: String,
    },
    /// One Secret.
    Secret(ServiceKey),
}

/// One object, validated.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: ServiceKey,
    pub(crate) version: Version,
    /// Its `resourceVersion` as written: a watch can go on from there.
    pub(crate) resume_from: String,
    pub(crate) outcome: Outcome,
    /// What was left out of the fact because it can't be read.
    pub(crate) left_out: Vec<Reason>,
    /// The cluster IPs of a Service, whatever comes of it; `None`: they stay as they were.
    pub(crate) cluster_ips: Option<Box<[IpAddr]>>,
}

/// A `resourceVersion`, which only shows whether two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// What an object comes down to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A fact.
    Row(Fact),
    /// Nothing that is needed here.
    Nothing,
    /// It can't be validated.
    Refused(Vec<Reason>),
}

// === impl Kind ===

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(key) => write!(f, "Secret {key}"),
            other => f.write_str(&other.resource()),
        }
    }
}

impl Kind {
    /// Returns the row of the table of kinds.
    pub(crate) fn row(&self) -> WatchedKind {
        let kind = match self {
            Self::Services => ObjectKind::Service,
            Self::Slices => ObjectKind::Slice,
            Self::Nodes => ObjectKind::Node,
            Self::Namespaces => ObjectKind::Namespace,
            Self::Resources { kind, .. } => ObjectKind::Resource(*kind),
            Self::Secret(_) => ObjectKind::Secret,
        };
        kind.row()
    }

    /// Returns Kubernetes' name of the kind, for messages.
    pub(crate) fn resource(&self) -> String {
        self.row().full_resource()
    }

    /// Returns the path of the collection, with what selects its objects; ready for more
    /// parameters.
    pub(crate) fn path(&self) -> String {
        let row = self.row();
        let (namespace, name) = match self {
            Self::Resources { namespace, .. } => (Some(namespace.as_str()), None),
            Self::Secret(key) => (Some(key.namespace()), Some(key.name())),
            Self::Services | Self::Slices | Self::Nodes | Self::Namespaces => (None, None),
        };
        let mut path = format!("{}?", row.path(namespace));
        if let Some(label) = row.label {
            let _ = write!(path, "labelSelector={}&", label.replace('/', "%2F"));
        }
        if let Some(name) = name {
            let _ = write!(path, "fieldSelector=metadata.name%3D{name}&");
        }
        path
    }

    /// Returns whether the program works without it, where it may not read it or it does not exist.
    pub(crate) fn is_optional(&self) -> bool {
        self.row().watched != Watched::All
    }

    /// Returns the fact that an object is gone.
    pub(crate) fn gone(&self, key: &ServiceKey) -> Fact {
        (self.row().gone)(key)
    }

    /// The fact that pools may be missing because of what is known of a part; `None` for other
    /// kinds.
    pub(crate) fn incomplete(&self, part: &Arc<str>, incomplete: bool) -> Option<Fact> {
        self.is_pools().then(|| Fact::PoolsIncomplete {
            part: part.clone(),
            incomplete,
        })
    }

    /// Returns whether these are address pools.
    pub(crate) fn is_pools(&self) -> bool {
        let pools = ResourceKind::IpAddressPool;
        matches!(self, Self::Resources { kind, .. } if *kind == pools)
    }

    /// Returns the name of an object in its problems.
    pub(crate) fn part(&self, key: &ServiceKey) -> Arc<str> {
        self.row().named(key).into()
    }

    /// Validates one object as the API server sent it.
    pub(crate) fn validate(&self, json: &str) -> Result<Object, serde_json::Error> {
        let whole = |fact: Fact| Ok((Outcome::Row(fact), Vec::new()));
        match self {
            Self::Services => {
                let mut cluster_ips = None;
                let object = validate(
                    json,
                    |it: &wire::Service| &it.metadata,
                    |it| {
                        cluster_ips = Some(it.cluster_ips());
                        Ok((service(it.into_admitted_row()), Vec::new()))
                    },
                    |object| wire::Service::salvage(object).map_or_else(Outcome::Refused, service),
                )?;
                Ok(Object {
                    cluster_ips,
                    ..object
                })
            }
            Self::Slices => validate(
                json,
                |it: &wire::EndpointSlice| &it.metadata,
                |it| {
                    let (row, left_out) = it.into_admitted_row()?;
                    Ok((Outcome::Row(Fact::Slice(Arc::new(row))), left_out))
                },
                unreadable,
            ),
            Self::Nodes => validate(
                json,
                |it: &wire::Node| &it.metadata,
                |it| {
                    let (row, left_out) = it.into_admitted_row();
                    Ok((Outcome::Row(Fact::Node(Arc::new(row))), left_out))
                },
                unreadable,
            ),
            Self::Namespaces => validate(
                json,
                |it: &wire::Namespace| &it.metadata,
                |it| {
                    let mut row = it.into_admitted_row();
                    keep_ours(&mut row.annotations);
                    whole(Fact::Namespace(Arc::new(row)))
                },
                unreadable,
            ),
            Self::Resources {
                kind: kind @ ResourceKind::IpAddressPool,
                ..
            } => validate(
                json,
                |it: &wire::IpAddressPool| &it.metadata,
                |it| {
                    let object = serde_json::from_str(json).ok();
                    let resource = object.map(|it| Arc::new(resource(it, *kind)));
                    whole(Fact::Pool(Arc::new(PoolRow {
                        resource,
                        ..it.into_admitted_row()
                    })))
                },
                unreadable,
            ),
            Self::Resources { kind, .. } => validate(
                json,
                |it: &wire::Resource| &it.metadata,
                |it| whole(Fact::Resource(Arc::new(resource(it, *kind)))),
                unreadable,
            ),
            Self::Secret(_) => validate(
                json,
                |it: &wire::Secret| &it.metadata,
                |it| whole(Fact::Secret(Arc::new(it.into_admitted_row()))),
                unreadable,
            ),
        }
    }
}

/// A row (or nothing of interest), and what was left out of it.
type Read = Result<(Outcome, Vec<Reason>), Vec<Reason>>;

/// Validates one object; `salvage` does it where the object has not the shape that its kind
/// promises.
fn validate<T: DeserializeOwned>(
    json: &str,
    metadata: impl FnOnce(&T) -> &ObjectMeta,
    read: impl FnOnce(T) -> Read,
    salvage: impl FnOnce(Value) -> Outcome,
) -> Result<Object, serde_json::Error> {
    match serde_json::from_str::<T>(json) {
        Ok(shape) => {
            let object = unjudged(metadata(&shape))?;
            let (outcome, left_out) =
                read(shape).unwrap_or_else(|reasons| (Outcome::Refused(reasons), Vec::new()));
            // One text for all that hold the object.
            let key = match &outcome {
                Outcome::Row(Fact::Service(row)) => row.key.clone(),
                Outcome::Row(Fact::Slice(row)) => row.key.clone(),
                _ => object.key,
            };
            Ok(Object {
                key,
                outcome,
                left_out,
                ..object
            })
        }
        // A field of a type that no API server lets through for its own kinds, but may for others.
        Err(error) => {
            let object: Value = serde_json::from_str(json)?;
            let text = |field| object["metadata"][field].as_str().map(str::to_owned);
            let metadata = ObjectMeta {
                name: text("name"),
                namespace: text("namespace"),
                resource_version: text("resourceVersion"),
                ..ObjectMeta::default()
            };
            let named = unjudged(&metadata)?;
            let outcome = match salvage(object) {
                Outcome::Refused(reasons) if reasons.is_empty() => {
                    let code = landfall_model::Code::InvalidManifest;
                    Outcome::Refused(vec![Reason::error(code, error.to_string())])
                }
                outcome => outcome,
            };
            Ok(Object { outcome, ..named })
        }
    }
}

/// Returns that nothing can be made of an object, for the reason that its shape is wrong.
fn unreadable(_: Value) -> Outcome {
    Outcome::Refused(Vec::new())
}

/// What the metadata says of an object that is yet to be validated.
fn unjudged(metadata: &ObjectMeta) -> Result<Object, serde_json::Error> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let Some(name) = metadata.name.as_deref() else {
        return Err(serde::de::Error::custom("the object has no name"));
    };
    let resume_from = metadata.resource_version.clone().unwrap_or_default();
    Ok(Object {
        key: ServiceKey::new(namespace, name),
        version: Version::of(&resume_from),
        resume_from,
        outcome: Outcome::Nothing,
        left_out: Vec::new(),
        cluster_ips: None,
    })
}

/// Services that want no load balancer and hold none are most of a cluster's, and irrelevant
/// here. One that holds one has the finalizer, or conditions of ours that are still to be removed.
fn service(mut row: ServiceRow) -> Outcome {
    let held = row.finalized || !row.status.conditions.is_empty();
    if !row.wants_load_balancer && !held {
        return Outcome::Nothing;
    }
    keep_ours(&mut row.annotations);
    Outcome::Row(Fact::Service(Arc::new(row)))
}

fn resource(object: wire::Resource, kind: ResourceKind) -> ResourceRow {
    let mut row = object.into_admitted_row(kind);
    keep_ours(&mut row.annotations);
    row
}

/// Annotations of other programs can be large (kubectl keeps whole manifests there), and no dialect
/// reads them.
fn keep_ours(annotations: &mut std::collections::BTreeMap<String, String>) {
    annotations.retain(|key, _| dialect::concerns(key));
}

// === impl Version ===

impl Version {
    pub(crate) fn of(text: &str) -> Self {
        use std::hash::{Hash as _, Hasher as _};
        // Numbers, as all API servers have it; anything else is no less good at being different.
        Self(text.parse().unwrap_or_else(|_| {
            let mut hasher = std::hash::DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(spec: &str, more: &str) -> Object {
        let json = format!(
            r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u",
                "resourceVersion": "7", "annotations": {{"landfall.dev/drain": "5s",
                "kubectl.kubernetes.io/last-applied-configuration": "{{}}"}}
                {more}}}, "spec": {spec}}}"#
        );
        Kind::Services.validate(&json).unwrap()
    }

    #[test]
    fn a_service_keeps_the_annotations_that_a_dialect_reads() {
        let object = service(r#"{"type": "LoadBalancer", "ports": [{"port": 80}]}"#, "");
        assert_eq!(
            (object.key, object.version),
            (ServiceKey::new("shop", "web"), Version::of("7"))
        );
        let Outcome::Row(Fact::Service(row)) = object.outcome else {
            panic!("no row")
        };
        assert_eq!(
            row.annotations.keys().collect::<Vec<_>>(),
            ["landfall.dev/drain"]
        );
    }

    #[test]
    fn annotations_that_no_dialect_reads_take_no_memory() {
        let spec = r#"{"type": "LoadBalancer", "ports": [{"port": 80}]}"#;
        let long = "x".repeat(80 << 10);
        let json = format!(
            r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u", "annotations": {{
                "landfall.dev/drain": "5s", "example.org/note": "{long}",
                "service.beta.kubernetes.io/aws-load-balancer-attributes": "{long}",
                "state.landfall.dev/load-balancer": "{long}"}}}}, "spec": {spec}}}"#
        );
        let read = row(Kind::Services.validate(&json).unwrap());
        let bare = row(service(spec, ""));
        assert_eq!(read.annotations, bare.annotations);
        assert_eq!(read.status, bare.status);
        let size = |row: &ServiceRow| landfall_model::rows::PackedService::of(row).size();
        assert!(size(&read) <= size(&bare));
    }

    #[test]
    fn a_service_that_neither_wants_nor_holds_a_load_balancer_is_nothing() {
        let spec = r#"{"type": "ClusterIP", "ports": [{"port": 80}]}"#;
        assert!(matches!(service(spec, "").outcome, Outcome::Nothing));
        let held = r#", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]"#;
        assert!(matches!(service(spec, held).outcome, Outcome::Row(_)));
    }

    #[test]
    fn cluster_ips_of_a_service_are_known_although_it_wants_no_load_balancer() {
        let cluster_ips = |spec| service(spec, "").cluster_ips.unwrap();
        let assigned = [IpAddr::from([10, 96, 0, 7])];
        let spec = r#"{"clusterIP": "10.96.0.7", "ports": [{"port": 53, "protocol": "UDP"}]}"#;
        assert_eq!(*cluster_ips(spec), assigned);
        assert!(cluster_ips(r#"{"type": "ExternalName"}"#).is_empty());
        // Of a shape that is wrong elsewhere nothing is known, and they stay as they were.
        let spec = r#"{"clusterIP": "10.96.0.7", "ports": 7}"#;
        assert_eq!(service(spec, "").cluster_ips, None);
    }

    fn row(object: Object) -> ServiceRow {
        match object.outcome {
            Outcome::Row(Fact::Service(row)) => ServiceRow::clone(&row),
            other => panic!("no row: {other:?}"),
        }
    }

    #[test]
    fn what_the_api_server_admits_is_a_row_whatever_our_own_rules_say() {
        // Each of them is an error in a manifest, and nothing that keeps a Service from being read.
        for spec in [
            r#"{"type": "LoadBalancer", "ports": [{"port": 10250}]}"#,
            r#"{"type": "LoadBalancer", "ports": [{"port": 80, "name": "Web_1"}]}"#,
            r#"{"type": "LoadBalancer", "ports": [{"port": 80, "appProtocol": "a b"}]}"#,
            r#"{"type": "LoadBalancer", "ports": [{"port": 80}], "healthCheckNodePort": 31000}"#,
            r#"{"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "a b"}}"#,
            r#"{"type": "LoadBalancer", "ports": [{"port": 80}], "sessionAffinityConfig": {}}"#,
        ] {
            assert_eq!(row(service(spec, "")).faults, [], "{spec}");
        }
        // As the API server fills it in where there are external addresses.
        let spec = r#"{"type": "ClusterIP", "externalIPs": ["192.0.2.1"],
            "externalTrafficPolicy": "Cluster", "ports": [{"port": 80}]}"#;
        assert!(matches!(service(spec, "").outcome, Outcome::Nothing));
        let held = r#", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]"#;
        let row = row(service(spec, held));
        assert!(row.finalized && !row.wants_load_balancer && row.faults.is_empty());
    }

    #[test]
    fn what_cant_be_read_is_a_fault_of_the_service_and_hides_nothing_else() {
        let fields = |row: &ServiceRow| {
            let fields = row.faults.iter().filter_map(|fault| fault.field.clone());
            fields.collect::<Vec<_>>()
        };
        let spec = r#"{"type": "LoadBalancer", "ipFamilies": ["IPv9"],
            "ports": [{"port": 80, "protocol": "QUIC", "name": "a"}, {"port": 81, "name": "b"}]}"#;
        let read = row(service(spec, ""));
        assert_eq!(
            fields(&read),
            ["spec.ports[0].protocol", "spec.ipFamilies[0]"]
        );
        assert_eq!(read.ports.len(), 1);
        let spec = r#"{"type": "LoadBalancer", "ports": [{"port": "none"}, {"port": 81}]}"#;
        let more = r#", "deletionTimestamp": "some day", "labels": {"a": 1, "b": "2"},
            "finalizers": [1, "service.kubernetes.io/load-balancer-cleanup"]"#;
        let read = row(service(spec, more));
        assert_eq!(fields(&read), ["metadata.labels.a", "spec.ports[0]"]);
        assert!(read.deleting && read.finalized && read.wants_load_balancer);
        assert_eq!((read.ports.len(), read.labels.len()), (1, 1));
        assert_eq!(read.uid.as_str(), "u");
    }

    #[test]
    fn a_service_with_an_unreadable_type_or_class_stays_as_it_was_until_it_is_deleted() {
        for spec in [
            r#""LoadBalancer""#,
            r#"{"type": 7}"#,
            r#"{"type": "LoadBalancer", "loadBalancerClass": []}"#,
        ] {
            let object = service(spec, "");
            assert_eq!(object.key, ServiceKey::new("shop", "web"));
            assert!(matches!(object.outcome, Outcome::Refused(_)), "{spec}");
            let leaving = r#", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]"#;
            let row = row(service(spec, leaving));
            assert!(row.deleting && row.finalized && !row.wants_load_balancer);
        }
        assert!(Kind::Services.validate("[]").is_err());
    }

    #[test]
    fn a_node_with_an_entry_that_cant_be_read_is_a_node_without_that_entry() {
        let node = Kind::Nodes.validate(
            r#"{"metadata": {"name": "n1", "resourceVersion": "3"},
                "spec": {"podCIDR": "10.1.0.0/33"},
                "status": {"addresses": [{"type": "InternalIP", "address": "n1"},
                    {"type": "InternalIP", "address": "192.0.2.1"}]}}"#,
        );
        let node = node.unwrap();
        let Outcome::Row(Fact::Node(row)) = node.outcome else {
            panic!("no row")
        };
        assert_eq!(
            row.addresses,
            ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]
        );
        assert_eq!(node.left_out.len(), 2);
    }

    /// A Service with everything, of which we hold something.
    fn full() -> Value {
        serde_json::json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup", "example.com/other"],
                "labels": {"app": "web"}, "annotations": {"landfall.dev/drain": "5s"},
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "landfall.dev/local",
                "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080,
                    "protocol": "TCP", "appProtocol": "http"}],
                "selector": {"app": "web"}, "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 31000, "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "allocateLoadBalancerNodePorts": true, "publishNotReadyAddresses": false,
            },
            "status": {
                "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP",
                    "ports": [{"port": 80, "protocol": "TCP"}]}]},
                "conditions": [{"type": "landfall.dev/Programmed", "status": "True",
                    "reason": "Ready", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        })
    }

    /// The places of an object whose value may be any other one.
    fn places(value: &Value, here: &str, all: &mut Vec<String>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, it)| (key.clone(), it)).collect(),
            Value::Array(list) => (0..)
                .zip(list)
                .map(|(at, it): (u32, _)| (at.to_string(), it))
                .collect(),
            _ => Vec::new(),
        };
        for (key, child) in children {
            let place = format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
            all.push(place.clone());
            places(child, &place, all);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        proptest::sample::select(vec![
            serde_json::json!(null),
            serde_json::json!(true),
            serde_json::json!(-1),
            serde_json::json!(10250),
            serde_json::json!(1e300),
            serde_json::json!(""),
            serde_json::json!("ClusterIP"),
            serde_json::json!("\u{0}é"),
            serde_json::json!([]),
            serde_json::json!([null, 1, "x", {}]),
            serde_json::json!({}),
            serde_json::json!({"x": {"y": []}}),
        ])
    }

    proptest! {
        /// Whatever stands in an object that we hold something of, it is not lost, and it can be
        /// let go of.
        #[test]
        fn no_service_is_lost_and_each_can_be_let_go_of(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any_value()),
                1..6),
            leaving: bool,
        ) {
            let mut object = full();
            let mut all = Vec::new();
            places(&object, "", &mut all);
            // Its identity, and that it is being deleted, are the API server's own.
            all.retain(|place| !matches!(place.as_str(), "/metadata" | "/metadata/name"
                | "/metadata/namespace" | "/metadata/deletionTimestamp" | "/metadata/finalizers"
                | "/metadata/finalizers/0"));
            for (place, value) in changes {
                if let Some(there) = object.pointer_mut(place.get(&all[..]).as_str()) {
                    *there = value;
                }
            }
            if !leaving {
                object["metadata"]["deletionTimestamp"] = Value::Null;
            }
            let validated = Kind::Services.validate(&object.to_string()).unwrap();
            prop_assert_eq!(&validated.key, &ServiceKey::new("shop", "web"));
            match validated.outcome {
                Outcome::Row(Fact::Service(row)) => {
                    prop_assert!(row.finalized);
                    prop_assert_eq!(row.deleting, leaving);
                }
                // What was known of it goes on to hold.
                Outcome::Refused(reasons) => prop_assert!(!leaving && !reasons.is_empty()),
                other => prop_assert!(false, "lost: {:?}", other),
            }
        }
    }

    #[test]
    fn a_resource_is_one_fact_with_its_spec_as_written() {
        let validate = |kind, spec: Value| {
            let object = serde_json::json!({
                "apiVersion": "metallb.io/v1beta1",
                "metadata": {"name": "edge", "namespace": "system", "resourceVersion": "3",
                    "annotations": {"landfall.dev/share-across-namespaces": "true",
                        "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
                "spec": spec.clone(),
            });
            let kind = Kind::Resources {
                kind,
                namespace: "system".to_owned(),
            };
            let outcome = kind.validate(&object.to_string()).unwrap().outcome;
            let row = match outcome {
                Outcome::Row(Fact::Pool(row)) => {
                    assert!(row.share_across_namespaces);
                    row.resource.clone().unwrap()
                }
                Outcome::Row(Fact::Resource(row)) => row,
                other => panic!("{other:?}"),
            };
            assert_eq!((&row.spec, row.key.name()), (&spec, "edge"));
            assert_eq!(row.annotations.len(), 1);
            row.kind
        };
        for kind in ResourceKind::ALL {
            let spec =
                serde_json::json!({"addresses": ["192.0.2.0/24"], "later": [1, {"x": null}]});
            assert_eq!(validate(kind, spec), kind);
        }
    }

    #[test]
    fn selectors_are_part_of_the_path() {
        let path = Kind::Secret(ServiceKey::new("shop", "web-tls")).path();
        assert_eq!(
            path,
            "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Dweb-tls&"
        );
        assert!(
            Kind::Slices
                .path()
                .ends_with("?labelSelector=kubernetes.io%2Fservice-name&")
        );
    }
}
