//! Networks, ports, floating IPs and security groups (Neutron API v2.0).

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Id, none_if_empty, null_is_default};

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Whether floating IPs come from it.
    #[serde(rename = "router:external", deserialize_with = "null_is_default")]
    pub external: bool,
    /// Its subnets, also those that can't be seen.
    #[serde(deserialize_with = "null_is_default")]
    pub subnets: Vec<Id>,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default", default)]
    pub name: String,
    /// The network that it belongs to.
    pub network_id: Id,
    /// Its prefix.
    pub cidr: IpNet,
    /// Tags.
    #[serde(deserialize_with = "null_is_default", default)]
    pub tags: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its id.
    pub id: Id,
    /// The server that it belongs to.
    #[serde(deserialize_with = "null_is_default")]
    pub device_id: String,
    /// What kind of thing it belongs to: `compute:nova`, `Octavia`, ...
    #[serde(deserialize_with = "null_is_default")]
    pub device_owner: String,
    /// Its addresses.
    #[serde(deserialize_with = "null_is_default")]
    pub fixed_ips: Vec<FixedIp>,
    /// The groups that guard it.
    #[serde(deserialize_with = "null_is_default")]
    pub security_groups: Vec<Id>,
    /// Whether groups can guard it.
    pub port_security_enabled: Option<bool>,
    /// Grows with each change: `If-Match: revision_number=N`.
    pub revision_number: Option<u64>,
    /// Tags.
    #[serde(deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedIp {
    /// The subnet.
    pub subnet_id: Id,
    /// The address.
    pub ip_address: IpAddr,
}

/// A floating IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatingIp {
    /// Its id.
    pub id: Id,
    /// The address.
    pub floating_ip_address: IpAddr,
    /// The network that it comes from.
    pub floating_network_id: Id,
    /// The port that it leads to.
    #[serde(deserialize_with = "none_if_empty", default)]
    pub port_id: Option<Id>,
    /// For people, and a mark of the owner.
    #[serde(deserialize_with = "null_is_default", default)]
    pub description: String,
    /// Tags.
    #[serde(deserialize_with = "null_is_default", default)]
    pub tags: Vec<String>,
    /// When it was made, in RFC 3339.
    #[serde(default)]
    pub created_at: Option<String>,
    /// Grows with each change: `If-Match: revision_number=N`.
    #[serde(default)]
    pub revision_number: Option<u64>,
}

/// A security group with its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(deserialize_with = "null_is_default", default)]
    pub name: String,
    /// For people.
    #[serde(deserialize_with = "null_is_default", default)]
    pub description: String,
    /// Its rules.
    #[serde(
        rename = "security_group_rules",
        deserialize_with = "null_is_default",
        default
    )]
    pub rules: Vec<Rule>,
    /// Tags.
    #[serde(deserialize_with = "null_is_default", default)]
    pub tags: Vec<String>,
}

/// A rule of a security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Its id.
    pub id: Id,
    /// `ingress` or `egress`.
    pub direction: String,
    /// `tcp`, `udp`, ...; `None`: any.
    pub protocol: Option<String>,
    /// `IPv4` or `IPv6`.
    pub ethertype: String,
    /// From where; `None`: from everywhere, or from the ports of a group.
    pub remote_ip_prefix: Option<String>,
    /// From the ports of which group.
    #[serde(deserialize_with = "none_if_empty")]
    pub remote_group_id: Option<Id>,
    /// First port.
    pub port_range_min: Option<u16>,
    /// Last port.
    pub port_range_max: Option<u16>,
    /// A mark of the owner.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
}
