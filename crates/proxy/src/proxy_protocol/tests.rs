//! Headers: exact bytes both ways, refusals, and an independent parser as a second opinion.

use proptest::prelude::*;

use super::*;

const TCP: Protocol = Protocol::Tcp;

fn client(source: &str, destination: &str) -> Origin {
    Origin::Client {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn header(version: ProxyProtocol, transport: Protocol, source: &str, destination: &str) -> Vec<u8> {
    let header = Header::new(
        version,
        transport,
        source.parse().unwrap(),
        destination.parse().unwrap(),
    );
    header.as_bytes().to_vec()
}

#[test]
fn text_headers_read_as_they_are_written() {
    let cases = [
        (
            "192.0.2.1:4711",
            "198.51.100.2:80",
            "PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\n",
        ),
        (
            "[2001:db8::1]:1",
            "[2001:db8::2]:65535",
            "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n",
        ),
    ];
    for (source, destination, text) in cases {
        assert_eq!(
            header(ProxyProtocol::V1, TCP, source, destination),
            text.as_bytes()
        );
        let followed = format!("{text}GET /");
        assert_eq!(
            Parsed::read(followed.as_bytes(), TCP),
            Parsed::Header(client(source, destination), text.len())
        );
    }
}

#[test]
fn binary_headers_read_as_they_are_written() {
    let v4 = header(ProxyProtocol::V2, TCP, "192.0.2.1:258", "198.51.100.2:80");
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    expected.extend([192, 0, 2, 1, 198, 51, 100, 2, 1, 2, 0, 80]);
    assert_eq!(v4, expected);
    assert_eq!(
        Parsed::read(&v4, TCP),
        Parsed::Header(client("192.0.2.1:258", "198.51.100.2:80"), 28)
    );
    let v6 = header(ProxyProtocol::V2, TCP, "[2001:db8::1]:1", "[2001:db8::2]:2");
    assert_eq!(v6.len(), 52);
    assert_eq!(
        Parsed::read(&v6, TCP),
        Parsed::Header(client("[2001:db8::1]:1", "[2001:db8::2]:2"), 52)
    );
}

#[test]
fn addresses_of_two_families_are_both_written_as_ipv6() {
    let text = header(ProxyProtocol::V1, TCP, "192.0.2.1:1", "[2001:db8::2]:2");
    assert_eq!(text, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n");
}

#[test]
fn datagrams_always_carry_version_two() {
    let datagram = header(
        ProxyProtocol::V1,
        Protocol::Udp,
        "192.0.2.1:1",
        "192.0.2.2:2",
    );
    assert_eq!(datagram.get(12..14), Some(&[0x21, 0x12][..]));
    assert_eq!(
        Parsed::read(&datagram, Protocol::Udp),
        Parsed::Header(client("192.0.2.1:1", "192.0.2.2:2"), 28)
    );
    assert_eq!(Parsed::read(&datagram, TCP), Parsed::Invalid);
}

#[test]
fn a_sender_that_speaks_for_itself_is_understood() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert_eq!(Parsed::read(local, TCP), Parsed::Header(Origin::Sender, 16));
    let unknown = b"PROXY UNKNOWN\r\n";
    assert_eq!(
        Parsed::read(unknown, TCP),
        Parsed::Header(Origin::Sender, 15)
    );
    let ignored = b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n";
    assert_eq!(
        Parsed::read(ignored, TCP),
        Parsed::Header(Origin::Sender, ignored.len())
    );
}

#[test]
fn extensions_are_skipped() {
    let mut bytes = header(ProxyProtocol::V2, TCP, "192.0.2.1:1", "192.0.2.2:2");
    bytes[15] += 6;
    bytes.extend([0x05, 0, 3, b'x', b'y', b'z']);
    bytes.extend(b"hello");
    assert_eq!(
        Parsed::read(&bytes, TCP),
        Parsed::Header(client("192.0.2.1:1", "192.0.2.2:2"), 34)
    );
}

/// A header with these extensions.
fn extended(extensions: &[u8]) -> Vec<u8> {
    let mut bytes = header(ProxyProtocol::V2, TCP, "192.0.2.1:1", "192.0.2.2:2");
    let length = u16::try_from(12 + extensions.len()).unwrap();
    bytes[14..16].copy_from_slice(&length.to_be_bytes());
    bytes.extend(extensions);
    bytes
}

/// One extension.
fn extension(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], &length[..], value].concat()
}

#[test]
fn extensions_as_long_as_a_chain_of_certificates_are_skipped() {
    let bytes = extended(&extension(0x20, &vec![7; 15_000]));
    let origin = client("192.0.2.1:1", "192.0.2.2:2");
    assert_eq!(
        Parsed::read(&bytes, TCP),
        Parsed::Header(origin, bytes.len())
    );
    assert_eq!(
        Parsed::read(&bytes[..bytes.len() - 1], TCP),
        Parsed::Incomplete
    );
    let longest = extended(&extension(0x20, &vec![7; 16 * 1024 - 12 - 3]));
    assert_eq!(
        Parsed::read(&longest, TCP),
        Parsed::Header(origin, MAX_HEADER)
    );
    // That it is too long shows before it is there.
    let longer = extended(&extension(0x20, &vec![7; 16 * 1024 - 12 - 2]));
    assert_eq!(Parsed::read(&longer[..16], TCP), Parsed::Invalid);
}

#[test]
fn extensions_that_do_not_add_up_are_refused() {
    let good = extension(0x05, b"xyz");
    let cases: [&[u8]; 5] = [
        &[0x05],
        &[0x05, 0],
        &[0x05, 0, 1],
        &[0x05, 0xFF, 0xFF, 1, 2, 3],
        &[&good[..], &[0x04, 0, 2, 0]].concat(),
    ];
    for extensions in cases {
        assert_eq!(
            Parsed::read(&extended(extensions), TCP),
            Parsed::Invalid,
            "{extensions:?}"
        );
    }
    let empty = extended(&extension(0x04, b""));
    assert!(matches!(Parsed::read(&empty, TCP), Parsed::Header(_, 31)));
}

#[test]
fn a_checksum_must_be_right() {
    assert_eq!(crc32c(b"123456789", 0..0), 0xE306_9283);
    assert_eq!(crc32c(&[0xFF; 32], 0..32), 0x8A91_36AA);
    let with = |sum: &[u8]| {
        let (before, after) = (extension(0x05, b"id"), extension(0x04, &[0; 9]));
        extended(&[before, extension(CHECKSUM, sum), after].concat())
    };
    let sum = crc32c(&with(&[0; 4]), 0..0).to_be_bytes();
    let good = with(&sum);
    assert!(matches!(Parsed::read(&good, TCP), Parsed::Header(_, length) if length == good.len()));
    for at in [16, 24, 30, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(Parsed::read(&bad, TCP), Parsed::Invalid, "at {at}");
    }
    for sum in [&sum[..3], &[&sum[..], &[0]].concat()] {
        assert_eq!(Parsed::read(&with(sum), TCP), Parsed::Invalid);
    }
    // A header is looked through once.
    let two = extended(&[extension(CHECKSUM, &[0; 4]), extension(CHECKSUM, &[0; 4])].concat());
    assert_eq!(Parsed::read(&two, TCP), Parsed::Invalid);
}

#[test]
fn a_text_header_with_other_bytes_than_text_is_none_however_it_arrives() {
    for byte in [b'\t', b'\r', b'\n', 0, 0x7F, 0xC3] {
        let line = [&b"PROXY UNKNOWN "[..], &[byte], b"x\r\n"].concat();
        for length in [line.len() - 2, line.len()] {
            let read = Parsed::read(&line[..length], Protocol::Tcp);
            assert_eq!(read, Parsed::Invalid, "{byte:#x}, {length} bytes");
        }
    }
}

#[test]
fn what_is_no_header_is_refused_as_soon_as_that_is_certain() {
    let cases: [&[u8]; 17] = [
        b"GET / HTTP/1.1\r\n",
        b"PROXYTCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 +2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        b"PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 ::1 ::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x40\x01",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x01x",
    ];
    for bytes in cases {
        assert_eq!(
            Parsed::read(bytes, TCP),
            Parsed::Invalid,
            "{}",
            bytes.escape_ascii()
        );
    }
    let endless = [b"PROXY TCP4 ".as_slice(), &[b'1'; 100]].concat();
    assert_eq!(Parsed::read(&endless, TCP), Parsed::Invalid);
}

proptest! {
    #[test]
    fn every_beginning_of_a_header_is_incomplete(
        source in any::<SocketAddr>(),
        destination in any::<SocketAddr>(),
        v1 in any::<bool>(),
    ) {
        let version = if v1 { ProxyProtocol::V1 } else { ProxyProtocol::V2 };
        let header = Header::new(version, TCP, source, destination);
        for length in 0..header.as_bytes().len() {
            prop_assert_eq!(Parsed::read(&header.as_bytes()[..length], TCP), Parsed::Incomplete);
        }
    }

    #[test]
    fn another_implementation_reads_what_is_written(
        source in any::<SocketAddr>(),
        destination in any::<SocketAddr>(),
        v1 in any::<bool>(),
    ) {
        let version = if v1 { ProxyProtocol::V1 } else { ProxyProtocol::V2 };
        let header = Header::new(version, TCP, source, destination);
        let other = proxy_header::ProxyHeader::parse(header.as_bytes(),
            proxy_header::ParseConfig::default());
        let (other, length) = other.unwrap();
        let other = other.proxied_address().unwrap();
        prop_assert_eq!(length, header.as_bytes().len());
        prop_assert_eq!(
            Parsed::read(header.as_bytes(), TCP),
            Parsed::Header(
                Origin::Client { source: other.source, destination: other.destination },
                length,
            )
        );
        prop_assert_eq!(other.source.port(), source.port());
        prop_assert_eq!(other.destination.ip().to_canonical(), destination.ip().to_canonical());
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        magic in 0usize..3,
        udp in any::<bool>(),
    ) {
        let start: &[u8] = [b"".as_slice(), V1, V2][magic];
        let transport = if udp { Protocol::Udp } else { TCP };
        let bytes = [start, &bytes].concat();
        if let Parsed::Header(_, length) = Parsed::read(&bytes, transport) {
            prop_assert!(length <= bytes.len());
        }
    }
}
