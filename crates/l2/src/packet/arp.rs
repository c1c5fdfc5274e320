//! ARP for IPv4 over Ethernet (RFC 826), with probes and announcements (RFC 5227).

use std::net::Ipv4Addr;

use super::bytes::Bytes;
use super::{Claim, ETHER_TYPE_ARP, header};
use crate::mac::MacAddress;

/// Hardware type of Ethernet, protocol type of IPv4, and the lengths of their addresses.
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// An ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// What it is.
    pub operation: Operation,
    /// The station that sends it.
    pub sender_mac: MacAddress,
    /// Its address; unspecified in a probe.
    pub sender: Ipv4Addr,
    /// The station that it is for; of no meaning in a request.
    pub target_mac: MacAddress,
    /// The address that it asks for, or for which it is.
    pub target: Ipv4Addr,
}

/// What an ARP message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A question.
    Request,
    /// An answer, or an announcement.
    Reply,
}

// === impl Arp ===

impl Arp {
    /// Asks whether a station has an address, without a claim to it.
    pub const fn probe(mac: MacAddress, address: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sender_mac: mac,
            sender: Ipv4Addr::UNSPECIFIED,
            target_mac: MacAddress([0; 6]),
            target: address,
        }
    }

    /// Makes an address known to all stations (gratuitous ARP). Some stations learn from requests
    /// and some from replies.
    pub const fn gratuitous(operation: Operation, mac: MacAddress, address: Ipv4Addr) -> Self {
        Self {
            operation,
            sender_mac: mac,
            sender: address,
            target_mac: MacAddress::BROADCAST,
            target: address,
        }
    }

    /// Answers this request for the station that has the address.
    #[must_use]
    pub const fn answer(&self, mac: MacAddress) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        }
    }

    /// Writes the whole frame, from the station that the message names as its sender.
    pub fn frame(&self, to: MacAddress) -> Vec<u8> {
        let mut frame = Vec::with_capacity(42);
        header(&mut frame, to, self.sender_mac, ETHER_TYPE_ARP);
        frame.extend_from_slice(&ETHERNET_AND_IPV4);
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        frame.extend_from_slice(&operation.to_be_bytes());
        frame.extend_from_slice(&self.sender_mac.0);
        frame.extend_from_slice(&self.sender.octets());
        frame.extend_from_slice(&self.target_mac.0);
        frame.extend_from_slice(&self.target.octets());
        frame
    }

    pub(super) fn parse(bytes: &mut Bytes<'_>) -> Option<Self> {
        if bytes.take()? != ETHERNET_AND_IPV4 {
            return None;
        }
        let operation = match bytes.u16()? {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return None,
        };
        let sender_mac = MacAddress(bytes.take()?);
        let sender = Ipv4Addr::from(bytes.take::<4>()?);
        let target_mac = MacAddress(bytes.take()?);
        let target = Ipv4Addr::from(bytes.take::<4>()?);
        // An answer to a group, or to no station, would go to more than the one that asks.
        if !sender_mac.is_unicast() || sender.is_multicast() || sender.is_broadcast() {
            return None;
        }
        Some(Self {
            operation,
            sender_mac,
            sender,
            target_mac,
            target,
        })
    }

    pub(super) fn claim(&self) -> Option<Claim> {
        let is_probe = self.sender.is_unspecified();
        if is_probe && self.operation == Operation::Reply {
            return None;
        }
        let address = if is_probe { self.target } else { self.sender };
        Some(Claim {
            address: address.into(),
            mac: self.sender_mac,
            is_probe,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Message};
    use super::*;

    const ASKING: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn request() -> Arp {
        Arp {
            operation: Operation::Request,
            sender_mac: ASKING,
            sender: [10, 0, 0, 1].into(),
            target_mac: MacAddress([0; 6]),
            target: [10, 0, 0, 7].into(),
        }
    }

    fn parsed(frame: &[u8]) -> Option<Arp> {
        match Frame::parse(frame)?.message {
            Message::Arp(arp) => Some(arp),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reply_is_written_byte_for_byte() {
        let frame = request().answer(OURS).frame(ASKING);
        let expected = [
            &[2, 0, 0, 0, 0, 1][..],
            &[2, 0, 0, 0, 0, 2],
            &[0x08, 0x06],
            &[0, 1, 0x08, 0, 6, 4, 0, 2],
            &[2, 0, 0, 0, 0, 2, 10, 0, 0, 7],
            &[2, 0, 0, 0, 0, 1, 10, 0, 0, 1],
        ];
        assert_eq!(frame, expected.concat());
    }

    #[test]
    fn gratuitous_arp_names_the_address_twice_and_all_stations() {
        let address = [10, 0, 0, 7].into();
        for operation in [Operation::Request, Operation::Reply] {
            let frame = Arp::gratuitous(operation, OURS, address).frame(MacAddress::BROADCAST);
            assert_eq!(frame[..6], [0xff; 6]);
            assert_eq!(
                frame[20..22],
                [0, 1 + u8::from(operation == Operation::Reply)]
            );
            assert_eq!(frame[22..32], [2, 0, 0, 0, 0, 2, 10, 0, 0, 7]);
            assert_eq!(frame[32..], [255, 255, 255, 255, 255, 255, 10, 0, 0, 7]);
        }
    }

    #[test]
    fn what_is_written_is_read_with_padding_and_not_when_cut() {
        let frame = request().frame(MacAddress::BROADCAST);
        assert_eq!(parsed(&frame), Some(request()));
        assert_eq!(parsed(&[&frame[..], &[0; 18]].concat()), Some(request()));
        for length in 0..frame.len() {
            assert_eq!(parsed(&frame[..length]), None, "{length}");
        }
    }

    #[test]
    fn other_hardware_protocols_lengths_and_operations_are_no_message() {
        let frame = request().frame(MacAddress::BROADCAST);
        for place in 12..22 {
            let mut changed = frame.clone();
            changed[place] ^= 0x40;
            assert_eq!(parsed(&changed), None, "byte {place}");
        }
    }

    #[test]
    fn a_sender_that_is_no_single_station_is_no_message() {
        for (place, value) in [(6, 1), (22, 3), (28, 224), (28, 255)] {
            let mut frame = request().frame(MacAddress::BROADCAST);
            frame[place] = value;
            if value == 255 {
                frame[28..32].fill(255);
            }
            assert_eq!(parsed(&frame), None, "byte {place}");
        }
        let mut frame = request().frame(MacAddress::BROADCAST);
        frame[22..28].fill(0);
        assert_eq!(parsed(&frame), None);
    }

    #[test]
    fn a_probe_claims_what_it_asks_for_and_a_request_the_sender() {
        let claim = |arp: Arp| arp.claim().map(|it| (it.address.to_string(), it.is_probe));
        assert_eq!(claim(request()), Some(("10.0.0.1".into(), false)));
        let probe = Arp::probe(ASKING, [10, 0, 0, 7].into());
        assert_eq!(claim(probe), Some(("10.0.0.7".into(), true)));
        let nonsense = Arp {
            operation: Operation::Reply,
            ..probe
        };
        assert_eq!(claim(nonsense), None);
    }
}
