//! A port of a Service and its options become a listener.

use std::time::Duration;

use landfall_model::dialect::{
    ForwardedHeaders, Given, MemberProtocol, MemberTlsChoice, ModeChoice, PortOptions, is_portable,
};
use landfall_model::listener::{
    AllowedSources, ClientAffinity, ExplicitFields, Http, Listener, Mode, ProxyProtocol, Timeouts,
};
use landfall_model::provider::Target;
use landfall_model::rows::ServicePort;
use landfall_model::{Code, Pool, Protocol, Reason};

use super::findings::Findings;
use super::layers::{Choice, Layers};
use super::members::MemberResolver;
use super::ports::has_listener;
use super::secrets::certificates;
use super::tls::{self, TowardMembers};
use super::{ResolveContext, bounds, chooses_target, monitor, protection, sources};

const H2C: &str = "kubernetes.io/h2c";
/// Values of `appProtocol` whose members expect TLS.
const ENCRYPTED: [&str; 3] = ["https", "kubernetes.io/wss", "tls"];

/// Returns the listener of a port; `None` where its protocol has none, or where it needs a Secret
/// that can't be read for now. What is wrong goes to the findings.
pub(super) fn build(
    scene: &ResolveContext<'_>,
    index: usize,
    port: &ServicePort,
    allowed: &AllowedSources,
    resolver: &mut MemberResolver<'_>,
    findings: &mut Findings<'_>,
) -> Option<Listener> {
    if !has_listener(scene.profile, port.protocol) {
        return None;
    }
    let own = scene.options.own(port);
    let layers = scene.layers(&own);
    let tcp = port.protocol == Protocol::Tcp;
    let choice = mode_choice(layers, tcp, findings);
    let mode = mode(scene, index, port, layers, choice.as_ref(), findings);
    // What a cloud serves already goes on with the certificate that it has.
    let here = scene.profile.target != Target::Node && !chooses_target(scene.profile);
    let mut closed = here && scene.world.secrets_unavailable() && lacks_certificate(&mode);
    let member_tls = match tls::toward_members(scene, layers, tcp, findings) {
        TowardMembers::Known(tls) => tls,
        TowardMembers::Unreadable => {
            closed = true;
            None
        }
    };
    let proxy_protocol = proxy_protocol(layers, tcp, choice.as_ref(), findings);
    let monitor = monitor::of_port(scene, layers, port.protocol, member_tls.is_some(), findings);
    let mut listener = Listener::new(port.protocol, port.port);
    listener.name.clone_from(&port.name);
    listener.mode = mode;
    listener.tls = tls::policy(layers, choice.as_ref(), findings);
    listener.redirect = tls::redirect(layers, choice.as_ref(), findings);
    listener.allowed = sources::of_port(layers, allowed, findings);
    listener.timeouts = timeouts(scene, layers, tcp, findings);
    if let Some(limit) = layers.get(findings, |port| &port.connection_limit) {
        listener.connection_limit = bounds::connection_limit(scene, &limit, findings);
    }
    listener.source_limits = protection::of_sources(layers, choice.as_ref(), findings);
    if scene.profile.keeps_unset {
        listener.said = said(layers, choice.as_ref());
    }
    if let Some(drain) = layers.take(findings, |port| &port.drain) {
        listener.drain = *drain;
    }
    let believed = layers.take_if(
        findings,
        tcp,
        "PROXY headers are accepted on TCP ports only",
        |port| &port.accept_proxy_from,
    );
    listener.accept_proxy_from = believed.into_iter().flatten().copied().collect();
    let algorithm = layers.take(findings, |port| &port.algorithm);
    let check = monitor.as_ref().and_then(|monitor| monitor.port);
    listener.pool = Pool {
        algorithm: algorithm.copied().unwrap_or_default(),
        affinity: scene
            .service
            .affinity
            .map(|timeout| ClientAffinity { timeout }),
        proxy_protocol,
        tls: member_tls,
        monitor,
        protection: protection::of_members(layers, tcp, findings),
        members: resolver.members(scene, (port, check), layers, findings),
    };
    (!closed).then_some(listener)
}

/// Whether a mode ends TLS and has no certificate to do it with.
fn lacks_certificate(mode: &Mode) -> bool {
    match mode {
        Mode::Tls { certificates, .. } | Mode::Https { certificates, .. } => {
            certificates.0.is_empty()
        }
        Mode::Stream | Mode::Http(_) => false,
    }
}

/// Returns the fields that are set explicitly.
fn said(layers: Layers<'_>, mode: Option<&Choice<'_, ModeChoice>>) -> ExplicitFields {
    let headers = layers.own.forwarded_headers.as_ref();
    let headers = headers.or(layers.common.forwarded_headers.as_ref());
    let any_port = |given: fn(&PortOptions) -> bool| given(layers.own) || given(layers.common);
    ExplicitFields {
        mode: mode.is_some(),
        headers: mode.is_some_and(|mode| is_portable(&mode.given.annotation))
            || headers.is_some_and(|headers| is_portable(&headers.annotation)),
        weights: any_port(|port| port.member_weights.is_some()),
        backups: any_port(|port| port.backup_members.is_some()),
    }
}

/// The mode that was asked for, where the port can have it.
fn mode_choice<'a>(
    layers: Layers<'a>,
    tcp: bool,
    findings: &mut Findings<'_>,
) -> Option<Choice<'a, ModeChoice>> {
    let choice = layers.get(findings, |port| &port.mode)?;
    if tcp || choice.given.value == ModeChoice::Stream {
        choice.take(findings);
        return Some(choice);
    }
    choice.reject(
        findings,
        "UDP ports forward datagrams unchanged: their mode is stream",
    );
    None
}

fn mode(
    scene: &ResolveContext<'_>,
    index: usize,
    port: &ServicePort,
    layers: Layers<'_>,
    choice: Option<&Choice<'_, ModeChoice>>,
    findings: &mut Findings<'_>,
) -> Mode {
    let mode = choice.map_or(ModeChoice::Stream, |choice| choice.given.value);
    let http = if mode.reads_requests() {
        http(index, port, layers, findings)
    } else {
        Http::default()
    };
    let certificates = choice
        .filter(|_| mode.ends_tls())
        .map(|choice| certificates(scene, layers, choice, findings))
        .unwrap_or_default();
    match mode {
        ModeChoice::Stream => Mode::Stream,
        ModeChoice::Tls => Mode::Tls { certificates },
        ModeChoice::Http => Mode::Http(http),
        ModeChoice::Https => Mode::Https { http, certificates },
    }
}

fn http(index: usize, port: &ServicePort, layers: Layers<'_>, findings: &mut Findings<'_>) -> Http {
    let headers = layers
        .take(findings, |port| &port.forwarded_headers)
        .copied()
        .unwrap_or(ForwardedHeaders::ALL);
    let hint = port.app_protocol.as_deref().unwrap_or_default();
    let encrypted = layers.get(findings, |port| &port.member_tls);
    let encrypted = encrypted.is_some_and(|it| it.given.value != MemberTlsChoice::Off);
    if ENCRYPTED.contains(&hint) && !encrypted {
        findings.push(
            Reason::warning(
                Code::OptionNotSupported,
                "a listener that parses requests uses no TLS to members",
            )
            .at(format!("spec.ports[{index}].appProtocol"))
            .value(hint)
            .remedy(
                "set landfall.dev/member-tls, let the members accept plain HTTP, or use mode \
                stream, which passes TLS through",
            ),
        );
    }
    let member_http2 = match layers.take(findings, |port| &port.member_protocol) {
        Some(MemberProtocol::Http2) => true,
        Some(MemberProtocol::Http1) => false,
        None => hint == H2C,
    };
    Http {
        forwarded_for: headers.client,
        forwarded_proto: headers.proto,
        forwarded_port: headers.port,
        member_http2,
        trusted_hops: layers.take(findings, |port| &port.trusted_hops).copied(),
    }
}

/// The header toward members. Requests of many clients share one connection to a member, so modes
/// that read requests can't have it; datagrams carry it only where that was asked of the very port.
fn proxy_protocol(
    layers: Layers<'_>,
    tcp: bool,
    mode: Option<&Choice<'_, ModeChoice>>,
    findings: &mut Findings<'_>,
) -> Option<ProxyProtocol> {
    let choice = layers.get(findings, |port| &port.proxy_protocol)?;
    let Some(version) = choice.given.value else {
        choice.take(findings);
        return None;
    };
    if !tcp {
        if choice.own() && version == ProxyProtocol::V2 {
            choice.take(findings);
            return Some(version);
        }
        choice.reject(
            findings,
            "datagrams can carry PROXY headers of version 2 only: v2",
        );
        return None;
    }
    let reading = mode.filter(|mode| mode.given.value.reads_requests());
    let Some(mode) = reading else {
        choice.take(findings);
        return Some(version);
    };
    // A mode of this very port is a deliberate exception from what the Service says; two options
    // that were written for the same ports contradict each other.
    if choice.own() || !mode.own() {
        choice.take(findings);
        let reason = Reason::error(
            Code::ConflictingOptions,
            format!(
                "PROXY headers can't go together with {}: requests of many clients share a \
                connection",
                mode.given.annotation
            ),
        )
        .remedy("remove one of the two; X-Forwarded-For gives members the client's address");
        findings.push(findings.at(reason, &choice.given.annotation));
    }
    None
}

fn timeouts(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    tcp: bool,
    findings: &mut Findings<'_>,
) -> Timeouts {
    let defaults = Timeouts::default();
    let mut time =
        |possible: bool,
         why_not: &str,
         default: Duration,
         field: for<'a> fn(&'a PortOptions) -> &'a Option<Given<Duration>>| {
            match layers.get(findings, field) {
                Some(choice) if possible || (scene.profile.udp_timeouts && !choice.own()) => {
                    bounds::timeout(scene, &choice, default, findings)
                }
                Some(choice) => {
                    choice.reject(findings, why_not);
                    default
                }
                None => default,
            }
        };
    Timeouts {
        client_data: time(true, "", defaults.client_data, |port| {
            &port.timeout_client_data
        }),
        member_connect: time(
            tcp,
            "UDP ports have no connections to members",
            defaults.member_connect,
            |port| &port.timeout_member_connect,
        ),
        member_data: time(true, "", defaults.member_data, |port| {
            &port.timeout_member_data
        }),
        tcp_inspect: time(
            tcp,
            "only TCP connections can wait for the first bytes",
            defaults.tcp_inspect,
            |port| &port.timeout_tcp_inspect,
        ),
    }
}
