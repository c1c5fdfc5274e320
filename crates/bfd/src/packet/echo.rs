//! Echo packets (RFC 5881, section 4): IPv4 packets that are addressed to their own sender, so that
//! the router of the other side sends them back. What is in them is of no concern to it.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;

/// The UDP port.
pub const PORT: u16 = 3785;

/// The Ethernet type of IPv4.
pub const ETHER_TYPE: u16 = 0x0800;

/// Bytes of an echo: headers of IPv4 and UDP, discriminator and token.
const LENGTH: usize = 20 + 8 + 12;

/// Network control (CS6), as control packets have it.
pub const TRAFFIC_CLASS: u8 = 0xc0;

/// An echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The address of its sender, to which it returns.
    pub address: Ipv4Addr,
    /// The name of the session.
    pub discriminator: NonZeroU32,
    /// What only the session knows.
    pub token: u64,
}

// === impl Echo ===

impl Echo {
    /// Returns the IPv4 packet, sent from a port.
    pub fn packet(&self, port: u16) -> Vec<u8> {
        let mut udp = Vec::with_capacity(LENGTH);
        udp.extend(port.to_be_bytes());
        udp.extend(PORT.to_be_bytes());
        udp.extend((LENGTH as u16 - 20).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(self.discriminator.get().to_be_bytes());
        udp.extend(self.token.to_be_bytes());
        let address = self.address.octets();
        let length = (LENGTH as u16 - 20).to_be_bytes();
        let pseudo = [&address[..], &address, &[0, 17], &length, &udp].concat();
        // 0 stands for no checksum, so that a sum of 0 is sent as its other form.
        let sum = match checksum(&pseudo) {
            0 => u16::MAX,
            sum => sum,
        };
        let mut packet = vec![0x45, TRAFFIC_CLASS];
        packet.extend((LENGTH as u16).to_be_bytes());
        // No identification, may not be fragmented, TTL 255, UDP, checksum to come.
        packet.extend([0, 0, 0x40, 0, 255, 17, 0, 0]);
        packet.extend(address);
        packet.extend(address);
        let header = checksum(&packet).to_be_bytes();
        for (place, byte) in packet.iter_mut().skip(10).zip(header) {
            *place = byte;
        }
        packet.extend(udp);
        for (place, byte) in packet.iter_mut().skip(26).zip(sum.to_be_bytes()) {
            *place = byte;
        }
        packet
    }

    /// Reads an IPv4 packet. The kernel has not checked it, but whether the token is right shows
    /// all that matters.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let ([first, ..], rest) = packet.split_first_chunk::<20>()?;
        let addresses: &[u8; 8] = packet.get(12..20)?.try_into().ok()?;
        let (source, destination) = addresses.split_at(4);
        let udp = rest.get(..LENGTH - 20)?;
        let is_udp = packet.get(9) == Some(&17);
        let is_echo = udp.get(2..4) == Some(&PORT.to_be_bytes());
        if *first != 0x45 || !is_udp || !is_echo || source != destination {
            return None;
        }
        let ([.., a, b, c, d], token) = udp.split_first_chunk::<12>()?;
        Some(Self {
            address: Ipv4Addr::from(<[u8; 4]>::try_from(source).ok()?),
            discriminator: NonZeroU32::new(u32::from_be_bytes([*a, *b, *c, *d]))?,
            token: u64::from_be_bytes(*token.first_chunk()?),
        })
    }
}

/// The checksum of IPv4 and UDP (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        let word = [pair.first(), pair.get(1)].map(|it| it.copied().unwrap_or(0));
        sum += u32::from(u16::from_be_bytes(word));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> Echo {
        Echo {
            address: Ipv4Addr::new(10, 0, 0, 1),
            discriminator: NonZeroU32::new(0x0102_0304).unwrap(),
            token: 0x0506_0708_090a_0b0c,
        }
    }

    #[test]
    fn an_echo_is_an_ip_packet_to_its_own_sender() {
        let packet = echo().packet(49_152);
        assert_eq!(Echo::parse(&packet), Some(echo()));
        assert_eq!(packet[12..16], packet[16..20]);
        assert_eq!(packet[8], 255);
        assert_eq!(checksum(&packet[..20]), 0);
        let pseudo = [&packet[12..20], &[0, 17, 0, 20], &packet[20..]].concat();
        assert_eq!(checksum(&pseudo), 0);
    }

    #[test]
    fn no_other_packet_is_an_echo() {
        let packet = echo().packet(49_152);
        for length in 0..packet.len() {
            assert_eq!(Echo::parse(&packet[..length]), None);
        }
        for (at, value) in [(0, 0x46), (9, 6), (12, 11), (23, 0)] {
            let mut other = packet.clone();
            other[at] = value;
            assert_eq!(Echo::parse(&other), None, "{at}");
        }
    }
}
