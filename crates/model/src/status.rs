//! What is written back on a Service: addresses, and three conditions that say how far it is.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::listener::Protocol;
use crate::reason::{Code, Reason};

/// The finalizer that is on a Service from before the first write to the outside until after the
/// last one.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressAddress {
    /// The address that clients connect to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ip: Option<IpAddr>,
    /// A name instead of (or beside) an address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hostname: Option<String>,
    /// Whether the cluster's nodes may short-cut traffic to the address. Only beside `ip`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ip_mode: Option<IpMode>,
    /// Per port, what went wrong with it, if anything.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ports: Vec<PortStatus>,
}

/// How traffic from inside the cluster to the address is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpMode {
    /// Nodes deliver it themselves.
    #[serde(rename = "VIP")]
    Vip,
    /// Traffic to it travels through the load balancer, also from inside the cluster.
    Proxy,
}

/// One entry of `status.loadBalancer.ingress[].ports`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Front port.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// CamelCase reason; absent where the port works.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// The conditions that Landfall keeps on a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    /// The spec is valid.
    #[serde(rename = "landfall.dev/Accepted")]
    Accepted,
    /// It has an address.
    #[serde(rename = "landfall.dev/Addressed")]
    Addressed,
    /// Traffic flows.
    #[serde(rename = "landfall.dev/Programmed")]
    Programmed,
}

/// A Kubernetes condition (`metav1.Condition`) of one of our types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// `True` or `False`.
    #[serde(with = "truth")]
    pub status: bool,
    /// The stable code.
    pub reason: Code,
    /// A sentence, and what to do.
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
    /// The `metadata.generation` it speaks of, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observed_generation: Option<i64>,
}

/// Everything that is reported about a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Addresses, in the order in which they are published.
    #[serde(default)]
    pub ingress: Vec<IngressAddress>,
    /// Accepted, Addressed, Programmed; in this order.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Annotations that are kept beside the status: what users of another controller read there,
    /// and what a provider wants to know after a restart. See [`crate::marks`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub marks: BTreeMap<String, String>,
}

/// The domain of annotations that are written by this program alone.
pub const STATE_DOMAIN: &str = "state.landfall.dev/";

/// The annotation by which a provider knows after a restart what it has seen. While it is there,
/// the annotations of [`crate::marks::managed_annotations`] are ours.
pub const RECORD: &str = "state.landfall.dev/load-balancer";

/// A record that ends so was made for a load balancer that the user named.
pub const RECORD_OF_GIVEN: &str = " given";

/// The addresses that a Service holds while its status publishes a name instead: comma-separated.
pub const HELD_ADDRESSES: &str = "state.landfall.dev/addresses";

/// The provider instance that serves a Service, recorded so that a change of the default instance
/// does not move it.
pub const INSTANCE: &str = "state.landfall.dev/instance";

/// The last accepted version of a Service: `metadata.annotations` and `spec` as JSON, so that a
/// process finds it whose first sight of the Service is a version that is refused.
pub const ACCEPTED_VERSION: &str = "state.landfall.dev/accepted";

/// The annotations in Landfall's own domain.
pub const STATE_ANNOTATIONS: [&str; 4] = [RECORD, HELD_ADDRESSES, INSTANCE, ACCEPTED_VERSION];

/// The annotations that the engine keeps itself, whichever provider serves the Service.
pub const ENGINE_MARKS: [&str; 2] = [INSTANCE, ACCEPTED_VERSION];

// === impl ConditionType ===

impl ConditionType {
    /// Every type, in the order in which they are kept.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Addressed, Self::Programmed];

    /// Kubernetes' spelling of the type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "landfall.dev/Accepted",
            Self::Addressed => "landfall.dev/Addressed",
            Self::Programmed => "landfall.dev/Programmed",
        }
    }
}

// === impl Condition ===

impl Condition {
    /// A true condition.
    pub fn met(kind: ConditionType, reason: Code, message: &str, now: Timestamp) -> Self {
        Self {
            kind,
            status: true,
            reason,
            message: message.to_owned(),
            last_transition_time: now,
            observed_generation: None,
        }
    }

    /// A false condition with the reason that explains it.
    pub fn unmet(kind: ConditionType, reason: &Reason, now: Timestamp) -> Self {
        Self {
            kind,
            status: false,
            reason: reason.code,
            message: reason.to_string(),
            last_transition_time: now,
            observed_generation: None,
        }
    }

    /// Whether two conditions say the same, whenever they began to.
    pub fn same_as(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.status == other.status
            && self.reason == other.reason
            && self.message == other.message
    }
}

// === impl ServiceStatus ===

impl ServiceStatus {
    /// The addresses in it.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.ingress.iter().filter_map(|entry| entry.ip)
    }

    /// A condition by type.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Takes over transition times of conditions whose truth did not change, so that equal states
    /// compare equal and nothing is written for them.
    #[must_use]
    pub fn continuing(mut self, before: &Self) -> Self {
        for condition in &mut self.conditions {
            if let Some(old) = before.condition(condition.kind)
                && old.status == condition.status
            {
                condition.last_transition_time = old.last_transition_time;
            }
        }
        self
    }
}

mod truth {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(truth: &bool, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if *truth { "True" } else { "False" })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<bool, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "True" => Ok(true),
            "False" | "Unknown" => Ok(false),
            other => Err(de::Error::custom(format!(
                "{other:?} is not True, False or Unknown"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(truth: bool, second: i64) -> ServiceStatus {
        let condition = if truth {
            Condition::met(ConditionType::Accepted, Code::Accepted, "fine", at(second))
        } else {
            let reason = Reason::error(Code::InvalidField, "no");
            Condition::unmet(ConditionType::Accepted, &reason, at(second))
        };
        ServiceStatus {
            ingress: Vec::new(),
            conditions: vec![condition],
            ..ServiceStatus::default()
        }
    }

    #[test]
    fn an_unchanged_condition_keeps_the_time_of_its_last_change() {
        assert_eq!(
            status(true, 20).continuing(&status(true, 10)),
            status(true, 10)
        );
        assert_eq!(
            status(false, 20).continuing(&status(true, 10)),
            status(false, 20)
        );
    }

    #[test]
    fn a_condition_looks_like_kubernetes_conditions() {
        let json = serde_json::to_value(&status(true, 0).conditions[0]).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "landfall.dev/Accepted", "status": "True", "reason": "Accepted",
                "message": "fine", "lastTransitionTime": "1970-01-01T00:00:00Z"
            })
        );
    }
}
