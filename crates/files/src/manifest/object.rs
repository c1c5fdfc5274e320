//! An object of a manifest as a row, and what distinguishes it from others.

use std::fmt;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::kinds::ObjectKind as Kind;
use landfall_model::rows::{
    NamespaceRow, NodeRow, PoolRow, ResourceKind, ResourceRow, SecretRow, ServiceRow, SliceRow,
};

/// The identity of an object. Ordered as facts are sent: what others depend on comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectKey {
    Namespace(Arc<str>),
    Pool(String),
    /// Of another kind than pools.
    Resource(ResourceKind, ServiceKey),
    Node(Arc<str>),
    Secret(ServiceKey),
    Slice(ServiceKey),
    Service(ServiceKey),
}

/// An object as a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Namespace(Arc<NamespaceRow>),
    Pool(Arc<PoolRow>),
    Resource(Arc<ResourceRow>),
    Node(Arc<NodeRow>),
    Secret(Arc<SecretRow>),
    Slice(Arc<SliceRow>),
    Service(Arc<ServiceRow>),
}

// === impl Object ===

impl Object {
    /// Its identity.
    pub(crate) fn key(&self) -> ObjectKey {
        match self {
            Self::Namespace(row) => ObjectKey::Namespace(row.name.clone()),
            Self::Pool(row) => ObjectKey::Pool(row.name.clone()),
            Self::Resource(row) => ObjectKey::Resource(row.kind, row.key.clone()),
            Self::Node(row) => ObjectKey::Node(row.name.clone()),
            Self::Secret(row) => ObjectKey::Secret(row.key.clone()),
            Self::Slice(row) => ObjectKey::Slice(row.key.clone()),
            Self::Service(row) => ObjectKey::Service(row.key.clone()),
        }
    }

    /// Whether both are the very same row in memory: then they need no comparing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Namespace(one), Self::Namespace(two)) => Arc::ptr_eq(one, two),
            (Self::Pool(one), Self::Pool(two)) => Arc::ptr_eq(one, two),
            (Self::Resource(one), Self::Resource(two)) => Arc::ptr_eq(one, two),
            (Self::Node(one), Self::Node(two)) => Arc::ptr_eq(one, two),
            (Self::Secret(one), Self::Secret(two)) => Arc::ptr_eq(one, two),
            (Self::Slice(one), Self::Slice(two)) => Arc::ptr_eq(one, two),
            (Self::Service(one), Self::Service(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name): (Kind, &dyn fmt::Display) = match self {
            Self::Namespace(name) => (Kind::Namespace, name),
            Self::Pool(name) => (Kind::Resource(ResourceKind::IpAddressPool), name),
            Self::Resource(kind, key) => (Kind::Resource(*kind), key),
            Self::Node(name) => (Kind::Node, name),
            Self::Secret(key) => (Kind::Secret, key),
            Self::Slice(key) => (Kind::Slice, key),
            Self::Service(key) => (Kind::Service, key),
        };
        write!(f, "{} {name}", kind.row().name)
    }
}
