//! Facts as compact rows: the few fields of Kubernetes objects that decide anything.
//!
//! Rows are made from [`crate::wire`] shapes by every source in the same way, and held by the World
//! behind `Arc`. Texts that a user can get wrong (annotations, source ranges, addresses) stay texts
//! here; `resolve` validates them, so that a bad one becomes a Reason instead of a lost object.

mod bytes;
pub(crate) mod dense;
mod kept;
mod packed;
mod resource;
mod version;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;

use crate::id::{ServiceKey, Uid};
use crate::listener::Protocol;
use crate::reason::{Origin, Reason};
use crate::recorded::recorded_instance;
use crate::status::{INSTANCE, ServiceStatus};

pub use kept::KeptService;
pub use packed::{KeptStatus, OwnershipFields, PackedService, PackedSlice};
pub use resource::{
    AcceptedResource, AddressRange, Cooling, CoolingAddress, ResourceKind, ResourceProblem,
    ResourceRow,
};

/// A Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRow {
    /// Namespace and name.
    pub key: ServiceKey,
    /// Identity.
    pub uid: Uid,
    /// `metadata.generation`, where the source has one.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion`, where the source has one.
    pub resource_version: Option<Arc<str>>,
    /// What the API server's status vouches for: the message of the condition
    /// [`crate::recorded::RECORDED`].
    pub recorded: Option<Arc<str>>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whether [`crate::status::FINALIZER`] is on it.
    pub finalized: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.type` is `LoadBalancer`.
    pub wants_load_balancer: bool,
    /// `spec.loadBalancerClass`.
    pub class: Option<Arc<str>>,
    /// Address families in order of preference. Never empty.
    pub families: Vec<Family>,
    /// What `spec.ipFamilyPolicy` asks for.
    pub family_policy: FamilyPolicy,
    /// `spec.clusterIP` is `None`.
    pub headless: bool,
    /// Ports, in the order of the manifest.
    pub ports: Vec<ServicePort>,
    /// `spec.selector`.
    pub selector: BTreeMap<String, String>,
    /// `spec.externalTrafficPolicy` is `Local`.
    pub external_local: bool,
    /// `spec.healthCheckNodePort`.
    pub health_check_node_port: Option<NonZeroU16>,
    /// `spec.sessionAffinity: ClientIP`, with its timeout.
    pub affinity: Option<Duration>,
    /// `spec.loadBalancerIP`, as written.
    pub load_balancer_ip: Option<String>,
    /// `spec.loadBalancerSourceRanges`, as written.
    pub source_ranges: Vec<String>,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// `spec.allocateLoadBalancerNodePorts`.
    pub allocate_node_ports: bool,
    /// `spec.internalTrafficPolicy`, `trafficDistribution` and `externalIPs` where they differ from
    /// the default: what they ask of the nodes.
    pub node_fields: BTreeMap<String, String>,
    /// What the Service's status says now: the durable record of its claim.
    pub status: ServiceStatus,
    /// What can't be read of it, where the source has to take it as it is: the API server has
    /// admitted it. A Service with any is not served as it stands.
    pub faults: Vec<Reason>,
    /// Where it was read from, for sources that are files.
    pub source: Option<Arc<SourceMap>>,
}

/// Where the parts of an object stand in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceMap {
    /// The beginning of the document.
    pub document: Origin,
    /// Lines of fields: `spec.ports[0].port`, `metadata.annotations[KEY]`.
    pub lines: BTreeMap<String, u32>,
    /// Why the newest version in the file can't be used; empty: this is the newest version.
    pub newest_invalid: Vec<Reason>,
}

/// An address family.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum Family {
    /// `IPv4`
    #[serde(rename = "IPv4")]
    V4,
    /// `IPv6`
    #[serde(rename = "IPv6")]
    V6,
}

/// The largest number of addresses of each family that a Service can have.
pub const MOST_ADDRESSES: u8 = 8;

/// `spec.ipFamilyPolicy`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum FamilyPolicy {
    /// One family.
    #[default]
    SingleStack,
    /// Both where possible.
    PreferDualStack,
    /// Both or nothing.
    RequireDualStack,
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where a single port has none.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Front port.
    pub port: NonZeroU16,
    /// Port of the pods.
    pub target: TargetPort,
    /// Port on every node, where allocated.
    pub node_port: Option<NonZeroU16>,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
}

/// `spec.ports[].targetPort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// A number.
    Number(NonZeroU16),
    /// The name of a container port; EndpointSlices carry the number.
    Name(String),
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRow {
    /// Namespace and name of the slice itself.
    pub key: ServiceKey,
    /// The Service it belongs to, by the label `kubernetes.io/service-name`.
    pub service: ServiceKey,
    /// Family of its addresses; `None` for the type `FQDN`, which can't be served.
    pub family: Option<Family>,
    /// Ports of all its endpoints.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Whether it has more of them, for which its namespace has no room left.
    pub cut: bool,
    /// Where it was read from, for sources that are files.
    pub source: Option<Arc<SourceMap>>,
}

/// One entry of a slice's `ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Equal to the name of the Service port it implements; empty for a single unnamed one.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The number; `None` means "all ports", which a load balancer can't use.
    pub port: Option<NonZeroU16>,
}

/// One entry of a slice's `endpoints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The first address. (All addresses of an endpoint are interchangeable; more than one is
    /// deprecated.)
    pub address: IpAddr,
    /// `conditions.ready`; unset counts as true.
    pub ready: bool,
    /// `conditions.serving`; unset counts as `ready`.
    pub serving: bool,
    /// `conditions.terminating`; unset counts as false.
    pub terminating: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The pod's name, from `targetRef`.
    pub name: Option<Arc<str>>,
}

/// A Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Internal addresses, in the order of its status; external ones of a family that it has no
    /// internal one of.
    pub addresses: Vec<IpAddr>,
    /// `spec.providerID`.
    pub provider_id: Option<Arc<str>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether the cluster autoscaler is about to remove it.
    pub leaving: bool,
    /// `spec.unschedulable`: `kubectl cordon` and `drain` set it.
    pub cordoned: bool,
    /// Condition `Ready`.
    pub ready: bool,
    /// Condition `NetworkUnavailable`.
    pub network_unavailable: bool,
    /// `spec.podCIDRs`.
    pub pod_prefixes: Vec<ipnet::IpNet>,
}

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// Its name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A Secret of type `kubernetes.io/tls`. Neither `Debug` nor any message shows the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    /// Namespace and name.
    pub key: ServiceKey,
    /// Its certificate and key, or what is missing in it.
    pub certificate: Result<Arc<crate::listener::Certificate>, String>,
    /// The authorities that it holds, without a key, or what is missing in it.
    pub authorities: Result<Arc<crate::listener::Certificate>, String>,
    /// Where it was read from, for sources that are files.
    pub source: Option<Arc<SourceMap>>,
}

/// The namespace in which MetalLB is installed unless that is said.
pub const METALLB_NAMESPACE: &str = "metallb-system";

/// An address pool (`metallb.io/v1beta1` `IPAddressPool`, or a pool given on the command line), as
/// written: the allocator parses and validates it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// The provider instance whose pool it is; `None`: the default one's.
    pub instance: Option<String>,
    /// Labels, for advertisements that select by them.
    pub labels: BTreeMap<String, String>,
    /// `spec.addresses`: prefixes and `FIRST-LAST` ranges.
    pub addresses: Vec<String>,
    /// `spec.autoAssign`; unset counts as true.
    pub auto_assign: bool,
    /// `spec.avoidBuggyIPs`.
    pub avoid_buggy: bool,
    /// Whether Services of different namespaces may share an address.
    pub share_across_namespaces: bool,
    /// How many addresses of each family the Services of one namespace may hold.
    pub addresses_per_namespace: Option<u32>,
    /// Whether it gives out no address any more.
    pub disabled: bool,
    /// For how long an address that a Service gave up is given to no other one.
    pub cool_down: Option<Duration>,
    /// Addresses, prefixes and ranges that do not belong to it although `addresses` has them.
    pub excluded: Vec<String>,
    /// Addresses, prefixes and ranges that only some Services get, each with a namespace or
    /// `NAMESPACE/NAME`.
    pub reserved: Vec<(String, String)>,
    /// `spec.serviceAllocation`.
    pub allocation: Option<PoolAllocation>,
    /// Whose word it is.
    pub origin: PoolOrigin,
    /// The whole object, for providers that read more of it than what is above.
    pub resource: Option<Arc<ResourceRow>>,
    /// Where it was read from, for sources that are files.
    pub source: Option<Arc<SourceMap>>,
}

/// Where a pool comes from. Two pools of one name from two places are two pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolOrigin {
    /// The configuration or the command line. They win over an object of the same name.
    Configured,
    /// A source: a manifest, or an object of the API server.
    #[default]
    Source,
    /// The default of this program: it serves only where no other pool does.
    Fallback,
}

/// `spec.serviceAllocation` of a pool: which Services it serves, and with what priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolAllocation {
    /// Lower goes first; 0 is last.
    pub priority: i64,
    /// Exact namespace names.
    pub namespaces: Vec<String>,
    /// Selectors on namespace labels; any may match.
    pub namespace_selectors: Vec<Selector>,
    /// Selectors on Service labels; any may match.
    pub service_selectors: Vec<Selector>,
}

/// A label selector as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `matchLabels`.
    pub match_labels: BTreeMap<String, String>,
    /// `matchExpressions`: key, operator, values.
    pub match_expressions: Vec<(String, String, Vec<String>)>,
}

/// One change of the facts, as sources report it.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A Service appeared or changed.
    Service(Arc<ServiceRow>),
    /// A Service no longer exists: its finalizer was removed, or it never had one.
    ServiceGone(ServiceKey),
    /// All cluster IPs of a Service, wanting a load balancer or not: in order, each once.
    ClusterIps(ServiceKey, Box<[IpAddr]>),
    /// A slice appeared or changed.
    Slice(Arc<SliceRow>),
    /// A slice is gone.
    SliceGone(ServiceKey),
    /// A node appeared or changed.
    Node(Arc<NodeRow>),
    /// A node is gone.
    NodeGone(Arc<str>),
    /// A namespace appeared or changed.
    Namespace(Arc<NamespaceRow>),
    /// A namespace is gone.
    NamespaceGone(Arc<str>),
    /// A Secret appeared or changed.
    Secret(Arc<SecretRow>),
    /// A Secret is gone.
    SecretGone(ServiceKey),
    /// Secrets can't be read from this source. A port that needs one that is not known stays closed
    /// instead of being an error of the whole Service.
    SecretsUnavailable,
    /// The networks whose traffic arrives on this machine; replaces the previous ones.
    Machine(Arc<[IpNet]>),
    /// An address pool appeared or changed.
    Pool(Arc<PoolRow>),
    /// An address pool of the source is gone.
    PoolGone(String),
    /// A custom resource of another kind than address pools appeared or changed.
    Resource(Arc<ResourceRow>),
    /// Such a resource is gone.
    ResourceGone(ResourceKind, ServiceKey),
    /// Whether pools may be missing because the named part of a source can't be read. As long as
    /// some may be, no Service leaves an address that is in no known pool.
    PoolsIncomplete {
        /// The part of the source.
        part: Arc<str>,
        /// Whether it can't be read.
        incomplete: bool,
    },
    /// What can't be read from the named part of a source (a file), in place of what was said about
    /// that part before. An empty list: it reads well now.
    SourceProblems {
        /// The part of the source: a path.
        part: Arc<str>,
        /// What is wrong with it.
        reasons: Vec<Reason>,
    },
    /// Everything that was there at the start has been sent. Sent once.
    Synced,
    /// Everything that was there when this replica came to lead has been sent.
    Current {
        /// The term in which it leads.
        term: u64,
    },
}

// === impl Family ===

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Kubernetes' spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl SourceMap ===

impl SourceMap {
    /// Where a field stands: its own line, else that of the nearest field around it, else the
    /// beginning of the document.
    pub fn origin_of(&self, field: &str) -> Origin {
        let mut field = field;
        loop {
            if let Some(&line) = self.lines.get(field) {
                return Origin {
                    file: self.document.file.clone(),
                    line,
                };
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None => return self.document.clone(),
            }
        }
    }
}

// === impl ServiceRow ===

impl ServiceRow {
    /// Where a field of this Service stands in its file, if it comes from one.
    pub fn origin_of(&self, field: &str) -> Option<Origin> {
        self.source.as_ref().map(|source| source.origin_of(field))
    }

    /// Returns the instance that serves this Service by its record: the annotation, which people
    /// may write to move it, or else what the status says was written there.
    pub fn instance(&self) -> Option<&str> {
        let written = self.status.marks.get(INSTANCE).map(String::as_str);
        written.or_else(|| recorded_instance(self.recorded.as_deref()?))
    }

    /// Returns why a newer version of this Service in its file can't be used; empty: this is the
    /// newest one.
    pub fn newest_invalid(&self) -> &[Reason] {
        self.source
            .as_ref()
            .map_or(&[], |source| &source.newest_invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_a_line_is_placed_by_the_nearest_one_around_it() {
        let map = SourceMap {
            document: Origin {
                file: "a.yaml".into(),
                line: 3,
            },
            lines: BTreeMap::from([
                ("spec.ports[0]".to_owned(), 9),
                ("metadata.annotations[landfall.dev/drain]".to_owned(), 6),
            ]),
            newest_invalid: Vec::new(),
        };
        let line = |field| map.origin_of(field).line;
        assert_eq!(line("spec.ports[0].port"), 9);
        assert_eq!(line("metadata.annotations[landfall.dev/drain]"), 6);
        assert_eq!(line("spec.type"), 3);
    }
}
