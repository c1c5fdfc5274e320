//! `BGPAdvertisement` (`v1beta1`): which nodes announce the addresses of which pools to which
//! routers, and how.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use landfall_ipam::Pool;
use landfall_model::rows::Family;

use crate::community::{CommunityError, CommunityValue};
use crate::fields::Fields;
use crate::pools::PoolChoice;
use crate::selectors::Selectors;

/// A `BGPAdvertisement`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpAdvertisement {
    /// The pools.
    pub pools: PoolChoice,
    /// The nodes; none: all.
    pub nodes: Selectors,
    /// The Services; none: all.
    pub services: Selectors,
    /// The peers by name; none: all.
    pub peers: BTreeSet<String>,
    /// The length of announced IPv4 prefixes.
    pub aggregation_length: u8,
    /// The length of announced IPv6 prefixes.
    pub aggregation_length_v6: u8,
    /// `LOCAL_PREF`; `None`: left to the session.
    pub local_preference: Option<u32>,
    /// The communities.
    pub communities: BTreeSet<CommunityRef>,
}

/// A community as it is written in an advertisement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommunityRef {
    /// Itself.
    Value(CommunityValue),
    /// The name that a Community object gives it.
    Name(String),
}

/// The most communities of one advertisement: more do not fit into an UPDATE of every router.
const MOST_COMMUNITIES: usize = 63;

// === impl BgpAdvertisement ===

impl BgpAdvertisement {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let advertisement = Self {
            pools: PoolChoice::read(fields),
            nodes: Selectors::read(fields, "nodeSelectors"),
            services: Selectors::read(fields, "serviceSelectors"),
            peers: fields.names("peers"),
            aggregation_length: fields.number("aggregationLength", 1..=32).unwrap_or(32),
            aggregation_length_v6: fields.number("aggregationLengthV6", 1..=128).unwrap_or(128),
            local_preference: fields
                .number("localPref", 0..=u32::MAX)
                .filter(|preference| *preference > 0),
            communities: read_communities(fields),
        };
        if !advertisement.services.is_empty() {
            for (field, length, whole) in [
                ("aggregationLength", advertisement.aggregation_length, 32),
                (
                    "aggregationLengthV6",
                    advertisement.aggregation_length_v6,
                    128,
                ),
            ] {
                if length != whole {
                    fields.refuse(
                        field,
                        length.to_string(),
                        "an advertisement with serviceSelectors announces single addresses only",
                        format!("write {whole}, or remove serviceSelectors"),
                    );
                }
            }
        }
        advertisement
    }

    /// Returns the length of announced prefixes of a family.
    pub fn length(&self, family: Family) -> u8 {
        match family {
            Family::V4 => self.aggregation_length,
            Family::V6 => self.aggregation_length_v6,
        }
    }

    /// Returns the first entry of a pool of which it would announce more than the pool has, with
    /// the shortest prefix in it.
    pub(crate) fn exceeds<'p>(&self, pool: &'p Pool) -> Option<(&'p str, IpNet)> {
        pool.entries().iter().find_map(|entry| {
            let range = entry.written();
            let widest = widest(range.first(), range.last())?;
            let length = self.length(range.family());
            (length < widest.prefix_len()).then_some((entry.text(), widest))
        })
    }
}

/// Returns the largest prefix between two addresses of one family.
fn widest(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let subnets = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::V4(Ipv4Subnets::new(first, last, 0)),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first, last, 0)),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
    };
    subnets.min_by_key(IpNet::prefix_len)
}

fn read_communities(fields: &mut Fields<'_, '_>) -> BTreeSet<CommunityRef> {
    let texts = fields.texts("communities");
    if texts.len() > MOST_COMMUNITIES {
        let (value, remedy) = (
            texts.len().to_string(),
            format!("list {MOST_COMMUNITIES} at most"),
        );
        fields.refuse("communities", value, "too many communities", remedy);
    }
    let mut communities = BTreeSet::new();
    for (place, text) in texts {
        let community = match text.parse::<CommunityValue>() {
            Ok(value) => CommunityRef::Value(value),
            // What has no colon can only be a name.
            Err(CommunityError::Form) if !text.is_empty() && !text.contains(':') => {
                CommunityRef::Name(text.to_owned())
            }
            Err(error) => {
                fields.refuse(&place, text, error.message(), error.remedy());
                continue;
            }
        };
        if !communities.insert(community) {
            fields.refuse(&place, text, "listed twice", "list it once");
        }
    }
    communities
}
