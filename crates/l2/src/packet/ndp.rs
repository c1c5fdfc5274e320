//! Neighbour Solicitations and Advertisements (RFC 4861) with the IPv6 header below them.

use std::net::Ipv6Addr;

use super::bytes::Bytes;
use super::{ETHER_TYPE_IPV6, Message, header};
use crate::mac::MacAddress;

/// All nodes of the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// The hop limit that proves that no router forwarded a message.
const HOP_LIMIT: u8 = 255;

/// Options with the link-layer address of the source and of the target.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

/// A Neighbour Solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The host that asks; unspecified for duplicate address detection.
    pub source: Ipv6Addr,
    /// Where it was sent to: the target itself, or its solicited-node group.
    pub destination: Ipv6Addr,
    /// The address that it asks for.
    pub target: Ipv6Addr,
    /// The link-layer address of the host, if it names it.
    pub mac: Option<MacAddress>,
}

/// A Neighbour Advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The host that sends it.
    pub source: Ipv6Addr,
    /// Where it was sent to.
    pub destination: Ipv6Addr,
    /// The address that it is about.
    pub target: Ipv6Addr,
    /// It answers a solicitation that this host sent.
    pub solicited: bool,
    /// Caches must take it although they have another link-layer address.
    pub overrides: bool,
    /// The link-layer address of the target, if it names it.
    pub mac: Option<MacAddress>,
}

/// The link-layer address that the first option of a kind names, if there is one.
struct Named(Option<MacAddress>);

/// Returns the group that hosts with an address listen to for questions about it (RFC 4291,
/// section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0x00ff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

// === impl Solicitation ===

impl Solicitation {
    /// Asks whether a host has an address, without a claim to it (RFC 4862, section 5.4.2).
    pub const fn probe(address: Ipv6Addr) -> Self {
        Self {
            source: Ipv6Addr::UNSPECIFIED,
            destination: solicited_node(address),
            target: address,
            mac: None,
        }
    }

    /// Answers this solicitation from the address that it asks for, as Linux does for its own:
    /// `ndisc6` takes no answer from another one. A probe has no address to answer to: all nodes
    /// get the advertisement, which is then not solicited.
    ///
    /// It always overrides: the owner of an address answers, and after a move of the address caches
    /// still hold the former one (RFC 4861, section 7.2.4, asks for it, too).
    pub const fn answer(&self, mac: MacAddress) -> Advertisement {
        let is_probe = self.source.is_unspecified();
        Advertisement {
            source: self.target,
            destination: if is_probe { ALL_NODES } else { self.source },
            target: self.target,
            solicited: !is_probe,
            overrides: true,
            mac: Some(mac),
        }
    }

    /// Writes the whole frame.
    pub fn frame(&self, to: MacAddress, from: MacAddress) -> Vec<u8> {
        let option = self.mac.map(|mac| (SOURCE_MAC, mac));
        let body = body(SOLICITATION, 0, self.target, option);
        frame(to, from, self.source, self.destination, body)
    }
}

// === impl Advertisement ===

impl Advertisement {
    /// Makes an address known to all nodes without being asked.
    pub const fn unsolicited(from: Ipv6Addr, target: Ipv6Addr, mac: MacAddress) -> Self {
        Self {
            source: from,
            destination: ALL_NODES,
            target,
            solicited: false,
            overrides: true,
            mac: Some(mac),
        }
    }

    /// Writes the whole frame.
    pub fn frame(&self, to: MacAddress, from: MacAddress) -> Vec<u8> {
        let solicited = if self.solicited { FLAG_SOLICITED } else { 0 };
        let overrides = if self.overrides { FLAG_OVERRIDE } else { 0 };
        let option = self.mac.map(|mac| (TARGET_MAC, mac));
        let body = body(ADVERTISEMENT, solicited | overrides, self.target, option);
        frame(to, from, self.source, self.destination, body)
    }
}

/// Reads an IPv6 packet that carries nothing but a message of Neighbour Discovery.
pub(super) fn parse(bytes: &mut Bytes<'_>) -> Option<Message> {
    let [first, ..] = bytes.take::<4>()?;
    let length = bytes.u16()?;
    // Extension headers are never sent here: their use would only hide messages from switches
    // (RFC 6980).
    if first >> 4 != 6 || bytes.u8()? != ICMPV6 || bytes.u8()? != HOP_LIMIT {
        return None;
    }
    let source = Ipv6Addr::from(bytes.take::<16>()?);
    let destination = Ipv6Addr::from(bytes.take::<16>()?);
    let mut body = bytes.split(length.into())?;
    if checksum(source, destination, body.rest()) != 0 || source.is_multicast() {
        return None;
    }
    let (kind, code) = (body.u8()?, body.u8()?);
    let _checksum = body.u16()?;
    let [flags, ..] = body.take::<4>()?;
    let target = Ipv6Addr::from(body.take::<16>()?);
    if code != 0 || target.is_multicast() || target.is_unspecified() {
        return None;
    }
    match kind {
        SOLICITATION => {
            let Named(mac) = option(&mut body, SOURCE_MAC)?;
            let group = solicited_node(target);
            let is_probe = source.is_unspecified();
            let asked = destination == group || destination == target && !is_probe;
            if !asked || is_probe && mac.is_some() {
                return None;
            }
            Some(Message::Solicitation(Solicitation {
                source,
                destination,
                target,
                mac,
            }))
        }
        ADVERTISEMENT => {
            let Named(mac) = option(&mut body, TARGET_MAC)?;
            let solicited = flags & FLAG_SOLICITED != 0;
            if source.is_unspecified() || solicited && destination.is_multicast() {
                return None;
            }
            Some(Message::Advertisement(Advertisement {
                source,
                destination,
                target,
                solicited,
                overrides: flags & FLAG_OVERRIDE != 0,
                mac,
            }))
        }
        _ => None,
    }
}

/// Reads the options to their end; `None` if they are malformed.
fn option(body: &mut Bytes<'_>, wanted: u8) -> Option<Named> {
    let mut found = None;
    while !body.rest().is_empty() {
        let (kind, units) = (body.u8()?, body.u8()?);
        let length = (usize::from(units) * 8).checked_sub(2)?;
        let mut content = body.split(length)?;
        if kind == wanted && found.is_none() {
            let mac = MacAddress(content.take()?);
            if !content.rest().is_empty() || !mac.is_unicast() {
                return None;
            }
            found = Some(mac);
        }
    }
    Some(Named(found))
}

/// Writes the message, without its checksum.
fn body(kind: u8, flags: u8, target: Ipv6Addr, option: Option<(u8, MacAddress)>) -> Vec<u8> {
    let mut body = Vec::with_capacity(32);
    body.extend_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
    body.extend_from_slice(&target.octets());
    if let Some((kind, mac)) = option {
        body.extend_from_slice(&[kind, 1]);
        body.extend_from_slice(&mac.0);
    }
    body
}

fn frame(
    to: MacAddress,
    from: MacAddress,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    mut body: Vec<u8>,
) -> Vec<u8> {
    let sum = checksum(source, destination, &body).to_be_bytes();
    if let Some(place) = body.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    let mut frame = Vec::with_capacity(54 + body.len());
    header(&mut frame, to, from, ETHER_TYPE_IPV6);
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&(body.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[ICMPV6, HOP_LIMIT]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&destination.octets());
    frame.extend_from_slice(&body);
    frame
}

/// Returns the checksum of a message: 0 if the message has the right one already.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> u16 {
    let pairs = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|pair| match *pair {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            [high] => u64::from(u16::from_be_bytes([high, 0])),
            _ => 0,
        });
        words.sum::<u64>()
    };
    let addresses = pairs(&source.octets()) + pairs(&destination.octets());
    let mut sum = addresses + body.len() as u64 + u64::from(ICMPV6) + pairs(body);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
