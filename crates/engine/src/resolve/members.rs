//! The members of the pool of a port, and the endpoints that are left out, with reasons.

mod node_ports;
mod pods;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

use landfall_model::dialect::{EndpointSpec, MemberRef};
use landfall_model::intent::LeftOut;
use landfall_model::limits;
use landfall_model::provider::Target;
use landfall_model::reach::{ForbiddenAddress, NamedBy};
use landfall_model::rows::{Endpoint, ServicePort, SliceRow};
use landfall_model::{Code, Listener, Member, Reason, Severity};

use super::ResolveContext;
use super::findings::Findings;
use super::layers::Layers;
pub(super) use pods::share;

/// What is known of members while the ports of a Service are resolved one after the other.
pub(super) struct MemberResolver<'a> {
    slices: &'a [SliceRow],
    /// Whether endpoints that could be members are left out of slices.
    cut: bool,
    /// Endpoints of slices that can be members, sorted by address.
    serving: Vec<Serving<'a>>,
    /// The slices that have a port of the Service: a number of it, and where it is checked.
    matched: BTreeMap<usize, (NonZeroU16, Option<NonZeroU16>)>,
    /// How many members the listeners have so far.
    pub(super) collected: usize,
    /// How many more they would have, had they not been bounded.
    pub(super) skipped: usize,
    /// All endpoints that a name or an address could mean.
    known: BTreeSet<MemberRef>,
    /// Endpoints that are in no pool. The same endpoint for the same reason is reported once,
    /// whatever the port.
    left_out: BTreeMap<(String, String), LeftOut>,
    /// What stands for each of those, listed or not.
    noted: HashSet<u64>,
    /// Those that are not listed, with how much they matter.
    more: BTreeMap<(Code, Severity), usize>,
    /// Members that annotations speak of.
    named: BTreeMap<String, BTreeSet<MemberRef>>,
    /// Endpoints of slices that may not be members.
    barred: BTreeMap<IpAddr, ForbiddenAddress>,
}

/// An endpoint of a slice that can be a member.
#[derive(Clone, Copy)]
struct Serving<'a> {
    address: IpAddr,
    slice: usize,
    endpoint: &'a Endpoint,
    draining: bool,
}

/// How many endpoints that are in no pool are listed: they are kept with the Service, and copied
/// into each view.
const MAX_LEFT_OUT: usize = 50;

/// How many unknown members a reason lists.
const MAX_LISTED: usize = 5;

// === impl MemberResolver ===

impl<'s> MemberResolver<'s> {
    /// Gathers all endpoints, before any port is checked. `slices`: those of the Service.
    pub(super) fn gather(scene: &ResolveContext<'_>, slices: &'s [SliceRow]) -> Self {
        let mut known = BTreeSet::new();
        match scene.target {
            Target::Pod => {
                for (_, endpoint) in pods::endpoints(slices) {
                    known.insert(MemberRef::Address(endpoint.address.to_canonical()));
                    known.extend(endpoint.name.as_deref().map(name_of));
                }
            }
            Target::Node => {
                for node in scene.world.nodes() {
                    known.extend(node.addresses.iter().copied().map(MemberRef::Address));
                    known.insert(name_of(&node.name));
                }
            }
        }
        Self {
            slices,
            cut: false,
            serving: pods::serving(scene, slices),
            matched: BTreeMap::new(),
            collected: 0,
            skipped: 0,
            known,
            left_out: BTreeMap::new(),
            noted: HashSet::new(),
            more: BTreeMap::new(),
            named: BTreeMap::new(),
            barred: BTreeMap::new(),
        }
    }

    /// The members of a port, sorted by address. `check`: where else than there they are checked.
    pub(super) fn members(
        &mut self,
        scene: &ResolveContext<'_>,
        (port, check): (&ServicePort, Option<NonZeroU16>),
        layers: Layers<'_>,
        findings: &mut Findings<'_>,
    ) -> Vec<Member> {
        let choice = layers.get(findings, |port| &port.endpoints);
        let literal = choice.map(|choice| (choice.take(findings), choice.given));
        let mut members = match (literal, scene.target) {
            (Some((specs, given)), _) => {
                let named = (specs.as_slice(), given.annotation.as_str());
                if !scene.previous && self.bound(scene).is_some() {
                    // The Service is refused, whatever they are.
                    self.skipped += specs.len();
                    return Vec::new();
                }
                self.literal(scene, named, check, findings)
            }
            (None, Target::Pod) => self.pods(scene, port, check),
            (None, Target::Node) => self.node_ports(scene, port),
        };
        let weights = layers.get(findings, |port| &port.member_weights);
        let weights = weights.map(|choice| {
            let weights = choice.take(findings);
            self.note_named(&choice.given.annotation, weights.keys());
            weights
        });
        let backups = layers.get(findings, |port| &port.backup_members);
        let backups = backups.map(|choice| {
            let backups = choice.take(findings);
            self.note_named(&choice.given.annotation, backups);
            backups
        });
        let weighed: BTreeSet<SocketAddr> = literal
            .into_iter()
            .flat_map(|(specs, _)| specs)
            .filter(|spec| spec.weight.is_some())
            .map(|spec| spec.address)
            .collect();
        for member in members.values_mut() {
            let refs = refs_to(member);
            let mut by_ref = refs.iter().filter_map(|member| weights?.get(member));
            if let (Some(weight), false) = (by_ref.next(), weighed.contains(&member.address)) {
                member.weight = *weight;
            }
            member.backup |= refs
                .iter()
                .any(|member| backups.is_some_and(|backups| backups.contains(member)));
        }
        members.into_values().collect()
    }

    /// Remarks about names of no endpoint and about ports without one.
    pub(super) fn remark(
        &self,
        scene: &ResolveContext<'_>,
        listeners: &[Listener],
        findings: &mut Findings<'_>,
    ) {
        for (annotation, named) in &self.named {
            let foreign_objects: Vec<&MemberRef> = named.difference(&self.known).collect();
            if !foreign_objects.is_empty() {
                findings.push(findings.at(unknown_members(&foreign_objects), annotation));
            }
        }
        findings.extend(not_allowed(&self.barred));
        findings.extend(self.cut.then(limits::endpoints_left_out));
        let unserved: Vec<&Listener> = listeners
            .iter()
            .filter(|listener| listener.pool.members.iter().all(|member| member.draining))
            .collect();
        if unserved.is_empty() {
            return;
        }
        if self.known.is_empty() && self.cut {
            findings.push(none_read());
        } else if self.known.is_empty() {
            findings.push(no_endpoints(scene));
        } else if unserved.len() == listeners.len() {
            let members = unserved.iter().flat_map(|listener| &listener.pool.members);
            findings.push(none_ready(members.count() > 0));
        } else {
            for listener in unserved {
                let mut ports = scene.service.ports.iter();
                let same = |port: &ServicePort| {
                    (port.protocol, port.port) == (listener.key.protocol, listener.key.port)
                };
                let index = ports.position(same).unwrap_or_default();
                let reason = none_ready(!listener.pool.members.is_empty());
                findings.push(
                    reason
                        .at(format!("spec.ports[{index}]"))
                        .value(listener.key.to_string()),
                );
            }
        }
    }

    /// The endpoints that are in no pool: the first of them one by one, the others counted.
    pub(super) fn left_out(self) -> Vec<LeftOut> {
        let more = self.more.into_iter().map(|((code, severity), count)| {
            let reason = Reason::info(code, "they are left out too, and not listed");
            LeftOut {
                endpoint: format!("{count} more"),
                name: None,
                reason: Reason { severity, ..reason },
                count,
            }
        });
        self.left_out.into_values().chain(more).collect()
    }

    /// Adds an endpoint to those that are in no pool.
    pub(super) fn leave_out(&mut self, endpoint: String, name: Option<&str>, reason: Reason) {
        let mut hasher = DefaultHasher::new();
        (&endpoint, &reason.message).hash(&mut hasher);
        if !self.noted.insert(hasher.finish()) {
            return;
        }
        if self.left_out.len() >= MAX_LEFT_OUT {
            *self.more.entry((reason.code, reason.severity)).or_default() += 1;
            return;
        }
        let key = (endpoint.clone(), reason.message.clone());
        let left_out = LeftOut {
            endpoint,
            name: name.map(str::to_owned),
            reason,
            count: 1,
        };
        self.left_out.insert(key, left_out);
    }

    fn note_named<'m>(&mut self, annotation: &str, named: impl IntoIterator<Item = &'m MemberRef>) {
        self.named
            .entry(annotation.to_owned())
            .or_default()
            .extend(named.into_iter().cloned());
    }

    /// Members that an annotation names. One that may be none is an error; of a version that was
    /// accepted earlier it is left out.
    fn literal(
        &mut self,
        scene: &ResolveContext<'_>,
        (specs, annotation): (&[EndpointSpec], &str),
        check: Option<NonZeroU16>,
        findings: &mut Findings<'_>,
    ) -> BTreeMap<SocketAddr, Member> {
        let mut members = BTreeMap::new();
        let mut barred = BTreeMap::new();
        for spec in specs {
            self.known.insert(MemberRef::Address(spec.address.ip()));
            if let Err(why) = validate_member(scene, spec.address, check, NamedBy::Annotation) {
                barred.insert(spec.address.ip(), why);
                continue;
            }
            let member = Member {
                weight: spec.weight.unwrap_or(1),
                backup: spec.backup,
                ..Member::new(spec.address)
            };
            members.insert(spec.address, member);
        }
        if let Some(reason) = not_allowed(&barred) {
            let severity = if scene.previous {
                Severity::Warning
            } else {
                Severity::Error
            };
            let reason = Reason { severity, ..reason };
            findings.push(findings.at(reason, annotation));
        }
        members
    }
}

fn validate_member(
    scene: &ResolveContext<'_>,
    member: SocketAddr,
    check: Option<NonZeroU16>,
    by: NamedBy,
) -> Result<(), ForbiddenAddress> {
    let rules = &scene.profile.members;
    rules.validate(member, check, by, |address, asks_machine| {
        scene.world.ours(address, asks_machine)
    })
}

/// What is said on the Service of endpoints that may not be members: the first by name, and how
/// many there are.
fn not_allowed(barred: &BTreeMap<IpAddr, ForbiddenAddress>) -> Option<Reason> {
    let (address, why) = barred.first_key_value()?;
    let more = match barred.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more addresses are not allowed either"),
    };
    let message = format!("{address} {}{more}", why.why());
    Some(Reason::warning(Code::MemberNotAllowed, message).remedy(why.remedy()))
}

fn name_of(name: &str) -> MemberRef {
    MemberRef::Name(name.to_owned())
}

/// What a member can be called, the closest name first.
fn refs_to(member: &Member) -> Vec<MemberRef> {
    let name: Option<&Arc<str>> = member.name.as_ref();
    name.map(|name| name_of(name))
        .into_iter()
        .chain([MemberRef::Address(member.address.ip())])
        .collect()
}

fn no_endpoints(scene: &ResolveContext<'_>) -> Reason {
    let name = scene.service.key.name();
    let reason = Reason::warning(Code::NoEndpoints, "the Service has no endpoints");
    match scene.target {
        Target::Pod if scene.chose_pods() => reason.remedy(format!(
            "start pods that its selector matches, or write an EndpointSlice with the label \
             kubernetes.io/service-name: {name}"
        )),
        Target::Pod => reason.remedy(format!(
            "start pods that its selector matches, write an EndpointSlice with the label \
             kubernetes.io/service-name: {name}, or set landfall.dev/endpoints"
        )),
        Target::Node => reason.remedy("add nodes to the cluster"),
    }
}

/// It has endpoints, and there is no room for any of them.
fn none_read() -> Reason {
    Reason {
        code: Code::NoEndpoints,
        ..limits::endpoints_left_out()
    }
}

fn unknown_members(foreign_objects: &[&MemberRef]) -> Reason {
    let named: Vec<String> = foreign_objects
        .iter()
        .take(MAX_LISTED)
        .map(ToString::to_string)
        .collect();
    let more = match foreign_objects.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" or the {more} others listed"),
    };
    Reason::warning(
        Code::OptionNotApplicable,
        format!(
            "no endpoint of the Service is named {}{more}",
            named.join(" or ")
        ),
    )
    .remedy("name an endpoint by its address or its pod's name, or wait for it")
}

fn none_ready(draining: bool) -> Reason {
    if draining {
        return Reason::warning(
            Code::NoReadyEndpoints,
            "only endpoints that are shutting down are left",
        )
        .remedy("find out why no new pod becomes ready");
    }
    Reason::warning(Code::NoReadyEndpoints, "none of the endpoints can serve")
        .remedy("see which endpoints are left out, and why")
}
