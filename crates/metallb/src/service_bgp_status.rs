//! `ServiceBGPStatus` (`v1beta1`): to which routers a node announces the addresses of a Service.

use std::collections::{BTreeMap, BTreeSet};

use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::service_l2_status::labels;

/// What a `ServiceBGPStatus` says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceBgpStatus {
    /// The node.
    pub node: String,
    /// The Service.
    pub service: ServiceKey,
    /// The routers, by the names of their `BGPPeer` objects.
    pub peers: BTreeSet<String>,
}

// === impl ServiceBgpStatus ===

impl ServiceBgpStatus {
    /// Returns the labels of the object.
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        labels(&self.node, &self.service)
    }

    /// Returns `status`.
    pub fn status(&self) -> Value {
        json!({
            "node": self.node,
            "serviceName": self.service.name(),
            "serviceNamespace": self.service.namespace(),
            "peers": self.peers,
        })
    }

    /// Reads `status`. `None` while it is not written completely.
    pub fn read(status: &Value) -> Option<Self> {
        let mut reasons: Vec<Reason> = Vec::new();
        let mut fields = Fields::of_spec(status, &mut reasons);
        let node = fields.text("node")?.to_owned();
        let service = ServiceKey::new(
            fields.text("serviceNamespace")?,
            fields.text("serviceName")?,
        );
        let peers = fields.texts("peers").into_iter();
        Some(Self {
            node,
            service,
            peers: peers.map(|(_, name)| name.to_owned()).collect(),
        })
    }
}
