//! The PROXY protocol (haproxy.org, `proxy-protocol.txt`), versions 1 and 2: reading and writing of
//! headers. Pure.
//!
//! Reading is strict: a header is taken only in the exact form that the specification gives,
//! because what it says decides which clients may pass. Extensions are skipped, but they must add
//! up, and a checksum among them must be right. A header may take [`MAX_HEADER`] bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use landfall_model::Protocol;
use landfall_model::listener::ProxyProtocol;

/// Longest header that is accepted, with all extensions: client certificates may be among them.
pub const MAX_HEADER: usize = V2_FIXED + 16 * 1024;

/// Longest text header, with its line end.
const MAX_V1: usize = 107;

const V1: &[u8] = b"PROXY ";
const V2: &[u8] = b"\r\n\r\n\x00\r\nQUIT\n";

/// Bytes in front of the addresses of version 2.
const V2_FIXED: usize = 16;

/// The extension that holds a CRC-32C of the whole header, in which its own four bytes count as
/// zero.
const CHECKSUM: u8 = 0x03;

/// Remainders of all bytes for CRC-32C (RFC 3720 section 12.1), bits reflected.
const REMAINDERS: [u32; 256] = remainders();

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The sender speaks for itself (`UNKNOWN`, `LOCAL`, or an address family without ports): the
    /// connection's own addresses count.
    Sender,
    /// The sender speaks for a client.
    Client {
        /// The client.
        source: SocketAddr,
        /// What the client connected to.
        destination: SocketAddr,
    },
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A header, and how many bytes it takes.
    Header(Origin, usize),
    /// The beginning of a header; more bytes are needed.
    Incomplete,
    /// No header.
    Invalid,
}

/// A header ready to be sent, kept without allocation.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; MAX_V1],
    length: usize,
}

// === impl Parsed ===

impl Parsed {
    /// Reads the header at the beginning of `bytes`, as it is used on the given transport.
    pub fn read(bytes: &[u8], transport: Protocol) -> Self {
        let version = |magic: &[u8]| {
            let common = magic.len().min(bytes.len());
            bytes.get(..common) == magic.get(..common)
        };
        if version(V2) {
            read_v2(bytes, transport).unwrap_or(Self::Incomplete)
        } else if version(V1) && transport == Protocol::Tcp {
            read_v1(bytes)
        } else {
            Self::Invalid
        }
    }
}

fn read_v1(bytes: &[u8]) -> Parsed {
    let window = bytes.get(..MAX_V1).unwrap_or(bytes);
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        let broken = window.len() == MAX_V1 || !window.iter().all(|&byte| plain(byte));
        // A lone carriage return at the end may be half of the line end.
        let half = window.split_last().is_some_and(|(&last, rest)| {
            last == b'\r' && window.len() < MAX_V1 && rest.iter().all(|&byte| plain(byte))
        });
        return if broken && !half {
            Parsed::Invalid
        } else {
            Parsed::Incomplete
        };
    };
    let line = window
        .get(V1.len()..end)
        // As strict as where the line end has yet to come: segments must make no difference.
        .filter(|line| line.iter().all(|&byte| plain(byte)))
        .and_then(|line| std::str::from_utf8(line).ok());
    match line.and_then(origin_v1) {
        Some(origin) => Parsed::Header(origin, end + 2),
        None => Parsed::Invalid,
    }
}

fn plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

fn origin_v1(line: &str) -> Option<Origin> {
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Some(Origin::Sender);
    }
    let mut words = line.split(' ');
    let family = words.next()?;
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().and_then(port_v1);
    let (source_port, destination_port) = (port()?, port()?);
    words.next().is_none().then_some(Origin::Client {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    })
}

fn port_v1(word: &str) -> Option<u16> {
    let exact = word == "0" || !word.starts_with('0');
    (exact && word.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| word.parse().ok())
        .flatten()
}

/// `None`: more bytes are needed.
fn read_v2(bytes: &[u8], transport: Protocol) -> Option<Parsed> {
    let (&command, &family) = (bytes.get(12)?, bytes.get(13)?);
    let length = usize::from(u16::from_be_bytes([*bytes.get(14)?, *bytes.get(15)?]));
    let total = V2_FIXED + length;
    if total > MAX_HEADER || !matches!(command, 0x20 | 0x21) {
        return Some(Parsed::Invalid);
    }
    let header = bytes.get(..total)?;
    if command == 0x20 {
        return Some(Parsed::Header(Origin::Sender, total));
    }
    let expected = if transport == Protocol::Udp { 2 } else { 1 };
    let origin = match (family >> 4, family & 0x0F) {
        (1, kind) if kind == expected => client_v2::<4>(header),
        (2, kind) if kind == expected => client_v2::<16>(header),
        // Unspecified, and local sockets: nothing that could be said about a client.
        (0, 0) | (3, 1 | 2) => Some(Origin::Sender),
        _ => None,
    };
    Some(origin.map_or(Parsed::Invalid, |origin| Parsed::Header(origin, total)))
}

fn client_v2<const N: usize>(header: &[u8]) -> Option<Origin>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = header.get(V2_FIXED..)?.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (ports, extensions) = rest.split_first_chunk::<4>()?;
    if !extensions_hold(extensions, header) {
        return None;
    }
    let [a, b, c, d] = *ports;
    Some(Origin::Client {
        source: SocketAddr::new(IpAddr::from(*source), u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(IpAddr::from(*destination), u16::from_be_bytes([c, d])),
    })
}

/// Whether the extensions at the end of a header add up, and say nothing else of it than is so.
fn extensions_hold(mut extensions: &[u8], header: &[u8]) -> bool {
    let mut checked = false;
    while let Some((&[kind, high, low], rest)) = extensions.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return false;
        };
        extensions = rest;
        if kind != CHECKSUM {
            continue;
        }
        // One is enough, and more would cost a read of the header each.
        let Ok(sum) = <[u8; 4]>::try_from(value) else {
            return false;
        };
        let end = header.len() - rest.len();
        if checked || crc32c(header, end - sum.len()..end) != u32::from_be_bytes(sum) {
            return false;
        }
        checked = true;
    }
    extensions.is_empty()
}

/// The CRC-32C of bytes, of which some count as zero.
fn crc32c(bytes: &[u8], zeros: Range<usize>) -> u32 {
    let remainder = bytes.iter().enumerate().fold(!0, |crc: u32, (at, &byte)| {
        let byte = if zeros.contains(&at) { 0 } else { byte };
        let [low, ..] = crc.to_le_bytes();
        // An index of eight bits.
        (crc >> 8) ^ REMAINDERS[usize::from(low ^ byte)]
    });
    !remainder
}

const fn remainders() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (0x82F6_3B78 * carry);
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

// === impl Header ===

impl Header {
    /// The header that names a client to a member. Where the families of the two addresses
    /// differ (a trusted peer may say so), both are written as IPv6.
    ///
    /// Version 1 has no form for datagrams; on UDP, version 2 is used for both.
    pub fn new(
        version: ProxyProtocol,
        transport: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Self {
        let mut header = Self {
            bytes: [0; MAX_V1],
            length: 0,
        };
        let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
        let ports = (source.port(), destination.port());
        match (version, transport) {
            (ProxyProtocol::V1, Protocol::Tcp) => header.write_v1(from, to, ports),
            _ => header.write_v2(transport, from, to, ports),
        }
        header
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn write_v1(&mut self, from: IpAddr, to: IpAddr, ports: (u16, u16)) {
        let line = if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
            format!("PROXY TCP4 {from} {to} {} {}\r\n", ports.0, ports.1)
        } else {
            let (from, to) = (as_v6(from), as_v6(to));
            format!("PROXY TCP6 {from} {to} {} {}\r\n", ports.0, ports.1)
        };
        self.push(line.as_bytes());
    }

    fn write_v2(&mut self, transport: Protocol, from: IpAddr, to: IpAddr, ports: (u16, u16)) {
        let kind = if transport == Protocol::Udp { 2 } else { 1 };
        self.push(V2);
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
            self.push(&[0x21, 0x10 | kind, 0, 12]);
            self.push(&from.octets());
            self.push(&to.octets());
        } else {
            self.push(&[0x21, 0x20 | kind, 0, 36]);
            self.push(&as_v6(from).octets());
            self.push(&as_v6(to).octets());
        }
        self.push(&ports.0.to_be_bytes());
        self.push(&ports.1.to_be_bytes());
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
