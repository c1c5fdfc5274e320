//! Members from EndpointSlices.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use landfall_model::reach::{ForbiddenAddress, NamedBy};
use landfall_model::reason::Origin;
use landfall_model::rows::{Endpoint, Family, ServicePort, SlicePort, SliceRow};
use landfall_model::{Code, Member, Reason};

use super::{MemberResolver, Serving, validate_member};
use crate::resolve::ResolveContext;
use crate::resolve::ports::has_listener;

/// Whether an endpoint serves.
enum Verdict {
    Serves,
    Drains,
    LeftOut(&'static str),
}

// === impl MemberResolver ===

impl MemberResolver<'_> {
    /// How many members another port may have; `None` while all may have all of theirs.
    pub(super) fn bound(&self, scene: &ResolveContext<'_>) -> Option<usize> {
        let most = scene.profile.limits.members_per_service;
        (self.collected > most).then(|| share(scene))
    }

    /// Members from EndpointSlices. An endpoint may stand in several slices while Kubernetes moves
    /// it; the best that is said of it counts.
    pub(super) fn pods(
        &mut self,
        scene: &ResolveContext<'_>,
        port: &ServicePort,
        check: Option<NonZeroU16>,
    ) -> BTreeMap<SocketAddr, Member> {
        self.cut |= self.slices.iter().any(|slice| slice.cut);
        let numbers = self.numbers(scene, port, check);
        // With the members of the ports before it beyond the limit, it is sure to be cut.
        let bound = self.bound(scene).unwrap_or(usize::MAX);
        let mut members: BTreeMap<SocketAddr, Member> = BTreeMap::new();
        let mut barred = Vec::new();
        let mut last = None;
        for serving in &self.serving {
            let Some(Some(number)) = numbers.get(serving.slice) else {
                continue;
            };
            let again = last.replace(serving.address) == Some(serving.address);
            // Another slice may know more of the last one.
            if members.len() >= bound && !(again && holds_last(&members, serving.address)) {
                self.skipped += usize::from(!again);
                continue;
            }
            let address = SocketAddr::new(serving.address, number.get());
            if let Err(why) = validate_member(scene, address, check, NamedBy::Slice) {
                barred.push((*serving, why));
                continue;
            }
            let Serving {
                endpoint, draining, ..
            } = *serving;
            let member = members.entry(address).or_insert_with(|| Member {
                draining,
                ..Member::new(address)
            });
            member.draining &= draining;
            member.node = member.node.take().or_else(|| endpoint.node.clone());
            member.name = member.name.take().or_else(|| endpoint.name.clone());
        }
        while members.len() > bound {
            members.pop_last();
            self.skipped += 1;
        }
        for (serving, why) in barred {
            self.bar(serving.slice, serving.endpoint, why);
        }
        members
    }

    /// The number of a port in each slice; what lacks it is left out.
    fn numbers(
        &mut self,
        scene: &ResolveContext<'_>,
        port: &ServicePort,
        check: Option<NonZeroU16>,
    ) -> Vec<Option<NonZeroU16>> {
        let mut numbers = Vec::with_capacity(self.slices.len());
        for (index, slice) in self.slices.iter().enumerate() {
            let number = match slice_port(slice, port, &scene.service.families) {
                Ok(number) => {
                    self.matched.entry(index).or_insert((number, check));
                    Some(number)
                }
                Err(reason) => {
                    if !slice.endpoints.is_empty() || slice.family.is_none() {
                        let name = format!("slice {}", slice.key.name());
                        self.leave_out(name, None, reason.origin(origin(slice)));
                    }
                    None
                }
            };
            numbers.push(number);
        }
        numbers
    }

    /// Leaves out the endpoints that can't be members: once for all ports, of which there may be
    /// as many as there are endpoints.
    pub(in crate::resolve) fn leave_out_idle(&mut self, scene: &ResolveContext<'_>) {
        let slices = self.slices;
        for (index, endpoint) in endpoints(slices) {
            let Some(&(number, check)) = self.matched.get(&index) else {
                continue;
            };
            let Verdict::LeftOut(why) = validate(endpoint, scene.service.publish_not_ready) else {
                continue;
            };
            let address = SocketAddr::new(endpoint.address.to_canonical(), number.get());
            if let Err(why) = validate_member(scene, address, check, NamedBy::Slice) {
                self.bar(index, endpoint, why);
            } else if !self.serves(address.ip()) {
                let origin = slices.get(index).and_then(origin);
                let reason = Reason::info(Code::EndpointIgnored, why).origin(origin);
                let endpoint_text = endpoint.address.to_string();
                self.leave_out(endpoint_text, endpoint.name.as_deref(), reason);
            }
        }
    }

    /// Whether an address serves in a slice with a port of the Service.
    fn serves(&self, address: IpAddr) -> bool {
        let first = self.serving.partition_point(|it| it.address < address);
        let rest = self.serving.iter().skip(first);
        rest.take_while(|it| it.address == address)
            .any(|it| self.matched.contains_key(&it.slice))
    }

    /// Leaves out an endpoint that may not be a member.
    fn bar(&mut self, slice: usize, endpoint: &Endpoint, why: ForbiddenAddress) {
        let before = self.barred.insert(endpoint.address.to_canonical(), why);
        if before.is_some_and(|before| before == why) {
            return;
        }
        let reason = barred_reason(why).origin(self.slices.get(slice).and_then(origin));
        let endpoint_text = endpoint.address.to_string();
        self.leave_out(endpoint_text, endpoint.name.as_deref(), reason);
    }
}

/// The endpoints that can be members, sorted by address.
pub(super) fn serving<'a>(scene: &ResolveContext<'_>, slices: &'a [SliceRow]) -> Vec<Serving<'a>> {
    let all = endpoints(slices).filter_map(|(slice, endpoint)| {
        let draining = match validate(endpoint, scene.service.publish_not_ready) {
            Verdict::Serves => false,
            Verdict::Drains => true,
            Verdict::LeftOut(_) => return None,
        };
        Some(Serving {
            address: endpoint.address.to_canonical(),
            slice,
            endpoint,
            draining,
        })
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|it| it.address);
    all
}

/// The endpoints of slices, each with the position of its slice.
pub(super) fn endpoints(slices: &[SliceRow]) -> impl Iterator<Item = (usize, &Endpoint)> {
    let all = slices.iter().enumerate();
    all.flat_map(|(index, slice)| slice.endpoints.iter().map(move |it| (index, it)))
}

fn holds_last(members: &BTreeMap<SocketAddr, Member>, address: IpAddr) -> bool {
    let last = members.last_key_value();
    last.is_some_and(|(last, _)| last.ip() == address)
}

/// How many members each port has where all of them together have too many.
pub(in crate::resolve) fn share(scene: &ResolveContext<'_>) -> usize {
    let ports = scene.service.ports.iter();
    let count = ports
        .filter(|port| has_listener(scene.profile, port.protocol))
        .count();
    (scene.profile.limits.members_per_service / count.max(1)).max(1)
}

/// Why an endpoint is in no pool.
fn barred_reason(why: ForbiddenAddress) -> Reason {
    Reason::warning(Code::MemberNotAllowed, format!("its address {}", why.why()))
        .remedy(why.remedy())
}

fn origin(slice: &SliceRow) -> Option<Origin> {
    slice.source.as_ref().map(|source| source.document.clone())
}

fn validate(endpoint: &Endpoint, publish_not_ready: bool) -> Verdict {
    if endpoint.ready {
        return Verdict::Serves;
    }
    match (endpoint.terminating, endpoint.serving) {
        (true, true) => Verdict::Drains,
        _ if publish_not_ready => Verdict::Serves,
        (true, false) => Verdict::LeftOut("terminating and no longer serving"),
        (false, _) => Verdict::LeftOut("not ready"),
    }
}

/// The number behind a Service's port in a slice.
fn slice_port(
    slice: &SliceRow,
    port: &ServicePort,
    families: &[Family],
) -> Result<NonZeroU16, Box<Reason>> {
    let Some(family) = slice.family else {
        return Err(ignored(
            "its addresses are names (FQDN), and names are not resolved",
            "write a slice of type IPv4 or IPv6",
        ));
    };
    if !families.contains(&family) {
        return Err(ignored(
            format!("its addresses are {family}, which is no family of the Service"),
            format!("add {family} to spec.ipFamilies"),
        ));
    }
    let called = match port.name.as_str() {
        "" => "an unnamed port".to_owned(),
        name => format!("a port named {name}"),
    };
    let same = |other: &&SlicePort| other.name == port.name && other.protocol == port.protocol;
    let Some(found) = slice.ports.iter().find(same) else {
        return Err(ignored(
            format!("it lacks {called} ({})", port.protocol),
            format!(
                "{}; ports are matched by name and protocol",
                ports_of(slice)
            ),
        ));
    };
    found.port.ok_or_else(|| {
        ignored(
            format!("it has no number for {called}"),
            "write the number into the slice",
        )
    })
}

/// Boxed, because it travels in a `Result`.
#[expect(
    clippy::unnecessary_box_returns,
    reason = "every caller would box it: an unboxed error makes its Result very large"
)]
fn ignored(message: impl Into<String>, remedy: impl Into<String>) -> Box<Reason> {
    Box::new(Reason::warning(Code::EndpointIgnored, message).remedy(remedy))
}

fn ports_of(slice: &SliceRow) -> String {
    let names: Vec<String> = slice
        .ports
        .iter()
        .map(|port| match port.name.as_str() {
            "" => format!("unnamed ({})", port.protocol),
            name => format!("{name} ({})", port.protocol),
        })
        .collect();
    if names.is_empty() {
        return "the slice has no ports".to_owned();
    }
    format!("the slice has {}", names.join(", "))
}
