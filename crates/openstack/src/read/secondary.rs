//! The load balancer of a Service's second family, where the first one can't have an address of
//! each.
//!
//! It is read as if it were that of a Service of its own: with its own name, marks and memory,
//! and with a spec in which everything is of its family.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::intent::NodeTarget;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason, Severity};
use tokio::time::Instant;

use super::ObserveError;
use crate::client::ApiVersion;
use crate::features::Features;
use crate::names::Names;
use crate::objects::{Id, LoadBalancer, server_of};
use crate::observed::{Found, Goal, GroupView, Observed, Secondary};
use crate::provider::OpenStack;
use crate::read::floating_ips::ago;
use crate::target::choice::Choice;
use crate::target::secondary::{derived, in_family, translates, unreachable};
use crate::target::{FurtherVip, Target};

/// Where the second load balancer and its members are.
pub(super) struct Place {
    vip_subnet: Option<Id>,
    member_subnet: Option<Id>,
}

/// For how long it is believed that a network has no subnet of a family, or which one.
const SEARCHED: Duration = Duration::from_secs(60);
/// A list of load balancers that is at hand may be this old for seeing whether there is a name to
/// look after.
const AT_HAND: Duration = Duration::from_secs(3600);

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl OpenStack {
    /// Adds what the Service has, or shall have, beside its load balancer.
    pub(super) async fn read_secondary(
        &self,
        intent: &Intent,
        mut have: Observed,
        version: ApiVersion,
    ) -> Result<Observed, ObserveError> {
        if intent.load_balancer.is_some() && matches!(have.found, Found::Refused(_)) {
            return Ok(have);
        }
        let wanted = wanted(&have);
        for family in FAMILIES {
            match (&intent.load_balancer, &have.goal) {
                (Some(spec), Goal::Exists(target)) if wanted == Some(family) => {
                    let target = target.clone();
                    self.read_second(intent, spec, &target, family, &mut have, version)
                        .await?;
                }
                _ => {
                    let beside = self.read_leftover(intent, &have, family, version);
                    have.beside.extend(beside.await?);
                }
            }
        }
        if have.lacking.is_none() {
            have.lacking = only_one(&have);
        }
        Ok(have)
    }

    async fn read_second(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        target: &Target,
        family: Family,
        have: &mut Observed,
        version: ApiVersion,
    ) -> Result<(), ObserveError> {
        let names = have.names.beside(family);
        let (own, theirs) = in_family(spec, family, have.features);
        let intent = derived(intent, family, Some(theirs));
        let Some(spec) = &intent.load_balancer else {
            return Ok(());
        };
        let (found, _) = self.search(&intent, &names).await?;
        if matches!(found, Found::Nothing) && !self.adds_family(target) {
            let problem = "PreferDualStack adds no second address here, by preferDualStack of the \
                           instance";
            have.lacking = Some(lacking(target, problem.to_owned()));
            return Ok(());
        }
        let mut place = Place {
            vip_subnet: None,
            member_subnet: target.choice.member_subnet.clone().filter(|_| !own),
        };
        if matches!(found, Found::Nothing) {
            let problem = unreachable(spec, family, own, have.features);
            place.vip_subnet = match &problem {
                None => self.subnet_beside(spec, own, target, have, family).await?,
                Some(_) => None,
            };
            if place.vip_subnet.is_none() {
                let nowhere =
                    || format!("neither the VIP's network nor the nodes' have an {family} subnet");
                let problem = problem.unwrap_or_else(nowhere);
                have.lacking = Some(lacking(target, problem));
                return Ok(());
            }
        }
        let looked = self.read_spec(&intent, spec, names, version, Some(&place));
        let mut second = looked.await?;
        merge_groups(&mut have.groups, second.groups.take());
        second
            .notices
            .retain(|(event, _)| *event != "LoadBalancerFloatingIPSkipped");
        // Ranges of the other family are for the other load balancer.
        for notices in [&mut have.notices, &mut second.notices] {
            let elsewhere = |reason: &Reason| reason.code == Code::AddressFamilyMismatch;
            notices.retain(|(_, reason)| !elsewhere(reason) || reason.severity == Severity::Error);
        }
        have.beside.push(Secondary {
            intent,
            have: second,
        });
        Ok(())
    }

    /// Whether a Service gets an address of its second family where it has none.
    fn adds_family(&self, target: &Target) -> bool {
        let required = target.choice.policy == FamilyPolicy::RequireDualStack;
        required || self.settings.prefer_dual_stack
    }

    /// A load balancer of a family that the Service does not want of it any more. Without one
    /// nothing is asked.
    async fn read_leftover(
        &self,
        intent: &Intent,
        have: &Observed,
        family: Family,
        version: ApiVersion,
    ) -> Result<Option<Secondary>, ObserveError> {
        let names = have.names.beside(family);
        let intent = derived(intent, family, None);
        let (known, expected) = {
            let memory = self.memory();
            let known = memory.of.contains_key(&intent.uid);
            (known, memory.is_unanswered(&intent.uid, Instant::now()))
        };
        let removal = matches!(have.goal, Goal::Gone { .. });
        if !removal && !known && !expected {
            let roster = self.rows(ago(AT_HAND)).await?;
            let is_it = |row: &LoadBalancer| {
                row.name == names.load_balancer || row.tags.contains(&names.uid_tag)
            };
            if !roster.iter().any(|(row, _)| is_it(row)) {
                return Ok(None);
            }
        }
        let (found, _) = self.search(&intent, &names).await?;
        if !matches!(found, Found::One { owner: true, .. }) && !expected {
            self.memory().forget(&intent.uid);
            return Ok(None);
        }
        let mut have = self.read_before_removal(&intent, names, version).await?;
        have.groups = None;
        if family == Family::V6 {
            // A floating IP that leads nowhere is that of the first load balancer.
            have.addressing.spare = None;
        }
        Ok(Some(Secondary { intent, have }))
    }

    /// Whether the Service has a load balancer of its second family.
    async fn is_beside(
        &self,
        intent: &Intent,
        names: &Names,
        family: Family,
    ) -> Result<bool, ObserveError> {
        let intent = derived(intent, family, None);
        let (found, _) = self.search(&intent, &names.beside(family)).await?;
        Ok(!matches!(found, Found::Nothing))
    }

    /// A further VIP for the load balancer that is to be made, where there can be one.
    pub(super) async fn second_vip(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        names: &Names,
        target: &mut Target,
        features: Features,
    ) -> Result<(), ObserveError> {
        let [_, second, ..] = target.choice.families.as_slice() else {
            return Ok(());
        };
        let second = *second;
        // Members of the first family serve the second one through a proxy only.
        let translated = spec.listeners.iter().all(|it| translates(it, features));
        if !translated || !self.adds_family(target) {
            return Ok(());
        }
        let refused = {
            let one_vip_only = &self.memory().caches.one_vip_only;
            one_vip_only.contains(&target.choice.provider)
                || one_vip_only.contains(intent.uid.as_str())
        };
        if !features.additional_vips() || refused || self.is_beside(intent, names, second).await? {
            return Ok(());
        }
        if let Some(network) = self.vip_network(&target.choice).await? {
            // To the outside, an IPv4 address that is asked for is that of the floating IP.
            let reached = second == Family::V6 || target.choice.internal;
            let mut requested = spec.address.requested.iter().copied();
            let address = requested.find(|it| Family::of(*it) == second && reached);
            let subnet = self.subnet_in(&network, second, address).await?;
            let vip = subnet.map(|subnet| FurtherVip { subnet, address });
            target.additional.extend(vip);
        }
        Ok(())
    }

    /// A subnet for the second load balancer: in the network of the first one, else where the nodes
    /// have their addresses of the family.
    async fn subnet_beside(
        &self,
        spec: &LoadBalancerSpec,
        own: bool,
        target: &Target,
        have: &Observed,
        family: Family,
    ) -> Result<Option<Id>, ObserveError> {
        let mut requested = spec.address.requested.iter().copied();
        let address = requested.find(|it| Family::of(*it) == family);
        let network = match &have.found {
            Found::One { balancer, .. } => {
                match (&balancer.vip_network_id, &balancer.vip_subnet_id) {
                    (Some(network), _) => Some(network.clone()),
                    (None, Some(subnet)) => self.subnet(subnet).await?.map(|it| it.network_id),
                    (None, None) => None,
                }
            }
            _ => self.vip_network(&target.choice).await?,
        };
        if let Some(network) = network
            && let Some(subnet) = self.subnet_in(&network, family, address).await?
        {
            return Ok(Some(subnet));
        }
        if !own {
            return Ok(None);
        }
        let of_cloud =
            |node: &&NodeTarget| node.provider_id.as_deref().and_then(server_of).is_some();
        let Some(node) = spec.nodes.iter().find(of_cloud) else {
            return Ok(None);
        };
        let Some(server) = node.provider_id.as_deref().and_then(server_of) else {
            return Ok(None);
        };
        if let Some((_, known)) = self.searched(server, family) {
            return Ok(known);
        }
        let ports = self.cloud.ports(&[("device_id", server)]).await?;
        let mut fixed = ports.iter().flat_map(|port| &port.fixed_ips);
        let subnet = fixed.find(|fixed| fixed.ip_address == node.address);
        let subnet = subnet.map(|fixed| fixed.subnet_id.clone());
        self.note_search(server, family, subnet.as_ref());
        Ok(subnet)
    }

    /// The subnet of a family in a network: the one that has the address that is asked for, else
    /// the first.
    pub(super) async fn subnet_in(
        &self,
        network: &Id,
        family: Family,
        address: Option<IpAddr>,
    ) -> Result<Option<Id>, ObserveError> {
        let place = match address {
            Some(address) => format!("{network} {address}"),
            None => network.to_string(),
        };
        if let Some((_, known)) = self.searched(&place, family) {
            return Ok(known);
        }
        let subnets = self
            .cloud
            .subnets(&[("network_id", network.as_str())])
            .await?;
        let mut fitting = subnets
            .iter()
            .filter(|it| Family::of(it.cidr.addr()) == family);
        let first = fitting.clone().next();
        let asked_for =
            fitting.find(|it| address.is_some_and(|address| it.cidr.contains(&address)));
        let found = asked_for.or(first).map(|it| it.id.clone());
        self.note_search(&place, family, found.as_ref());
        Ok(found)
    }

    /// What was found at the last search, and when, if that holds yet.
    fn searched(&self, place: &str, family: Family) -> Option<(Instant, Option<Id>)> {
        let memory = self.memory();
        let last = memory
            .caches
            .family_subnets
            .get(&(Arc::from(place), family))?;
        (last.0.elapsed() < SEARCHED).then(|| last.clone())
    }

    fn note_search(&self, place: &str, family: Family, subnet: Option<&Id>) {
        let answer = (Instant::now(), subnet.cloned());
        let key = (Arc::from(place), family);
        self.memory().caches.family_subnets.insert(key, answer);
    }
}

// === impl Place ===

impl Place {
    /// What is chosen for the first load balancer holds for the second, but for where it is.
    pub(super) fn settle(&self, choice: &mut Choice, balancer: Option<&LoadBalancer>) {
        choice.autodetect = false;
        choice.port = None;
        choice.vip_network = None;
        let there = balancer.and_then(|it| it.vip_subnet_id.clone());
        choice.vip_subnet = there.or_else(|| self.vip_subnet.clone());
        choice.member_subnet.clone_from(&self.member_subnet);
    }
}

/// The family for which there shall be a load balancer beside the first.
fn wanted(have: &Observed) -> Option<Family> {
    let Goal::Exists(target) = &have.goal else {
        return None;
    };
    let second = *target.choice.families.get(1)?;
    let wanted = match &have.found {
        Found::One {
            balancer, owner, ..
        } => *owner && !has_address(balancer, second),
        Found::Nothing => target.additional.is_empty(),
        Found::Refused(_) => false,
    };
    wanted.then_some(second)
}

fn has_address(balancer: &LoadBalancer, family: Family) -> bool {
    let further = balancer.additional_vips.iter();
    let mut vips = further
        .filter_map(|vip| vip.ip_address)
        .chain(balancer.vip_address);
    vips.any(|vip| Family::of(vip) == family)
}

/// That a load balancer of another owner has one address, and gets no second one.
fn only_one(have: &Observed) -> Option<Reason> {
    let (
        Goal::Exists(target),
        Found::One {
            balancer,
            owner: false,
            ..
        },
    ) = (&have.goal, &have.found)
    else {
        return None;
    };
    let second = *target.choice.families.get(1)?;
    if has_address(balancer, second) {
        return None;
    }
    let message = format!(
        "load balancer {} has one address, and a Service that shares it gets no other",
        balancer.id
    );
    let reason = match target.choice.policy {
        FamilyPolicy::RequireDualStack => Reason::warning(Code::AddressFamilyMismatch, message),
        _ => Reason::info(Code::AddressFamilyMismatch, message),
    };
    let remedy = "remove the annotation to get a load balancer for each family";
    Some(reason.at("spec.ipFamilies").remedy(remedy))
}

fn lacking(target: &Target, problem: String) -> Reason {
    let reason = match target.choice.policy {
        FamilyPolicy::RequireDualStack => Reason::error(Code::AddressFamilyMismatch, problem),
        _ => Reason::info(
            Code::AddressFamilyMismatch,
            format!("one family only: {problem}"),
        ),
    };
    reason.at("spec.ipFamilies")
}

/// Both load balancers reach the nodes through the Service's one group.
pub(crate) fn merge_groups(first: &mut Option<GroupView>, second: Option<GroupView>) {
    let (Some(first), Some(second)) = (first, second) else {
        return;
    };
    let GroupView {
        clients,
        sources,
        health_sources,
        node_ports,
        leaving,
        frozen,
        ..
    } = second;
    first.frozen |= frozen;
    for (all, more) in [
        (&mut first.sources, sources),
        (&mut first.health_sources, health_sources),
    ] {
        for source in more {
            if !all.contains(&source) {
                all.push(source);
            }
        }
    }
    for (listener, sources) in clients {
        first.clients.entry(listener).or_default().extend(sources);
    }
    for port in node_ports {
        if !first.node_ports.iter().any(|it| it.id == port.id) {
            first.node_ports.push(port);
        }
    }
    first
        .leaving
        .retain(|port| leaving.iter().any(|it| it.id == port.id));
}
