//! What `BGPAdvertisement` objects say of pools, communities, peers and each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_ipam::{Pool, PoolName};
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Family, ResourceKind, ResourceRow};

use super::{Advertised, BgpAdvertised, Config, NO_COMMUNITY};
use crate::bgp_advertisement::{BgpAdvertisement, CommunityRef};
use crate::community::CommunityValue;
use crate::fields::{Fields, refusal};
use crate::findings::{Findings, ObjectName};
use crate::objects::{Candidates, as_it_was};
use crate::pools::PoolChoice;

// === impl Config ===

impl Config {
    pub(super) fn take_bgp(
        &mut self,
        rows: &[Arc<ResourceRow>],
        last: &Self,
        findings: &mut Findings,
    ) {
        let kind = ResourceKind::BgpAdvertisement;
        let read =
            |fields: &mut Fields<'_, '_>, _: &ResourceRow| Some(BgpAdvertisement::read(fields));
        let candidates = Candidates::read(kind, rows, &last.read.bgp, findings, read);
        let mut kept: Vec<Advertised<BgpAdvertisement>> = Vec::new();
        for candidate in candidates.in_order() {
            let (pools, mut reasons) = self.pools_of(&candidate.value, &kept);
            let mut taken = (candidate.value, pools);
            // It may well be for fewer pools than it chooses, but not for fewer than it was for.
            if let Some(before) = candidate.before
                && !reasons.is_empty()
            {
                reasons.push(as_it_was());
                let (pools, more) = self.pools_of(&before, &kept);
                reasons.extend(more);
                taken = (before, pools);
            }
            let (advertisement, pools) = taken;
            reasons.extend(self.unknown_pools(&advertisement.pools));
            let key = candidate.key;
            let communities = self.communities_of(&key, &advertisement, last, &mut reasons);
            let object = ObjectName {
                kind,
                key: key.clone(),
            };
            findings.add(&object, reasons);
            self.read.bgp.insert(key.clone(), advertisement.clone());
            let of = Advertised {
                key,
                advertisement,
                pools,
            };
            kept.push(of.clone());
            let complete = communities.map(|communities| BgpAdvertised { of, communities });
            self.bgp.extend(complete);
        }
        self.bgp.sort_by(|one, other| one.of.key.cmp(&other.of.key));
    }

    /// Returns the pools that an advertisement can be for, and why it can't be for others.
    fn pools_of(
        &self,
        advertisement: &BgpAdvertisement,
        kept: &[Advertised<BgpAdvertisement>],
    ) -> (BTreeSet<PoolName>, Vec<Reason>) {
        let mut pools = BTreeSet::new();
        let mut reasons = Vec::new();
        for pool in self.chosen(&advertisement.pools) {
            let misfit = self.misfit(advertisement, pool);
            match misfit.or_else(|| contradiction(advertisement, pool, kept)) {
                Some(reason) => reasons.push(reason),
                None => {
                    pools.insert(pool.name().clone());
                }
            }
        }
        (pools, reasons)
    }

    /// Warns of pools that an advertisement names and that do not exist. They may come later.
    pub(super) fn unknown_pools(&self, choice: &PoolChoice) -> Vec<Reason> {
        let known = |name: &str| self.pools.get(&PoolName::new(name)).is_some();
        let unknown = choice.names.iter().filter(|name| !known(name));
        unknown
            .map(|name| {
                Reason::warning(
                    Code::InvalidResource,
                    "there is no address pool of this name",
                )
                .at("spec.ipAddressPools")
                .value(name)
                .remedy("create it, or correct the name")
            })
            .collect()
    }

    /// Resolves the communities of an advertisement. While a name is not defined, those that it had
    /// last stay; without any it is not announced, since a community may be there to keep a route
    /// from spreading.
    fn communities_of(
        &self,
        key: &ServiceKey,
        advertisement: &Arc<BgpAdvertisement>,
        last: &Self,
        reasons: &mut Vec<Reason>,
    ) -> Option<BTreeSet<CommunityValue>> {
        let mut values = BTreeSet::new();
        let mut complete = true;
        for community in &advertisement.communities {
            match community {
                CommunityRef::Value(value) => {
                    values.insert(*value);
                }
                CommunityRef::Name(name) => {
                    if let Some(value) = self.communities.get(name) {
                        values.insert(*value);
                    } else {
                        complete = false;
                        let message = NO_COMMUNITY;
                        let remedy = "define it in a Community, or write the value: A:B or \
                                      large:A:B:C";
                        reasons.push(refusal("spec.communities", name, message, remedy));
                    }
                }
            }
        }
        if complete {
            return Some(values);
        }
        let before = last.bgp.iter().find(|it| it.of.key == *key);
        let before = before.filter(|it| it.of.advertisement == *advertisement);
        before.map(|it| it.communities.clone())
    }

    /// Returns why an advertisement can't be for a pool that it chooses.
    fn misfit(&self, advertisement: &BgpAdvertisement, pool: &Pool) -> Option<Reason> {
        if let Some((entry, widest)) = advertisement.exceeds(pool) {
            let (field, length) = match Family::of(widest.addr()) {
                Family::V4 => ("spec.aggregationLength", advertisement.aggregation_length),
                Family::V6 => (
                    "spec.aggregationLengthV6",
                    advertisement.aggregation_length_v6,
                ),
            };
            let message = format!(
                "it would announce addresses outside of {entry} of pool {}, which is left out",
                pool.name()
            );
            let remedy = format!(
                "write {} or more, or choose other pools",
                widest.prefix_len()
            );
            return Some(refusal(field, length.to_string(), message, remedy));
        }
        if !pool.has_family(Family::V6) {
            return None;
        }
        let peers = self.peers().filter(|(key, _)| {
            advertisement.peers.is_empty() || advertisement.peers.contains(key.name())
        });
        let mut profiles = peers.filter_map(|(key, peer)| {
            let profile = peer.bfd_profile.as_deref()?;
            Some((key, profile, self.bfd_profile(profile)?))
        });
        let (peer, profile, _) = profiles.find(|(_, _, profile)| profile.echo_mode)?;
        let message = format!(
            "pool {} has IPv6 addresses, and echoMode of BFDProfile {profile} of peer {} is for \
             IPv4 only: the pool is left out",
            pool.name(),
            peer.name()
        );
        let remedy = "choose other pools or peers, or a profile without echoMode";
        Some(refusal("spec.peers", peer.name(), message, remedy))
    }
}

/// Returns why an advertisement contradicts one before it: the same prefixes of a pool with another
/// preference to the same peers from the same nodes.
fn contradiction(
    it: &BgpAdvertisement,
    pool: &Pool,
    kept: &[Advertised<BgpAdvertisement>],
) -> Option<Reason> {
    let same_length = |other: &BgpAdvertisement| {
        [Family::V4, Family::V6]
            .into_iter()
            .any(|family| pool.has_family(family) && it.length(family) == other.length(family))
    };
    let other = kept.iter().find(|other| {
        let of = &other.advertisement;
        other.pools.contains(pool.name())
            && it.services.is_empty()
            && of.services.is_empty()
            && it.local_preference != of.local_preference
            && same_length(of)
            && meet(&it.peers, &of.peers)
            && it.nodes.surely_meet(&of.nodes)
    })?;
    let shown = |preference: Option<u32>| preference.unwrap_or(0).to_string();
    let message = format!(
        "{} announces the same prefixes of pool {} with localPref {}: the pool is left out",
        other.key.name(),
        pool.name(),
        shown(other.advertisement.local_preference)
    );
    let remedy = "write the same localPref, or choose other pools, nodes or peers";
    let value = shown(it.local_preference);
    Some(refusal("spec.localPref", value, message, remedy))
}

/// Whether two lists of names have one in common. An empty one has all.
fn meet(one: &BTreeSet<String>, other: &BTreeSet<String>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}
