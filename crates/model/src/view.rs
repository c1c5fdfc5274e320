//! Landfall's state as people see it: one shape for the status page, the JSON API, `get` and
//! `explain`. Only plain data that goes to JSON and comes back.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

mod bgp;
mod times;

pub use bgp::{AnnouncementView, BfdView, PeerMessages, PeerView, RouteView};
pub use times::TimesView;

use crate::id::{ServiceKey, Uid};
use crate::intent::{AddressSpec, LeftOut};
use crate::listener::{
    Algorithm, AllowedSources, ClientAffinity, ListenerKey, Monitor, ProxyProtocol,
};
use crate::plan::PlannedStep;
use crate::reason::Reason;
use crate::rows::{AddressRange, CoolingAddress};
use crate::status::ServiceStatus;

/// Everything one running instance knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// The version of the program.
    pub version: String,
    /// When it started, RFC 3339.
    pub started: String,
    /// Whether every fact that was there at the start is known and every Service was handled once.
    pub ready: bool,
    /// What it still waits for, one clause each; empty once it is ready.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waiting: Vec<String>,
    /// What is wrong with the sources themselves.
    pub problems: Vec<Reason>,
    /// Address pools and what is left of them.
    pub pools: Vec<PoolView>,
    /// Services of type LoadBalancer that are this instance's, by key.
    pub services: Vec<ServiceView>,
    /// The sessions with routers, where this process has any.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peers: Vec<PeerView>,
    /// What is announced to routers.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub routes: Vec<RouteView>,
}

/// An address pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its ranges as written.
    pub addresses: Vec<String>,
    /// IPv4 addresses in use and left.
    pub assigned_ipv4: u64,
    /// IPv4 addresses left.
    pub available_ipv4: u64,
    /// IPv6 addresses in use.
    pub assigned_ipv6: u64,
    /// IPv6 addresses left (saturating).
    pub available_ipv6: u64,
    /// IPv4 addresses that one namespace may hold, where that is limited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_ipv4: Option<u64>,
    /// IPv6 addresses that one namespace may hold, where that is limited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_ipv6: Option<u64>,
    /// IPv4 addresses in use by the namespace that has the most.
    #[serde(default)]
    pub largest_ipv4: u64,
    /// IPv6 addresses in use by the namespace that has the most.
    #[serde(default)]
    pub largest_ipv6: u64,
    /// Addresses that no Service gets yet because another one released them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cooling: Vec<CoolingAddress>,
    /// Addresses that Services have, where another one gets a released address only after a while.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held: Vec<AddressRange>,
}

/// One Service: spec, address, listeners, members, and why each is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Namespace and name.
    pub key: ServiceKey,
    /// Identity.
    pub uid: Uid,
    /// The class, where it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<String>,
    /// The file and line it comes from, where it comes from a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<crate::reason::Origin>,
    /// What was reported: addresses and conditions.
    pub status: ServiceStatus,
    /// Everything there is to say about it, worst first.
    pub reasons: Vec<Reason>,
    /// The requested address; absent when the spec is invalid.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<AddressSpec>,
    /// What nodes do for its addresses, where they announce them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub announcements: Vec<AnnouncementView>,
    /// The listeners as they are now.
    pub listeners: Vec<ListenerView>,
    /// Endpoints in no pool.
    pub left_out: Vec<LeftOut>,
    /// Steps that are planned and not done.
    pub pending: Vec<PlannedStep>,
    /// Whether it is being removed, and something of it is left.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub removing: bool,
}

/// A listener that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerView {
    /// The addresses it listens on.
    pub addresses: Vec<IpAddr>,
    /// Protocol and port.
    pub key: ListenerKey,
    /// The name of the Service port.
    pub name: String,
    /// `stream`, `tls`, `http`, `https`.
    pub mode: String,
    /// Why it does not serve, if so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Reason>,
    /// Traffic so far.
    pub traffic: TrafficView,
    /// What else was counted, where it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<Box<MeasuredView>>,
    /// How members are chosen.
    pub algorithm: Algorithm,
    /// Which clients may connect.
    #[serde(default)]
    pub allowed: AllowedSources,
    /// How many connections may be open at once, where that is limited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection_limit: Option<u32>,
    /// How long a client keeps its member, where it does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub affinity: Option<ClientAffinity>,
    /// PROXY protocol toward members.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How members are checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub monitor: Option<Monitor>,
    /// The members.
    pub members: Vec<MemberView>,
}

/// A member of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// Where connections go.
    pub address: SocketAddr,
    /// The pod's name, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The node, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// Weight.
    pub weight: u16,
    /// Backup member.
    pub backup: bool,
    /// Its state.
    pub health: Health,
    /// In plain words, why it is in that state: the last failed check, "terminating", ...
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
    /// Traffic so far.
    pub traffic: TrafficView,
}

/// Whether a member gets new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Not checked yet; gets connections.
    #[default]
    Unknown,
    /// Has no checks; gets connections, and none is known to fail.
    Unchecked,
    /// Passes its checks.
    Up,
    /// Connections to it fail one after the other; gets new ones nevertheless, or is left out for a
    /// while, where the Service asks for outlier detection.
    Failing,
    /// Fails its checks; gets nothing new.
    Down,
    /// Leaving: keeps what it has.
    Draining,
}

/// Counted traffic, since the listener (or member) was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficView {
    /// Connections (UDP: flows) open now.
    pub open: u64,
    /// Connections ever.
    pub connections: u64,
    /// Connections that could not be served, for whatever reason.
    pub failed: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Times that the health turned. Members only.
    #[serde(default)]
    pub health_changes: u64,
}

/// What a listener counts beside its traffic. Only what is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredView {
    /// HTTP responses by status class: `1xx` to `5xx`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub responses: BTreeMap<String, u64>,
    /// What was turned away, by reason: `no_member`, `share`, ... A small, fixed set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub refused: BTreeMap<String, u64>,
    /// What failed on this side, by cause: `descriptors`, ... A small, fixed set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub local_failures: BTreeMap<String, u64>,
    /// Streams that one side broke off, by side and error: `client_reset`, ... A small, fixed set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub broken: BTreeMap<String, u64>,
    /// Connections and requests that wait for a member now, each of which has as much as it may.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub waiting: u64,
    /// How long things took. For metrics only.
    #[serde(skip)]
    pub times: BTreeMap<&'static str, TimesView>,
}

/// What the data plane of the process has for traffic, and uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesView {
    /// Threads that carry traffic.
    pub workers: u64,
    /// File descriptors of connections and flows.
    pub descriptors: u64,
    /// How many there may be at present.
    pub descriptor_limit: u64,
    /// Sockets of listeners.
    pub listener_sockets: u64,
    /// UDP flows.
    pub flows: u64,
    /// How many there may be.
    pub flow_limit: u64,
    /// Bytes of buffers beyond what each connection has anyway.
    pub memory: u64,
    /// How many there may be.
    pub memory_limit: u64,
    /// Health checks that began.
    #[serde(default)]
    pub checks: u64,
    /// Health checks that had to wait for their turn.
    #[serde(default)]
    pub delayed_checks: u64,
    /// Health checks that wait for their turn now.
    #[serde(default)]
    pub waiting_checks: u64,
    /// Refusals and failures for want of descriptors, ports or memory.
    pub shortages: u64,
    /// Whether some of them run short, or did lately.
    pub overloaded: bool,
    /// Lines of the access log that were not written.
    pub lost_access_log_lines: u64,
    /// Failures that are not in the access log because there were too many of their Service.
    #[serde(default)]
    pub left_out_access_log_lines: u64,
}

/// What the engine counts about its own work, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsView {
    /// How long each reconcile of a Service took, in seconds.
    pub reconcile_seconds: HistogramView,
    /// Reconciles by outcome: `settled`, `busy`, `refused`, `failed`, `stuck`, ... A small, fixed
    /// set.
    pub reconciles: BTreeMap<String, u64>,
    /// Steps that were carried out, by kind: `listen`, `assign`, ... A small, fixed set.
    pub steps: BTreeMap<String, u64>,
    /// Steps that failed, by kind.
    pub failed_steps: BTreeMap<String, u64>,
    /// Services that wait for a reconcile now.
    pub queued: u64,
    /// Events that were aggregated into the count of another one.
    #[serde(default)]
    pub events_aggregated: u64,
    /// Events that were not sent.
    #[serde(default)]
    pub events_dropped: u64,
    /// Turns of the control loop.
    #[serde(default)]
    pub turns: u64,
    /// Times that another program rewrote what was written on a Service.
    #[serde(default)]
    pub status_rewrites: u64,
    /// What was asked of clouds.
    #[serde(default)]
    pub cloud_calls: Vec<CloudCallsView>,
    /// Log lines that could not be written.
    #[serde(default)]
    pub lost_log_lines: u64,
    /// Log lines that were left out because of what they are about.
    #[serde(default)]
    pub left_out_log_lines: u64,
    /// Secrets that are watched for Services, where there is a cluster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secrets: Option<SecretsView>,
    /// The data plane, where this process has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resources: Option<ResourcesView>,
    /// What a speaker does, where this process is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speaker: Option<SpeakerMetrics>,
}

/// What a speaker does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerMetrics {
    /// What it announces.
    pub announces: Vec<AnnouncedView>,
    /// Addresses that it is to announce and cannot.
    pub failing: u64,
    /// Live speakers, this one included.
    pub members: u64,
    /// Members that did not answer any more, since the start.
    pub members_died: u64,
    /// Suspicions that this speaker raised.
    pub suspicions: u64,
    /// Suspicions of this speaker that it refuted.
    pub refuted: u64,
    /// Times that this process did not run when it was to.
    pub pauses: u64,
    /// Datagrams that were not accepted, by reason. A small, fixed set.
    pub datagrams_refused: BTreeMap<String, u64>,
}

/// An address that a speaker announces for a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncedView {
    /// `layer2` or `bgp`.
    pub protocol: String,
    /// The node of the speaker.
    pub node: String,
    /// The address.
    pub address: IpAddr,
    /// The Service.
    pub service: ServiceKey,
}

/// How many Secrets are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretsView {
    /// Those that are.
    pub watched: u64,
    /// How many may be.
    pub limit: u64,
    /// Those that are named and not watched, because there are too many.
    pub refused: u64,
}

/// Requests of one kind to a cloud, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudCallsView {
    /// The instance that asked.
    pub instance: String,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The kind of object: `loadbalancer`, `listener`, ... A small, fixed set.
    pub resource: String,
    /// `ok`, or the kind of error. A small, fixed set.
    pub outcome: String,
    /// How many, and how long they took.
    pub times: TimesView,
}

/// Observations counted by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistogramView {
    /// Upper bounds in rising order, each with the observations that fit under it and under no
    /// lower one. Larger observations are only in `count`.
    pub buckets: Vec<(f64, u64)>,
    /// All observations added up.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

// === impl Health ===

impl Health {
    /// One lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Unchecked => "unchecked",
            Self::Up => "up",
            Self::Failing => "failing",
            Self::Down => "down",
            Self::Draining => "draining",
        }
    }

    /// Whether a member of this health gets new connections, as far as is known to good effect.
    pub fn serves(self) -> bool {
        match self {
            Self::Unknown | Self::Unchecked | Self::Up => true,
            Self::Failing | Self::Down | Self::Draining => false,
        }
    }
}

// === impl MeasuredView ===

impl MeasuredView {
    /// Adds what the same listener counted at another address.
    pub fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        let counts = [
            (&mut self.responses, other.responses),
            (&mut self.refused, other.refused),
            (&mut self.local_failures, other.local_failures),
            (&mut self.broken, other.broken),
        ];
        for (into, from) in counts {
            for (name, count) in from {
                *into.entry(name).or_default() += count;
            }
        }
        for (name, times) in other.times {
            self.times.entry(name).or_default().add(&times);
        }
    }
}

// === impl ServiceView ===

impl ServiceView {
    /// Members that get new connections, and all members, over every listener.
    pub fn healthy_of_total(&self) -> (usize, usize) {
        let members = self.listeners.iter().flat_map(|listener| &listener.members);
        members.fold((0, 0), |(healthy, total), member| {
            let serves = member.health.serves();
            (healthy + usize::from(serves), total + 1)
        })
    }
}
