//! One Service and the World become an [`Intent`], or the reasons why it can't be had.
//!
//! Pure: no clock, no I/O, equal arguments give equal answers. Errors are gathered, never returned
//! one at a time, so that a user fixes everything in one go. Nothing is ignored without a remark.
//!
//! ```text
//!  annotations ── dialect ──> options ┐
//!  spec ──────────────────────────────┼─ ports ── listeners (mode, certificates, monitor, ...)
//!  EndpointSlices ── members ─────────┘─ address
//! ```

mod accepted;
mod address;
mod bounds;
mod findings;
mod layers;
mod limits;
mod listener;
mod members;
mod monitor;
mod nodes;
mod ports;
mod protection;
mod secrets;
mod sources;
mod tls;

use std::num::NonZeroU16;
use std::sync::Arc;

use landfall_model::dialect::{self, PortOptions, Reading, ServiceOptions};
use landfall_model::listener::{Certificate, Listener, ListenerKey};
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::rows::ServiceRow;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason, Severity};

use crate::World;
pub use accepted::Accepted;
pub(crate) use address::backend_key;
use findings::Findings;
use tls::certificates_of;

/// What every part of resolving reads.
struct ResolveContext<'a> {
    service: &'a ServiceRow,
    world: &'a World,
    profile: &'a ProviderProfile,
    options: &'a ServiceOptions,
    /// What members are.
    target: Target,
    /// Certificates that a Secret held when this version was accepted.
    certificates: &'a [Arc<Certificate>],
    /// Whether it was accepted earlier: what can't be had any more is left out of it.
    previous: bool,
}

/// What a Service wants.
///
/// # Errors
/// Every reason why it can't be had, the errors first, and whatever else there is to say about it.
pub fn resolve(
    service: &ServiceRow,
    world: &World,
    profile: &ProviderProfile,
) -> Result<Intent, Vec<Reason>> {
    resolve_version(service, None, world, profile)
}

/// That nothing be left of a Service's load balancer.
pub fn removal(service: &ServiceRow) -> Intent {
    let options = dialect::options(&service.annotations, &service.ports);
    Intent {
        extensions: options.extensions.with_status(&service.status),
        marks: service.status.marks.clone(),
        created: service.created,
        ..Intent::removal(service.key.clone(), service.uid.clone())
    }
}

/// What a version of a Service wants that was valid earlier: with the facts of today, and, where a
/// Secret is gone or of no use by now, with the certificate that it held then. Otherwise members
/// would have to wait until the Secret is fixed. Members that may be gone are left
/// out.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_previous(
    service: &ServiceRow,
    certificates: &[Arc<Certificate>],
    world: &World,
    profile: &ProviderProfile,
) -> Result<Intent, Vec<Reason>> {
    resolve_version(service, Some(certificates), world, profile)
}

/// `accepted`: the certificates of a version that was accepted earlier.
fn resolve_version(
    service: &ServiceRow,
    accepted: Option<&[Arc<Certificate>]>,
    world: &World,
    profile: &ProviderProfile,
) -> Result<Intent, Vec<Reason>> {
    if service.deleting || !service.wants_load_balancer {
        return Ok(removal(service));
    }
    let reading = dialect::read(&service.annotations, &service.ports, &profile.vocabulary);
    let mut findings = Findings::new(service, reading.reasons.clone());
    let faults = service.faults.iter().chain(&reading.extension_reasons);
    findings.extend(faults.cloned());
    let scene = ResolveContext {
        service,
        world,
        profile,
        options: &reading.options,
        target: target(profile, &reading.options),
        certificates: accepted.unwrap_or_default(),
        previous: accepted.is_some(),
    };
    ports::validate(&scene, &mut findings);
    limits::validate(&scene, &reading, &mut findings);
    validate_options(&scene, &reading, &mut findings);
    let address = address::spec(&scene, &mut findings);
    let allowed = sources::of_service(&scene, &mut findings);
    // Nodes need none.
    let pods = (scene.target == Target::Pod).then(|| world.slices_of(&service.key));
    let slices: Vec<_> = pods.into_iter().flatten().collect();
    let mut resolver = members::MemberResolver::gather(&scene, &slices);
    let mut listeners = Vec::new();
    for (index, port) in service.ports.iter().enumerate() {
        let built = listener::build(&scene, index, port, &allowed, &mut resolver, &mut findings);
        resolver.collected += built.as_ref().map_or(0, |it| it.pool.members.len());
        listeners.extend(built);
    }
    resolver.leave_out_idle(&scene);
    listeners.sort_by_key(|listener| listener.key);
    limits::bound_members(&scene, &mut listeners, resolver.skipped, &mut findings);
    resolver.remark(&scene, &listeners, &mut findings);
    remark_monitors(&reading, &listeners, &mut findings);
    let hostname = scene.options.hostname.as_ref();
    let hostname = hostname.map(|given| given.value.clone());
    findings.remark_unused(&reading);
    let nodes = nodes::targets(&scene, &mut findings);
    let remarks = findings.finish()?;
    Ok(Intent {
        service: service.key.clone(),
        uid: service.uid.clone(),
        created: service.created,
        load_balancer: Some(LoadBalancerSpec {
            address,
            listeners,
            hostname,
            left_out: resolver.left_out(),
            order: order(service),
            health_check_port: health_check_port(&scene),
            target: scene.target,
            nodes,
            has_nodes: nodes::any(&scene),
        }),
        extensions: reading
            .options
            .extensions
            .clone()
            .with_status(&service.status),
        marks: service.status.marks.clone(),
        remarks,
    })
}

/// Says what is wrong with the monitor that is asked for: no more than a warning where none of the
/// listeners has one.
fn remark_monitors(reading: &Reading, listeners: &[Listener], findings: &mut Findings<'_>) {
    let checked = listeners.iter().any(|it| it.pool.monitor.is_some());
    findings.extend(reading.monitor_reasons.iter().cloned().map(|mut reason| {
        if !checked {
            reason.severity = Severity::Warning;
        }
        reason
    }));
}

fn order(service: &ServiceRow) -> Vec<ListenerKey> {
    let ports = service.ports.iter();
    let keys = ports.map(|port| ListenerKey {
        protocol: port.protocol,
        port: port.port,
    });
    keys.collect()
}

/// Where nodes report whether they have an endpoint, if only those may get traffic.
fn health_check_port(scene: &ResolveContext<'_>) -> Option<NonZeroU16> {
    let service = scene.service;
    let asks_nodes = service.external_local && !scene.chose_pods();
    service.health_check_node_port.filter(|_| asks_nodes)
}

/// Returns what the members of a Service are.
fn target(profile: &ProviderProfile, options: &ServiceOptions) -> Target {
    let given = options.target_type.as_ref();
    let given = given.filter(|_| chooses_target(profile));
    given.map_or(profile.target, |given| given.value)
}

/// Whether members of the provider can be pods as well as nodes.
fn chooses_target(profile: &ProviderProfile) -> bool {
    matches!((profile.support)(OptionId::TargetType), Support::Supported)
}

/// Asks the provider about everything that the user asks for.
fn validate_options(scene: &ResolveContext<'_>, reading: &Reading, findings: &mut Findings<'_>) {
    for given in &reading.given {
        // What the provider does anyway needs no support.
        let target = reading.options.target_type.as_ref();
        let as_ever = given.option == OptionId::TargetType
            && target.is_some_and(|it| it.value == scene.profile.target);
        let asks = !as_ever
            && !matches!(
                given.value.trim(),
                "off" | "none" | "false" | "stream" | "-1"
            );
        if asks {
            let reason = validate_support(scene.profile, given.option);
            findings.extend(reason.map(|reason| findings.at(reason, &given.annotation)));
        }
    }
    let service = scene.service;
    let fields = [
        (
            OptionId::SourceRanges,
            "spec.loadBalancerSourceRanges",
            !service.source_ranges.is_empty(),
        ),
        (
            OptionId::SessionAffinity,
            "spec.sessionAffinity",
            service.affinity.is_some(),
        ),
        (
            OptionId::Addresses,
            "spec.loadBalancerIP",
            address::field_of_spec(service).is_some(),
        ),
        (
            OptionId::ExternalTrafficPolicy,
            "spec.externalTrafficPolicy",
            service.external_local,
        ),
    ];
    for (option, field, _) in fields.into_iter().filter(|(_, _, given)| *given) {
        let reason = validate_support(scene.profile, option);
        findings.extend(reason.map(|reason| reason.at(field)));
    }
    for (field, value) in &service.node_fields {
        let place = format!("spec.{field}");
        let option = OptionId::of_field(&place);
        let reason = option.and_then(|option| validate_support(scene.profile, option));
        findings.extend(reason.map(|reason| reason.at(place).value(value.clone())));
    }
}

fn validate_support(profile: &ProviderProfile, option: OptionId) -> Option<Reason> {
    let provider = profile.provider;
    match (profile.support)(option) {
        Support::Supported => None,
        Support::Emulated { how } => Some(Reason::info(
            Code::OptionNotSupported,
            format!("the provider {provider} implements this differently: {how}"),
        )),
        Support::LeftOut { why, remedy } => Some(
            Reason::warning(
                Code::OptionNotSupported,
                format!("the provider {provider} ignores this: {why}"),
            )
            .remedy(remedy),
        ),
        Support::Refused { why } => Some(
            Reason::error(
                Code::OptionNotSupported,
                format!("the provider {provider} does not support this: {why}"),
            )
            .remedy("remove it, or use a load balancer class whose provider supports it"),
        ),
    }
}

impl ResolveContext<'_> {
    /// Whether members are pods where they could be nodes.
    fn chose_pods(&self) -> bool {
        self.target == Target::Pod && chooses_target(self.profile)
    }

    /// What was written for a port alone, and what was written for the whole Service.
    fn layers<'s>(&'s self, own: &'s PortOptions) -> layers::Layers<'s> {
        layers::Layers {
            own,
            common: &self.options.common,
            defaults: &self.profile.defaults,
        }
    }
}

#[cfg(test)]
mod tests;
