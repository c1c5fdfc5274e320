//! The links of a node, with what the kernel says of each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mac::MacAddress;

/// All links of a network namespace, by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkTable {
    /// The links.
    pub links: BTreeMap<u32, Link>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its MAC address; not all kinds of links have one.
    pub mac: Option<MacAddress>,
    /// It is set up.
    pub is_up: bool,
    /// It is connected to something.
    pub has_carrier: bool,
    /// All stations can be reached at once.
    pub can_broadcast: bool,
    /// It has no use for ARP.
    pub is_without_arp: bool,
    /// It is a part of another link: of a bridge, a bond or a VRF.
    pub has_master: bool,
    /// Its addresses that can be used: not those that the kernel still probes or found duplicated.
    pub addresses: BTreeSet<Prefix>,
}

/// An address with the length of its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// The length in bits.
    pub length: u8,
}

// === impl LinkTable ===

impl LinkTable {
    /// All MAC addresses of this node. What they send is never a conflict.
    pub fn own(&self) -> BTreeSet<MacAddress> {
        self.links.values().filter_map(|link| link.mac).collect()
    }
}

// === impl Link ===

impl Link {
    /// Returns the subnets of the link, but for the one that every link has.
    pub fn subnets(&self) -> impl Iterator<Item = Prefix> {
        let everywhere = |address: IpAddr| match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let addresses = self.addresses.iter().copied();
        addresses.filter(move |prefix| !everywhere(prefix.address))
    }
}

// === impl Prefix ===

impl Prefix {
    /// Returns the first address of the subnet.
    pub fn first(self) -> IpAddr {
        let length = u32::from(self.length);
        match self.address {
            IpAddr::V4(address) => {
                let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & !hosts).into()
            }
            IpAddr::V6(address) => {
                let hosts = u128::MAX.checked_shr(length).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & !hosts).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_a_subnet_has_no_bits_of_a_host() {
        let first = |address: &str, length| {
            let address = address.parse().unwrap();
            Prefix { address, length }.first().to_string()
        };
        assert_eq!(first("192.0.2.129", 25), "192.0.2.128");
        assert_eq!(first("192.0.2.1", 32), "192.0.2.1");
        assert_eq!(first("192.0.2.1", 0), "0.0.0.0");
        assert_eq!(first("192.0.2.1", 255), "192.0.2.1");
        assert_eq!(first("2001:db8::f:1", 64), "2001:db8::");
        assert_eq!(first("2001:db8::1", 128), "2001:db8::1");
        assert_eq!(first("2001:db8::1", 0), "::");
    }

    #[test]
    fn the_subnets_of_a_link_are_those_of_its_addresses_beside_the_link_local_one() {
        let prefix = |address: &str, length| Prefix {
            address: address.parse().unwrap(),
            length,
        };
        let global = prefix("192.0.2.1", 24);
        let link = Link {
            addresses: [global, prefix("fe80::1", 64), prefix("169.254.0.1", 16)].into(),
            ..Link::default()
        };
        assert!(link.subnets().eq([global]));
    }
}
