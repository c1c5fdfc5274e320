//! What a speaker reports the others about its node, within the messages of the membership: which
//! interfaces announce, with which MAC addresses, and whether the node is to be avoided.

use std::collections::{BTreeMap, BTreeSet};

use landfall_l2::interfaces::Interface;
use landfall_l2::mac::MacAddress;

/// The most that a speaker may report, in bytes.
pub const LIMIT: usize = 240;

/// The version of the encoding. What another version says is not read.
const VERSION: u8 = 1;
const DRAINING: u8 = 1;
const INCOMPLETE: u8 = 2;
const STARTING: u8 = 4;
const MAC: usize = 6;

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
}

// === impl Metadata ===

impl Metadata {
    /// What a node reports about these interfaces.
    pub fn new<'a>(session: u64, interfaces: impl IntoIterator<Item = &'a Interface>) -> Self {
        let interfaces = interfaces.into_iter();
        Self {
            session,
            interfaces: interfaces.map(|it| (it.name.clone(), it.mac)).collect(),
            ..Self::default()
        }
    }

    /// Returns the encoding, of [`LIMIT`] bytes at most. Interfaces that find no room are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend_from_slice(&self.session.to_be_bytes());
        let mut is_incomplete = self.is_incomplete;
        for (name, mac) in &self.interfaces {
            match u8::try_from(name.len()) {
                Ok(length) if bytes.len() + 1 + name.len() + MAC <= LIMIT => {
                    bytes.push(length);
                    bytes.extend_from_slice(name.as_bytes());
                    bytes.extend_from_slice(&mac.0);
                }
                _ => is_incomplete = true,
            }
        }
        if let Some(flags) = bytes.get_mut(1) {
            *flags = u8::from(self.is_draining) * DRAINING
                + u8::from(is_incomplete) * INCOMPLETE
                + u8::from(self.is_starting) * STARTING;
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
        let mut interfaces = BTreeMap::new();
        while let Some((length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            let (mac, rest) = rest.split_first_chunk::<MAC>()?;
            interfaces.insert(str::from_utf8(name).ok()?.to_owned(), MacAddress(*mac));
            bytes = rest;
        }
        Some(Self {
            session: u64::from_be_bytes(*session),
            is_draining: flags & DRAINING != 0,
            is_starting: flags & STARTING != 0,
            interfaces,
            is_incomplete: flags & INCOMPLETE != 0,
        })
    }

    /// Returns whether the node announces on one of these interfaces; an empty set means any. A
    /// node that could not name all of its interfaces may have it.
    pub fn has_one_of(&self, names: &BTreeSet<String>) -> bool {
        let has = |name: &String| self.interfaces.contains_key(name);
        names.is_empty() || self.is_incomplete || names.iter().any(has)
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
        reported.is_draining = true;
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

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(reported) = Metadata::decode(&bytes) {
                prop_assert!(reported.encode().len() <= LIMIT.max(bytes.len()));
            }
        }
    }
}
