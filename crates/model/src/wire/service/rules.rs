//! What the API server accepts in a Service's `spec`, and what it fills in.
//!
//! Each function validates one subject, reports everything that is wrong with it, and answers with
//! the best reading, so that later rules still have something to go by. What the API server has
//! admitted is read by the same functions, which then find only what can't be read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::listener::{DEFAULT_AFFINITY_TIMEOUT, Protocol};
use crate::rows::{Family, FamilyPolicy, ServicePort, TargetPort};
use crate::wire::findings::Findings;
use crate::wire::names;
use crate::wire::status::protocol;

use super::{IntOrText, ServicePortShape, ServiceSpec};

/// What `spec.type` says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

const AFFINITY_FIELD: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
const LONGEST_AFFINITY: i64 = 86_400;

// === impl ServiceSpec ===

impl ServiceSpec {
    pub(super) fn validate_kind(&self, findings: &mut Findings) -> Kind {
        match self.kind.as_deref() {
            None | Some("" | "ClusterIP") => Kind::ClusterIp,
            Some("NodePort") => Kind::NodePort,
            Some("LoadBalancer") => Kind::LoadBalancer,
            Some("ExternalName") => Kind::ExternalName,
            // A type of the future does not want a load balancer.
            Some(_) if findings.admitted() => Kind::ClusterIp,
            Some(other) => {
                findings.refuse(
                    "spec.type",
                    other,
                    "not a type of Service",
                    "write ClusterIP, NodePort, LoadBalancer or ExternalName",
                );
                // The rules of other fields depend on the type; assume the one that has most.
                Kind::LoadBalancer
            }
        }
    }

    pub(super) fn check_fields_of_load_balancers(&self, kind: Kind, findings: &mut Findings) {
        if let Some(class) = self
            .load_balancer_class
            .as_deref()
            .filter(|c| !c.is_empty())
        {
            findings.check("spec.loadBalancerClass", class, names::qualified);
        }
        if kind == Kind::LoadBalancer || findings.admitted() {
            return;
        }
        let present = [
            (
                "spec.loadBalancerClass",
                self.load_balancer_class
                    .as_ref()
                    .is_some_and(|c| !c.is_empty()),
            ),
            (
                "spec.loadBalancerSourceRanges",
                !self.load_balancer_source_ranges.is_empty(),
            ),
            (
                "spec.allocateLoadBalancerNodePorts",
                self.allocate_load_balancer_node_ports.is_some(),
            ),
        ];
        for (field, _) in present.into_iter().filter(|(_, present)| *present) {
            findings.missing(
                field,
                "is only allowed in a Service of type LoadBalancer",
                "remove it, or set spec.type to LoadBalancer",
            );
        }
    }

    pub(super) fn validate_cluster_ip(&self, kind: Kind, findings: &mut Findings) -> bool {
        let text = match self.cluster_ip.as_deref() {
            None | Some("") => return false,
            Some(text) => text,
        };
        let headless = text == "None";
        if headless {
            if matches!(kind, Kind::LoadBalancer | Kind::NodePort) {
                findings.refuse(
                    "spec.clusterIP",
                    text,
                    "a headless Service can't be of this type",
                    "remove the field",
                );
            }
        } else if text.parse::<IpAddr>().is_err() {
            findings.forbid(
                "spec.clusterIP",
                text,
                "not an IP address",
                "remove the field, or write an address or None",
            );
        }
        headless
    }

    pub(super) fn validate_ports(
        &self,
        kind: Kind,
        headless: bool,
        findings: &mut Findings,
    ) -> Vec<ServicePort> {
        let needs_one = match kind {
            Kind::LoadBalancer => true,
            Kind::ClusterIp | Kind::NodePort => !headless && !findings.admitted(),
            Kind::ExternalName => false,
        };
        if self.ports.is_empty() && needs_one {
            findings.missing("spec.ports", "the Service has no port", "list at least one");
        }
        let mut taken = Taken::default();
        let several = self.ports.len() > 1;
        self.ports
            .iter()
            .enumerate()
            .filter_map(|(index, port)| {
                let field = format!("spec.ports[{index}]");
                port.validate(&field, kind, several, &mut taken, findings)
            })
            .collect()
    }

    /// Families in order of preference, as the API server of a dual-stack cluster fills them in.
    pub(super) fn validate_families(&self, findings: &mut Findings) -> (Vec<Family>, FamilyPolicy) {
        let mut families = Vec::new();
        for (index, text) in self.ip_families.iter().enumerate() {
            let field = format!("spec.ipFamilies[{index}]");
            let family = match text.as_str() {
                "IPv4" => Family::V4,
                "IPv6" => Family::V6,
                other => {
                    findings.refuse(field, other, "not an address family", "write IPv4 or IPv6");
                    continue;
                }
            };
            if families.contains(&family) {
                findings.forbid(field, text, "this family is listed twice", "remove it");
            } else {
                families.push(family);
            }
        }
        let policy = match self.ip_family_policy.as_deref() {
            None | Some("" | "SingleStack") => FamilyPolicy::SingleStack,
            Some("PreferDualStack") => FamilyPolicy::PreferDualStack,
            Some("RequireDualStack") => FamilyPolicy::RequireDualStack,
            Some(other) => {
                findings.refuse(
                    "spec.ipFamilyPolicy",
                    other,
                    "not a policy for address families",
                    "write SingleStack, PreferDualStack or RequireDualStack",
                );
                return (families, FamilyPolicy::SingleStack);
            }
        };
        if policy == FamilyPolicy::SingleStack && families.len() > 1 {
            findings.forbid(
                "spec.ipFamilyPolicy",
                self.ip_family_policy.as_deref().unwrap_or_default(),
                "two families are listed, which SingleStack does not allow",
                "write PreferDualStack or RequireDualStack, or list one family",
            );
        }
        if families.is_empty() {
            let of_cluster_ip = self
                .cluster_ip
                .as_deref()
                .and_then(|text| text.parse().ok());
            families.push(of_cluster_ip.map_or(Family::V4, Family::of));
        }
        // With clusterIPs the API server has decided already, perhaps in a cluster of one family.
        if policy != FamilyPolicy::SingleStack && families.len() == 1 && self.cluster_ips.is_empty()
        {
            families.push(match families.first() {
                Some(Family::V6) => Family::V4,
                _ => Family::V6,
            });
        }
        (families, policy)
    }

    pub(super) fn validate_affinity(&self, findings: &mut Findings) -> Option<Duration> {
        let wanted = match self.session_affinity.as_deref() {
            None | Some("" | "None") => false,
            Some("ClientIP") => true,
            Some(other) => {
                findings.refuse(
                    "spec.sessionAffinity",
                    other,
                    "not a kind of session affinity",
                    "write None or ClientIP",
                );
                return None;
            }
        };
        let config = self.session_affinity_config.as_ref();
        let seconds = config
            .and_then(|config| config.client_ip.as_ref())
            .and_then(|client_ip| client_ip.timeout_seconds);
        if !wanted {
            if config.is_some() && !findings.admitted() {
                findings.missing(
                    "spec.sessionAffinityConfig",
                    "is only allowed with sessionAffinity: ClientIP",
                    "remove it, or set spec.sessionAffinity to ClientIP",
                );
            }
            return None;
        }
        match seconds {
            None => Some(DEFAULT_AFFINITY_TIMEOUT),
            Some(seconds @ 1..=LONGEST_AFFINITY) => {
                Some(Duration::from_secs(seconds.unsigned_abs()))
            }
            Some(seconds) => {
                findings.refuse(
                    AFFINITY_FIELD,
                    seconds,
                    "out of range",
                    format!("write 1 to {LONGEST_AFFINITY} seconds"),
                );
                None
            }
        }
    }

    pub(super) fn validate_traffic_policy(&self, kind: Kind, findings: &mut Findings) -> bool {
        let field = "spec.externalTrafficPolicy";
        match self.external_traffic_policy.as_deref() {
            None | Some("") => false,
            Some(policy @ ("Cluster" | "Local")) => {
                if !matches!(kind, Kind::LoadBalancer | Kind::NodePort) {
                    findings.forbid(
                        field,
                        policy,
                        "is only allowed in a Service of type LoadBalancer or NodePort",
                        "remove it",
                    );
                }
                policy == "Local"
            }
            Some(other) => {
                findings.refuse(
                    field,
                    other,
                    "not a traffic policy",
                    "write Cluster or Local",
                );
                false
            }
        }
    }

    /// What is asked of the nodes and differs from the default.
    pub(super) fn node_fields(&self) -> BTreeMap<String, String> {
        let internal = self.internal_traffic_policy.as_deref();
        let fields = [
            (
                "internalTrafficPolicy",
                internal.filter(|policy| *policy != "Cluster"),
            ),
            ("trafficDistribution", self.traffic_distribution.as_deref()),
            ("externalIPs", Some(&*self.external_ips.join(","))),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| {
            let value = value.filter(|value| !value.is_empty())?;
            Some((name.to_owned(), value.to_owned()))
        });
        fields.collect()
    }

    pub(super) fn check_health_check_port(
        &self,
        kind: Kind,
        external_local: bool,
        findings: &mut Findings,
    ) -> Option<NonZeroU16> {
        let field = "spec.healthCheckNodePort";
        let number = self.health_check_node_port.filter(|number| *number != 0)?;
        let port = validate_port(field, number, findings);
        if kind != Kind::LoadBalancer || !external_local {
            findings.forbid(
                field,
                number,
                "is only allowed with type LoadBalancer and externalTrafficPolicy: Local",
                "remove it",
            );
        }
        port
    }
}

// === impl ServicePortShape ===

/// What earlier ports of the same Service have taken.
#[derive(Default)]
struct Taken {
    names: BTreeSet<String>,
    fronts: BTreeSet<(Protocol, NonZeroU16)>,
    nodes: BTreeSet<(Protocol, NonZeroU16)>,
}

impl ServicePortShape {
    fn validate(
        &self,
        field: &str,
        kind: Kind,
        several: bool,
        taken: &mut Taken,
        findings: &mut Findings,
    ) -> Option<ServicePort> {
        let name = self.validate_name(field, several, taken, findings);
        let protocol = match self.protocol.as_deref() {
            None | Some("") => Some(Protocol::Tcp),
            Some(text) => protocol(text).or_else(|| {
                findings.refuse(
                    format!("{field}.protocol"),
                    text,
                    "not a transport protocol",
                    "write TCP, UDP or SCTP",
                );
                None
            }),
        };
        let port = match self.port {
            None => {
                findings.missing(
                    format!("{field}.port"),
                    "the number is missing",
                    "write one",
                );
                None
            }
            Some(number) => validate_port(&format!("{field}.port"), number, findings),
        };
        if let (Some(protocol), Some(port)) = (protocol, port)
            && !taken.fronts.insert((protocol, port))
        {
            findings.forbid(
                format!("{field}.port"),
                port,
                format!("an earlier port is {port}/{protocol} already"),
                "remove one of them",
            );
        }
        let target = self.validate_target(field, port, findings);
        let node_port = self.validate_node_port(field, kind, protocol, taken, findings);
        if let Some(text) = self.app_protocol.as_deref().filter(|text| !text.is_empty()) {
            findings.check(format!("{field}.appProtocol"), text, names::qualified);
        }
        Some(ServicePort {
            name,
            protocol: protocol?,
            port: port?,
            target: target?,
            node_port,
            app_protocol: self.app_protocol.clone().filter(|text| !text.is_empty()),
        })
    }

    fn validate_name(
        &self,
        field: &str,
        several: bool,
        taken: &mut Taken,
        findings: &mut Findings,
    ) -> String {
        let field = format!("{field}.name");
        let name = self.name.clone().unwrap_or_default();
        if name.is_empty() {
            if several && !findings.admitted() {
                findings.missing(field, "with several ports each needs a name", "give it one");
            }
        } else {
            findings.check(field.as_str(), &name, names::dns_label);
            if !taken.names.insert(name.clone()) {
                findings.forbid(
                    field,
                    &name,
                    "an earlier port has this name already",
                    "choose another one",
                );
            }
        }
        name
    }

    fn validate_target(
        &self,
        field: &str,
        port: Option<NonZeroU16>,
        findings: &mut Findings,
    ) -> Option<TargetPort> {
        let field = format!("{field}.targetPort");
        match &self.target_port {
            None | Some(IntOrText::Int(0)) => port.map(TargetPort::Number),
            Some(IntOrText::Int(number)) => {
                validate_port(&field, *number, findings).map(TargetPort::Number)
            }
            Some(IntOrText::Text(name)) if name.is_empty() => port.map(TargetPort::Number),
            Some(IntOrText::Text(name)) => {
                if let (Err(rule), false) = (names::port_name(name), findings.admitted()) {
                    let remedy = if name.parse::<u16>().is_ok() {
                        "write the number without quotes"
                    } else {
                        ""
                    };
                    findings.refuse(field, name, rule, remedy);
                    return None;
                }
                Some(TargetPort::Name(name.clone()))
            }
        }
    }

    fn validate_node_port(
        &self,
        field: &str,
        kind: Kind,
        protocol: Option<Protocol>,
        taken: &mut Taken,
        findings: &mut Findings,
    ) -> Option<NonZeroU16> {
        let field = format!("{field}.nodePort");
        let number = self.node_port.filter(|number| *number != 0)?;
        if !matches!(kind, Kind::LoadBalancer | Kind::NodePort) {
            findings.forbid(
                field,
                number,
                "is only allowed in a Service of type LoadBalancer or NodePort",
                "remove it",
            );
            return None;
        }
        let port = validate_port(&field, number, findings)?;
        if !taken.nodes.insert((protocol?, port)) {
            findings.forbid(
                field,
                number,
                "an earlier port has this node port already",
                "choose another one, or remove it",
            );
        }
        Some(port)
    }
}

/// A port number.
pub(in crate::wire) fn validate_port(
    field: &str,
    number: i64,
    findings: &mut Findings,
) -> Option<NonZeroU16> {
    let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
    if port.is_none() {
        findings.refuse(
            field,
            number,
            "not a port",
            "write a number from 1 to 65535",
        );
    }
    port
}
