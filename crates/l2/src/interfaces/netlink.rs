//! Follows links and addresses by the messages of rtnetlink, without I/O. Only the few attributes
//! that matter are read, so that no attribute of a newer kernel can make a message unreadable.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::table::{LinkTable, Prefix};
use crate::mac::MacAddress;

/// The groups (`RTMGRP_*`) whose messages are followed: links, and addresses of both families.
pub const GROUPS: u32 = 0x1 | 0x10 | 0x100;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETED_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

const REQUEST_ALL: u16 = 0x1 | 0x300;
/// A list that changed while it was sent, so that something may be missing in it.
const INTERRUPTED: u16 = 0x10;

const ETHERNET: u16 = 1;

/// Attributes of links.
const LINK_MAC: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MASTER: u16 = 10;
const LINK_WIRELESS: u16 = 11;

/// Attributes of addresses.
const PEER: u16 = 1;
const LOCAL: u16 = 2;
const FLAGS: u16 = 8;

/// An address that is still probed, or was found duplicated; not one that is used while probed.
const UNUSABLE: u32 = 0x40 | 0x08;

/// What is known of links and addresses, and which list of them is on its way.
#[derive(Clone, Debug, Default)]
pub struct Follow {
    table: LinkTable,
    listing: Listing,
    sequence: u32,
    is_interrupted: bool,
    links_seen: BTreeSet<u32>,
    addresses_seen: BTreeSet<(u32, Prefix)>,
}

/// What came of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The table is complete and differs from before, or has just become complete.
    pub is_changed: bool,
    /// A request to send.
    pub request: Option<Vec<u8>>,
    /// The kernel refused a request with this error; begin again after a while.
    pub failed: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listing {
    #[default]
    Links,
    Addresses,
    Nothing,
}

/// A message, without its header.
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

// === impl Follow ===

impl Follow {
    /// The links and addresses; complete only after the first change was reported.
    pub const fn table(&self) -> &LinkTable {
        &self.table
    }

    /// Begins (again) with lists of everything, at the start and after messages were lost. Returns
    /// the request to send.
    pub fn begin(&mut self) -> Vec<u8> {
        self.links_seen.clear();
        self.addresses_seen.clear();
        self.is_interrupted = false;
        self.list(Listing::Links)
    }

    /// Takes messages that a socket received.
    pub fn take(&mut self, mut bytes: &[u8]) -> Progress {
        let before = self.table.clone();
        let was_listing = self.listing != Listing::Nothing;
        let mut progress = Progress::default();
        while let Some((header, body, rest)) = message(bytes) {
            bytes = rest;
            self.take_one(&header, body, &mut progress);
        }
        let is_complete = self.listing == Listing::Nothing;
        progress.is_changed = is_complete && (was_listing || self.table != before);
        progress
    }

    fn take_one(&mut self, header: &Header, body: &[u8], progress: &mut Progress) {
        let is_listed = header.sequence == self.sequence && self.listing != Listing::Nothing;
        if is_listed && header.flags & INTERRUPTED != 0 {
            self.is_interrupted = true;
        }
        match header.kind {
            NEW_LINK => self.link(body).unwrap_or_default(),
            DELETED_LINK => self.link_gone(body).unwrap_or_default(),
            NEW_ADDRESS => self.address(body, true).unwrap_or_default(),
            DELETED_ADDRESS => self.address(body, false).unwrap_or_default(),
            DONE if is_listed => progress.request = self.listed(),
            ERROR if is_listed => progress.failed = number(body).map(i32::from_ne_bytes),
            _ => {}
        }
    }

    /// A list is complete: what it did not name is gone.
    fn listed(&mut self) -> Option<Vec<u8>> {
        if self.is_interrupted {
            return Some(self.begin());
        }
        if self.listing == Listing::Links {
            let seen = &self.links_seen;
            self.table.links.retain(|index, _| seen.contains(index));
            return Some(self.list(Listing::Addresses));
        }
        let seen = &self.addresses_seen;
        for (index, link) in &mut self.table.links {
            link.addresses.retain(|it| seen.contains(&(*index, *it)));
        }
        self.listing = Listing::Nothing;
        None
    }

    fn list(&mut self, what: Listing) -> Vec<u8> {
        self.listing = what;
        // Never 0, the number of what is not asked for.
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let (kind, body): (_, &[u8]) = match what {
            Listing::Links => (GET_LINK, &[0; 16]),
            Listing::Addresses | Listing::Nothing => (GET_ADDRESS, &[0; 8]),
        };
        let length = 16 + body.len() as u32;
        let mut request = length.to_ne_bytes().to_vec();
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&REQUEST_ALL.to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(body);
        request
    }

    fn link(&mut self, body: &[u8]) -> Option<()> {
        let (fields, attributes) = body.split_first_chunk::<16>()?;
        let (index, flags) = link_header(fields)?;
        let [_, _, kind @ ..] = *fields;
        let is_ethernet = number(&kind).map(u16::from_ne_bytes) == Some(ETHERNET);
        // What drivers of wireless networks report, for example a scan, has the name and nothing
        // else of the link.
        if Attributes(attributes).any(|(kind, _)| kind == LINK_WIRELESS) {
            return Some(());
        }
        let link = self.table.links.entry(index).or_default();
        link.is_up = flags & 0x1 != 0;
        link.can_broadcast = flags & 0x2 != 0;
        link.is_without_arp = flags & 0x80 != 0;
        link.has_carrier = flags & 0x1_0000 != 0;
        link.has_master = false;
        link.mac = None;
        for (kind, value) in Attributes(attributes) {
            match kind {
                LINK_NAME => {
                    let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                    link.name = String::from_utf8_lossy(name).into_owned();
                }
                LINK_MAC if is_ethernet => link.mac = value.try_into().map(MacAddress).ok(),
                LINK_MASTER => {
                    link.has_master = number(value).map(u32::from_ne_bytes) != Some(0);
                }
                _ => {}
            }
        }
        self.links_seen.insert(index);
        Some(())
    }

    fn link_gone(&mut self, body: &[u8]) -> Option<()> {
        let (index, _) = link_header(body.first_chunk::<16>()?)?;
        self.table.links.remove(&index);
        self.links_seen.remove(&index);
        self.addresses_seen.retain(|(link, _)| *link != index);
        Some(())
    }

    fn address(&mut self, body: &[u8], is_new: bool) -> Option<()> {
        let (fields, attributes) = body.split_first_chunk::<8>()?;
        let [_family, length, flags, _scope, index @ ..] = *fields;
        let index = u32::from_ne_bytes(index);
        let (mut flags, mut own, mut peer) = (u32::from(flags), None, None);
        for (kind, value) in Attributes(attributes) {
            match kind {
                LOCAL => own = parse(value),
                PEER => peer = parse(value),
                FLAGS => flags = number(value).map_or(flags, u32::from_ne_bytes),
                _ => {}
            }
        }
        let address = own.or(peer)?;
        let prefix = Prefix { address, length };
        let link = self.table.links.get_mut(&index)?;
        if is_new && flags & UNUSABLE == 0 {
            link.addresses.insert(prefix);
            self.addresses_seen.insert((index, prefix));
        } else {
            link.addresses.remove(&prefix);
            self.addresses_seen.remove(&(index, prefix));
        }
        Some(())
    }
}

/// The index and the flags of a link. Messages of bridges about their ports are of another family;
/// one that says "deleted" only means that a link left its bridge.
fn link_header(fields: &[u8; 16]) -> Option<(u32, u32)> {
    let [family, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fields;
    let index = u32::from_ne_bytes([i0, i1, i2, i3]);
    (family == 0).then_some((index, u32::from_ne_bytes([f0, f1, f2, f3])))
}

fn parse(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
}

fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// Splits the first message off: header, body, and what follows.
fn message(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(number(bytes)?) as usize;
    let whole = bytes.get(..length)?;
    let header = Header {
        kind: u16::from_ne_bytes(number(whole.get(4..)?)?),
        flags: u16::from_ne_bytes(number(whole.get(6..)?)?),
        sequence: u32::from_ne_bytes(number(whole.get(8..)?)?),
    };
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((header, whole.get(16..)?, rest))
}

/// The attributes of a message, up to the first that is malformed.
struct Attributes<'b>(&'b [u8]);

// === impl Attributes ===

impl<'b> Iterator for Attributes<'b> {
    type Item = (u16, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(number(self.0)?));
        let kind = u16::from_ne_bytes(number(self.0.get(2..)?)?) & 0x3fff;
        let value = self.0.get(4..length)?;
        let rest = self.0.get(length.next_multiple_of(4)..);
        self.0 = rest.unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests;
