//! What a speaker reports the others about its node, within the messages of the membership: which
//! interfaces announce, with which MAC addresses, and whether the node is to be avoided.

use std::collections::{BTreeMap, BTreeSet};

use landfall_l2::election::{Inability, Subnet};
use landfall_l2::interfaces::Interface;
use landfall_l2::mac::MacAddress;

/// The most that a speaker may report, in bytes.
pub const LIMIT: usize = 240;

/// The version of the encoding. What another version says is not read.
const VERSION: u8 = 1;
const INCOMPLETE: u8 = 2;
const STARTING: u8 = 4;
const SILENT: u8 = 8;
const MANY_REFUSED: u8 = 16;
const HAS_NAMED: u8 = 32;
const HAS_SUBNETS: u8 = 64;
const MAC: usize = 6;

/// What the length of a name leaves room for. The kernel allows 15 bytes.
const UNSTEADY: u8 = 0x80;
const WITHOUT_ARP: u8 = 0x40;
const WITHOUT_NDP: u8 = 0x20;
const LENGTH: u8 = 0x1f;

/// So many addresses that the node can't serve are reported. With more of them it is silent.
const MOST_UNSERVED: usize = 8;

/// So many addresses that other hosts have are reported. With more of them any may be one.
const MOST_REFUSED: usize = 8;

/// So many subnets are reported. A node with more of them says of none.
const MOST_SUBNETS: usize = 8;

/// What an entry without a name says of an address: the node can't serve it, a host has it, or it
/// is the first one of a subnet.
const UNSERVED: u8 = 0;
const REFUSED: u8 = 1;
const IPV4_SUBNET: u8 = 2;
const IPV6_SUBNET: u8 = 3;

/// What a node reports the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Any number that a start of the speaker chooses: a node that comes back with the same one was
    /// not restarted, and may have announced addresses meanwhile.
    pub session: u64,
    /// The speaker announces nothing yet: another one is to do so.
    pub is_starting: bool,
    /// The interfaces that announce.
    pub interfaces: BTreeMap<String, MacAddress>,
    /// The node has more interfaces than it could name.
    pub is_incomplete: bool,
    /// The interfaces that advertisements name: they find room before others. Not reported.
    pub named: BTreeSet<String>,
    /// Of the interfaces that advertisements name, all that the node has are reported, however
    /// many others it has.
    pub has_named: bool,
    /// Interfaces that announce no IPv4 address.
    pub without_arp: BTreeSet<String>,
    /// Interfaces that announce no IPv6 address.
    pub without_ndp: BTreeSet<String>,
    /// Interfaces that failed not long ago: others go before them.
    pub unsteady: BTreeSet<String>,
    /// The node is to give way at all addresses.
    pub is_silent: bool,
    /// The addresses that the node is to serve itself and can't, by their fingerprints.
    pub unserved: BTreeSet<u32>,
    /// The addresses that the node does not announce, because another host has them.
    pub refused: Refused,
    /// The subnets of the interfaces; `None`: it does not say.
    pub subnets: Option<BTreeSet<Subnet>>,
}

/// Addresses that other hosts have, as a node reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// By their fingerprints.
    pub addresses: BTreeSet<u32>,
    /// There are more than could be named.
    pub are_many: bool,
}

// === impl Metadata ===

impl Metadata {
    /// What a node reports about these interfaces.
    pub fn new<'a>(session: u64, interfaces: impl IntoIterator<Item = &'a Interface>) -> Self {
        let mut metadata = Self {
            session,
            ..Self::default()
        };
        for it in interfaces {
            metadata.interfaces.insert(it.name.clone(), it.mac);
            if !it.has_arp {
                metadata.without_arp.insert(it.name.clone());
            }
            if it.link_local.is_none() {
                metadata.without_ndp.insert(it.name.clone());
            }
        }
        metadata
    }

    /// Returns the encoding, of [`LIMIT`] bytes at most. Interfaces that find no room are left out.
    /// An entry without a name is about an address.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend_from_slice(&self.session.to_be_bytes());
        let is_silent = self.is_silent || self.unserved.len() > MOST_UNSERVED;
        let unserved = self.unserved.iter().filter(|_| !is_silent);
        let unserved = unserved.map(|it| (it, UNSERVED)).take(MOST_UNSERVED);
        let refused = self.refused.addresses.iter().map(|it| (it, REFUSED));
        let subnets = self.subnets.as_ref().filter(|it| it.len() <= MOST_SUBNETS);
        let of_subnets = subnets.into_iter().flatten().map(|it| {
            let kind = if it.is_ipv6 { IPV6_SUBNET } else { IPV4_SUBNET };
            (&it.first, kind, it.length)
        });
        let of_addresses = unserved.chain(refused.take(MOST_REFUSED));
        let of_addresses = of_addresses.map(|(fingerprint, kind)| (fingerprint, kind, 0));
        for (fingerprint, kind, length) in of_addresses.chain(of_subnets) {
            bytes.push(0);
            bytes.extend_from_slice(&fingerprint.to_be_bytes());
            bytes.extend_from_slice(&[kind, length]);
        }
        let are_many = self.refused.are_many || self.refused.addresses.len() > MOST_REFUSED;
        let mut is_incomplete = self.is_incomplete;
        let mut has_named = self.has_named || !self.named.is_empty();
        let is_named = |(name, _): &(&String, _)| self.named.contains(*name);
        let (named, others): (Vec<_>, Vec<_>) = self.interfaces.iter().partition(is_named);
        for (name, mac) in named.into_iter().chain(others) {
            match u8::try_from(name.len()) {
                Ok(length @ 1..=LENGTH) if bytes.len() + 1 + name.len() + MAC <= LIMIT => {
                    let bit = |set: &BTreeSet<String>, bit| u8::from(set.contains(name)) * bit;
                    let bits = bit(&self.unsteady, UNSTEADY)
                        | bit(&self.without_arp, WITHOUT_ARP)
                        | bit(&self.without_ndp, WITHOUT_NDP);
                    bytes.push(length | bits);
                    bytes.extend_from_slice(name.as_bytes());
                    bytes.extend_from_slice(&mac.0);
                }
                _ => {
                    is_incomplete = true;
                    has_named &= !self.named.contains(name);
                }
            }
        }
        if let Some(flags) = bytes.get_mut(1) {
            *flags = u8::from(is_incomplete) * INCOMPLETE
                + u8::from(self.is_starting) * STARTING
                + u8::from(is_silent) * SILENT
                + u8::from(are_many) * MANY_REFUSED
                + u8::from(has_named) * HAS_NAMED
                + u8::from(subnets.is_some()) * HAS_SUBNETS;
        }
        bytes
    }

    /// Reads an encoding; `None` if it is none of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, flags], bytes) = bytes.split_first_chunk()?;
        let (session, mut bytes) = bytes.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let mut read = Self {
            session: u64::from_be_bytes(*session),
            is_starting: flags & STARTING != 0,
            is_incomplete: flags & INCOMPLETE != 0,
            is_silent: flags & SILENT != 0,
            has_named: flags & HAS_NAMED != 0,
            subnets: (flags & HAS_SUBNETS != 0).then(BTreeSet::new),
            ..Self::default()
        };
        read.refused.are_many = flags & MANY_REFUSED != 0;
        while let Some((length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*length & LENGTH))?;
            let (mac, rest) = rest.split_first_chunk::<MAC>()?;
            bytes = rest;
            let name = str::from_utf8(name).ok()?.to_owned();
            if name.is_empty() {
                let &[a, b, c, d, kind, length] = mac;
                read.take_entry(u32::from_be_bytes([a, b, c, d]), kind, length);
                continue;
            }
            for (bit, set) in [
                (UNSTEADY, &mut read.unsteady),
                (WITHOUT_ARP, &mut read.without_arp),
                (WITHOUT_NDP, &mut read.without_ndp),
            ] {
                if length & bit != 0 {
                    set.insert(name.clone());
                }
            }
            read.interfaces.insert(name, MacAddress(*mac));
        }
        Some(read)
    }

    fn take_entry(&mut self, fingerprint: u32, kind: u8, length: u8) {
        match kind {
            UNSERVED => drop(self.unserved.insert(fingerprint)),
            REFUSED => drop(self.refused.addresses.insert(fingerprint)),
            IPV4_SUBNET | IPV6_SUBNET => {
                let subnet = Subnet {
                    is_ipv6: kind == IPV6_SUBNET,
                    length,
                    first: fingerprint,
                };
                self.subnets.get_or_insert_default().insert(subnet);
            }
            _ => {}
        }
    }

    /// Returns whether the node announces on one of these interfaces, which an advertisement
    /// names; an empty set means any. A node that could not name all of its interfaces may have
    /// it, unless it named all of these that it has.
    pub fn has_one_of(&self, names: &BTreeSet<String>) -> bool {
        let may_have = self.is_incomplete && !self.has_named;
        names.is_empty() || may_have || names.iter().any(|it| self.is_steady(it))
    }

    /// Returns whether the node announces on any interface.
    pub fn has_any(&self) -> bool {
        self.interfaces.keys().any(|name| self.is_steady(name))
    }

    fn is_steady(&self, name: &String) -> bool {
        self.interfaces.contains_key(name) && !self.unsteady.contains(name)
    }

    /// Returns what the node can't do.
    pub fn inability(&self) -> Inability {
        let lacks = |without: &BTreeSet<String>| {
            let mut steady = self.interfaces.keys().filter(|name| self.is_steady(name));
            let has = self.is_incomplete || steady.any(|name| !without.contains(name));
            self.is_silent || !has
        };
        Inability {
            ipv4: lacks(&self.without_arp),
            ipv6: lacks(&self.without_ndp),
            addresses: self.unserved.clone(),
            subnets: self.subnets.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn metadata(names: &[&str]) -> Metadata {
        let mac = |number: usize| MacAddress([2, 0, 0, 0, 0, u8::try_from(number).unwrap()]);
        let interfaces = names.iter().enumerate();
        Metadata {
            session: 7,
            interfaces: interfaces
                .map(|(number, name)| ((*name).to_owned(), mac(number)))
                .collect(),
            ..Metadata::default()
        }
    }

    #[test]
    fn metadata_is_read_as_it_was_written() {
        let mut reported = metadata(&["eth0", "eth1"]);
        let eth1 = BTreeSet::from(["eth1".to_owned()]);
        reported.unsteady.clone_from(&eth1);
        reported.without_arp.clone_from(&eth1);
        reported.without_ndp.insert("eth0".to_owned());
        reported.unserved = BTreeSet::from([7, 0xc000_0201]);
        reported.refused.addresses = BTreeSet::from([8, 0xc000_0201]);
        let subnet = |is_ipv6, length| Subnet {
            is_ipv6,
            length,
            first: 0xc000_0200,
        };
        reported.subnets = Some([subnet(false, 24), subnet(true, 64)].into());
        assert_eq!(Metadata::decode(&reported.encode()), Some(reported));
    }

    #[test]
    fn a_node_with_too_many_interfaces_says_that_there_are_more() {
        let names: Vec<String> = (0..20).map(|it| format!("interface-{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bytes = metadata(&names).encode();
        assert!(bytes.len() <= LIMIT, "{}", bytes.len());
        let reported = Metadata::decode(&bytes).unwrap();
        assert!(reported.is_incomplete && reported.interfaces.len() >= 10);
        assert!(reported.has_one_of(&["not-named".to_owned()].into()));
    }

    #[test]
    fn a_node_says_all_of_its_subnets_or_that_it_does_not_say() {
        let subnets = |count: u32| {
            let of_it = |first| Subnet {
                is_ipv6: false,
                length: 24,
                first,
            };
            (0..count).map(of_it).collect::<BTreeSet<_>>()
        };
        let mut reported = metadata(&["eth0"]);
        for (count, is_said) in [(0, true), (8, true), (9, false)] {
            reported.subnets = Some(subnets(count));
            let read = Metadata::decode(&reported.encode()).unwrap();
            assert_eq!(read.subnets, Some(subnets(count)).filter(|_| is_said));
        }
        let everything = Metadata {
            unserved: (0..8).collect(),
            refused: Refused {
                addresses: (0..8).collect(),
                are_many: false,
            },
            subnets: Some(subnets(8)),
            ..metadata(&["eth0"])
        };
        let read = Metadata::decode(&everything.encode());
        assert_eq!(read, Some(everything), "and an interface");
    }

    #[test]
    fn interfaces_that_advertisements_name_find_room_before_others() {
        let names: Vec<String> = (0..40).map(|it| format!("interface-{it:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let of = |name: &str| BTreeSet::from([name.to_owned()]);
        let mut reported = metadata(&names);
        reported.named = of("interface-39");
        reported.named.extend(of("not-there"));
        let read = Metadata::decode(&reported.encode()).unwrap();
        assert!(read.is_incomplete && read.has_named);
        assert!(read.has_one_of(&of("interface-39")));
        assert!(!read.has_one_of(&of("not-there")));
        // More named ones than there is room for: it may have any.
        reported.named = reported.interfaces.keys().cloned().collect();
        let read = Metadata::decode(&reported.encode()).unwrap();
        assert!(read.has_one_of(&of("not-there")));
    }

    #[test]
    fn a_node_without_the_interface_does_not_have_it() {
        let reported = metadata(&["eth0"]);
        assert!(reported.has_one_of(&["eth0".to_owned(), "eth1".to_owned()].into()));
        assert!(!reported.has_one_of(&["eth1".to_owned()].into()));
        assert!(reported.has_one_of(&BTreeSet::new()));
    }

    #[test]
    fn a_node_can_not_announce_a_family_for_which_no_interface_is_left() {
        let mut reported = metadata(&["eth0", "eth1"]);
        assert_eq!(reported.inability(), Inability::default());
        reported.without_ndp.insert("eth0".to_owned());
        assert_eq!(reported.inability(), Inability::default());
        reported.unsteady.insert("eth1".to_owned());
        let only_v4 = Inability {
            ipv6: true,
            ..Inability::default()
        };
        assert_eq!(reported.inability(), only_v4);
        assert!(!reported.has_one_of(&["eth1".to_owned()].into()));
        reported.unsteady.insert("eth0".to_owned());
        let nothing = reported.inability();
        assert!(nothing.ipv4 && nothing.ipv6 && !reported.has_any());
        // One that was not named may do.
        reported.is_incomplete = true;
        assert_eq!(reported.inability(), Inability::default());
    }

    #[test]
    fn a_node_that_can_not_serve_more_addresses_than_it_could_name_gives_way_at_all() {
        let mut reported = metadata(&["eth0"]);
        reported.unserved = (0..8).collect();
        let few = Metadata::decode(&reported.encode()).unwrap().inability();
        assert!(!few.ipv4 && few.addresses.len() == 8);
        reported.unserved = (0..9).collect();
        let many = Metadata::decode(&reported.encode()).unwrap().inability();
        assert!(many.ipv4 && many.ipv6);
    }

    #[test]
    fn of_more_addresses_of_other_hosts_than_could_be_named_it_is_said_that_there_are_more() {
        let mut reported = metadata(&["eth0"]);
        reported.refused.addresses = (0..8).collect();
        reported.unserved = (0..8).collect();
        let few = Metadata::decode(&reported.encode()).unwrap();
        assert_eq!(few, reported);
        reported.refused.addresses = (0..9).collect();
        let many = Metadata::decode(&reported.encode()).unwrap().refused;
        assert!(many.are_many && many.addresses.len() == 8);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(reported) = Metadata::decode(&bytes) {
                prop_assert!(reported.encode().len() <= LIMIT.max(bytes.len()));
            }
        }
    }
}
