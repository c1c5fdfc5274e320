//! Which links announce addresses: the rules of MetalLB.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use regex::RegexSet;

use super::table::{Link, LinkTable};
use crate::mac::MacAddress;

/// A link that announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: MacAddress,
    /// It announces IPv4 addresses.
    pub has_arp: bool,
    /// Its link-local address, from which it announces IPv6 addresses; without one it does not.
    pub link_local: Option<Ipv6Addr>,
}

/// Patterns on the names of links that never announce.
#[derive(Clone, Debug)]
pub struct Exclusions(RegexSet);

/// A pattern that is no regular expression.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern of interfaces to exclude")]
pub struct InvalidPattern(#[from] regex::Error);

/// Patterns of interfaces of container networks: those that MetalLB excludes as it is shipped.
pub const CONTAINER_NETWORKS: [&str; 14] = [
    "^docker.*",
    "^cbr.*",
    "^dummy.*",
    "^virbr.*",
    "^lxcbr.*",
    "^veth.*",
    "^lo$",
    "^cali.*",
    "^tunl.*",
    "^flannel.*",
    "^kube-ipvs.*",
    "^cni.*",
    "^nodelocaldns.*",
    "^lxc.*",
];

// === impl Exclusions ===

impl Exclusions {
    /// Reads patterns. Each is a regular expression that may match any part of a name.
    pub fn new<S: AsRef<str>>(
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidPattern> {
        Ok(Self(RegexSet::new(patterns)?))
    }

    /// Returns whether a link is excluded.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl Default for Exclusions {
    fn default() -> Self {
        Self(RegexSet::empty())
    }
}

/// Returns the links that announce, by their index.
pub fn eligible(table: &LinkTable, exclusions: &Exclusions) -> BTreeMap<u32, Interface> {
    let interface = |(index, link): (&u32, &Link)| {
        let mac = link.mac.filter(|mac| mac.is_unicast())?;
        let is_excluded = exclusions.matches(&link.name);
        // Without a carrier nothing can be sent. That it comes back counts as a new interface:
        // behind it may be another switch.
        let is_connected = link.is_up && link.has_carrier;
        if is_excluded || !is_connected || link.has_master || link.is_without_arp {
            return None;
        }
        let link_local = link.addresses.iter().find_map(|it| match it.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        });
        let interface = Interface {
            name: link.name.clone(),
            mac,
            has_arp: link.can_broadcast,
            link_local,
        };
        (interface.has_arp || link_local.is_some()).then_some((*index, interface))
    };
    table.links.iter().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::Prefix;
    use super::*;

    fn link() -> Link {
        let address = "fe80::1".parse().unwrap();
        Link {
            name: "eth0".to_owned(),
            mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
            is_up: true,
            has_carrier: true,
            can_broadcast: true,
            addresses: [Prefix {
                address,
                length: 64,
            }]
            .into(),
            ..Link::default()
        }
    }

    fn announcing(change: impl FnOnce(&mut Link)) -> Option<Interface> {
        let mut link = link();
        change(&mut link);
        let links = BTreeMap::from([(7, link)]);
        let exclusions = Exclusions::new(CONTAINER_NETWORKS).unwrap();
        eligible(&LinkTable { links }, &exclusions).remove(&7)
    }

    #[test]
    fn an_ordinary_link_announces_both_families() {
        let expected = Interface {
            name: "eth0".to_owned(),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            has_arp: true,
            link_local: Some("fe80::1".parse().unwrap()),
        };
        assert_eq!(announcing(|_| {}), Some(expected));
    }

    #[test]
    fn links_that_are_down_parts_of_others_or_without_arp_do_not() {
        assert_eq!(announcing(|it| it.has_carrier = false), None);
        assert_eq!(announcing(|it| it.is_up = false), None);
        assert_eq!(announcing(|it| it.has_master = true), None);
        assert_eq!(announcing(|it| it.is_without_arp = true), None);
        assert_eq!(announcing(|it| it.mac = None), None);
        assert_eq!(announcing(|it| it.mac = Some(MacAddress([0; 6]))), None);
    }

    #[test]
    fn broadcast_is_for_arp_and_a_link_local_address_for_ndp() {
        let without = announcing(|it| it.can_broadcast = false).unwrap();
        assert!(!without.has_arp && without.link_local.is_some());
        let global = Prefix {
            address: "2001:db8::1".parse().unwrap(),
            length: 64,
        };
        let without = announcing(|it| it.addresses = [global].into()).unwrap();
        assert!(without.has_arp && without.link_local.is_none());
        let neither = announcing(|it| {
            it.can_broadcast = false;
            it.addresses.clear();
        });
        assert_eq!(neither, None);
    }

    #[test]
    fn excluded_names_do_not_announce() {
        for name in ["docker0", "veth12ab", "lo", "cali9", "kube-ipvs0", "lxc1"] {
            assert_eq!(announcing(|it| it.name = name.to_owned()), None, "{name}");
        }
        for name in ["lo0", "eth0", "br-veth", "bond0"] {
            assert!(
                announcing(|it| it.name = name.to_owned()).is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_pattern_matches_anywhere_and_a_broken_one_is_an_error() {
        let exclusions = Exclusions::new(["eth[12]"]).unwrap();
        assert!(exclusions.matches("my-eth1x") && !exclusions.matches("eth3"));
        assert!(!Exclusions::default().matches("eth0"));
        assert!(Exclusions::new(["^veth", "["]).is_err());
    }
}
