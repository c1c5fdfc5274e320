//! The links of a node, with what the kernel says of each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
    /// Returns whether one of the subnets of the link contains an address.
    pub fn reaches(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|prefix| prefix.contains(address))
    }
}

// === impl Prefix ===

impl Prefix {
    /// Returns whether an address is in the subnet.
    pub fn contains(self, address: IpAddr) -> bool {
        let (own, other, width) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits().into(), other.to_bits().into(), 32_u32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let host_bits = width.saturating_sub(self.length.into());
        let network = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
        network(own) == network(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_contains_its_addresses_and_none_of_the_other_family() {
        let contains = |prefix: &str, length, address: &str| {
            let address = address.parse().unwrap();
            let prefix = Prefix {
                address: prefix.parse().unwrap(),
                length,
            };
            prefix.contains(address)
        };
        assert!(contains("192.0.2.1", 24, "192.0.2.255"));
        assert!(!contains("192.0.2.1", 24, "192.0.3.1"));
        assert!(contains("192.0.2.1", 32, "192.0.2.1"));
        assert!(!contains("192.0.2.1", 32, "192.0.2.2"));
        assert!(contains("2001:db8::1", 64, "2001:db8::ffff"));
        assert!(!contains("2001:db8::1", 64, "2001:db8:0:1::1"));
        assert!(contains("::", 0, "2001:db8::1"));
        assert!(!contains("0.0.0.0", 0, "2001:db8::1"));
    }
}
