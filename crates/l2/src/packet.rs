//! ARP and Neighbour Discovery on the wire: frames to values and back. Strict: what differs from
//! the form that the RFCs require is no message at all, so that nothing is ever answered that was
//! misunderstood.

pub mod arp;
mod bytes;
pub mod ndp;

use std::net::IpAddr;

use self::arp::Arp;
use self::bytes::Bytes;
use self::ndp::{Advertisement, Solicitation};
use crate::mac::MacAddress;

/// The Ethernet type of ARP.
pub const ETHER_TYPE_ARP: u16 = 0x0806;

/// The Ethernet type of IPv6.
pub const ETHER_TYPE_IPV6: u16 = 0x86dd;

/// A frame that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it was sent to.
    pub destination: MacAddress,
    /// The station that sent it.
    pub source: MacAddress,
    /// What it carries.
    pub message: Message,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// ARP, request or reply.
    Arp(Arp),
    /// A question for the link-layer address of an IPv6 address.
    Solicitation(Solicitation),
    /// The answer to it, or an announcement.
    Advertisement(Advertisement),
}

/// What a message claims: a station has an address, or is about to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The station.
    pub mac: MacAddress,
    /// The station only probes: it does not use the address yet (RFC 5227, RFC 4862).
    pub is_probe: bool,
}

// === impl Frame ===

impl Frame {
    /// Reads a frame from its link-layer header to its end; padding may follow what it carries.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut bytes = Bytes::new(frame);
        let destination = MacAddress(bytes.take()?);
        let source = MacAddress(bytes.take()?);
        if !source.is_unicast() {
            return None;
        }
        let message = match bytes.u16()? {
            ETHER_TYPE_ARP => Message::Arp(Arp::parse(&mut bytes)?),
            ETHER_TYPE_IPV6 => ndp::parse(&mut bytes)?,
            _ => return None,
        };
        Some(Self {
            destination,
            source,
            message,
        })
    }

    /// Returns what the frame claims of an address, if anything.
    pub fn claim(&self) -> Option<Claim> {
        match self.message {
            Message::Arp(arp) => arp.claim(),
            Message::Solicitation(asked) => asked.source.is_unspecified().then_some(Claim {
                address: asked.target.into(),
                mac: self.source,
                is_probe: true,
            }),
            Message::Advertisement(said) => Some(Claim {
                address: said.target.into(),
                mac: said.mac.unwrap_or(self.source),
                is_probe: false,
            }),
        }
    }
}

/// Writes a link-layer header.
fn header(frame: &mut Vec<u8>, to: MacAddress, from: MacAddress, ether_type: u16) {
    frame.extend_from_slice(&to.0);
    frame.extend_from_slice(&from.0);
    frame.extend_from_slice(&ether_type.to_be_bytes());
}
