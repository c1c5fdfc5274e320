//! What there is to say about a Service, gathered while it is resolved; and which annotations took
//! effect, so that those that did not are reported.

use std::collections::{BTreeSet, HashSet};

use landfall_model::dialect::Reading;
use landfall_model::option::OptionId;
use landfall_model::rows::ServiceRow;
use landfall_model::{Code, Reason, Severity};

/// Reasons so far, and annotations that took effect.
pub(super) struct Findings<'a> {
    service: &'a ServiceRow,
    reasons: Vec<Reason>,
    used: BTreeSet<String>,
}

// === impl Findings ===

impl<'a> Findings<'a> {
    pub(super) fn new(service: &'a ServiceRow, reasons: Vec<Reason>) -> Self {
        Self {
            service,
            reasons,
            used: BTreeSet::new(),
        }
    }

    pub(super) fn push(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    pub(super) fn extend(&mut self, reasons: impl IntoIterator<Item = Reason>) {
        self.reasons.extend(reasons);
    }

    /// The reason, about an annotation and what stands there; or about a place in the
    /// configuration, which is written in brackets.
    pub(super) fn at(&self, reason: Reason, annotation: &str) -> Reason {
        if in_configuration(annotation) {
            return reason.at(annotation);
        }
        let value = self.service.annotations.get(annotation);
        reason
            .at_annotation(annotation)
            .value(value.cloned().unwrap_or_default())
    }

    /// The annotation took effect, or was found to have none and that was said.
    pub(super) fn mark_used(&mut self, annotation: &str) {
        if !self.used.contains(annotation) {
            self.used.insert(annotation.to_owned());
        }
    }

    /// Reports annotations that no port could use.
    pub(super) fn remark_unused(&mut self, reading: &Reading) {
        for given in &reading.given {
            if self.used.contains(&given.annotation) || concerns_service(given.option) {
                continue;
            }
            let reason = pointless(given.option);
            let reason = self.at(reason, &given.annotation);
            self.reasons.push(reason);
        }
    }

    /// The remarks, when there is no error among them.
    ///
    /// # Errors
    /// Everything, the errors first.
    pub(super) fn finish(self) -> Result<Vec<Reason>, Vec<Reason>> {
        let mut reported = HashSet::new();
        let mut reasons: Vec<Reason> = Vec::with_capacity(self.reasons.len());
        for mut reason in self.reasons {
            let field = reason.field.as_deref().unwrap_or_default();
            if reason.origin.is_none() && !in_configuration(field) {
                reason.origin = self.service.origin_of(field);
            }
            // What is wrong with an option of all ports is found at each of them.
            if reported.insert((reason.code, reason.severity, reason.to_string())) {
                reasons.push(reason);
            }
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        match reasons.first() {
            Some(first) if first.severity == Severity::Error => Err(reasons),
            _ => Ok(reasons),
        }
    }
}

/// Whether it is a place in the configuration rather than on the Service.
fn in_configuration(place: &str) -> bool {
    place.starts_with('[')
}

fn concerns_service(option: OptionId) -> bool {
    matches!(
        option,
        OptionId::Addresses
            | OptionId::AddressPool
            | OptionId::AddressCount
            | OptionId::SharingKey
            | OptionId::Hostname
            | OptionId::TargetType
    )
}

fn no_effect(message: &str, remedy: &str) -> Reason {
    Reason::warning(
        Code::OptionNotApplicable,
        format!("this has no effect: {message}"),
    )
    .remedy(remedy)
}

/// Returns the reason for an option that no port could use.
fn pointless(option: OptionId) -> Reason {
    match option {
        OptionId::Mode => no_effect(
            "only TCP ports have a mode, and the Service has none",
            "remove it, or add a TCP port",
        ),
        OptionId::ForwardedHeaders
        | OptionId::MemberProtocol
        | OptionId::TrustedHops
        | OptionId::SourceRequestRate => no_effect(
            "none of its ports parses requests; TCP ports in mode http or https do",
            "set landfall.dev/mode to http or https, or remove this",
        ),
        OptionId::ProxyProtocol => no_effect(
            "none of its ports supports PROXY headers",
            "for a UDP port write v2 for that port: landfall.dev/proxy-protocol.PORT",
        ),
        OptionId::MemberQueue | OptionId::MemberQueueTimeout => no_effect(
            "none of its TCP ports limits connections to members",
            "set landfall.dev/member-connection-limit, or remove this",
        ),
        OptionId::Monitor => no_effect(
            "udp-connect checks members of UDP ports, and the Service has none",
            "write tcp, http or on",
        ),
        OptionId::MonitorMethod
        | OptionId::MonitorPath
        | OptionId::MonitorCodes
        | OptionId::MonitorBody => no_effect(
            "none of its ports has an http monitor",
            "set landfall.dev/monitor to http, or remove this",
        ),
        OptionId::MonitorHost => no_effect(
            "none of its ports has a monitor that sends requests",
            "set landfall.dev/monitor to http, https or grpc, or remove this",
        ),
        OptionId::MonitorGrpcService => no_effect(
            "none of its ports has a grpc monitor",
            "set landfall.dev/monitor to grpc, or remove this",
        ),
        OptionId::MonitorDelay
        | OptionId::MonitorTimeout
        | OptionId::MonitorMaxRetries
        | OptionId::MonitorMaxRetriesDown
        | OptionId::MonitorPort => no_effect(
            "none of its ports has a monitor",
            "set landfall.dev/monitor, or remove this",
        ),
        OptionId::AcceptProxyProtocolFrom
        | OptionId::OutlierDetection
        | OptionId::TimeoutTcpInspect
        | OptionId::TimeoutMemberConnect => no_effect(
            "it is for TCP ports, and the Service has none",
            "remove it, or add a TCP port",
        ),
        _ => pointless_tls(option),
    }
}

/// Returns the same for options of TLS, and for those that every port supports.
fn pointless_tls(option: OptionId) -> Reason {
    match option {
        // With a certificate encryption is expected, which must not end in plain bytes.
        OptionId::TlsSecret => Reason::error(
            Code::ConflictingOptions,
            "a certificate is named, and none of its ports terminates TLS",
        )
        .remedy("set landfall.dev/mode to tls or https, for the port or for all, or remove this"),
        // The same holds toward members.
        OptionId::MemberCaSecret => Reason::error(
            Code::ConflictingOptions,
            "an authority is named, and none of its ports verifies members",
        )
        .remedy("set landfall.dev/member-tls to verify, for the port or for all, or remove this"),
        OptionId::MemberClientSecret => Reason::error(
            Code::ConflictingOptions,
            "a certificate for members is named, and none of its ports uses TLS to members",
        )
        .remedy("set landfall.dev/member-tls to verify, for the port or for all, or remove this"),
        OptionId::MemberServerName => no_effect(
            "none of its ports uses TLS to members",
            "set landfall.dev/member-tls to verify, or remove this",
        ),
        OptionId::MemberTls => no_effect(
            "only TCP ports have TLS to members, and the Service has none",
            "remove it, or add a TCP port",
        ),
        OptionId::TlsMinimumVersion | OptionId::TlsStrictNames => no_effect(
            "none of its ports terminates TLS",
            "set landfall.dev/mode to tls or https, or remove this",
        ),
        OptionId::HttpsRedirect => no_effect(
            "none of its ports is in mode http",
            "set landfall.dev/mode to http for the port whose requests are to be redirected",
        ),
        _ => no_effect("no port supports it", "remove it"),
    }
}
