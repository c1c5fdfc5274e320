//! Which addresses of this node can be next hops on a connection.

use std::net::{IpAddr, SocketAddr};

use landfall_sys::interfaces::InterfaceAddress;

use crate::advertise::NextHops;
use crate::peer::{Hops, Peer};

/// Returns the next hops for a connection: its own address, and of the other family the first
/// address that lasts of the interface that has it.
pub(super) fn next_hops(peer: &Peer, local: SocketAddr, all: &[InterfaceAddress]) -> NextHops {
    let own = local.ip().to_canonical();
    let scope = match local {
        SocketAddr::V6(local) => local.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let has_it = |it: &&InterfaceAddress| it.address == own && (scope == 0 || it.index == scope);
    let index = all.iter().find(has_it).map(|it| it.index);
    let mut found = NextHops::default();
    let usable = |it: &&InterfaceAddress| Some(it.index) == index && it.is_lasting;
    for it in all.iter().filter(usable) {
        match it.address {
            address if address.is_loopback() => {}
            IpAddr::V4(address) => drop(found.ipv4.get_or_insert(address)),
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                found.link_local.get_or_insert(address);
            }
            IpAddr::V6(address) => drop(found.ipv6.get_or_insert(address)),
        }
    }
    match own {
        IpAddr::V4(address) => found.ipv4 = Some(address),
        // Between link-local addresses, the router can be sure to reach only these.
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            found.ipv6 = None;
            found.link_local = Some(address);
        }
        IpAddr::V6(address) => found.ipv6 = Some(address),
    }
    // It means something to routers on the same link only (RFC 2545, 3).
    let is_near = matches!(peer.hops, Hops::Direct | Hops::Within(1));
    if !is_near || own.is_ipv4() {
        found.link_local = None;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::peer;

    fn addresses() -> Vec<InterfaceAddress> {
        let of = |index, address: &str| InterfaceAddress {
            name: format!("eth{index}"),
            index,
            address: address.parse().unwrap(),
            is_lasting: true,
        };
        vec![
            of(1, "127.0.0.1"),
            of(2, "10.0.0.1"),
            of(2, "10.0.0.9"),
            of(2, "2001:db8::1"),
            of(2, "2001:db8::9"),
            of(2, "fe80::1"),
            of(3, "fe80::1"),
            of(3, "10.3.0.1"),
        ]
    }

    fn found(local: &str, hops: Hops) -> (Option<String>, Option<String>, Option<String>) {
        let peer = Peer { hops, ..peer() };
        let found = next_hops(&peer, local.parse().unwrap(), &addresses());
        let text = |it: Option<IpAddr>| it.map(|it| it.to_string());
        (
            text(found.ipv4.map(Into::into)),
            text(found.ipv6.map(Into::into)),
            text(found.link_local.map(Into::into)),
        )
    }

    #[test]
    fn the_own_address_is_the_next_hop_and_the_interface_has_one_of_the_other_family() {
        let direct = |local| found(local, Hops::Direct);
        let expected = (
            Some("10.0.0.9".to_owned()),
            Some("2001:db8::1".to_owned()),
            None,
        );
        assert_eq!(direct("10.0.0.9:1"), expected);
        let link_local = Some("fe80::1".to_owned());
        let expected = (
            Some("10.0.0.1".to_owned()),
            Some("2001:db8::9".to_owned()),
            link_local,
        );
        assert_eq!(direct("[2001:db8::9]:1"), expected);
        assert_eq!(
            direct("127.0.0.1:1"),
            (Some("127.0.0.1".to_owned()), None, None)
        );
    }

    #[test]
    fn an_address_that_does_not_last_is_no_next_hop_of_the_other_family() {
        let mut all = addresses();
        let local = "10.0.0.1:1".parse().unwrap();
        for (count, expected) in [(1, Some("2001:db8::9")), (2, None)] {
            let passing = all.iter_mut().filter(|it| it.is_lasting);
            let mut passing = passing.filter(|it| it.address.to_string().starts_with("2001"));
            passing.next().unwrap().is_lasting = false;
            let found = next_hops(&peer(), local, &all);
            assert_eq!(
                found.ipv6.map(|it| it.to_string()).as_deref(),
                expected,
                "{count}"
            );
            assert_eq!(found.ipv4, Some([10, 0, 0, 1].into()));
        }
        let own = next_hops(&peer(), "[2001:db8::1]:1".parse().unwrap(), &all);
        assert_eq!(own.ipv6, Some("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn a_link_local_address_is_sent_to_routers_on_the_link_only() {
        let many = found("[2001:db8::1]:1", Hops::Multihop);
        assert_eq!(
            many,
            (
                Some("10.0.0.1".to_owned()),
                Some("2001:db8::1".to_owned()),
                None
            )
        );
        let unnumbered = found("[fe80::1%3]:1", Hops::Direct);
        assert_eq!(
            unnumbered,
            (
                Some("10.3.0.1".to_owned()),
                None,
                Some("fe80::1".to_owned())
            )
        );
    }
}
