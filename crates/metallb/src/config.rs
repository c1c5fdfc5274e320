//! All objects together: what is in force, and what is wrong.

mod references;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{Labels, Pool, PoolName, PoolSet};
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{PoolOrigin, PoolRow, ResourceKind, ResourceRow};

use crate::bfd_profile::BfdProfile;
use crate::bgp_advertisement::BgpAdvertisement;
use crate::bgp_peer::BgpPeer;
use crate::community::{Communities, CommunityValue};
use crate::fields::{Fields, refusal};
use crate::findings::{Findings, ObjectName};
use crate::ip_address_pool;
use crate::l2_advertisement::L2Advertisement;
use crate::objects::{Candidates, Objects};
use crate::pools::PoolChoice;

/// What is in force. The same objects give the same Config in whatever order they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pools: PoolSet,
    labels: BTreeMap<PoolName, Labels>,
    l2: Vec<Advertised<L2Advertisement>>,
    bgp: Vec<BgpAdvertised>,
    communities: BTreeMap<String, CommunityValue>,
    peers: Objects<BgpPeer>,
    profiles: Objects<BfdProfile>,
    read: Read,
}

/// The objects as they were read last, whether or not all of what they say is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    l2: Objects<L2Advertisement>,
    bgp: Objects<BgpAdvertisement>,
    communities: Objects<Communities>,
}

/// An advertisement with its pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised<A> {
    /// Its name.
    pub key: ServiceKey,
    /// What it says.
    pub advertisement: Arc<A>,
    /// The pools that it is for.
    pub pools: BTreeSet<PoolName>,
}

/// A `BGPAdvertisement` with its pools, and its communities by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpAdvertised {
    /// The advertisement.
    pub of: Advertised<BgpAdvertisement>,
    /// Its communities.
    pub communities: BTreeSet<CommunityValue>,
}

const NO_PROFILE: &str = "there is no BFDProfile of this name";
const NO_COMMUNITY: &str = "no Community defines this name";

/// What is wrong as long as another object is not there.
pub(crate) const LATER: [&str; 2] = [NO_PROFILE, NO_COMMUNITY];

// === impl Config ===

impl Config {
    /// Makes the Config of all pools and other objects, and finds what is wrong with them. What was
    /// valid in `last` stays in force where its new version is not.
    pub fn build(
        pools: &[Arc<PoolRow>],
        resources: &[Arc<ResourceRow>],
        last: &Self,
    ) -> (Self, Findings) {
        let mut findings = Findings::default();
        let mut config = Self::default();
        config.take_pools(pools, last, &mut findings);
        config.take_communities(resources, last, &mut findings);
        config.take_peers(resources, last, &mut findings);
        config.take_l2(resources, last, &mut findings);
        config.take_bgp(resources, last, &mut findings);
        (config, findings)
    }

    fn take_pools(&mut self, rows: &[Arc<PoolRow>], last: &Self, findings: &mut Findings) {
        let (pools, errors) = PoolSet::of_rows(rows, &last.pools);
        for error in errors {
            let name = error.pool().map_or("", PoolName::as_str);
            let row = rows.iter().find(|row| row.name == name);
            let row = row.map(|row| &**row);
            findings.add(&pool_object(name, row), [error.reason(row)]);
        }
        for row in rows {
            let unread = row.resource.as_ref().map(|it| ip_address_pool::unread(it));
            let unread = unread.into_iter().flatten();
            findings.add(&pool_object(&row.name, Some(row)), unread);
        }
        let labels = rows
            .iter()
            // Speakers know those alone that are objects.
            .filter(|row| row.origin == PoolOrigin::Source)
            .filter(|row| pools.get(&PoolName::new(&row.name)).is_some());
        self.labels = labels
            .map(|row| (PoolName::new(&row.name), row.labels.clone()))
            .collect();
        self.pools = pools;
    }

    fn take_communities(
        &mut self,
        rows: &[Arc<ResourceRow>],
        last: &Self,
        findings: &mut Findings,
    ) {
        let kind = ResourceKind::Community;
        let known = &last.read.communities;
        let read = |fields: &mut Fields<'_, '_>, _: &ResourceRow| Some(Communities::read(fields));
        let candidates = Candidates::read(kind, rows, known, findings, read);
        for (key, communities) in candidates.iter() {
            for (name, value) in &communities.values {
                let taken = self.communities.get(name);
                if taken.is_some_and(|taken| taken != value) {
                    let message = "another Community defines this name with another value, which \
                                   is used";
                    let reason = refusal("spec.communities", name, message, "rename one of them");
                    let key = key.clone();
                    findings.add(&ObjectName { kind, key }, [reason]);
                } else {
                    self.communities.insert(name.clone(), *value);
                }
            }
        }
        self.read.communities = candidates.all();
    }

    fn take_peers(&mut self, rows: &[Arc<ResourceRow>], last: &Self, findings: &mut Findings) {
        let kind = ResourceKind::BfdProfile;
        let read = |fields: &mut Fields<'_, '_>, row: &ResourceRow| {
            let mut profile = BfdProfile::read(fields);
            profile.read_key(fields, &row.annotations);
            Some(profile)
        };
        self.profiles = Candidates::read(kind, rows, &last.profiles, findings, read).all();
        let kind = ResourceKind::BgpPeer;
        let read = |fields: &mut Fields<'_, '_>, row: &ResourceRow| {
            let mut peer = BgpPeer::read(fields, row.api_version.ends_with("/v1beta1"))?;
            peer.read_passive(fields, &row.annotations);
            Some(peer)
        };
        let candidates = Candidates::read(kind, rows, &last.peers, findings, read);
        self.peers = candidates.admit(findings, |peers, peer| {
            let mut beside = peers
                .iter()
                .filter(|(_, it)| it.nodes.surely_meet(&peer.nodes));
            beside.find_map(|(key, other)| clash(peer, key, other))
        });
        for (key, peer) in &self.peers {
            let mut beside = self.peers.iter();
            let unsigned = beside.find_map(|(other, it)| {
                let meets = other != key && it.nodes.surely_meet(&peer.nodes);
                peer.unsigned(other.name(), it).filter(|_| meets)
            });
            let object = ObjectName {
                kind,
                key: key.clone(),
            };
            findings.add(&object, unsigned);
            if let Some(profile) = &peer.bfd_profile
                && self.bfd_profile(profile).is_none()
            {
                let message = NO_PROFILE;
                let remedy = "create it, or correct the name";
                let reason = refusal("spec.bfdProfile", profile, message, remedy);
                findings.add(&object, [reason]);
            }
        }
    }

    fn take_l2(&mut self, rows: &[Arc<ResourceRow>], last: &Self, findings: &mut Findings) {
        let kind = ResourceKind::L2Advertisement;
        let known = &last.read.l2;
        let read =
            |fields: &mut Fields<'_, '_>, _: &ResourceRow| Some(L2Advertisement::read(fields));
        self.read.l2 = Candidates::read(kind, rows, known, findings, read).all();
        let advertised = self.read.l2.iter().map(|(key, advertisement)| {
            let object = ObjectName {
                kind,
                key: key.clone(),
            };
            findings.add(&object, self.unknown_pools(&advertisement.pools));
            Advertised {
                key: key.clone(),
                advertisement: advertisement.clone(),
                pools: self.chosen(&advertisement.pools).map(name_of).collect(),
            }
        });
        self.l2 = advertised.collect();
    }

    /// The pools.
    pub fn pools(&self) -> &PoolSet {
        &self.pools
    }

    /// The `L2Advertisement` objects, in the order of their names.
    pub fn l2_advertisements(&self) -> &[Advertised<L2Advertisement>] {
        &self.l2
    }

    /// The `BGPAdvertisement` objects, in the order of their names.
    pub fn bgp_advertisements(&self) -> &[BgpAdvertised] {
        &self.bgp
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = (&ServiceKey, &BgpPeer)> {
        self.peers.iter().map(|(key, peer)| (key, &**peer))
    }

    /// Returns the BFD profile of a name.
    pub fn bfd_profile(&self, name: &str) -> Option<&BfdProfile> {
        let mut profiles = self.profiles.iter();
        let found = profiles.find(|(key, _)| key.name() == name);
        found.map(|(_, profile)| &**profile)
    }

    /// Returns the `L2Advertisement` objects that apply to an address of a Service with these
    /// labels, by their place among all of them.
    pub fn l2_of(&self, address: IpAddr, service: &Labels) -> BTreeSet<usize> {
        self.applying(address, self.l2.iter(), |it| it.services.accepts(service))
    }

    /// Returns the `BGPAdvertisement` objects that apply to an address of a Service with these
    /// labels, by their place among all of them.
    pub fn bgp_of(&self, address: IpAddr, service: &Labels) -> BTreeSet<usize> {
        let all = self.bgp.iter().map(|it| &it.of);
        self.applying(address, all, |it| it.services.accepts(service))
    }

    fn applying<'a, A: 'a>(
        &self,
        address: IpAddr,
        all: impl Iterator<Item = &'a Advertised<A>>,
        accepts: impl Fn(&A) -> bool,
    ) -> BTreeSet<usize> {
        let Some(pool) = self.pools.pool_of(address) else {
            return BTreeSet::new();
        };
        let all = all.enumerate();
        all.filter(|(_, it)| it.pools.contains(pool.name()) && accepts(&it.advertisement))
            .map(|(place, _)| place)
            .collect()
    }

    /// Returns the peers with a session on a node with these labels, and why others have none
    /// there although they are for it: which peers are for the same node only its labels say.
    pub fn peers_on(&self, node: &Labels) -> (Vec<(&ServiceKey, &BgpPeer)>, Findings) {
        let mut findings = Findings::default();
        let mut peers: Vec<(&ServiceKey, &BgpPeer)> = Vec::new();
        for (key, peer) in self.peers().filter(|(_, peer)| peer.nodes.accepts(node)) {
            match peers.iter().find_map(|(other, it)| clash(peer, other, it)) {
                Some(reason) => {
                    let object = ObjectName {
                        kind: ResourceKind::BgpPeer,
                        key: key.clone(),
                    };
                    findings.add(&object, [reason]);
                }
                None => peers.push((key, peer)),
            }
        }
        (peers, findings)
    }

    fn chosen(&self, choice: &PoolChoice) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| {
            let labels = self.labels.get(pool.name());
            labels.is_some_and(|labels| choice.has(pool.name().as_str(), labels))
        })
    }
}

fn name_of(pool: &Pool) -> PoolName {
    pool.name().clone()
}

fn pool_object(name: &str, row: Option<&PoolRow>) -> ObjectName {
    let resource = row.and_then(|row| row.resource.as_ref());
    let key = resource.map_or_else(|| ServiceKey::new("", name), |it| it.key.clone());
    ObjectName {
        kind: ResourceKind::IpAddressPool,
        key,
    }
}

fn clash(peer: &BgpPeer, key: &ServiceKey, other: &BgpPeer) -> Option<Reason> {
    let (field, value, why) = peer.clash(key.name(), other)?;
    let remedy = "correct one of the two, or give them nodeSelectors that no node meets both of";
    Some(refusal(&field, value, why, remedy))
}
