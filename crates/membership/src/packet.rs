//! What is inside a sealed datagram.
//!
//! ```text
//!   kind 1 | to 16 | number 8 | record of the sender | records of others ...
//!   record: status 1 | incarnation 8 | port 2 | family 1 | address 4 or 16
//!           | length 1 | name | length 2 | metadata
//! ```
//!
//! Numbers are in network order. A datagram with anything else is invalid.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::member::{LONGEST_METADATA, LONGEST_NAME, Record, Status};

/// Bytes that a packet has at most, so that the datagram fits into one frame of any network (the
/// least MTU of IPv6 is 1280).
pub const LONGEST: usize = 1_170;

/// Incarnations above are not accepted: they leave no room to be refuted.
const LAST_INCARNATION: u64 = 1 << 62;

/// Names a life of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Says which session the sender has, to one that does not know it.
    Session,
    /// Asks for an answer.
    Ping,
    /// Answers.
    Ack,
    /// Asks for nothing.
    News,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is for.
    pub kind: Kind,
    /// The session that it is for; one of an earlier life accepts nothing.
    pub to: SessionId,
    /// The number of a ping, which its answer repeats.
    pub number: u64,
    /// The sender, as it says.
    pub sender: Record,
    /// What the sender says of others.
    pub records: Vec<Record>,
}

// === impl Packet ===

impl Packet {
    /// Returns the encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.push(match self.kind {
            Kind::Session => 0,
            Kind::Ping => 1,
            Kind::Ack => 2,
            Kind::News => 3,
        });
        bytes.extend_from_slice(&self.to.0);
        bytes.extend_from_slice(&self.number.to_be_bytes());
        self.sender.encode(&mut bytes);
        for record in &self.records {
            record.encode(&mut bytes);
        }
        bytes
    }

    /// Returns the bytes of the encoding.
    pub fn length(&self) -> usize {
        25 + self.sender.length() + self.records.iter().map(Record::length).sum::<usize>()
    }

    /// Reads an encoding; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[kind], bytes) = bytes.split_first_chunk()?;
        let (to, bytes) = bytes.split_first_chunk()?;
        let (number, bytes) = bytes.split_first_chunk()?;
        let (sender, mut bytes) = Record::decode(bytes)?;
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (record, rest) = Record::decode(bytes)?;
            records.push(record);
            bytes = rest;
        }
        let kind = match kind {
            0 => Kind::Session,
            1 => Kind::Ping,
            2 => Kind::Ack,
            3 => Kind::News,
            _ => return None,
        };
        Some(Self {
            kind,
            to: SessionId(*to),
            number: u64::from_be_bytes(*number),
            sender,
            records,
        })
    }
}

// === impl Record ===

impl Record {
    /// Returns the bytes of the encoding.
    pub fn length(&self) -> usize {
        let address = if self.address.is_ipv4() { 4 } else { 16 };
        15 + address + self.name.len() + self.metadata.len()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(match self.status {
            Status::Alive => 0,
            Status::Suspect => 1,
            Status::Dead => 2,
            Status::Left => 3,
        });
        bytes.extend_from_slice(&self.incarnation.to_be_bytes());
        bytes.extend_from_slice(&self.address.port().to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => {
                bytes.push(4);
                bytes.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes.push(6);
                bytes.extend_from_slice(&ip.octets());
            }
        }
        bytes.push(self.name.len() as u8);
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&(self.metadata.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.metadata);
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[status], bytes) = bytes.split_first_chunk()?;
        let (incarnation, bytes) = bytes.split_first_chunk()?;
        let (port, bytes) = bytes.split_first_chunk()?;
        let (&[family], bytes) = bytes.split_first_chunk()?;
        let (ip, bytes) = match family {
            4 => {
                let (ip, bytes) = bytes.split_first_chunk::<4>()?;
                (IpAddr::from(*ip), bytes)
            }
            6 => {
                let (ip, bytes) = bytes.split_first_chunk::<16>()?;
                (IpAddr::from(*ip), bytes)
            }
            _ => return None,
        };
        let (&[length], bytes) = bytes.split_first_chunk()?;
        let (name, bytes) = bytes.split_at_checked(usize::from(length))?;
        let name = str::from_utf8(name).ok()?;
        let (length, bytes) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (metadata, bytes) = bytes.split_at_checked(length)?;
        let record = Self {
            name: name.into(),
            address: SocketAddr::new(ip, u16::from_be_bytes(*port)),
            incarnation: u64::from_be_bytes(*incarnation),
            status: match status {
                0 => Status::Alive,
                1 => Status::Suspect,
                2 => Status::Dead,
                3 => Status::Left,
                _ => return None,
            },
            metadata: Arc::from(metadata),
        };
        let is_good = !name.is_empty()
            && name.len() <= LONGEST_NAME
            && length <= LONGEST_METADATA
            && record.incarnation <= LAST_INCARNATION;
        is_good.then_some((record, bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(name: &str, address: &str, metadata: &[u8]) -> Record {
        Record {
            name: name.into(),
            address: address.parse().unwrap(),
            incarnation: 7,
            status: Status::Suspect,
            metadata: metadata.into(),
        }
    }

    fn packet() -> Packet {
        Packet {
            kind: Kind::Ack,
            to: SessionId([9; 16]),
            number: 77,
            sender: record("node-a", "10.0.0.1:7947", b"facts"),
            records: vec![record("node-b", "[2001:db8::1]:7947", b"")],
        }
    }

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let bytes = packet().encode();
        assert_eq!(bytes.len(), packet().length());
        assert_eq!(Packet::decode(&bytes), Some(packet()));
    }

    #[test]
    fn the_longest_sender_and_one_such_record_fit_into_a_packet() {
        let name = "n".repeat(LONGEST_NAME);
        let longest = record(&name, "[2001:db8::1]:7947", &[1; LONGEST_METADATA]);
        let mut packet = packet();
        packet.sender = longest.clone();
        packet.records = vec![longest];
        assert!(packet.length() <= LONGEST, "{}", packet.length());
        assert_eq!(Packet::decode(&packet.encode()), Some(packet));
    }

    #[test]
    fn a_packet_that_ends_early_or_late_is_none() {
        let bytes = packet().encode();
        let whole = packet().sender.length() + 25;
        for end in (0..bytes.len()).filter(|end| *end != whole) {
            assert_eq!(Packet::decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Packet::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn an_incarnation_that_leaves_no_room_is_refused() {
        let mut packet = packet();
        packet.sender.incarnation = LAST_INCARNATION + 1;
        assert_eq!(Packet::decode(&packet.encode()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_written_again_as_they_were(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            if let Some(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(packet.encode(), bytes);
            }
        }
    }
}
