//! Which addresses the kernel takes as its own without an interface that has them.

use std::fs;
use std::io;
use std::net::Ipv6Addr;

/// Routes of all tables, of the network namespace of the process that reads.
const ROUTES: &str = "/proc/net/ipv6_route";

/// The flag of a route to this machine itself.
const LOCAL: u32 = 0x8000_0000;

/// Returns whether a local route covers an IPv6 address: what is sent to it arrives here. For IPv4
/// the kernel looks by itself when a socket is bound.
pub fn is_local(address: Ipv6Addr) -> io::Result<bool> {
    let text = fs::read_to_string(ROUTES)?;
    Ok(text.lines().any(|line| covers(line, address) == Some(true)))
}

/// Whether a line is about a local route to an address; `None` if it can't be read.
fn covers(line: &str, address: Ipv6Addr) -> Option<bool> {
    let mut fields = line.split_ascii_whitespace();
    let destination = u128::from_str_radix(fields.next()?, 16).ok()?;
    let length = u32::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u32::from_str_radix(fields.nth(6)?, 16).ok()?;
    let host_bits = 128_u32.checked_sub(length)?;
    let network = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
    Some(flags & LOCAL != 0 && network(destination) == network(address.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "fd000077000000000000000000000000 40 \
                          00000000000000000000000000000000 00 \
                          00000000000000000000000000000000 00000400 00000001 00000000 80000001 lo";

    #[test]
    fn a_local_route_covers_its_prefix_and_no_more() {
        let covered = |text: &str| covers(PREFIX, text.parse().unwrap());
        assert_eq!(covered("fd00:77::5"), Some(true));
        assert_eq!(covered("fd00:77:0:1::5"), Some(false));
    }

    #[test]
    fn other_routes_cover_nothing() {
        let remote = PREFIX.replace("80000001", "00000001");
        assert_eq!(covers(&remote, "fd00:77::5".parse().unwrap()), Some(false));
        let all = PREFIX
            .replace("fd000077", "00000000")
            .replace(" 40 ", " 00 ")
            .replace("80000001", "00200200");
        assert_eq!(covers(&all, "2001:db8::1".parse().unwrap()), Some(false));
        for broken in ["", "x", "fd00 40", "0 ff 0 0 0 0 0 0 80000001 lo"] {
            assert_ne!(covers(broken, Ipv6Addr::LOCALHOST), Some(true), "{broken}");
        }
    }

    #[test]
    fn the_loopback_address_is_local_and_one_for_documentation_is_not() {
        assert!(is_local(Ipv6Addr::LOCALHOST).unwrap());
        assert!(!is_local("2001:db8::1".parse().unwrap()).unwrap());
    }
}
