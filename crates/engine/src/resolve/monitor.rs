//! How the members of a port are checked.

use std::time::Duration;

use landfall_model::dialect::{MonitorChoice, show_duration};
use landfall_model::listener::{Check, Monitor};
use landfall_model::option::OptionId;
use landfall_model::provider::{Support, Target};
use landfall_model::{Code, Protocol, Reason};

use super::findings::Findings;
use super::layers::Layers;
use super::{ResolveContext, bounds};

/// The most that one check takes: of the checks of all Services only so many run at once.
const LONGEST_CHECK: Duration = Duration::from_secs(60);

/// The monitor of a port, if it has one.
pub(super) fn of_port(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    protocol: Protocol,
    member_tls: bool,
    findings: &mut Findings<'_>,
) -> Option<Monitor> {
    let check = check(scene, layers, protocol, findings)?;
    let defaults = Monitor::new(check);
    let delay = layers
        .get(findings, |port| &port.monitor_delay)
        .map_or(defaults.delay, |choice| {
            bounds::of_monitor(scene, &choice, findings)
        });
    let timeout = timeout(scene, layers, delay, defaults.timeout, findings);
    let up = layers.take(findings, |port| &port.monitor_max_retries);
    let down = layers.take(findings, |port| &port.monitor_max_retries_down);
    let port = layers.take(findings, |port| &port.monitor_port).copied();
    let choice = layers.get(findings, |port| &port.monitor);
    let asks = matches!(check_kind(&defaults), Asks::Http | Asks::Grpc);
    let over_tls = choice.is_some_and(|it| it.given.value == MonitorChoice::Https)
        // What answers on another port is not known to speak TLS.
        || (asks && member_tls && port.is_none());
    let host = layers.take_if(findings, asks, WITHOUT_HOST, |port| &port.monitor_host);
    let reads = matches!(check_kind(&defaults), Asks::Http);
    let body = layers.take_if(findings, reads, WITHOUT_BODY, |port| &port.monitor_body);
    Some(Monitor {
        tls: over_tls,
        host: host.cloned(),
        body: body.cloned(),
        delay,
        timeout,
        max_retries: up.copied().unwrap_or(defaults.max_retries),
        max_retries_down: down.copied().unwrap_or(defaults.max_retries_down),
        port,
        check: defaults.check,
    })
}

const WITHOUT_HOST: &str = "only HTTP and gRPC checks name a host";
const WITHOUT_BODY: &str = "only HTTP checks have a response body";

/// Whether a check makes a request.
enum Asks {
    Http,
    Grpc,
    Nothing,
}

fn check_kind(monitor: &Monitor) -> Asks {
    match monitor.check {
        Check::Http { .. } => Asks::Http,
        Check::Grpc { .. } => Asks::Grpc,
        Check::Tcp | Check::UdpConnect => Asks::Nothing,
    }
}

/// Nodes without an endpoint drop what reaches them, and only a monitor can find out which these
/// are.
fn needs_monitor(scene: &ResolveContext<'_>) -> bool {
    scene.target == Target::Node
        && scene.service.external_local
        && scene.service.health_check_node_port.is_some()
}

fn check(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    protocol: Protocol,
    findings: &mut Findings<'_>,
) -> Option<Check> {
    let udp = protocol == Protocol::Udp;
    let Some(choice) = layers.get(findings, |port| &port.monitor) else {
        return needs_monitor(scene).then_some(if udp { Check::UdpConnect } else { Check::Tcp });
    };
    if choice.given.value == MonitorChoice::Off && needs_monitor(scene) {
        let reason = Reason::warning(
            Code::ConflictingOptions,
            "without a monitor, traffic is lost on nodes without an endpoint: \
             externalTrafficPolicy is Local",
        )
        .remedy("remove this, so that nodes are checked for endpoints");
        findings.push(findings.at(reason, &choice.given.annotation));
    }
    if choice.given.value == MonitorChoice::UdpConnect && !udp {
        choice.reject(findings, "udp-connect checks members of UDP ports only");
        return None;
    }
    let needs_tcp = [MonitorChoice::Https, MonitorChoice::Grpc];
    if needs_tcp.contains(&choice.given.value) && udp {
        choice.reject(findings, "TLS and gRPC checks need a TCP port");
        return None;
    }
    match choice.take(findings) {
        MonitorChoice::Off => None,
        MonitorChoice::On if udp => Some(Check::UdpConnect),
        MonitorChoice::On | MonitorChoice::Tcp => Some(Check::Tcp),
        MonitorChoice::UdpConnect => Some(Check::UdpConnect),
        MonitorChoice::Grpc => {
            let support = (scene.profile.support)(OptionId::MonitorGrpcService);
            if let Support::Refused { why } = support {
                let provider = scene.profile.provider;
                let reason = Reason::error(
                    Code::OptionNotSupported,
                    format!("the provider {provider} does not support this: {why}"),
                )
                .remedy("write tcp, http or https");
                findings.push(findings.at(reason, &choice.given.annotation));
                return None;
            }
            let service = layers.take(findings, |port| &port.monitor_grpc_service);
            Some(Check::Grpc {
                service: service.cloned().unwrap_or_default(),
            })
        }
        MonitorChoice::Http | MonitorChoice::Https => {
            let method = layers.take(findings, |port| &port.monitor_method);
            let path = layers.take(findings, |port| &port.monitor_path);
            let codes = layers.take(findings, |port| &port.monitor_codes);
            Some(Check::Http {
                method: method.copied().unwrap_or_default(),
                path: path.cloned().unwrap_or_else(|| "/".to_owned()),
                codes: codes.cloned().unwrap_or_default(),
            })
        }
    }
}

/// Returns the requested timeout, which must fit into the delay; else that of the configuration, or
/// the default, cut to fit. A provider whose API validates numbers gets it unchanged, as Services
/// that it serves already have it.
fn timeout(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    delay: Duration,
    default: Duration,
    findings: &mut Findings<'_>,
) -> Duration {
    let Some(choice) = layers.get(findings, |port| &port.monitor_timeout) else {
        return if scene.profile.validates_numbers {
            default
        } else {
            default.min(delay)
        };
    };
    let mut timeout = bounds::of_monitor(scene, &choice, findings);
    if scene.profile.validates_numbers {
        return timeout;
    }
    if timeout > LONGEST_CHECK {
        let most = show_duration(LONGEST_CHECK);
        let reason = Reason::warning(
            Code::LimitReached,
            format!("a check times out after {most}: longer checks would delay others"),
        )
        .remedy(format!("write at most {most}"));
        findings.push(findings.at(reason, &choice.given.annotation));
        timeout = LONGEST_CHECK;
    }
    // What the configuration says for all Services was not said of this one's delay.
    if timeout > delay && choice.configured() {
        return delay;
    }
    if timeout > delay {
        let shown = show_duration(delay);
        let reason = Reason::error(
            Code::ConflictingOptions,
            format!("a check may not take longer than the delay between checks, {shown}"),
        )
        .remedy(format!("write at most {shown}, or make the delay longer"));
        findings.push(findings.at(reason, &choice.given.annotation));
    }
    timeout
}
