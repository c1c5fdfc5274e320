//! Broken PROXY headers.

use super::*;
use landfall_testkit::fuzz::{Random, Seeds, run};

fn messages() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for (source, destination) in [
        ("192.0.2.1:4711", "198.51.100.2:80"),
        ("[2001:db8::1]:1", "[2001:db8::2]:65535"),
    ] {
        for (version, transport) in [
            (ProxyProtocol::V1, Protocol::Tcp),
            (ProxyProtocol::V2, Protocol::Tcp),
            (ProxyProtocol::V2, Protocol::Udp),
        ] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let header = Header::new(version, transport, source, destination);
            messages.push(header.as_bytes().to_vec());
        }
    }
    messages.push(b"PROXY UNKNOWN\r\n".to_vec());
    messages.push([V2, b"\x20\0\0\0"].concat());
    messages
}

/// Makes the length of a binary header fit what follows it, and now and then adds extensions.
fn complete(bytes: &mut Vec<u8>, random: &mut Random) {
    if !bytes.starts_with(V2) || bytes.len() < V2_FIXED {
        return;
    }
    let sum = (random.below(2) == 0).then(|| bytes.len() + 3);
    if sum.is_some() {
        bytes.extend_from_slice(&[CHECKSUM, 0, 4, 0, 0, 0, 0]);
    }
    if random.below(2) == 0 {
        let length = random.below(300) as u16;
        bytes.extend_from_slice(&[&[random.byte()][..], &length.to_be_bytes()].concat());
        bytes.resize(bytes.len() + usize::from(length), 7);
    }
    let length = (bytes.len() - V2_FIXED) as u16;
    bytes[14..16].copy_from_slice(&length.to_be_bytes());
    if let Some(at) = sum {
        let sum = crc32c(bytes, at..at + 4).to_be_bytes();
        bytes[at..at + 4].copy_from_slice(&sum);
    }
}

#[test]
fn fuzz_proxy_headers() {
    let messages = messages();
    let seeds = Seeds {
        messages: &messages,
        words: &[
            V1,
            V2,
            b"TCP4 ",
            b"TCP6 ",
            b"\r\n",
            b" ",
            b"65536",
            b"::",
            b"\x21\x11",
        ],
        longest: 20_000,
    };
    run("proxy-headers", |random| {
        let mut bytes = random.broken(seeds);
        if random.below(2) == 0 {
            complete(&mut bytes, random);
        }
        let transport = [Protocol::Tcp, Protocol::Udp][random.below(2)];
        let whole = Parsed::read(&bytes, transport);
        let part = &bytes[..random.below(bytes.len())];
        match (Parsed::read(part, transport), whole) {
            // More bytes change nothing of what was found, and no wait is endless.
            (Parsed::Incomplete, _) => assert!(part.len() < MAX_HEADER),
            (early, late) => assert_eq!(early, late),
        }
        if let Parsed::Header(_, length) = whole {
            assert!(length <= bytes.len() && length <= MAX_HEADER);
        }
    });
}
