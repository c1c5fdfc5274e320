//! Sessions with routers, and what they are sent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::ServiceKey;
use crate::reason::Reason;

/// The session of a node with a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// The name of its `BGPPeer`.
    pub name: String,
    /// The node.
    pub node: String,
    /// Where the router is: an address, or an interface of the node.
    pub address: String,
    /// Its TCP port.
    pub port: u16,
    /// The VRF.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vrf: Option<String>,
    /// The AS of this side, as the router sees it.
    pub local_asn: u32,
    /// The AS of the router: a number, `internal` or `external`.
    pub remote_asn: String,
    /// The state of the session (RFC 4271, 8.2.2).
    pub state: String,
    /// For how many seconds it is in this state.
    pub state_seconds: u64,
    /// This side's address of the session, while there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_address: Option<IpAddr>,
    /// The state of the BFD session, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bfd: Option<BfdView>,
    /// Prefixes that the router is to have.
    pub prefixes_wanted: u64,
    /// Prefixes that it was sent.
    pub prefixes_sent: u64,
    /// Announcements of prefixes that came from it, which are ignored.
    pub prefixes_received: u64,
    /// Messages, since the router was configured.
    pub messages: PeerMessages,
    /// What is wrong, and what can be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Reason>,
}

/// Messages of a session, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerMessages {
    /// OPEN sent.
    pub opens_sent: u64,
    /// OPEN received.
    pub opens_received: u64,
    /// UPDATE sent.
    pub updates_sent: u64,
    /// UPDATE received.
    pub updates_received: u64,
    /// KEEPALIVE sent.
    pub keepalives_sent: u64,
    /// KEEPALIVE received.
    pub keepalives_received: u64,
    /// NOTIFICATION sent.
    pub notifications_sent: u64,
    /// All that were sent.
    pub sent: u64,
    /// All that were received.
    pub received: u64,
}

/// The BFD session with a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BfdView {
    /// Its state (RFC 5880, 6.2).
    pub state: String,
    /// How often it came up.
    pub ups: u64,
    /// How often it went down.
    pub downs: u64,
    /// Control packets received.
    pub control_in: u64,
    /// Control packets sent.
    pub control_out: u64,
    /// Echoes that came back.
    pub echo_in: u64,
    /// Echoes sent.
    pub echo_out: u64,
    /// Why its packets can't be sent or received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
}

/// What a node does for an address of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementView {
    /// The node.
    pub node: String,
    /// `layer2` or `bgp`.
    pub protocol: String,
    /// The address.
    pub address: IpAddr,
    /// The prefix that it is in, where one is meant (BGP).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prefix: Option<String>,
    /// The router, by the name of its `BGPPeer`, where one is meant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// Whether the node announces it.
    pub announced: bool,
    /// Why not, in the word that MetalLB has for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// The same for people: where it is announced, or why not.
    pub message: String,
}

/// A prefix that a node announces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteView {
    /// The prefix.
    pub prefix: String,
    /// The node.
    pub node: String,
    /// The router, by the name of its `BGPPeer`.
    pub peer: String,
    /// Whether the session with the router is up.
    pub established: bool,
    /// The local preference, where one is written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_preference: Option<u32>,
    /// Communities, `A:B` and `large:A:B:C`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub communities: Vec<String>,
    /// The Services that have an address in it.
    pub services: Vec<ServiceKey>,
}
