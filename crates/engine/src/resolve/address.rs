//! Which address a Service wants.

use std::collections::BTreeSet;
use std::net::IpAddr;

use landfall_model::dialect::address;
use landfall_model::option::OptionId;
use landfall_model::provider::Support;
use landfall_model::reason::annotation_field;
use landfall_model::rows::{Family, FamilyPolicy, MOST_ADDRESSES, ServiceRow};
use landfall_model::{AddressSpec, Code, Reason};

use super::ResolveContext;
use super::findings::Findings;

const FIELD: &str = "spec.loadBalancerIP";
/// Kubernetes puts this label on every namespace; in files it is mostly left out.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A request for certain addresses and where it stands.
struct Request {
    field: String,
    text: String,
    addresses: Vec<IpAddr>,
}

/// The spec for an address.
pub(super) fn spec(scene: &ResolveContext<'_>, findings: &mut Findings<'_>) -> AddressSpec {
    let service = scene.service;
    let families = families(service, findings);
    let requests = requests(scene, findings);
    validate_agreement(&requests, findings);
    let count = count(scene, requests.first(), findings);
    let (requested, requested_by) = match requests.into_iter().next() {
        Some(request) => {
            validate_families(&request, &families, scene, findings);
            (request.addresses, request.field)
        }
        None => (Vec::new(), String::new()),
    };
    let namespace = service.key.namespace();
    let mut namespace_labels = scene
        .world
        .namespace(namespace)
        .map(|row| row.labels.clone())
        .unwrap_or_default();
    namespace_labels
        .entry(NAMESPACE_NAME.to_owned())
        .or_insert_with(|| namespace.to_owned());
    let text = |given: &Option<landfall_model::dialect::Given<String>>| {
        given.as_ref().map(|given| given.value.clone())
    };
    AddressSpec {
        namespace_labels,
        labels: service.labels.clone(),
        families,
        policy: service.family_policy,
        requested,
        requested_by,
        pool: text(&scene.options.address_pool),
        count,
        sharing_key: text(&scene.options.sharing_key),
        backend_key: backend_key(service),
        held: service.status.addresses().collect(),
    }
}

/// How many addresses of each family it shall have. Certain ones are counted by themselves.
fn count(scene: &ResolveContext<'_>, request: Option<&Request>, findings: &mut Findings<'_>) -> u8 {
    let given = scene.options.address_count.as_ref();
    let Some(request) = request else {
        return given.map_or(1, |given| given.value);
    };
    let of_v4 = request.addresses.iter().filter(|it| it.is_ipv4()).count();
    let named = of_v4.max(request.addresses.len() - of_v4);
    let named = u8::try_from(named).unwrap_or(MOST_ADDRESSES);
    if let Some(given) = given.filter(|given| given.value != named) {
        findings.push(
            Reason::error(
                Code::ConflictingOptions,
                format!(
                    "{} requests another number: {}",
                    request.field, request.text
                ),
            )
            .at_annotation(&given.annotation)
            .value(given.value.to_string())
            .remedy("remove one of the two"),
        );
    }
    let support = (scene.profile.support)(OptionId::AddressCount);
    if let (2.., Support::Refused { why }) = (named, support) {
        findings.push(
            Reason::error(
                Code::OptionNotSupported,
                format!("several addresses of a family are requested, and {why}"),
            )
            .at(request.field.as_str())
            .value(request.text.as_str())
            .remedy("request one address of each family at most"),
        );
    }
    named
}

/// `spec.loadBalancerIP`, where it says anything.
pub(super) fn field_of_spec(service: &ServiceRow) -> Option<&str> {
    let text = service.load_balancer_ip.as_deref()?.trim();
    (!text.is_empty()).then_some(text)
}

/// Families in order of preference. One is enough unless the policy asks for both.
fn families(service: &ServiceRow, findings: &mut Findings<'_>) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for family in &service.families {
        if !families.contains(family) {
            families.push(*family);
        }
    }
    match service.family_policy {
        FamilyPolicy::SingleStack => families.truncate(1),
        FamilyPolicy::RequireDualStack if families.len() < 2 => findings.push(
            Reason::error(
                Code::AddressFamilyMismatch,
                "the policy requires both families, and the Service has one",
            )
            .at("spec.ipFamilyPolicy")
            .value("RequireDualStack")
            .remedy("list IPv4 and IPv6 in spec.ipFamilies, or use PreferDualStack"),
        ),
        FamilyPolicy::PreferDualStack | FamilyPolicy::RequireDualStack => {}
    }
    families
}

/// Every request for certain addresses, the one that counts first.
fn requests(scene: &ResolveContext<'_>, findings: &mut Findings<'_>) -> Vec<Request> {
    let annotations = &scene.service.annotations;
    let mut requests: Vec<Request> = scene
        .options
        .addresses
        .iter()
        .map(|given| Request {
            field: annotation_field(&given.annotation),
            text: annotations
                .get(&given.annotation)
                .cloned()
                .unwrap_or_default(),
            addresses: given.value.clone(),
        })
        .collect();
    if let Some(text) = field_of_spec(scene.service) {
        match address(text) {
            Ok(address) => requests.push(Request {
                field: FIELD.to_owned(),
                text: text.to_owned(),
                addresses: vec![address],
            }),
            Err(refusal) => findings.push(refusal.at(FIELD, text)),
        }
    }
    requests
}

fn validate_agreement(requests: &[Request], findings: &mut Findings<'_>) {
    let Some((first, others)) = requests.split_first() else {
        return;
    };
    let set = |request: &Request| request.addresses.iter().copied().collect::<BTreeSet<_>>();
    for other in others.iter().filter(|other| set(other) != set(first)) {
        findings.push(
            Reason::error(
                Code::ConflictingOptions,
                format!("{} requests other addresses: {}", first.field, first.text),
            )
            .at(other.field.as_str())
            .value(other.text.as_str())
            .remedy("keep one of the two"),
        );
    }
}

fn validate_families(
    request: &Request,
    families: &[Family],
    scene: &ResolveContext<'_>,
    findings: &mut Findings<'_>,
) {
    let names = |families: &[Family]| {
        let names: Vec<&str> = families.iter().map(|family| family.as_str()).collect();
        names.join(" and ")
    };
    for address in &request.addresses {
        let family = Family::of(*address);
        if !families.contains(&family) {
            findings.push(
                Reason::error(
                    Code::AddressFamilyMismatch,
                    format!(
                        "{address} is {family}, and the Service is {}",
                        names(families)
                    ),
                )
                .at(request.field.as_str())
                .value(request.text.as_str())
                .remedy(format!(
                    "request an address of {}, or change spec.ipFamilies",
                    names(families)
                )),
            );
        }
    }
    let both_needed = scene.service.family_policy == FamilyPolicy::RequireDualStack
        && !scene.profile.completes_families;
    let in_family = |family| request.addresses.iter().any(|it| Family::of(*it) == family);
    if both_needed && !(in_family(Family::V4) && in_family(Family::V6)) {
        findings.push(
            Reason::error(
                Code::AddressFamilyMismatch,
                "the policy RequireDualStack needs an address of each family",
            )
            .at(request.field.as_str())
            .value(request.text.as_str())
            .remedy(
                "request an IPv4 and an IPv6 address in landfall.dev/addresses, or use \
                PreferDualStack",
            ),
        );
    }
}

/// What must be equal for two Services to share an address. With `externalTrafficPolicy: Local` an
/// address attracts traffic only where the Service has endpoints, so both must have the same ones.
/// Without a selector nothing proves that: such a Service gets a key of its own.
pub(crate) fn backend_key(service: &ServiceRow) -> String {
    if !service.external_local {
        return String::new();
    }
    if service.selector.is_empty() {
        return format!("endpoints of {}", service.key);
    }
    let labels: Vec<String> = service
        .selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}
