//! `discovery.k8s.io/v1` EndpointSlice: its shape, the API server's rules, and its row.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::ServiceKey;
use crate::listener::Protocol;
use crate::reason::{Code, Reason};
use crate::rows::{Endpoint, Family, SlicePort, SliceRow};

use super::findings::{Findings, strictly};
use super::service::rules::validate_port;
use super::status::protocol;
use super::{ObjectMeta, lenient, names};

/// The label by which a slice belongs to a Service of its namespace.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// `discovery.k8s.io/v1` EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6`, `FQDN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_type: Option<String>,
    /// The endpoints.
    #[serde(deserialize_with = "lenient::or_default")]
    pub endpoints: Vec<EndpointShape>,
    /// On which ports.
    #[serde(deserialize_with = "lenient::or_default")]
    pub ports: Vec<SlicePortShape>,
}

/// `endpoints[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointShape {
    /// Interchangeable addresses; the first is used.
    #[serde(deserialize_with = "lenient::or_default")]
    pub addresses: Vec<String>,
    /// Whether it serves.
    #[serde(deserialize_with = "lenient::or_default")]
    pub conditions: EndpointConditions,
    /// Its host name, which distinguishes endpoints where no pod does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Which pod it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
}

/// `endpoints[].conditions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Unset counts as true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Unset counts as `ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Unset counts as false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// `endpoints[].targetRef`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `ports[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlicePortShape {
    /// Name of the Service port that it implements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number; unset: all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// `TCP`, `UDP`, `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

// === impl EndpointSlice ===

impl EndpointSlice {
    /// The row, or everything that is wrong with the object. A slice that belongs to no Service has
    /// no row either, and no more than a warning for a reason.
    pub fn into_row(self) -> Result<SliceRow, Vec<Reason>> {
        self.validated(Findings::default()).and_then(strictly)
    }

    /// Returns the row of a slice that the API server has admitted, and what of it is left out
    /// because it can't be read or used.
    ///
    /// # Errors
    /// It belongs to no Service.
    pub fn into_admitted_row(self) -> Result<(SliceRow, Vec<Reason>), Vec<Reason>> {
        self.validated(Findings::of_admitted())
    }

    fn validated(self, mut findings: Findings) -> Result<(SliceRow, Vec<Reason>), Vec<Reason>> {
        let name = findings.name(&self.metadata, names::dns_subdomain);
        let namespace = findings.namespace(&self.metadata);
        findings.metadata(&self.metadata);
        let family = self.validate_address_type(&mut findings);
        let ports = self.validate_ports(&mut findings);
        let endpoints = match family {
            Some(Some(family)) => self.validate_endpoints(family, &mut findings),
            _ => Vec::new(),
        };
        let service = self
            .metadata
            .labels
            .get(SERVICE_NAME_LABEL)
            .filter(|service| !service.is_empty());
        let reasons = findings.reasons();
        let Some(service) = service else {
            if !reasons.is_empty() {
                return Err(reasons);
            }
            return Err(vec![
                Reason::warning(Code::EndpointIgnored, "the slice belongs to no Service")
                    .at(format!("metadata.labels[{SERVICE_NAME_LABEL}]"))
                    .remedy("name the Service in this label"),
            ]);
        };
        let row = SliceRow {
            service: ServiceKey::new(&namespace, service),
            key: ServiceKey::new(&namespace, &name),
            family: family.flatten(),
            ports,
            endpoints,
            cut: false,
            source: None,
        };
        Ok((row, reasons))
    }

    /// The family; inner `None` for names instead of addresses; outer `None` where it is no type.
    #[expect(clippy::option_option, reason = "both kinds of nothing mean something")]
    fn validate_address_type(&self, findings: &mut Findings) -> Option<Option<Family>> {
        let remedy = "write IPv4 or IPv6";
        match self.address_type.as_deref() {
            Some("IPv4") => Some(Some(Family::V4)),
            Some("IPv6") => Some(Some(Family::V6)),
            Some("FQDN") => Some(None),
            None | Some("") => {
                findings.missing("addressType", "the slice has no addressType", remedy);
                None
            }
            Some(other) => {
                findings.refuse("addressType", other, "not a type of address", remedy);
                None
            }
        }
    }

    fn validate_ports(&self, findings: &mut Findings) -> Vec<SlicePort> {
        let mut taken = BTreeSet::new();
        let mut ports = Vec::with_capacity(self.ports.len());
        for (index, shape) in self.ports.iter().enumerate() {
            let field = format!("ports[{index}]");
            let name = shape.name.clone().unwrap_or_default();
            if !name.is_empty() {
                findings.check(format!("{field}.name"), &name, names::dns_label);
            }
            if !taken.insert(name.clone()) {
                findings.forbid(
                    format!("{field}.name"),
                    &name,
                    "an earlier port has this name already",
                    "choose another one",
                );
            }
            let protocol = match shape.protocol.as_deref() {
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
            let port = shape
                .port
                .and_then(|number| validate_port(&format!("{field}.port"), number, findings));
            if let Some(protocol) = protocol {
                ports.push(SlicePort {
                    name,
                    protocol,
                    port,
                });
            }
        }
        ports
    }

    fn validate_endpoints(&self, family: Family, findings: &mut Findings) -> Vec<Endpoint> {
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for (index, shape) in self.endpoints.iter().enumerate() {
            let field = format!("endpoints[{index}].addresses");
            let Some(text) = shape.addresses.first() else {
                findings.missing(field, "the endpoint has no address", "give it one");
                continue;
            };
            let field = format!("{field}[0]");
            let Ok(address) = text.parse::<IpAddr>() else {
                findings.refuse(field, text, "not an IP address", "");
                continue;
            };
            if Family::of(address) != family {
                findings.refuse(
                    field,
                    text,
                    format!("not an {family} address, as addressType requires"),
                    "use one slice for each family",
                );
                continue;
            }
            // The API server refuses loopback and link-local addresses too. Here they are welcome:
            // on a single machine they are where backends live.
            if address.is_unspecified() || address.is_multicast() {
                findings.refuse(field, text, "not an address of a host", "");
                continue;
            }
            endpoints.push(shape.with_address(address));
        }
        endpoints
    }
}

// === impl EndpointShape ===

impl EndpointShape {
    fn with_address(&self, address: IpAddr) -> Endpoint {
        let ready = self.conditions.ready.unwrap_or(true);
        let target = self.target_ref.as_ref();
        let name = target
            .and_then(|target| target.name.as_deref())
            .or(self.hostname.as_deref());
        Endpoint {
            address,
            ready,
            serving: self.conditions.serving.unwrap_or(ready),
            terminating: self.conditions.terminating.unwrap_or(false),
            node: self.node_name.as_deref().map(Into::into),
            name: name.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use serde_json::{Value, json};

    use super::*;

    fn slice(value: Value) -> Result<SliceRow, Vec<Reason>> {
        serde_json::from_value::<EndpointSlice>(value)
            .unwrap()
            .into_row()
    }

    fn fields(reasons: &[Reason]) -> Vec<&str> {
        reasons
            .iter()
            .map(|reason| reason.field.as_deref().unwrap())
            .collect()
    }

    #[test]
    fn a_slice_becomes_a_row_with_kubernetes_defaults() {
        let row = slice(json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": "web-abc", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}, {"name": "all", "protocol": "UDP"}],
            "endpoints": [
                {"addresses": ["10.0.0.1", "10.0.0.9"], "nodeName": "n1",
                    "targetRef": {"kind": "Pod", "name": "web-1"}, "zone": "a"},
                {"addresses": ["127.0.0.1"], "conditions": {"ready": false, "terminating": true},
                    "hostname": "web-2"},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true}},
            ],
        }))
        .unwrap();
        let endpoint = |address: &str| Endpoint {
            address: address.parse().unwrap(),
            ready: true,
            serving: true,
            terminating: false,
            node: None,
            name: None,
        };
        assert_eq!(
            row,
            SliceRow {
                key: ServiceKey::new("shop", "web-abc"),
                service: ServiceKey::new("shop", "web"),
                family: Some(Family::V4),
                ports: vec![
                    SlicePort {
                        name: "http".to_owned(),
                        protocol: Protocol::Tcp,
                        port: NonZeroU16::new(8080),
                    },
                    SlicePort {
                        name: "all".to_owned(),
                        protocol: Protocol::Udp,
                        port: None,
                    },
                ],
                endpoints: vec![
                    Endpoint {
                        node: Some("n1".into()),
                        name: Some("web-1".into()),
                        ..endpoint("10.0.0.1")
                    },
                    Endpoint {
                        ready: false,
                        serving: false,
                        terminating: true,
                        name: Some("web-2".into()),
                        ..endpoint("127.0.0.1")
                    },
                    Endpoint {
                        ready: false,
                        ..endpoint("10.0.0.3")
                    },
                ],
                cut: false,
                source: None,
            }
        );
    }

    #[test]
    fn names_instead_of_addresses_make_a_row_without_endpoints() {
        let row = slice(json!({
            "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "FQDN", "endpoints": [{"addresses": ["db.example.com"]}],
        }))
        .unwrap();
        assert_eq!((row.family, row.endpoints), (None, Vec::new()));
    }

    #[test]
    fn everything_wrong_with_a_slice_is_reported_at_once() {
        let reasons = slice(json!({
            "metadata": {"name": "Web", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "a", "port": 0}, {"name": "a", "port": 70000, "protocol": "tcp"},
                      {"name": "Bad"}],
            "endpoints": [{"addresses": []}, {"addresses": ["fd00::1"]}, {"addresses": ["web"]},
                          {"addresses": ["0.0.0.0"]}, {"addresses": ["10.0.0.01"]}],
        }))
        .unwrap_err();
        assert_eq!(
            fields(&reasons),
            [
                "metadata.name",
                "ports[0].port",
                "ports[1].name",
                "ports[1].protocol",
                "ports[1].port",
                "ports[2].name",
                "endpoints[0].addresses",
                "endpoints[1].addresses[0]",
                "endpoints[2].addresses[0]",
                "endpoints[3].addresses[0]",
                "endpoints[4].addresses[0]",
            ]
        );
    }

    #[test]
    fn a_slice_without_a_type_is_refused() {
        for value in [
            json!({"metadata": {"name": "x"}}),
            json!({"metadata": {"name": "x"}, "addressType": "ipv4"}),
        ] {
            assert_eq!(fields(&slice(value).unwrap_err()), ["addressType"]);
        }
    }

    #[test]
    fn a_slice_of_no_service_is_left_out_with_a_warning() {
        let reasons = slice(json!({"metadata": {"name": "x"}, "addressType": "IPv4"})).unwrap_err();
        assert_eq!(
            fields(&reasons),
            ["metadata.labels[kubernetes.io/service-name]"]
        );
        assert_eq!(reasons[0].severity, crate::Severity::Warning);
    }
}
