//! Load balancer, listener, pool, member and monitor (Octavia API v2).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    Id, ListenerProtocol, MonitorType, OperatingStatus, PersistenceType, PoolAlgorithm,
    PoolProtocol, Ref, none_if_empty, null_is_default,
};

/// What Octavia is doing with an object (`provisioning_status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Provisioning {
    /// As it was asked for. Only now a load balancer and what belongs to it can be changed.
    Active,
    /// Being made.
    PendingCreate,
    /// Being changed.
    PendingUpdate,
    /// Being deleted.
    PendingDelete,
    /// Gone; the row is kept for a while.
    Deleted,
    /// The last change failed. A load balancer can only be deleted, or failed over.
    Error,
    /// A word that is not known here.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    /// Its id.
    pub id: Id,
    /// Its name, which is not unique.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// For people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// What is being done with it.
    pub provisioning_status: Provisioning,
    /// How it fares.
    #[serde(deserialize_with = "null_is_default")]
    pub operating_status: OperatingStatus,
    /// Whether it serves at all; `None`: it is not known.
    pub admin_state_up: Option<bool>,
    /// When its row was last touched: by every write to it or to what belongs to it, to the second.
    pub updated_at: Option<String>,
    /// When it was made.
    pub created_at: Option<String>,
    /// The address of its VIP.
    pub vip_address: Option<IpAddr>,
    /// The port that holds the VIP.
    #[serde(deserialize_with = "none_if_empty")]
    pub vip_port_id: Option<Id>,
    /// The subnet of the VIP.
    #[serde(deserialize_with = "none_if_empty")]
    pub vip_subnet_id: Option<Id>,
    /// The network of the VIP.
    #[serde(deserialize_with = "none_if_empty")]
    pub vip_network_id: Option<Id>,
    /// Further addresses on the VIP's port (API 2.26).
    #[serde(deserialize_with = "null_is_default")]
    pub additional_vips: Vec<AdditionalVip>,
    /// Tags (API 2.5).
    #[serde(deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// The driver that carries it: `amphora`, `ovn`, ...
    #[serde(deserialize_with = "null_is_default")]
    pub provider: String,
    /// Its flavor.
    #[serde(deserialize_with = "none_if_empty")]
    pub flavor_id: Option<Id>,
    /// Its availability zone.
    pub availability_zone: Option<String>,
    /// The project that owns it.
    #[serde(deserialize_with = "none_if_empty")]
    pub project_id: Option<Id>,
    /// Its listeners.
    #[serde(deserialize_with = "null_is_default")]
    pub listeners: Vec<Ref>,
    /// Its pools.
    #[serde(deserialize_with = "null_is_default")]
    pub pools: Vec<Ref>,
}

/// A further address of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdditionalVip {
    /// The subnet it is from.
    #[serde(deserialize_with = "none_if_empty", default)]
    pub subnet_id: Option<Id>,
    /// The address.
    pub ip_address: Option<IpAddr>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What is being done with it.
    pub provisioning_status: Provisioning,
    /// Its protocol.
    pub protocol: ListenerProtocol,
    /// The port that clients connect to.
    pub protocol_port: u16,
    /// Connections open at once; -1 is no limit.
    pub connection_limit: Option<i64>,
    /// Milliseconds (API 2.1).
    pub timeout_client_data: Option<u64>,
    /// Milliseconds (API 2.1).
    pub timeout_member_connect: Option<u64>,
    /// Milliseconds (API 2.1).
    pub timeout_member_data: Option<u64>,
    /// Milliseconds (API 2.1).
    pub timeout_tcp_inspect: Option<u64>,
    /// Clients that may connect, as prefixes; `None`: all (API 2.12).
    pub allowed_cidrs: Option<Vec<String>>,
    /// What is added to requests.
    #[serde(deserialize_with = "null_is_default")]
    pub insert_headers: BTreeMap<String, String>,
    /// The certificate in Barbican.
    pub default_tls_container_ref: Option<String>,
    /// Further certificates, which clients get by the name that they ask for.
    #[serde(deserialize_with = "null_is_default")]
    pub sni_container_refs: Vec<String>,
    /// The authorities of clients' certificates in Barbican (API 2.8).
    pub client_ca_tls_container_ref: Option<String>,
    /// The versions of TLS that it speaks (API 2.17).
    pub tls_versions: Option<Vec<String>>,
    /// The ciphers that it knows, in OpenSSL's words (API 2.15).
    pub tls_ciphers: Option<String>,
    /// The protocols that it offers by ALPN (API 2.20).
    pub alpn_protocols: Option<Vec<String>>,
    /// Whether it is in use; `None`: it is not known.
    pub admin_state_up: Option<bool>,
    /// The pool that serves it.
    #[serde(deserialize_with = "none_if_empty")]
    pub default_pool_id: Option<Id>,
    /// Tags (API 2.5).
    #[serde(deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// The load balancer that it belongs to; one entry.
    #[serde(deserialize_with = "null_is_default")]
    pub loadbalancers: Vec<Ref>,
    /// Rules that users put on it.
    #[serde(deserialize_with = "null_is_default")]
    pub l7policies: Vec<Ref>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What is being done with it.
    pub provisioning_status: Provisioning,
    /// How it fares: with its members, as far as a monitor checks them.
    #[serde(deserialize_with = "null_is_default")]
    pub operating_status: OperatingStatus,
    /// Whether it is in use; `None`: it is not known.
    pub admin_state_up: Option<bool>,
    /// Its certificate towards members, in Barbican (API 2.8).
    pub tls_container_ref: Option<String>,
    /// The authorities of members' certificates, in Barbican (API 2.8).
    pub ca_tls_container_ref: Option<String>,
    /// Its protocol.
    pub protocol: PoolProtocol,
    /// How a member is chosen.
    pub lb_algorithm: PoolAlgorithm,
    /// Whether clients keep their member.
    pub session_persistence: Option<SessionPersistence>,
    /// Its monitor.
    #[serde(deserialize_with = "none_if_empty")]
    pub healthmonitor_id: Option<Id>,
    /// The listeners that it serves, by default or by an L7 policy.
    #[serde(deserialize_with = "null_is_default")]
    pub listeners: Vec<Ref>,
    /// The load balancer that it belongs to; one entry.
    #[serde(deserialize_with = "null_is_default")]
    pub loadbalancers: Vec<Ref>,
    /// Its members, by id only.
    #[serde(deserialize_with = "null_is_default")]
    pub members: Vec<Ref>,
    /// Tags (API 2.5).
    #[serde(deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
}

/// How clients keep their member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPersistence {
    /// By what.
    #[serde(rename = "type")]
    pub kind: PersistenceType,
    /// Seconds, for UDP and SCTP only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub persistence_timeout: Option<u64>,
}

/// A member of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What is being done with it.
    pub provisioning_status: Provisioning,
    /// How it fares.
    #[serde(deserialize_with = "null_is_default")]
    pub operating_status: OperatingStatus,
    /// Where it is reached.
    pub address: Option<IpAddr>,
    /// The port.
    pub protocol_port: u16,
    /// The subnet over which it is reached.
    #[serde(deserialize_with = "none_if_empty")]
    pub subnet_id: Option<Id>,
    /// 0 to 256.
    pub weight: Option<u16>,
    /// Used only when no other is left.
    #[serde(deserialize_with = "null_is_default")]
    pub backup: bool,
    /// Whether it is in use.
    pub admin_state_up: Option<bool>,
    /// The port that the monitor checks instead.
    pub monitor_port: Option<u16>,
    /// The address that the monitor checks instead.
    pub monitor_address: Option<IpAddr>,
}

/// A health monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Monitor {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What is being done with it.
    pub provisioning_status: Provisioning,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: MonitorType,
    /// Seconds.
    pub delay: u64,
    /// Seconds.
    pub timeout: u64,
    /// Good checks that bring a member back.
    pub max_retries: u8,
    /// Failed checks that take a member out.
    pub max_retries_down: Option<u8>,
    /// Request method of an HTTP check.
    pub http_method: Option<String>,
    /// Request target of an HTTP check.
    pub url_path: Option<String>,
    /// Good status codes of an HTTP check.
    pub expected_codes: Option<String>,
    /// The pool that it checks; one entry.
    #[serde(deserialize_with = "null_is_default")]
    pub pools: Vec<Ref>,
}

// === impl Provisioning ===

impl Provisioning {
    /// Whether Octavia is at work on it, so that changes are refused.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            Self::PendingCreate | Self::PendingUpdate | Self::PendingDelete
        )
    }

    /// Whether it is gone, or about to be.
    pub fn is_going(self) -> bool {
        matches!(self, Self::PendingDelete | Self::Deleted)
    }
}
