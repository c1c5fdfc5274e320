//! What the user wants of a load balancer, in provider-neutral terms: the outcome of `resolve`.

mod kept;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::dialect::Extensions;
use crate::id::{ServiceKey, Uid};
use crate::listener::{Listener, ListenerKey};
use crate::reason::Reason;
use crate::rows::{Family, FamilyPolicy};
use crate::target::Target;

pub use kept::KeptAddress;

/// The spec for one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Namespace and name.
    pub service: ServiceKey,
    /// Identity: what marks of ownership carry.
    pub uid: Uid,
    /// When the Service was made, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// What shall exist; `None`: nothing of it, so that all that is held is given back.
    pub load_balancer: Option<LoadBalancerSpec>,
    /// Options that a single provider supports. They hold for a removal, too.
    pub extensions: Extensions,
    /// The annotations that we keep on the Service, as it has them.
    pub marks: BTreeMap<String, String>,
    /// What the user should know about the spec although it can be had.
    pub remarks: Vec<Reason>,
}

/// The load balancer that shall exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Which address it shall have.
    pub address: AddressSpec,
    /// What it listens on, sorted by key, no key twice.
    pub listeners: Vec<Listener>,
    /// Published in the status instead of the address.
    pub hostname: Option<String>,
    /// Endpoints that are in no pool, and why, for people.
    pub left_out: Vec<LeftOut>,
    /// The ports in the order of the Service's `spec`.
    pub order: Vec<ListenerKey>,
    /// Where nodes say whether they have an endpoint: `healthCheckNodePort` of Services with
    /// `externalTrafficPolicy: Local`.
    pub health_check_port: Option<NonZeroU16>,
    /// Whether members are pods or nodes.
    #[serde(default)]
    pub target: Target,
    /// Eligible nodes with the address that members have, for providers whose members can be nodes.
    pub nodes: Vec<NodeTarget>,
    /// Whether there is a node that could be a member but for the node selector and its addresses,
    /// or members are no nodes.
    #[serde(default)]
    pub has_nodes: bool,
}

/// A node whose NodePorts are members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTarget {
    /// Its name.
    pub name: Arc<str>,
    /// The address that its members have.
    pub address: IpAddr,
    /// `spec.providerID`: which server of the cloud it is.
    pub provider_id: Option<Arc<str>>,
    /// Its other addresses, of the Service's families: for what is reached by another family than
    /// members are, or over another network.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub others: Vec<IpAddr>,
}

/// Which address a load balancer shall have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpec {
    /// The Service's namespace labels, for pools that select by them.
    pub namespace_labels: BTreeMap<String, String>,
    /// The Service's labels, for pools that select by them.
    pub labels: BTreeMap<String, String>,
    /// Families in order of preference. Never empty.
    pub families: Vec<Family>,
    /// One family, both if possible, or both.
    pub policy: FamilyPolicy,
    /// Exactly these addresses; empty: any.
    pub requested: Vec<IpAddr>,
    /// Where the request for an address stands, for messages; empty where none was made.
    pub requested_by: String,
    /// Only from this pool.
    pub pool: Option<String>,
    /// How many addresses of each family; 1 where certain ones are requested.
    #[serde(default = "one")]
    pub count: u8,
    /// Services with the same key may share an address.
    pub sharing_key: Option<String>,
    /// Services may only share when these are equal: the canonical selector for
    /// `externalTrafficPolicy: Local`, else empty.
    pub backend_key: String,
    /// What the Service's status says it holds.
    pub held: Vec<IpAddr>,
}

fn one() -> u8 {
    1
}

/// What a Service holds according to its status, the durable record of its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and name.
    pub service: ServiceKey,
    /// Identity.
    pub uid: Uid,
    /// What it holds.
    pub addresses: Vec<IpAddr>,
    /// The addresses that it asks for, if it asks and they can be read.
    pub requested: Vec<IpAddr>,
    /// Its sharing key, as far as known.
    pub sharing_key: Option<String>,
    /// See [`AddressSpec::backend_key`].
    pub backend_key: String,
    /// The ports that it listens on.
    pub ports: Vec<ListenerKey>,
}

/// An endpoint that is in no pool, or those that are not listed one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Its address, as text because it may be no address.
    pub endpoint: String,
    /// The pod's name, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Why.
    pub reason: Reason,
    /// How many there are.
    #[serde(skip_serializing_if = "is_one", default = "single")]
    pub count: usize,
}

fn single() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(count: &usize) -> bool {
    *count == 1
}

// === impl Intent ===

impl Intent {
    /// The spec that nothing be left of a Service's load balancer.
    pub fn removal(service: ServiceKey, uid: Uid) -> Self {
        Self {
            service,
            uid,
            created: None,
            load_balancer: None,
            extensions: Extensions::default(),
            marks: BTreeMap::new(),
            remarks: Vec::new(),
        }
    }
}
