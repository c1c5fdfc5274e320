//! Custom resources of MetalLB's API group as facts: what they say is validated where it is used.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SourceMap;
use crate::id::{ServiceKey, Uid};
use crate::reason::{Origin, Reason};

/// A kind of custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// `IPAddressPool`: which addresses are given to which Services.
    #[serde(rename = "IPAddressPool")]
    IpAddressPool,
    /// `L2Advertisement`: which of them are announced by ARP and NDP, and where.
    L2Advertisement,
    /// `BGPAdvertisement`: which of them are announced by BGP, and how.
    #[serde(rename = "BGPAdvertisement")]
    BgpAdvertisement,
    /// `Community`: names of BGP communities.
    Community,
    /// `BGPPeer`: a router.
    #[serde(rename = "BGPPeer")]
    BgpPeer,
    /// `BFDProfile`: how the loss of a router is detected.
    #[serde(rename = "BFDProfile")]
    BfdProfile,
}

/// A custom resource.
///
/// One object is one fact: an `IPAddressPool` is sent as [`super::Fact::Pool`], whose row carries
/// this one ([`super::PoolRow::resource`]), and every other kind as [`super::Fact::Resource`].
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRow {
    /// Its kind.
    pub kind: ResourceKind,
    /// `apiVersion`, of which a kind may have several.
    pub api_version: String,
    /// Namespace and name.
    pub key: ServiceKey,
    /// Identity, where the source has one.
    pub uid: Option<Uid>,
    /// `metadata.generation`, where the source has one.
    pub generation: Option<i64>,
    /// When it was made, where the source has that.
    pub created: Option<Timestamp>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec` as written; `null` where there is none.
    pub spec: Value,
    /// While `spec` is not valid: what was valid last, as the controller recorded it in the status.
    pub accepted: Option<Arc<AcceptedResource>>,
    /// Of a pool: what was released not long ago, as the controller recorded it in the status.
    pub cooling: Cooling,
    /// Where it was read from, for sources that are files.
    pub source: Option<Arc<SourceMap>>,
}

/// A version of a custom resource that was in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AcceptedResource {
    /// Its annotations, as far as they are Landfall's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Its `spec`.
    pub spec: Value,
    /// The generation of the object that this version is in force in place of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<i64>,
}

/// What is recorded of addresses that were released. It is equal to any other: that it changes is
/// no news of the pool, and matters at a start only.
#[derive(Clone, Debug, Default)]
pub struct Cooling {
    /// Addresses that no Service gets yet because another one released them.
    pub released: Vec<CoolingAddress>,
    /// Addresses that Services had when this was recorded: those that none has any more were
    /// released since.
    pub held: Vec<AddressRange>,
}

/// Addresses from the first to the last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// The lowest.
    pub first: IpAddr,
    /// The highest.
    pub last: IpAddr,
}

/// An address that another Service released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoolingAddress {
    /// The address.
    pub address: IpAddr,
    /// When it can be assigned again.
    pub until: Timestamp,
    /// The Service that had it, as `NAMESPACE/NAME`; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
}

/// What is wrong with a custom resource, or worth knowing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceProblem {
    /// The kind of the object.
    pub kind: ResourceKind,
    /// Its namespace and name.
    pub key: ServiceKey,
    /// The problem.
    pub reason: Reason,
}

// === impl Cooling ===

impl PartialEq for Cooling {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cooling {}

// === impl ResourceKind ===

impl ResourceKind {
    /// All kinds, in the order in which they are sent.
    pub const ALL: [Self; 6] = [
        Self::IpAddressPool,
        Self::L2Advertisement,
        Self::BgpAdvertisement,
        Self::Community,
        Self::BgpPeer,
        Self::BfdProfile,
    ];
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl ResourceRow ===

impl ResourceRow {
    /// Returns where a field of it stands in its file, if it comes from one.
    pub fn origin_of(&self, field: &str) -> Option<Origin> {
        self.source.as_ref().map(|source| source.origin_of(field))
    }

    /// Returns whether the version on record is in force in place of what is written now, and not
    /// of what was written before. Then it counts more than what a process saw itself: one may
    /// have missed a version that others saw.
    pub fn is_on_record(&self) -> bool {
        let accepted = self.accepted.as_ref();
        let in_place_of = accepted.and_then(|accepted| accepted.in_place_of);
        in_place_of.is_some() && in_place_of == self.generation
    }
}

impl fmt::Display for ResourceRow {
    /// `L2Advertisement metallb-system/edge`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
