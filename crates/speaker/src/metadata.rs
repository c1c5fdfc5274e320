//! What a speaker reports the others about its node, within the messages of the membership: which
//! interfaces announce, with which MAC addresses, and whether the node is to be avoided.

use std::collections::{BTreeMap, BTreeSet};

use landfall_l2::election::Inability;
use landfall_l2::interfaces::Interface;
use landfall_l2::mac::MacAddress;

/// The most that a speaker may report, in bytes.
pub const LIMIT: usize = 240;

/// The version of the encoding. What another version says is not read.
const VERSION: u8 = 1;
const DRAINING: u8 = 1;
const INCOMPLETE: u8 = 2;
const STARTING: u8 = 4;
const SILENT: u8 = 8;
const MANY_REFUSED: u8 = 16;
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

/// What an entry without a name says of an address: the node can't serve it, or a host has it.
const UNSERVED: u8 = 0;
const REFUSED: u8 = 1;

/// What a node reports the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Any number that a start of the speaker chooses: a node that comes back with the same one was
    /// not restarted, and may have announced addresses meanwhile.
    pub session: u64,
    /// The node is being drained, or is about to stop.
    pub is_draining: bool,
    /// The speaker announces nothing yet: another one is to do so.
    pub is_starting: bool,
    /// The interfaces that announce.
    pub interfaces: BTreeMap<String, MacAddress>,
    /// The node has more interfaces than it could name.
    pub is_incomplete: bool,
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
        for (fingerprint, kind) in unserved.chain(refused.take(MOST_REFUSED)) {
            bytes.push(0);
            bytes.extend_from_slice(&fingerprint.to_be_bytes());
            bytes.extend_from_slice(&[kind, 0]);
        }
        let are_many = self.refused.are_many || self.refused.addresses.len() > MOST_REFUSED;
        let mut is_incomplete = self.is_incomplete;
        for (name, mac) in &self.interfaces {
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
                _ => is_incomplete = true,
            }
        }
        if let Some(flags) = bytes.get_mut(1) {
            *flags = u8::from(self.is_draining) * DRAINING
                + u8::from(is_incomplete) * INCOMPLETE
                + u8::from(self.is_starting) * STARTING
                + u8::from(is_silent) * SILENT
                + u8::from(are_many) * MANY_REFUSED;
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
            is_draining: flags & DRAINING != 0,
            is_starting: flags & STARTING != 0,
            is_incomplete: flags & INCOMPLETE != 0,
            is_silent: flags & SILENT != 0,
            ..Self::default()
        };
        read.refused.are_many = flags & MANY_REFUSED != 0;
        while let Some((length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*length & LENGTH))?;
            let (mac, rest) = rest.split_first_chunk::<MAC>()?;
            bytes = rest;
            let name = str::from_utf8(name).ok()?.to_owned();
            if name.is_empty() {
                let &[a, b, c, d, kind, _] = mac;
                let of_kind = match kind {
                    REFUSED => &mut read.refused.addresses,
                    _ => &mut read.unserved,
                };
                of_kind.insert(u32::from_be_bytes([a, b, c, d]));
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

    /// Returns whether the node announces on one of these interfaces; an empty set means any. A
    /// node that could not name all of its interfaces may have it.
    pub fn has_one_of(&self, names: &BTreeSet<String>) -> bool {
        names.is_empty() || self.is_incomplete || names.iter().any(|it| self.is_steady(it))
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
        reported.is_draining = true;
        reported.unsteady.clone_from(&eth1);
        reported.without_arp.clone_from(&eth1);
        reported.without_ndp.insert("eth0".to_owned());
        reported.unserved = BTreeSet::from([7, 0xc000_0201]);
        reported.refused.addresses = BTreeSet::from([8, 0xc000_0201]);
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
