//! Which addresses the kernel takes as its own, with or without an interface that has them.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Routes of all tables, of the network namespace of the process that reads.
const ROUTES: &str = "/proc/net/ipv6_route";

/// The same for IPv4, as a tree: below each address come the routes to networks that begin there.
const TREE: &str = "/proc/net/fib_trie";

/// The flag of a route to this machine itself.
const LOCAL: u32 = 0x8000_0000;

/// Returns whether a local route covers an IPv6 address: what is sent to it arrives here. For IPv4
/// the kernel looks by itself when a socket is bound.
pub fn is_local(address: Ipv6Addr) -> io::Result<bool> {
    let text = fs::read_to_string(ROUTES)?;
    Ok(text.lines().any(|line| covers(line, address) == Some(true)))
}

/// Returns the networks of both families whose traffic arrives here, by address and length.
pub fn local() -> io::Result<Vec<(IpAddr, u8)>> {
    let (v4, v6) = (fs::read_to_string(TREE)?, fs::read_to_string(ROUTES));
    let mut networks = in_tree(&v4);
    // There is no such file on a machine without IPv6.
    let lines = v6.unwrap_or_default();
    networks.extend(lines.lines().filter_map(|line| {
        let (destination, length) = local_route(line)?;
        Some((IpAddr::from(Ipv6Addr::from_bits(destination)), length))
    }));
    networks.sort_unstable();
    networks.dedup();
    Ok(networks)
}

fn in_tree(text: &str) -> Vec<(IpAddr, u8)> {
    let mut networks = Vec::new();
    let mut address = None;
    for line in text.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.parse::<Ipv4Addr>().ok();
        } else if let Some(length) = line
            .strip_prefix('/')
            .and_then(|line| line.strip_suffix(" host LOCAL"))
        {
            let length = length.parse().ok();
            networks.extend(address.zip(length).map(|(it, length)| (it.into(), length)));
        }
    }
    networks
}

/// Whether a local route covers an address; `None` if the line is about none.
fn covers(line: &str, address: Ipv6Addr) -> Option<bool> {
    let (destination, length) = local_route(line)?;
    let host_bits = 128_u32.checked_sub(u32::from(length))?;
    let network = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
    Some(network(destination) == network(address.to_bits()))
}

/// The network of a local route; `None` for any other line.
fn local_route(line: &str) -> Option<(u128, u8)> {
    let mut fields = line.split_ascii_whitespace();
    let destination = u128::from_str_radix(fields.next()?, 16).ok()?;
    let length = u8::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u32::from_str_radix(fields.nth(6)?, 16).ok()?;
    (flags & LOCAL != 0).then_some((destination, length))
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
        assert_eq!(covers(&remote, "fd00:77::5".parse().unwrap()), None);
        let all = PREFIX
            .replace("fd000077", "00000000")
            .replace(" 40 ", " 00 ")
            .replace("80000001", "00200200");
        assert_eq!(covers(&all, "2001:db8::1".parse().unwrap()), None);
        for broken in ["", "x", "fd00 40", "0 ff 0 0 0 0 0 0 80000001 lo"] {
            assert_ne!(covers(broken, Ipv6Addr::LOCALHOST), Some(true), "{broken}");
        }
    }

    #[test]
    fn the_loopback_address_is_local_and_one_for_documentation_is_not() {
        assert!(is_local(Ipv6Addr::LOCALHOST).unwrap());
        assert!(!is_local("2001:db8::1".parse().unwrap()).unwrap());
    }

    #[test]
    fn local_networks_are_read_as_the_kernel_writes_them() {
        let tree = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                    \x20    |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 192.0.2.0\n\
                    \x20       /24 link UNICAST\n     |-- 192.0.2.2\n        /32 host LOCAL\n\
                    \x20    |-- 192.0.2.255\n        /32 link BROADCAST\n";
        let networks = [([127, 0, 0, 0].into(), 8), ([192, 0, 2, 2].into(), 32)];
        assert_eq!(in_tree(tree), networks);
        assert_eq!(in_tree("|-- x\n/8 host LOCAL\n/x host LOCAL\n"), []);
    }

    #[test]
    fn this_machine_has_its_loopback_networks() {
        let local = local().unwrap();
        assert!(local.contains(&([127, 0, 0, 0].into(), 8)), "{local:?}");
        assert!(
            local.contains(&(Ipv6Addr::LOCALHOST.into(), 128)),
            "{local:?}"
        );
    }
}
