//! What a node reports that it can't do.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::interfaces::Prefix;

/// What a node can't do at the moment, as far as it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inability {
    /// Announce any IPv4 address.
    pub ipv4: bool,
    /// Announce any IPv6 address.
    pub ipv6: bool,
    /// Serve these addresses, each by its [`fingerprint`].
    pub addresses: BTreeSet<u32>,
    /// Announce addresses outside of these subnets; `None`: it announces any.
    pub subnets: Option<BTreeSet<Subnet>>,
}

/// A subnet of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    /// It is one of IPv6.
    pub is_ipv6: bool,
    /// The length of its prefix in bits.
    pub length: u8,
    /// The [`fingerprint`] of its first address.
    pub first: u32,
}

// === impl Inability ===

impl Inability {
    /// Returns whether the node can't announce or serve an address.
    pub fn concerns(&self, address: IpAddr) -> bool {
        let is_outside = |all: &BTreeSet<Subnet>| !all.iter().any(|it| it.contains(address));
        self.is_of_serving(address) || self.subnets.as_ref().is_some_and(is_outside)
    }

    /// Returns whether the node can't serve an address, wherever it is announced.
    pub fn is_of_serving(&self, address: IpAddr) -> bool {
        let family = match address {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        };
        family || self.addresses.contains(&fingerprint(address))
    }
}

// === impl Subnet ===

impl Subnet {
    fn contains(self, address: IpAddr) -> bool {
        let length = self.length;
        self == Self::from(Prefix { address, length })
    }
}

impl From<Prefix> for Subnet {
    fn from(prefix: Prefix) -> Self {
        let first = prefix.first();
        Self {
            is_ipv6: first.is_ipv6(),
            length: prefix.length,
            first: fingerprint(first),
        }
    }
}

/// Returns a number that stands for an address in what nodes report to each other. Of IPv6 several
/// addresses may have one: a node that can't serve one of them gives way at the others, too.
pub fn fingerprint(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let digest = Sha256::digest(address.octets());
            let first = digest.first_chunk().copied();
            first.map_or(0, u32::from_be_bytes)
        }
    }
}
