//! How much one Service may ask for. A version that asks for more is refused; one that was accepted
//! earlier, under other limits, is served as it was.

use std::collections::BTreeSet;

use landfall_model::dialect::{Given, PortOptions, Reading};
use landfall_model::option::OptionId;
use landfall_model::provider::Target;
use landfall_model::{Code, Listener, Reason};

use super::findings::Findings;
use super::{ResolveContext, members};

/// Validates what a Service asks for by itself.
pub(super) fn validate(scene: &ResolveContext<'_>, reading: &Reading, findings: &mut Findings<'_>) {
    if scene.previous {
        return;
    }
    let limits = &scene.profile.limits;
    let ports = scene.service.ports.len();
    if ports > limits.ports_per_service {
        let most = limits.ports_per_service;
        findings.push(
            Reason::error(
                Code::LimitReached,
                format!("the Service has {ports} ports, and may have {most}"),
            )
            .at("spec.ports")
            .value(ports.to_string())
            .remedy(
                "distribute the ports over several Services, which may share an address, or ask \
                the operator for a higher limits.portsPerService in landfall.yaml",
            ),
        );
    }
    let secrets: BTreeSet<_> = scene.options.secrets().collect();
    if secrets.len() > limits.certificates_per_service {
        let (named, most) = (secrets.len(), limits.certificates_per_service);
        let reason = Reason::error(
            Code::LimitReached,
            format!("the Service names {named} Secrets with certificates, and may name {most}"),
        )
        .remedy(
            "name fewer, such as a certificate for several names, or ask the operator for a higher \
             limits.certificatesPerService in landfall.yaml",
        );
        let place = reading
            .given
            .iter()
            .find(|it| it.option == OptionId::TlsSecret);
        let annotation = place.map_or("", |given| given.annotation.as_str());
        findings.push(findings.at(reason, annotation));
    }
}

/// Bounds the members of all listeners together. Of an annotation, more are an error; of
/// EndpointSlices, those beyond the share of a port are left out. `skipped`: those that were not
/// even built, because there are too many without them.
pub(super) fn bound_members(
    scene: &ResolveContext<'_>,
    listeners: &mut [Listener],
    skipped: usize,
    findings: &mut Findings<'_>,
) {
    let given = named(&scene.options.common, scene);
    // Nodes are the operator's.
    if scene.target == Target::Node && given.is_none() {
        return;
    }
    let most = scene.profile.limits.members_per_service;
    let built: usize = listeners.iter().map(|it| it.pool.members.len()).sum();
    let count = built + skipped;
    if count <= most {
        return;
    }
    let remedy = "use fewer endpoints, or ask the operator for a higher limits.membersPerService \
                 in landfall.yaml";
    if let Some(given) = given
        && !scene.previous
    {
        let reason = Reason::error(
            Code::LimitReached,
            format!("the ports of the Service have {count} members, and may have {most}"),
        )
        .remedy(remedy);
        findings.push(findings.at(reason, &given));
        return;
    }
    let share = members::share(scene);
    for listener in &mut *listeners {
        listener.pool.members.truncate(share);
    }
    let left: usize = listeners.iter().map(|it| it.pool.members.len()).sum();
    let reason = Reason::warning(
        Code::LimitReached,
        format!(
            "of {count} members of all ports {} are left out: a Service may have {most}",
            count - left
        ),
    );
    findings.push(reason.remedy(remedy));
}

/// The annotation that names members, if one does.
fn named(common: &PortOptions, scene: &ResolveContext<'_>) -> Option<String> {
    let annotation = |given: &Option<Given<_>>| given.as_ref().map(|it| it.annotation.clone());
    let mut ports = scene.service.ports.iter();
    annotation(&common.endpoints)
        .or_else(|| ports.find_map(|port| annotation(&scene.options.own(port).endpoints)))
}
