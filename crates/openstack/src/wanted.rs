//! What shall exist in Octavia for a Service. Pure: from the wish, what is chosen, and what the load balancer's
//! provider can do.

mod families;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use landfall_model::listener::{Algorithm, AllowedSources, Check, ProxyProtocol};
use landfall_model::{Code, Intent, Listener, LoadBalancerWish, Protocol, Reason};
use serde::{Deserialize, Serialize};

pub(crate) use families::keep_of_vips;

use crate::choice::Choice;
use crate::features::Features;
use crate::names::Names;
use crate::objects::Id;
use crate::settings::Settings;
use families::EVERYBODY;

/// A listener with its pool, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedListener {
    /// Its name, if it is made now.
    pub name: String,
    /// Transport protocol, which with the port tells listeners apart.
    pub transport: Protocol,
    /// Octavia's protocol.
    pub protocol: String,
    /// The port.
    pub port: u16,
    /// Connections at once; -1 is no limit.
    pub connection_limit: i64,
    /// Client data, member connect, member data, TCP inspect; milliseconds. `None`: not for this provider.
    pub timeouts: Option<[u64; 4]>,
    /// Headers, of those that are ours to set.
    pub headers: BTreeMap<String, String>,
    /// The certificate.
    pub tls: Option<String>,
    /// Who may connect; `None`: not for this provider.
    pub allowed: Option<BTreeSet<String>>,
    /// Tags.
    pub tags: Vec<String>,
    /// Its pool.
    pub pool: WantedPool,
}

/// A pool, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPool {
    /// Its name, if it is made now.
    pub name: String,
    /// Octavia's protocol.
    pub protocol: String,
    /// Octavia's word for how a member is chosen.
    pub algorithm: String,
    /// Clients keep their member.
    pub sticky: bool,
    /// Further tags.
    pub tags: Vec<String>,
    /// Its members, by address and port.
    pub members: BTreeMap<IpAddr, WantedMember>,
    /// Its monitor.
    pub monitor: Option<WantedMonitor>,
}

/// A member, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMember {
    /// Its name: the node's.
    pub name: String,
    /// The NodePort.
    pub port: u16,
    /// The subnet over which it is reached; `None`: whichever.
    pub subnet: Option<Id>,
    /// The port that the monitor asks instead.
    pub monitor_port: Option<u16>,
}

/// A monitor, as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMonitor {
    /// Its name.
    pub name: String,
    /// Octavia's type.
    #[serde(rename = "type")]
    pub kind: String,
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

/// The headers that are ours to set and to take away.
pub const HEADERS: [&str; 3] = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port"];

/// Where nodes tell whether they have an endpoint.
const HEALTHZ: &str = "/healthz";

/// What listeners shall be there, in the order of the Service's ports; and what can't be had, or not so.
pub fn listeners(
    intent: &Intent,
    wish: &LoadBalancerWish,
    choice: &Choice,
    names: &Names,
    settings: &Settings,
    features: Features,
    member_subnet: Option<&Id>,
) -> (Vec<WantedListener>, Vec<Reason>) {
    let mut scene = Scene {
        intent,
        wish,
        choice,
        names,
        settings,
        features,
        member_subnet,
        reasons: Vec::new(),
    };
    let mut wanted = Vec::with_capacity(wish.listeners.len());
    for (index, key) in wish.order.iter().enumerate() {
        if let Some(listener) = wish.listeners.iter().find(|listener| listener.key == *key) {
            wanted.push(scene.listener(index, listener));
        }
    }
    (wanted, scene.reasons)
}

/// A short text that changes with what is wanted.
pub fn fingerprint(listeners: &[WantedListener]) -> String {
    let text = serde_json::to_string(listeners).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

struct Scene<'a> {
    intent: &'a Intent,
    wish: &'a LoadBalancerWish,
    choice: &'a Choice,
    names: &'a Names,
    settings: &'a Settings,
    features: Features,
    member_subnet: Option<&'a Id>,
    reasons: Vec<Reason>,
}

// === impl Scene ===

impl Scene<'_> {
    fn listener(&mut self, index: usize, listener: &Listener) -> WantedListener {
        let tcp = listener.key.protocol == Protocol::Tcp;
        let tls = self.choice.tls.clone().filter(|_| tcp);
        let protocol = match (&tls, listener.mode.http()) {
            (Some(_), _) => "TERMINATED_HTTPS",
            (None, Some(_)) => "HTTP",
            (None, None) => listener.key.protocol.as_str(),
        };
        self.judge(listener, protocol);
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
        let cloud = &self.intent.cloud;
        let mut tags = vec![self.names.load_balancer.clone()];
        if let Some(given) = &cloud.listener_tags {
            tags.extend(given.value.iter().cloned());
        }
        let timeouts = &listener.timeouts;
        let milliseconds =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        WantedListener {
            name: self.names.child("listener", index),
            transport: listener.key.protocol,
            protocol: protocol.to_owned(),
            port: listener.key.port.get(),
            connection_limit: listener.connection_limit.map_or(-1, i64::from),
            timeouts: self.features.timeouts().then(|| {
                [
                    milliseconds(timeouts.client_data),
                    milliseconds(timeouts.member_connect),
                    milliseconds(timeouts.member_data),
                    milliseconds(timeouts.tcp_inspect),
                ]
            }),
            headers,
            tls,
            allowed: self
                .features
                .allowed_cidrs()
                .then(|| Self::allowed(&listener.allowed)),
            tags: if self.features.tags() {
                tags
            } else {
                Vec::new()
            },
            pool: self.pool(index, listener, protocol),
        }
    }

    /// Of both families: those that the load balancer has no address of are left out later.
    fn allowed(allowed: &AllowedSources) -> BTreeSet<String> {
        match allowed {
            AllowedSources::Only(prefixes) => prefixes
                .iter()
                .map(|prefix| prefix.trunc().to_string())
                .collect(),
            AllowedSources::All => EVERYBODY.map(str::to_owned).into(),
        }
    }

    fn pool(&mut self, index: usize, listener: &Listener, listener_protocol: &str) -> WantedPool {
        let pool = &listener.pool;
        let protocol = match (pool.proxy_protocol, listener_protocol) {
            (Some(ProxyProtocol::V1), _) => "PROXY",
            (Some(ProxyProtocol::V2), _) => "PROXYV2",
            (None, "HTTP" | "TERMINATED_HTTPS") => "HTTP",
            (None, other) => other,
        };
        let algorithm = self.algorithm(pool.algorithm);
        let monitor = self.monitor(index, listener);
        let asks_node = monitor.as_ref().is_some_and(|it| {
            it.http.as_ref().is_some_and(|(_, path, _)| path == HEALTHZ)
                && self.wish.health_check_port.is_some()
        });
        let own_port = pool
            .monitor
            .as_ref()
            .and_then(|it| it.port)
            .filter(|_| !self.features.ovn);
        let monitor_port = match (asks_node, own_port) {
            (true, _) => self.wish.health_check_port,
            (false, port) => port,
        };
        let members = pool.members.iter().map(|member| {
            let wanted = WantedMember {
                name: member.name.as_deref().unwrap_or_default().to_owned(),
                port: member.address.port(),
                subnet: self.member_subnet.cloned(),
                monitor_port: monitor_port.map(std::num::NonZeroU16::get),
            };
            (member.address.ip(), wanted)
        });
        let tags = self.intent.cloud.pool_tags.as_ref();
        WantedPool {
            name: self.names.child("pool", index),
            protocol: protocol.to_owned(),
            algorithm,
            sticky: pool.affinity.is_some(),
            tags: tags
                .filter(|_| self.features.tags())
                .map(|given| given.value.clone())
                .unwrap_or_default(),
            members: members.collect(),
            monitor,
        }
    }

    fn algorithm(&mut self, algorithm: Algorithm) -> String {
        let word = match algorithm {
            Algorithm::RoundRobin => "ROUND_ROBIN",
            Algorithm::LeastConnections => "LEAST_CONNECTIONS",
            Algorithm::SourceIp => "SOURCE_IP",
            Algorithm::SourceIpPort => "SOURCE_IP_PORT",
        };
        if !self.features.ovn || algorithm == Algorithm::SourceIpPort {
            return word.to_owned();
        }
        if algorithm != Algorithm::RoundRobin {
            self.remark(
                Reason::warning(
                    Code::OptionNotSupported,
                    format!(
                        "the provider ovn does not know {word}, so SOURCE_IP_PORT holds instead"
                    ),
                )
                .remedy("ask for SOURCE_IP_PORT, or for another provider"),
            );
        }
        "SOURCE_IP_PORT".to_owned()
    }

    fn monitor(&mut self, index: usize, listener: &Listener) -> Option<WantedMonitor> {
        let monitor = listener.pool.monitor.as_ref()?;
        let transport = listener.key.protocol;
        let udp = transport == Protocol::Udp;
        let get = || Some(("GET".to_owned(), HEALTHZ.to_owned(), "200".to_owned()));
        let (kind, http) = match &monitor.check {
            Check::Http {
                method,
                path,
                codes,
            } if self.features.http_monitor(udp) => {
                let codes: String = codes.clone().into();
                let method = serde_json::to_value(method).ok();
                let method = method
                    .as_ref()
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or("GET");
                ("HTTP", Some((method.to_owned(), path.clone(), codes)))
            }
            _ if self.wish.health_check_port.is_some() && self.features.http_monitor(udp) => {
                ("HTTP", get())
            }
            _ => match transport {
                Protocol::Tcp => ("TCP", None),
                Protocol::Udp => ("UDP-CONNECT", None),
                Protocol::Sctp => ("SCTP", None),
            },
        };
        if kind == "SCTP" && self.features.ovn {
            self.remark(Reason::warning(
                Code::OptionNotSupported,
                "the provider ovn has no monitor for SCTP, so there is none",
            ));
            return None;
        }
        Some(WantedMonitor {
            name: self.names.child("monitor", index),
            kind: kind.to_owned(),
            delay: monitor.delay.as_secs(),
            timeout: monitor.timeout.as_secs(),
            max_retries: monitor.max_retries,
            max_retries_down: monitor.max_retries_down,
            http,
        })
    }

    /// What the provider of the load balancer can't do.
    fn judge(&mut self, listener: &Listener, protocol: &str) {
        let features = self.features;
        let key = listener.key;
        if features.ovn && !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            self.refuse(format!(
                "the provider ovn passes bytes unread, and port {key} would need {protocol}"
            ));
        }
        match listener.pool.proxy_protocol {
            Some(_) if features.ovn => {
                self.refuse("the provider ovn writes no PROXY headers".to_owned());
            }
            Some(_) if key.protocol != Protocol::Tcp => self.refuse(format!(
                "Octavia writes PROXY headers ahead of TCP only, and port {key} is {}",
                key.protocol
            )),
            Some(ProxyProtocol::V2) if !features.proxy_v2() => self.refuse(format!(
                "PROXY headers of version 2 need version 2.22 of Octavia's API, which here is {}",
                features.version()
            )),
            _ => {}
        }
        if key.protocol == Protocol::Sctp && !features.sctp() {
            self.refuse(format!(
                "SCTP needs version 2.23 of Octavia's API, which here is {}",
                features.version()
            ));
        }
        if features.ovn && listener.connection_limit.is_some() {
            self.remark(Reason::warning(
                Code::OptionNotSupported,
                "the provider ovn has no connection limit",
            ));
        }
        if matches!(listener.allowed, AllowedSources::Only(_)) && !features.allowed_cidrs() {
            self.judge_unfiltered();
        }
    }

    /// OVN keeps the client's address, so that groups on the nodes can filter; otherwise nothing does.
    fn judge_unfiltered(&mut self) {
        if self.features.ovn && self.settings.conf.manage_security_groups {
            return;
        }
        let why = if self.features.ovn {
            "the provider ovn does not filter by source, and security groups are not managed"
                .to_owned()
        } else {
            format!(
                "source ranges need version 2.12 of Octavia's API, which here is {}",
                self.features.version()
            )
        };
        if self.settings.strict_source_ranges {
            self.remark(
                Reason::error(Code::SourceRangesNotEnforced, why)
                    .at("spec.loadBalancerSourceRanges")
                    .remedy(
                        "set manage-security-groups for the provider ovn, choose another provider, or set \
                         strictSourceRanges to false to expose the Service to everybody",
                    ),
            );
        } else {
            self.remark(
                Reason::warning(Code::SourceRangesNotEnforced, why)
                    .at("spec.loadBalancerSourceRanges"),
            );
        }
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
