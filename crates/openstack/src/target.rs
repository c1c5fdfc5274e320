//! What shall exist in Octavia for a Service. Pure: from the spec, what is chosen, and what the
//! load balancer's provider can do.

mod build;
mod by_address;
pub(crate) mod choice;
mod fixed;
mod monitor;
pub(crate) mod pods;
mod ranges;
pub(crate) mod secondary;
mod support;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use landfall_model::listener::{Algorithm, AllowedSources, ProxyProtocol, Timeouts};
use landfall_model::rows::Family;
use landfall_model::{Code, Intent, Listener, LoadBalancerSpec, Protocol, Reason};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::certificates::CertificateView;
use crate::features::Features;
use crate::graph::MemberKey;
use crate::names::Names;
use crate::objects::{
    Id, ListenerProtocol, LoadBalancer, MonitorType, PoolAlgorithm, PoolProtocol,
};
use crate::settings::{OVN, Settings};
use choice::Choice;
use pods::weight as weight_of_pod;
use ranges::ALL;

pub(crate) use build::{Basis, build};
pub(crate) use ranges::keep_of_vips;

/// A reason, and the name of the event by which users know it.
pub(crate) type Notice = (&'static str, Reason);

/// A listener with its pool, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedListener {
    /// Its name, if it is made now.
    pub name: String,
    /// Transport protocol, which with the port identifies a listener.
    pub transport: Protocol,
    /// Octavia's protocol.
    pub protocol: ListenerProtocol,
    /// The port.
    pub port: u16,
    /// Connections at once; -1 is no limit.
    pub connection_limit: i64,
    /// Its timeouts; `None`: not for this provider.
    pub timeouts: Option<ListenerTimeouts>,
    /// Headers, of those that are ours to set.
    pub headers: BTreeMap<String, String>,
    /// All of [`HEADERS`] are ours to set and to take away. See [`WantedListener::manages`].
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub all_headers: bool,
    /// The certificate.
    pub tls: Option<String>,
    /// Further certificates, which clients get by the name that they ask for; `None`: as they are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sni: Option<BTreeSet<String>>,
    /// The versions of TLS; `None`: as they are, or Octavia's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls_versions: Option<BTreeSet<String>>,
    /// The ciphers of TLS; `None`: as they are, or Octavia's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls_ciphers: Option<String>,
    /// The protocols offered by ALPN; `None`: as they are, or Octavia's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub alpn: Option<Vec<String>>,
    /// A certificate that it needs can't be named yet. Until then what is there stays, and follows
    /// the nodes.
    #[serde(skip)]
    pub pending: bool,
    /// Clients that may connect; `None`: not for this provider.
    pub allowed: Option<BTreeSet<String>>,
    /// Tags.
    pub tags: Vec<String>,
    /// Its pool.
    pub pool: WantedPool,
}

/// Timeouts of a listener, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerTimeouts {
    /// Of a client that sends nothing.
    pub client_data: u64,
    /// Of a connection to a member.
    pub member_connect: u64,
    /// Of a member that sends nothing.
    pub member_data: u64,
    /// Of the first bytes of a connection.
    pub tcp_inspect: u64,
}

/// A pool, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPool {
    /// Its name, if it is made now.
    pub name: String,
    /// Octavia's protocol.
    pub protocol: PoolProtocol,
    /// How a member is chosen.
    pub algorithm: PoolAlgorithm,
    /// Clients keep their member.
    pub sticky: bool,
    /// Further tags.
    pub tags: Vec<String>,
    /// Whether its members are pods.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub pods: bool,
    /// Its members, by address and port.
    #[serde(with = "by_address")]
    pub members: BTreeMap<MemberKey, WantedMember>,
    /// Its monitor.
    pub monitor: Option<WantedMonitor>,
}

/// A member, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMember {
    /// Its name: the node's, or namespace and name of the pod.
    pub name: String,
    /// The NodePort, or the pod's port.
    pub port: u16,
    /// The subnet over which it is reached; `None`: whichever.
    pub subnet: Option<Id>,
    /// The port that the monitor asks instead.
    pub monitor_port: Option<u16>,
    /// Its share of new connections; `None`: what it has, or Octavia's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub weight: Option<u16>,
    /// Whether it serves only while no other can; `None`: as it is, or Octavia's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backup: Option<bool>,
}

/// A monitor, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMonitor {
    /// Its name.
    pub name: String,
    /// Octavia's type.
    #[serde(rename = "type")]
    pub kind: MonitorType,
    /// Seconds.
    pub delay: u64,
    /// Seconds.
    pub timeout: u64,
    /// Good checks that bring a member back.
    pub max_retries: u8,
    /// Failed checks that take a member out.
    pub max_retries_down: u8,
    /// Method, path and good codes of an HTTP check.
    pub http: Option<(String, String, String)>,
}

/// The headers that can be ours to set and to take away, that of the reference first.
pub const HEADERS: [&str; 3] = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port"];

/// What Octavia calls its driver for virtual machines.
const AMPHORAE: [&str; 3] = ["amphora", "octavia", "amphorav2"];

/// Where nodes report whether they have an endpoint.
const HEALTHZ: &str = "/healthz";

/// The listeners that shall be there, in the order of the Service's ports; and what can't be had,
/// or not so.
fn listeners(basis: &Basis<'_>, choice: &Choice) -> (Vec<WantedListener>, Vec<Reason>) {
    let mut builder = ListenerBuilder {
        intent: basis.intent,
        spec: basis.spec,
        choice,
        names: basis.names,
        settings: basis.settings,
        features: basis.features,
        member_subnet: choice.member_subnet.as_ref(),
        // A new load balancer would be refused as a whole: its pools get it once they are there.
        tries_source_ip: basis.balancer.is_some(),
        takes_source_ip: basis.takes_source_ip,
        certificates: basis.certificates,
        reasons: Vec::new(),
    };
    let spec = basis.spec;
    let mut wanted = Vec::with_capacity(spec.listeners.len());
    for (index, key) in spec.order.iter().enumerate() {
        if let Some(listener) = spec.listeners.iter().find(|listener| listener.key == *key) {
            wanted.push(builder.listener(index, listener));
        }
    }
    builder.check_service(&wanted);
    (wanted, builder.reasons)
}

/// Version of [`fingerprint`]: another one is read as a change of everything.
const FINGERPRINT: &str = "v1:";

/// A short text that changes with what is wanted; the part before its `-` not with members. It is
/// stored on Services, so that it must not depend on the compiler.
pub fn fingerprint(listeners: &[WantedListener]) -> String {
    let mut shape = listeners.to_vec();
    for listener in &mut shape {
        listener.pool.members.clear();
    }
    format!("{FINGERPRINT}{}-{}", hash_of(&shape), hash_of(listeners))
}

/// The first 64 bits of a hash, in hexadecimal digits.
fn hash_of(listeners: &[WantedListener]) -> String {
    let text = serde_json::to_vec(listeners).unwrap_or_default();
    let digest = Sha256::digest(text);
    let first = digest.iter().take(8);
    let number = first.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

struct ListenerBuilder<'a> {
    intent: &'a Intent,
    spec: &'a LoadBalancerSpec,
    choice: &'a Choice,
    names: &'a Names,
    settings: &'a Settings,
    features: Features,
    member_subnet: Option<&'a Id>,
    tries_source_ip: bool,
    takes_source_ip: Option<bool>,
    certificates: &'a CertificateView,
    reasons: Vec<Reason>,
}

// === impl ListenerTimeouts ===

impl ListenerTimeouts {
    fn of(timeouts: &Timeouts) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            client_data: milliseconds(timeouts.client_data),
            member_connect: milliseconds(timeouts.member_connect),
            member_data: milliseconds(timeouts.member_data),
            tcp_inspect: milliseconds(timeouts.tcp_inspect),
        }
    }
}

// === impl WantedListener ===

impl WantedListener {
    /// Whether one of [`HEADERS`] is taken away where it is not wanted. The reference knows
    /// `X-Forwarded-For` only, and leaves what users set by hand beside it.
    pub fn manages(&self, header: &str) -> bool {
        let [of_reference, ..] = HEADERS;
        self.all_headers || header == of_reference || self.headers.contains_key(header)
    }
}

// === impl ListenerBuilder ===

impl ListenerBuilder<'_> {
    fn listener(&mut self, index: usize, listener: &Listener) -> WantedListener {
        let ending = self.ending(listener);
        let protocol = match (&ending, listener.mode.http()) {
            (Some(_), _) => ListenerProtocol::TerminatedHttps,
            (None, Some(_)) => ListenerProtocol::Http,
            (None, None) => match listener.key.protocol {
                Protocol::Tcp => ListenerProtocol::Tcp,
                Protocol::Udp => ListenerProtocol::Udp,
                Protocol::Sctp => ListenerProtocol::Sctp,
            },
        };
        self.check(listener, &protocol);
        let mut headers = BTreeMap::new();
        if let Some(http) = listener.mode.http() {
            for (name, wanted) in HEADERS.into_iter().zip([
                http.forwarded_for,
                http.forwarded_proto,
                http.forwarded_port,
            ]) {
                if wanted {
                    headers.insert(name.to_owned(), "true".to_owned());
                }
            }
        }
        let cloud = &self.intent.extensions.openstack;
        let mut tags = vec![self.names.load_balancer.clone()];
        if let Some(given) = &cloud.listener_tags {
            tags.extend(given.value.iter().cloned());
        }
        let pool = self.pool(index, listener, &protocol);
        WantedListener {
            name: self.names.child("listener", index),
            transport: listener.key.protocol,
            protocol,
            port: listener.key.port.get(),
            connection_limit: listener.connection_limit.map_or(-1, i64::from),
            timeouts: self
                .features
                .timeouts()
                .then(|| ListenerTimeouts::of(&listener.timeouts)),
            all_headers: listener.said.headers && listener.mode.http().is_some(),
            headers,
            tls: ending.as_ref().and_then(|it| it.certificate.clone()),
            sni: ending.as_ref().and_then(|it| it.others.clone()),
            tls_versions: ending.as_ref().and_then(|it| it.versions.clone()),
            tls_ciphers: ending.as_ref().and_then(|it| it.ciphers.clone()),
            alpn: ending.as_ref().and_then(|it| it.alpn.clone()),
            pending: ending.is_some_and(|it| it.pending),
            allowed: self
                .features
                .allowed_cidrs()
                .then(|| Self::allowed(&listener.allowed)),
            tags: if self.features.tags() {
                tags
            } else {
                Vec::new()
            },
            pool,
        }
    }

    /// Of both families: those that the load balancer has no address of are left out later.
    fn allowed(allowed: &AllowedSources) -> BTreeSet<String> {
        match allowed {
            AllowedSources::Only(prefixes) => prefixes
                .iter()
                .map(|prefix| prefix.trunc().to_string())
                .collect(),
            AllowedSources::All => ALL.map(str::to_owned).into(),
        }
    }

    fn pool(
        &mut self,
        index: usize,
        listener: &Listener,
        listener_protocol: &ListenerProtocol,
    ) -> WantedPool {
        let pool = &listener.pool;
        let protocol = match (pool.proxy_protocol, listener_protocol) {
            (Some(ProxyProtocol::V1), _) => PoolProtocol::Proxy,
            (Some(ProxyProtocol::V2), _) => PoolProtocol::ProxyV2,
            (None, ListenerProtocol::TerminatedHttps) => PoolProtocol::Http,
            (None, other) => PoolProtocol::from(other.as_str()),
        };
        let algorithm = self.algorithm(pool.algorithm);
        let monitor = self.monitor(index, listener);
        let asks_node = monitor.as_ref().is_some_and(|it| {
            it.http.as_ref().is_some_and(|(_, path, _)| path == HEALTHZ)
                && self.spec.health_check_port.is_some()
        });
        let own_port = pool
            .monitor
            .as_ref()
            .and_then(|it| it.port)
            .filter(|_| !self.features.ovn);
        let monitor_port = match (asks_node, own_port) {
            (true, _) => self.spec.health_check_port,
            (false, port) => port,
        };
        let (said, ovn, pods) = (listener.said, self.features.ovn, self.has_pods());
        let any_ready = pods && pool.members.iter().any(|it| !it.draining);
        let members = pool.members.iter().map(|member| {
            let weight = if pods {
                weight_of_pod(member, any_ready)
            } else {
                member.weight
            };
            let wanted = WantedMember {
                name: self.member_name(member),
                port: member.address.port(),
                subnet: self.member_subnet.cloned(),
                monitor_port: monitor_port.map(std::num::NonZeroU16::get),
                weight: ((said.weights || pods) && !ovn).then_some(weight),
                backup: (said.backups && !ovn).then_some(member.backup),
            };
            ((member.address.ip(), member.address.port()), wanted)
        });
        let tags = self.intent.extensions.openstack.pool_tags.as_ref();
        WantedPool {
            name: self.names.child("pool", index),
            protocol,
            algorithm,
            sticky: pool.affinity.is_some(),
            tags: tags
                .filter(|_| self.features.tags())
                .map(|given| given.value.clone())
                .unwrap_or_default(),
            pods,
            members: members.collect(),
            monitor,
        }
    }

    fn algorithm(&mut self, algorithm: Algorithm) -> PoolAlgorithm {
        let word = match algorithm {
            Algorithm::RoundRobin => PoolAlgorithm::RoundRobin,
            Algorithm::LeastConnections => PoolAlgorithm::LeastConnections,
            Algorithm::SourceIp => PoolAlgorithm::SourceIp,
            Algorithm::SourceIpPort => PoolAlgorithm::SourceIpPort,
        };
        let by_amphorae = AMPHORAE.contains(&self.choice.provider.as_str());
        let instead = match (self.features.ovn, algorithm) {
            (false, Algorithm::SourceIpPort) if by_amphorae => PoolAlgorithm::SourceIp,
            (false, _) | (true, Algorithm::SourceIpPort) => return word,
            // Round robin is what holds where the Service asks for none.
            (true, Algorithm::RoundRobin) => return PoolAlgorithm::SourceIpPort,
            (true, Algorithm::SourceIp) if self.takes_source_ip.unwrap_or(self.tries_source_ip) => {
                return word;
            }
            (true, Algorithm::SourceIp) if self.takes_source_ip.is_none() => {
                return PoolAlgorithm::SourceIpPort;
            }
            (true, _) => PoolAlgorithm::SourceIpPort,
        };
        let provider = if self.features.ovn {
            OVN
        } else {
            &self.choice.provider
        };
        let why = format!(
            "the provider {provider} does not support {word}, so {instead} is used instead"
        );
        self.remark(
            Reason::warning(Code::OptionNotSupported, why)
                .remedy(format!("write {instead}, or use another provider")),
        );
        instead
    }

    fn refuse(&mut self, why: String) {
        self.remark(
            Reason::error(Code::OptionNotSupported, why)
                .remedy("remove the option, or choose another provider of Octavia"),
        );
    }

    fn remark(&mut self, reason: Reason) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}

/// A load balancer that shall exist.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) choice: Choice,
    pub(crate) listeners: Vec<WantedListener>,
    /// What can't be had, or only otherwise.
    pub(crate) reasons: Vec<Reason>,
    /// Further VIPs.
    pub(crate) additional: Vec<FurtherVip>,
    /// Whether any node may be a member.
    pub(crate) has_nodes: bool,
}

/// A further VIP of a load balancer that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FurtherVip {
    /// Its subnet.
    pub(crate) subnet: Id,
    /// The address that is asked for; `None`: any.
    pub(crate) address: Option<IpAddr>,
}

/// Whether a Service gets a floating IP at all: a VIP of IPv6 is reached as it is.
pub(crate) fn is_floating(target: &Target, balancer: &LoadBalancer) -> bool {
    let v4 = balancer
        .vip_address
        .map_or(target.choice.family() == Family::V4, |it| it.is_ipv4());
    !target.choice.internal && (v4 || further_v4(target, balancer).is_some())
}

/// The further VIP of IPv4 that a load balancer has whose first one is IPv6, where the Service
/// wants one.
pub(crate) fn further_v4(target: &Target, balancer: &LoadBalancer) -> Option<IpAddr> {
    let six = balancer.vip_address.is_some_and(|it| it.is_ipv6());
    let wanted = six && target.choice.families.contains(&Family::V4);
    let further = balancer.additional_vips.iter();
    let mut four = further
        .filter_map(|vip| vip.ip_address)
        .filter(IpAddr::is_ipv4);
    four.next().filter(|_| wanted)
}

/// The address that is asked for of the floating IP.
pub(crate) fn requested(spec: &LoadBalancerSpec) -> Option<IpAddr> {
    let mut requested = spec.address.requested.iter().copied();
    requested.find(IpAddr::is_ipv4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listeners as they were written before more could be said of them.
    #[test]
    fn what_is_not_asked_for_leaves_no_trace_in_the_fingerprint() {
        let text = concat!(
            r#"{"name":"listener_0","transport":"TCP","protocol":"TCP","port":80,"#,
            r#""connection_limit":-1,"timeouts":null,"headers":{},"tls":null,"allowed":null,"#,
            r#""tags":[],"pool":{"name":"pool_0","protocol":"TCP","algorithm":"ROUND_ROBIN","#,
            r#""sticky":false,"tags":[],"members":{"10.0.0.4":{"name":"a","port":30080,"#,
            r#""subnet":null,"monitor_port":null}},"monitor":null}}"#,
        );
        let listener: WantedListener = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&listener).unwrap(), text);
    }

    #[test]
    fn the_fingerprint_of_a_spec_is_the_same_with_every_compiler() {
        assert_eq!(fingerprint(&[]), "v1:4f53cda18c2baa0c-4f53cda18c2baa0c");
    }
}
