//! What is watched, and how an object of each kind becomes a fact: pure.

use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::dialect::DIALECTS;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::wire::{self, ObjectMeta, SERVICE_NAME_LABEL};
use serde::Deserialize;
use serde::de::DeserializeOwned;

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
    /// MetalLB's address pools in one namespace, where that kind exists.
    Pools { namespace: String },
    /// One Secret.
    Secret(ServiceKey),
}

/// One object, judged.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: ServiceKey,
    pub(crate) version: Version,
    /// Its `resourceVersion` as written: a watch can go on from there.
    pub(crate) resume_from: String,
    pub(crate) outcome: Outcome,
}

/// A `resourceVersion`, only good for telling whether two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// What an object comes down to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A fact.
    Row(Fact),
    /// Nothing that anybody here wants to know.
    Nothing,
    /// It can't be judged.
    Refused(Vec<Reason>),
}

// === impl Kind ===

impl Kind {
    /// Kubernetes' name of the kind, for paths, rights and messages.
    pub(crate) fn resource(&self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Slices => "endpointslices.discovery.k8s.io",
            Self::Nodes => "nodes",
            Self::Namespaces => "namespaces",
            Self::Pools { .. } => "ipaddresspools.metallb.io",
            Self::Secret(_) => "secrets",
        }
    }

    /// The collection's path, with what narrows it down; ready for more parameters.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Services => "/api/v1/services?".to_owned(),
            Self::Slices => {
                let label = SERVICE_NAME_LABEL.replace('/', "%2F");
                format!("/apis/discovery.k8s.io/v1/endpointslices?labelSelector={label}&")
            }
            Self::Nodes => "/api/v1/nodes?".to_owned(),
            Self::Namespaces => "/api/v1/namespaces?".to_owned(),
            Self::Pools { namespace } => {
                format!("/apis/metallb.io/v1beta1/namespaces/{namespace}/ipaddresspools?")
            }
            Self::Secret(key) => format!(
                "/api/v1/namespaces/{}/secrets?fieldSelector=metadata.name%3D{}&",
                key.namespace(),
                key.name()
            ),
        }
    }

    /// Whether the program can do without it, where it may not read it or it does not exist.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self, Self::Pools { .. } | Self::Secret(_))
    }

    /// The fact that an object is gone.
    pub(crate) fn gone(&self, key: &ServiceKey) -> Fact {
        match self {
            Self::Services => Fact::ServiceGone(key.clone()),
            Self::Slices => Fact::SliceGone(key.clone()),
            Self::Nodes => Fact::NodeGone(key.name().into()),
            Self::Namespaces => Fact::NamespaceGone(key.name().into()),
            Self::Pools { .. } => Fact::PoolGone(key.name().to_owned()),
            Self::Secret(_) => Fact::SecretGone(key.clone()),
        }
    }

    /// The fact that pools may be missing because of what is told of a part; `None` for other kinds.
    pub(crate) fn doubt(&self, part: &Arc<str>, in_doubt: bool) -> Option<Fact> {
        matches!(self, Self::Pools { .. }).then(|| Fact::PoolsInDoubt {
            part: part.clone(),
            in_doubt,
        })
    }

    /// How an object is named where its problems are told.
    pub(crate) fn part(&self, key: &ServiceKey) -> Arc<str> {
        let noun = match self {
            Self::Services => "Service",
            Self::Slices => "EndpointSlice",
            Self::Nodes => "Node",
            Self::Namespaces => "Namespace",
            Self::Pools { .. } => "IPAddressPool",
            Self::Secret(_) => "Secret",
        };
        if key.namespace().is_empty() {
            format!("{noun} {}", key.name()).into()
        } else {
            format!("{noun} {key}").into()
        }
    }

    /// Judges one object as the API server sent it.
    pub(crate) fn judge(&self, json: &str) -> Result<Object, serde_json::Error> {
        match self {
            Self::Services => judge(
                json,
                |it: &wire::Service| &it.metadata,
                |it| it.into_row().map(service),
            ),
            Self::Slices => judge(
                json,
                |it: &wire::EndpointSlice| &it.metadata,
                |it| {
                    it.into_row()
                        .map(|row| Outcome::Row(Fact::Slice(Arc::new(row))))
                },
            ),
            Self::Nodes => judge(
                json,
                |it: &wire::Node| &it.metadata,
                |it| {
                    it.into_row()
                        .map(|row| Outcome::Row(Fact::Node(Arc::new(row))))
                },
            ),
            Self::Namespaces => judge(
                json,
                |it: &wire::Namespace| &it.metadata,
                |it| {
                    it.into_row().map(|mut row| {
                        keep_ours(&mut row.annotations);
                        Outcome::Row(Fact::Namespace(Arc::new(row)))
                    })
                },
            ),
            Self::Pools { .. } => judge(
                json,
                |it: &wire::IpAddressPool| &it.metadata,
                |it| {
                    it.into_row()
                        .map(|row| Outcome::Row(Fact::Pool(Arc::new(row))))
                },
            ),
            Self::Secret(_) => judge(
                json,
                |it: &wire::Secret| &it.metadata,
                |it| {
                    it.into_row()
                        .map(|row| Outcome::Row(Fact::Secret(Arc::new(row))))
                },
            ),
        }
    }
}

fn judge<T: DeserializeOwned>(
    json: &str,
    metadata: impl FnOnce(&T) -> &ObjectMeta,
    into_outcome: impl FnOnce(T) -> Result<Outcome, Vec<Reason>>,
) -> Result<Object, serde_json::Error> {
    #[derive(Deserialize)]
    struct Nameable {
        metadata: ObjectMeta,
    }
    match serde_json::from_str::<T>(json) {
        Ok(shape) => {
            let object = unjudged(metadata(&shape))?;
            let outcome = into_outcome(shape).unwrap_or_else(Outcome::Refused);
            // One text for everybody who remembers the object.
            let key = match &outcome {
                Outcome::Row(Fact::Service(row)) => row.key.clone(),
                Outcome::Row(Fact::Slice(row)) => row.key.clone(),
                _ => object.key,
            };
            Ok(Object {
                key,
                outcome,
                ..object
            })
        }
        // A field of a type that no API server lets through for its own kinds, but may for others.
        Err(error) => {
            let Nameable { metadata } = serde_json::from_str(json)?;
            let reason = Reason::error(landfall_model::Code::InvalidManifest, error.to_string());
            Ok(Object {
                outcome: Outcome::Refused(vec![reason]),
                ..unjudged(&metadata)?
            })
        }
    }
}

/// What the metadata says of an object that is yet to be judged.
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
    })
}

/// Services that want no load balancer and hold none are most of a cluster's, and nobody's business
/// here. Who holds one has the finalizer, or conditions of ours that are still to be taken away.
fn service(mut row: ServiceRow) -> Outcome {
    let held = row.finalized || !row.status.conditions.is_empty();
    if !row.wants_load_balancer && !held {
        return Outcome::Nothing;
    }
    keep_ours(&mut row.annotations);
    Outcome::Row(Fact::Service(Arc::new(row)))
}

/// Annotations of other programs can be large (kubectl keeps whole manifests there), and no dialect
/// reads them.
fn keep_ours(annotations: &mut std::collections::BTreeMap<String, String>) {
    annotations.retain(|key, _| {
        DIALECTS
            .iter()
            .any(|dialect| key.starts_with(dialect.prefix))
    });
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
    use super::*;

    fn service(spec: &str, more: &str) -> Object {
        let json = format!(
            r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "annotations": {{"landfall.dev/drain": "5s", "kubectl.kubernetes.io/last-applied-configuration": "{{}}"}}
                {more}}}, "spec": {spec}}}"#
        );
        Kind::Services.judge(&json).unwrap()
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
    fn a_service_that_neither_wants_nor_holds_a_load_balancer_is_nothing() {
        let spec = r#"{"type": "ClusterIP", "ports": [{"port": 80}]}"#;
        assert!(matches!(service(spec, "").outcome, Outcome::Nothing));
        let held = r#", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]"#;
        assert!(matches!(service(spec, held).outcome, Outcome::Row(_)));
    }

    #[test]
    fn an_object_with_a_field_of_a_wrong_type_is_refused_by_name() {
        let object = service(r#"{"type": "LoadBalancer", "ports": "none"}"#, "");
        assert_eq!(object.key, ServiceKey::new("shop", "web"));
        let Outcome::Refused(reasons) = object.outcome else {
            panic!("not refused")
        };
        assert_eq!(reasons.len(), 1);
        assert!(Kind::Services.judge("[]").is_err());
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
