//! `ServiceL2Status` (`v1beta1`): which node announces the addresses of a Service, and on which
//! interfaces.

use std::collections::{BTreeMap, BTreeSet};

use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use serde_json::{Value, json};

use crate::fields::Fields;

/// What a `ServiceL2Status` says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceL2Status {
    /// The node.
    pub node: String,
    /// The Service.
    pub service: ServiceKey,
    /// The interfaces; none: all.
    pub interfaces: BTreeSet<String>,
}

/// The label with the node.
const NODE: &str = "metallb.io/node";
/// The label with the name of the Service.
const SERVICE_NAME: &str = "metallb.io/service-name";
/// The label with the namespace of the Service.
const SERVICE_NAMESPACE: &str = "metallb.io/service-namespace";

/// Returns the labels of an object that says something of a Service on a node.
pub(crate) fn labels(node: &str, service: &ServiceKey) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (NODE, node.to_owned()),
        (SERVICE_NAME, service.name().to_owned()),
        (SERVICE_NAMESPACE, service.namespace().to_owned()),
    ])
}

// === impl ServiceL2Status ===

impl ServiceL2Status {
    /// Returns the labels of the object.
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        labels(&self.node, &self.service)
    }

    /// Returns `status`.
    pub fn status(&self) -> Value {
        let interfaces = self.interfaces.iter();
        let interfaces: Vec<Value> = interfaces.map(|name| json!({ "name": name })).collect();
        let mut status = json!({
            "node": self.node,
            "serviceName": self.service.name(),
            "serviceNamespace": self.service.namespace(),
        });
        if !interfaces.is_empty()
            && let Some(fields) = status.as_object_mut()
        {
            fields.insert("interfaces".to_owned(), interfaces.into());
        }
        status
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
        let mut interfaces = BTreeSet::new();
        fields.each("interfaces", |fields| {
            interfaces.extend(fields.text("name").map(str::to_owned));
        });
        Some(Self {
            node,
            service,
            interfaces,
        })
    }
}
