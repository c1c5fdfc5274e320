//! The table of kinds that are watched: one row per kind of Kubernetes object.
//!
//! Watches, manifests on disk, the check of permissions and the tests of `deploy/` and of the chart
//! read it. A new kind is a row here, a shape in [`crate::wire`], and what the World makes of its
//! fact; the compiler names the places that turn the one into the other.

use crate::ServiceKey;
use crate::rows::{Fact, ResourceKind};
use crate::wire::SERVICE_NAME_LABEL;

/// A kind of object, in the order in which facts are sent: what others depend on comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `Namespace`.
    Namespace,
    /// A custom resource of MetalLB's API group.
    Resource(ResourceKind),
    /// `Node`.
    Node,
    /// `Secret`.
    Secret,
    /// `EndpointSlice`.
    Slice,
    /// `Service`.
    Service,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct WatchedKind {
    /// The name in `kind`.
    pub name: &'static str,
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The API version without the group.
    pub version: &'static str,
    /// Another version that manifests may be written in.
    pub older: Option<&'static str>,
    /// The plural in paths and permissions.
    pub resource: &'static str,
    /// The label that objects must have to be watched.
    pub label: Option<&'static str>,
    /// The permissions that are needed for all of its objects.
    pub verbs: &'static [&'static str],
    /// Which objects are watched.
    pub watched: Watched,
    /// The fact that an object is gone.
    pub gone: fn(&ServiceKey) -> Fact,
}

/// Which objects of a kind are watched, and what happens without the permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All. Without the permission, nothing works.
    All,
    /// All of one namespace, if the kind exists. The rest works without.
    OneNamespace,
    /// Single objects that Services name. The rest works without.
    Named,
}

// === impl ObjectKind ===

impl ObjectKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Namespace,
        Self::Resource(ResourceKind::IpAddressPool),
        Self::Resource(ResourceKind::L2Advertisement),
        Self::Resource(ResourceKind::BgpAdvertisement),
        Self::Resource(ResourceKind::Community),
        Self::Resource(ResourceKind::BgpPeer),
        Self::Resource(ResourceKind::BfdProfile),
        Self::Node,
        Self::Secret,
        Self::Slice,
        Self::Service,
    ];

    /// Returns the row of a kind.
    pub const fn row(self) -> WatchedKind {
        match self {
            Self::Namespace => core("Namespace", "namespaces", |key| {
                Fact::NamespaceGone(key.name().into())
            }),
            Self::Resource(kind) => resource(kind),
            Self::Node => core("Node", "nodes", |key| Fact::NodeGone(key.name().into())),
            Self::Secret => WatchedKind {
                watched: Watched::Named,
                ..core("Secret", "secrets", |key| Fact::SecretGone(key.clone()))
            },
            Self::Slice => WatchedKind {
                group: "discovery.k8s.io",
                label: Some(SERVICE_NAME_LABEL),
                ..core("EndpointSlice", "endpointslices", |key| {
                    Fact::SliceGone(key.clone())
                })
            },
            Self::Service => WatchedKind {
                // A Service is read after a conflicting write of another program.
                verbs: &["get", "list", "watch"],
                ..core("Service", "services", |key| Fact::ServiceGone(key.clone()))
            },
        }
    }
}

/// Returns the row of a custom resource.
const fn resource(kind: ResourceKind) -> WatchedKind {
    use ResourceKind as Of;
    let row = match kind {
        Of::IpAddressPool => core("IPAddressPool", "ipaddresspools", |key| {
            Fact::PoolGone(key.name().to_owned())
        }),
        Of::L2Advertisement => core("L2Advertisement", "l2advertisements", |key| {
            Fact::ResourceGone(Of::L2Advertisement, key.clone())
        }),
        Of::BgpAdvertisement => core("BGPAdvertisement", "bgpadvertisements", |key| {
            Fact::ResourceGone(Of::BgpAdvertisement, key.clone())
        }),
        Of::Community => core("Community", "communities", |key| {
            Fact::ResourceGone(Of::Community, key.clone())
        }),
        Of::BgpPeer => core("BGPPeer", "bgppeers", |key| {
            Fact::ResourceGone(Of::BgpPeer, key.clone())
        }),
        Of::BfdProfile => core("BFDProfile", "bfdprofiles", |key| {
            Fact::ResourceGone(Of::BfdProfile, key.clone())
        }),
    };
    let (version, older) = match kind {
        Of::BgpPeer => ("v1beta2", Some("v1beta1")),
        Of::IpAddressPool
        | Of::L2Advertisement
        | Of::BgpAdvertisement
        | Of::Community
        | Of::BfdProfile => ("v1beta1", None),
    };
    WatchedKind {
        group: "metallb.io",
        version,
        older,
        watched: Watched::OneNamespace,
        ..row
    }
}

/// Returns the row of a kind of the core, of which all objects are watched.
const fn core(
    name: &'static str,
    resource: &'static str,
    gone: fn(&ServiceKey) -> Fact,
) -> WatchedKind {
    WatchedKind {
        name,
        group: "",
        version: "v1",
        older: None,
        resource,
        label: None,
        verbs: &["list", "watch"],
        watched: Watched::All,
        gone,
    }
}

// === impl ResourceKind ===

impl ResourceKind {
    /// Returns the name in `kind`.
    pub const fn name(self) -> &'static str {
        ObjectKind::Resource(self).row().name
    }
}

// === impl WatchedKind ===

impl WatchedKind {
    /// Returns what stands in `apiVersion`.
    pub fn api_version(&self) -> String {
        self.in_group(self.version)
    }

    /// Returns whether objects with this `apiVersion` are read.
    pub fn reads_version(&self, api_version: &str) -> bool {
        let mut versions = [self.version].into_iter().chain(self.older);
        versions.any(|version| self.in_group(version) == api_version)
    }

    fn in_group(&self, version: &str) -> String {
        match self.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// Returns the resource with its group, as permissions and messages name it.
    pub fn full_resource(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Returns the path of the collection, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource),
            None => format!("{root}/{}", self.resource),
        }
    }

    /// Returns the name of an object for people.
    pub fn named(&self, key: &ServiceKey) -> String {
        if key.namespace().is_empty() {
            format!("{} {}", self.name, key.name())
        } else {
            format!("{} {key}", self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        assert_eq!(ObjectKind::Service.row().path(None), "/api/v1/services");
        assert_eq!(
            ObjectKind::Resource(ResourceKind::IpAddressPool)
                .row()
                .path(Some("metallb-system")),
            "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools"
        );
        let slices = ObjectKind::Slice.row();
        assert_eq!(slices.api_version(), "discovery.k8s.io/v1");
        assert_eq!(slices.full_resource(), "endpointslices.discovery.k8s.io");
    }

    #[test]
    fn a_resource_of_each_kind_is_gone_by_its_own_fact_and_only_peers_have_an_older_version() {
        let key = ServiceKey::new("metallb-system", "edge");
        for kind in ResourceKind::ALL {
            let row = ObjectKind::Resource(kind).row();
            match (row.gone)(&key) {
                Fact::PoolGone(name) => {
                    assert_eq!((kind, &*name), (ResourceKind::IpAddressPool, "edge"));
                }
                Fact::ResourceGone(of, gone) => assert_eq!((of, &gone), (kind, &key)),
                other => panic!("{other:?}"),
            }
            assert!(row.reads_version(&row.api_version()));
            let older = row.reads_version("metallb.io/v1beta1") && row.version != "v1beta1";
            assert_eq!(older, kind == ResourceKind::BgpPeer);
            assert!(!row.reads_version("metallb.io/v1beta9") && !row.reads_version("v1beta1"));
        }
    }

    #[test]
    fn each_row_is_complete_and_the_only_one_of_its_name() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in ObjectKind::ALL {
            let row = kind.row();
            assert!(!row.name.is_empty() && !row.resource.is_empty(), "{kind:?}");
            assert!(row.verbs.contains(&"list") && row.verbs.contains(&"watch"));
            assert!(seen.insert((row.group, row.resource)), "{kind:?} twice");
        }
    }
}
