//! Whether the ports of a Service can be served at all.

use std::collections::BTreeMap;

use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support};
use landfall_model::{Code, Protocol, Reason};

use super::ResolveContext;
use super::findings::Findings;

/// Validates the ports. The API server refuses most of this; files are not so strict.
pub(super) fn validate(scene: &ResolveContext<'_>, findings: &mut Findings<'_>) {
    let service = scene.service;
    if service.headless {
        findings.push(
            Reason::error(
                Code::InvalidField,
                "a headless Service can't have a load balancer",
            )
            .at("spec.clusterIP")
            .value("None")
            .remedy("remove clusterIP: None, or choose another type than LoadBalancer"),
        );
    }
    if service.ports.is_empty() {
        findings.push(
            Reason::error(
                Code::InvalidField,
                "a load balancer needs at least one port",
            )
            .at("spec.ports")
            .remedy("add a port"),
        );
    }
    let mut by_key = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for (index, port) in service.ports.iter().enumerate() {
        if !has_listener(scene.profile, port.protocol) {
            findings.push(
                Reason::error(Code::ProtocolNotSupported, "SCTP is not supported")
                    .at(format!("spec.ports[{index}].protocol"))
                    .value("SCTP")
                    .remedy(
                        "use TCP or UDP, or move the port to a Service of its own type NodePort",
                    ),
            );
        }
        if let Some(first) = by_key.insert((port.protocol, port.port), index) {
            findings.push(
                Reason::error(
                    Code::InvalidField,
                    format!(
                        "spec.ports[{first}] is the same port, {}/{}",
                        port.port, port.protocol
                    ),
                )
                .at(format!("spec.ports[{index}].port"))
                .value(port.port.to_string())
                .remedy("remove one of the two"),
            );
        }
        if port.name.is_empty() && service.ports.len() > 1 {
            findings.push(
                Reason::error(
                    Code::InvalidField,
                    "with several ports each needs a name, by which EndpointSlices refer to it",
                )
                .at(format!("spec.ports[{index}].name"))
                .remedy("name the port"),
            );
        } else if let Some(first) = by_name.insert(port.name.as_str(), index) {
            findings.push(
                Reason::error(
                    Code::InvalidField,
                    format!("spec.ports[{first}] has the same name"),
                )
                .at(format!("spec.ports[{index}].name"))
                .value(port.name.as_str())
                .remedy("give each port a name of its own"),
            );
        }
    }
}

/// Whether ports of protocol SCTP can have a listener.
pub(super) fn has_listener(profile: &ProviderProfile, protocol: Protocol) -> bool {
    protocol != Protocol::Sctp || (profile.support)(OptionId::ProtocolSctp) == Support::Supported
}
