//! What a Service requests of the pools, and its identity.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::{ServiceKey, Uid};

use crate::family::{Addresses, WantedFamilies, other};
use crate::pool_name::PoolName;
use crate::refusal::Refusal;
use crate::selector::Labels;
use crate::sharing::{Group, Terms};

/// A Service that holds or wants addresses. Every claim carries it, so that refusals can name the
/// holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Identity.
    pub uid: Uid,
    /// Name for people.
    pub service: ServiceKey,
    /// On which terms it would share.
    pub terms: Terms,
}

impl Claimant {
    /// The group with which it may share; `across`: whatever their namespace.
    pub(crate) fn group(&self, across: bool) -> Option<Group> {
        let namespace = self.service.shared_namespace();
        self.terms.group((!across).then_some(namespace))
    }
}

/// What a Service asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The Service that requests it.
    pub claimant: Arc<Claimant>,
    /// Labels of its namespace.
    pub namespace_labels: Labels,
    /// Its own labels.
    pub labels: Labels,
    /// Families of the addresses.
    pub families: WantedFamilies,
    /// Exactly these addresses; none: any.
    pub addresses: Addresses,
    /// Only from this pool.
    pub pool: Option<PoolName>,
}

impl Request {
    /// A request for any address of these families, from any pool, by a Service without labels.
    pub fn new(claimant: Claimant, families: WantedFamilies) -> Self {
        Self {
            claimant: Arc::new(claimant),
            namespace_labels: Labels::new(),
            labels: Labels::new(),
            families,
            addresses: Addresses::NONE,
            pool: None,
        }
    }
}

impl WantedFamilies {
    /// Derives the request from the families of `spec.clusterIPs`, in their order, and the policy.
    ///
    /// A Service with one cluster address gets one address whatever its policy prefers: only the
    /// families that the cluster can route to the Service are of use to it.
    pub fn of_service(cluster_ips: &[Family], policy: FamilyPolicy) -> Result<Self, Refusal> {
        let Some(&first) = cluster_ips.first() else {
            return Err(Refusal::NoClusterIp);
        };
        let dual = cluster_ips.contains(&other(first));
        match policy {
            FamilyPolicy::RequireDualStack if !dual => {
                Err(Refusal::NotEnoughClusterIps { present: first })
            }
            FamilyPolicy::RequireDualStack => Ok(Self::RequireDual),
            FamilyPolicy::PreferDualStack if dual => Ok(Self::PreferDual { first }),
            FamilyPolicy::PreferDualStack | FamilyPolicy::SingleStack => Ok(Self::Only(first)),
        }
    }
}

/// Reads the addresses that a Service asks for from all places where it may ask, each given by the
/// key that the user sees and the text there.
///
/// A text is one address, or two of different families with a comma between; an empty text asks
/// for nothing. At most one place may ask.
pub fn parse_requested_addresses(places: &[(&str, &str)]) -> Result<Addresses, Refusal> {
    let mut asking = places.iter().filter(|(_, text)| !text.trim().is_empty());
    let Some((key, text)) = asking.next() else {
        return Ok(Addresses::NONE);
    };
    if let Some((other, _)) = asking.next() {
        return Err(Refusal::AddressesSetTwice {
            key: (*key).to_owned(),
            other: (*other).to_owned(),
        });
    }
    let mut all: Vec<IpAddr> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let address: IpAddr = part.parse().map_err(|_| Refusal::BadAddress {
            key: (*key).to_owned(),
            text: part.to_owned(),
        })?;
        all.push(address.to_canonical());
    }
    at_most_one_of_each_family(&all)
}

/// Refuses a third address, and a second one of a family.
pub(crate) fn at_most_one_of_each_family(all: &[IpAddr]) -> Result<Addresses, Refusal> {
    if all.len() > 2 {
        return Err(Refusal::TooManyAddresses {
            addresses: all.to_vec(),
        });
    }
    let mut addresses = Addresses::NONE;
    for address in all {
        if let Some(first) = addresses.insert(*address) {
            return Err(Refusal::TwoOfOneFamily {
                family: Family::of(first),
                first,
                second: *address,
            });
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Addresses, Refusal> {
        parse_requested_addresses(&[("loadBalancerIPs", text), ("spec.loadBalancerIP", " ")])
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_or_one_of_each_family_may_be_asked_for() {
        assert_eq!(parse(""), Ok(Addresses::NONE));
        assert_eq!(parse(" 10.0.0.1 "), Ok(ip("10.0.0.1").into()));
        assert_eq!(
            parse("fd00::1, 10.0.0.1"),
            Ok([ip("10.0.0.1"), ip("fd00::1")].into_iter().collect())
        );
    }

    #[test]
    fn an_ipv4_address_in_ipv6_clothes_is_taken_for_what_it_is() {
        assert_eq!(parse("::ffff:10.0.0.1"), Ok(ip("10.0.0.1").into()));
    }

    #[test]
    fn a_text_that_is_no_address_is_named_with_its_key() {
        for (text, part) in [
            ("10.0.0", "10.0.0"),
            ("10.0.0.1,", ""),
            ("web, fd00::1", "web"),
        ] {
            assert_eq!(
                parse(text),
                Err(Refusal::BadAddress {
                    key: "loadBalancerIPs".into(),
                    text: part.into()
                })
            );
        }
    }

    #[test]
    fn three_addresses_or_two_of_a_family_are_too_many() {
        assert_eq!(
            parse("10.0.0.1,fd00::1,10.0.0.2"),
            Err(Refusal::TooManyAddresses {
                addresses: vec![ip("10.0.0.1"), ip("fd00::1"), ip("10.0.0.2")],
            })
        );
        assert_eq!(
            parse("10.0.0.1,10.0.0.2"),
            Err(Refusal::TwoOfOneFamily {
                family: Family::V4,
                first: ip("10.0.0.1"),
                second: ip("10.0.0.2"),
            })
        );
    }
}
