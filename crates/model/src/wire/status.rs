//! `status` of a Service: addresses and conditions, to and from our own words.
//!
//! Reading is forgiving, because others write there too: conditions of other types and addresses
//! that are none are skipped, never refused. A condition of our types is ours with any code.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::listener::Protocol;
use crate::reason::Code;
use crate::recorded::{RECORDED, RECORDED_REASON, vouch};
use crate::status::{Condition, ConditionType, IngressAddress, IpMode, PortStatus, ServiceStatus};

use super::lenient;

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatusShape {
    /// Conditions, ours and others'.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub conditions: Vec<ConditionShape>,
    /// Addresses.
    #[serde(deserialize_with = "lenient::or_default")]
    pub load_balancer: LoadBalancerShape,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancerShape {
    /// Addresses in the order in which they are published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub ingress: Vec<IngressShape>,
}

/// `status.loadBalancer.ingress[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressShape {
    /// A name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// An address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// `VIP` or `Proxy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    /// Ports and what is wrong with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub ports: Vec<PortStatusShape>,
}

/// `status.loadBalancer.ingress[].ports[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortStatusShape {
    /// CamelCase reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Front port.
    pub port: i64,
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
}

/// `status.conditions[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionShape {
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// A sentence.
    #[serde(deserialize_with = "lenient::or_default")]
    pub message: String,
    /// `metadata.generation` that it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// CamelCase reason.
    #[serde(deserialize_with = "lenient::or_default")]
    pub reason: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// Whose condition it is.
    #[serde(rename = "type")]
    pub kind: String,
}

// === impl ServiceStatusShape ===

impl ServiceStatusShape {
    /// Our part of the status.
    pub fn into_status(self) -> ServiceStatus {
        let ingress = self.load_balancer.ingress;
        let mut conditions: Vec<Condition> = self
            .conditions
            .into_iter()
            .filter_map(ConditionShape::into_condition)
            .collect();
        conditions.sort_by_key(|condition| condition.kind);
        ServiceStatus {
            ingress: ingress
                .into_iter()
                .filter_map(IngressShape::into_address)
                .collect(),
            conditions,
            marks: BTreeMap::new(),
        }
    }

    /// Returns what vouches for our annotations: the message of the condition [`RECORDED`].
    pub fn recorded(&self) -> Option<&str> {
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|it| it.kind == RECORDED && it.status == "True");
        found.map(|condition| condition.message.as_str())
    }

    /// The status as it is printed and written.
    pub fn of(status: &ServiceStatus) -> Self {
        Self {
            conditions: status.conditions.iter().map(ConditionShape::of).collect(),
            load_balancer: LoadBalancerShape {
                ingress: status.ingress.iter().map(IngressShape::of).collect(),
            },
        }
    }
}

// === impl IngressShape ===

impl IngressShape {
    fn into_address(self) -> Option<IngressAddress> {
        let ip: Option<IpAddr> = match &self.ip {
            Some(text) => text.parse().ok(),
            None => None,
        };
        if ip.is_none() && self.hostname.is_none() {
            return None;
        }
        Some(IngressAddress {
            ip,
            hostname: self.hostname,
            ip_mode: match self.ip_mode.as_deref() {
                Some("VIP") => Some(IpMode::Vip),
                Some("Proxy") => Some(IpMode::Proxy),
                _ => None,
            },
            ports: self
                .ports
                .into_iter()
                .filter_map(PortStatusShape::into_status)
                .collect(),
        })
    }

    fn of(address: &IngressAddress) -> Self {
        Self {
            hostname: address.hostname.clone(),
            ip: address.ip.map(|ip| ip.to_string()),
            ip_mode: address.ip_mode.map(|mode| match mode {
                IpMode::Vip => "VIP".to_owned(),
                IpMode::Proxy => "Proxy".to_owned(),
            }),
            ports: address
                .ports
                .iter()
                .map(|port| PortStatusShape {
                    error: port.error.clone(),
                    port: port.port.into(),
                    protocol: port.protocol.to_string(),
                })
                .collect(),
        }
    }
}

impl PortStatusShape {
    fn into_status(self) -> Option<PortStatus> {
        Some(PortStatus {
            port: self.port.try_into().ok()?,
            protocol: protocol(&self.protocol)?,
            error: self.error,
        })
    }
}

// === impl ConditionShape ===

impl ConditionShape {
    fn into_condition(self) -> Option<Condition> {
        let kind = ConditionType::ALL
            .into_iter()
            .find(|kind| kind.as_str() == self.kind)?;
        // The type shows that it is ours, whatever a newer version has in it.
        let reason = Code::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == self.reason)
            .unwrap_or(Code::Unknown);
        let since = self.last_transition_time.as_deref();
        let last_transition_time: Timestamp = since
            .and_then(|text| text.parse().ok())
            .unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Condition {
            kind,
            status: self.status == "True",
            reason,
            message: self.message,
            last_transition_time,
            observed_generation: self.observed_generation,
        })
    }

    /// Returns the condition that vouches for the annotations of a status; `None`: it has none.
    pub fn recorded(uid: &str, status: &ServiceStatus) -> Option<Self> {
        let message = vouch(uid, &status.marks)?;
        let times = status.conditions.iter().map(|it| it.last_transition_time);
        // The API server wants a time, and what is written changes with something else.
        let since = times.max().unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Self {
            last_transition_time: Some(since.to_string()),
            message,
            observed_generation: None,
            reason: RECORDED_REASON.to_owned(),
            status: "True".to_owned(),
            kind: RECORDED.to_owned(),
        })
    }

    fn of(condition: &Condition) -> Self {
        Self {
            last_transition_time: Some(condition.last_transition_time.to_string()),
            message: condition.message.clone(),
            observed_generation: condition.observed_generation,
            reason: condition.reason.to_string(),
            status: if condition.status { "True" } else { "False" }.to_owned(),
            kind: condition.kind.as_str().to_owned(),
        }
    }
}

/// Kubernetes' spelling of a transport protocol.
pub(super) fn protocol(text: &str) -> Option<Protocol> {
    match text {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_into_the_status_is_skipped_and_what_a_newer_version_wrote_is_ours() {
        let shape: ServiceStatusShape = serde_json::from_value(serde_json::json!({
            "loadBalancer": {"ingress": [
                {"ip": "no address"},
                {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [
                    {"port": 80, "protocol": "TCP"}, {"port": 70000, "protocol": "TCP"}]},
                {"hostname": "lb.example.com", "ipMode": "Sideways"},
            ]},
            "conditions": [
                {"type": "LoadBalancerPortsError", "status": "True", "reason": "x", "message": "y",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "landfall.dev/Addressed", "status": "True", "reason": "FromTheFuture",
                 "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "landfall.dev/Accepted", "status": "True", "reason": "Accepted",
                 "message": "fine", "lastTransitionTime": "2026-01-01T00:00:00Z",
                 "observedGeneration": 3},
            ],
        }))
        .unwrap();
        assert_eq!(
            shape.into_status(),
            ServiceStatus {
                ingress: vec![
                    IngressAddress {
                        ip: Some("192.0.2.1".parse().unwrap()),
                        ip_mode: Some(IpMode::Proxy),
                        ports: vec![PortStatus {
                            port: 80,
                            protocol: Protocol::Tcp,
                            error: None,
                        }],
                        ..IngressAddress::default()
                    },
                    IngressAddress {
                        hostname: Some("lb.example.com".to_owned()),
                        ..IngressAddress::default()
                    },
                ],
                conditions: vec![
                    Condition {
                        kind: ConditionType::Accepted,
                        status: true,
                        reason: Code::Accepted,
                        message: "fine".to_owned(),
                        last_transition_time: "2026-01-01T00:00:00Z".parse().unwrap(),
                        observed_generation: Some(3),
                    },
                    Condition {
                        kind: ConditionType::Addressed,
                        status: true,
                        reason: Code::Unknown,
                        message: String::new(),
                        last_transition_time: "2026-01-01T00:00:00Z".parse().unwrap(),
                        observed_generation: None,
                    },
                ],
                ..ServiceStatus::default()
            }
        );
    }

    #[test]
    fn a_condition_of_ours_with_the_text_of_another_version_is_still_ours() {
        let shape: ServiceStatusShape = serde_json::from_value(serde_json::json!({
            "conditions": [{"type": "landfall.dev/Programmed", "status": "False",
                "reason": "FromTheFuture", "message": "", "lastTransitionTime": "soon"}],
        }))
        .unwrap();
        let conditions = shape.into_status().conditions;
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].kind, ConditionType::Programmed);
        assert!(!conditions[0].status);
    }

    #[test]
    fn an_empty_status_is_read_as_nothing() {
        for text in ["{}", r#"{"loadBalancer": null, "conditions": null}"#] {
            let shape: ServiceStatusShape = serde_json::from_str(text).unwrap();
            assert_eq!(shape.into_status(), ServiceStatus::default());
        }
    }
}
