//! Cluster IPs of all Services of a cluster. Nodes forward what is sent there, perhaps to a
//! listener of ours, and nothing would end what goes round.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};

use landfall_model::ServiceKey;
use landfall_model::id::ByNamespace;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::wire::accepted_from_text;

/// The cluster IPs of all Services.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterIps {
    of: ByNamespace<Box<[IpAddr]>>,
    /// How many Services have each: two while one is gone and that is not known yet.
    counts: HashMap<IpAddr, u32>,
}

/// The addresses that annotations of Services name, of those Services that have such annotations.
///
/// A number stands for each: it takes less room than the annotation, which a tenant can make long.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    hasher: RandomState,
    prints: BTreeMap<ServiceKey, Box<[u32]>>,
}

/// What the name of an annotation has in it that names members.
const NAMES_MEMBERS: &str = "/endpoints";

// === impl ClusterIps ===

impl ClusterIps {
    /// Takes in all cluster IPs of a Service. Returns the addresses that were none, or are no more.
    pub(super) fn set(&mut self, key: &ServiceKey, addresses: Box<[IpAddr]>) -> Vec<IpAddr> {
        if addresses.is_empty() {
            let old = self.of.remove(key).unwrap_or_default();
            return self.change(&[], &old);
        }
        let new = addresses.clone();
        let old = self.of.insert(key, addresses).unwrap_or_default();
        self.change(&new, &old)
    }

    pub(super) fn contain(&self, address: IpAddr) -> bool {
        self.counts.contains_key(&address)
    }

    /// Gives room back that growing has left.
    pub(super) fn compact(&mut self) {
        self.of.compact();
        self.counts.shrink_to_fit();
    }

    fn change(&mut self, new: &[IpAddr], old: &[IpAddr]) -> Vec<IpAddr> {
        let mut changed = Vec::new();
        // The new ones first, so that what both have does not change in between.
        for address in new {
            let count = self.counts.entry(*address).or_default();
            *count += 1;
            if *count == 1 {
                changed.push(*address);
            }
        }
        for address in old {
            let Some(count) = self.counts.get_mut(address) else {
                continue;
            };
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(address);
                changed.push(*address);
            }
        }
        changed
    }
}

// === impl Named ===

impl Named {
    pub(super) fn set(&mut self, row: &ServiceRow) {
        let prints: Box<[u32]> = named_members(row)
            .into_iter()
            .map(|it| self.print(it))
            .collect();
        if prints.is_empty() {
            self.prints.remove(&row.key);
        } else {
            self.prints.insert(row.key.clone(), prints);
        }
    }

    pub(super) fn remove(&mut self, key: &ServiceKey) {
        self.prints.remove(key);
    }

    /// The Services that name one of these addresses, and hardly ever another one.
    pub(super) fn with(&self, addresses: &BTreeSet<IpAddr>) -> impl Iterator<Item = &ServiceKey> {
        let sought: BTreeSet<u32> = addresses.iter().map(|it| self.print(*it)).collect();
        let names = move |prints: &[u32]| prints.iter().any(|it| sought.contains(it));
        let all = self.prints.iter();
        all.filter(move |(_, prints)| names(prints))
            .map(|(key, _)| key)
    }

    fn print(&self, address: IpAddr) -> u32 {
        u32::try_from(self.hasher.hash_one(address) >> 32).unwrap_or_default()
    }
}

/// Returns the addresses that annotations of a Service may name as those of members. While its
/// newest version is refused, the one that was accepted last is served, so that both count.
pub fn named_members(row: &ServiceRow) -> BTreeSet<IpAddr> {
    let mut found = addresses(&row.annotations);
    // To read a version is some work, which few Services call for.
    let text = row.status.marks.get(ACCEPTED_VERSION);
    let accepted = text
        .filter(|text| text.contains(NAMES_MEMBERS))
        .and_then(|text| accepted_from_text(text, row).ok());
    if let Some(accepted) = accepted {
        found.extend(addresses(&accepted.annotations));
    }
    found
}

/// Never fewer than a dialect reads.
fn addresses(annotations: &BTreeMap<String, String>) -> BTreeSet<IpAddr> {
    let naming = annotations
        .iter()
        .filter(|(annotation, _)| annotation.contains(NAMES_MEMBERS));
    let apart = |letter: char| letter == ',' || letter.is_whitespace();
    let words = naming.flat_map(|(_, value)| value.split(apart));
    let read = words.filter_map(|word| word.parse::<SocketAddr>().ok());
    read.map(|it| it.ip().to_canonical()).collect()
}
