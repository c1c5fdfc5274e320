//! Which router a connection is of, and how its session is made.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{Neighbor, Wanted};
use crate::peer::{Mode, Peer, PeerAddress};

/// Stands between the name of a range and the address of a router.
const OF_RANGE: char = '/';

/// Returns the name of the peer as it is configured: for a router of a range that of the range.
pub fn configured(name: &str) -> &str {
    name.split_once(OF_RANGE).map_or(name, |(range, _)| range)
}

/// Returns whether a name is that of a router of a range.
pub(super) fn is_of_range(name: &str) -> bool {
    name.contains(OF_RANGE)
}

/// Returns the name of the router that connects from an address; `None`: there is none, or its
/// address is reserved.
pub(super) fn name_of(wanted: &Wanted, from: SocketAddr) -> Option<Arc<str>> {
    let peers = wanted.peers.iter().filter(|(_, it)| it.peer.vrf.is_none());
    let peers = peers.map(|(name, it)| (&it.peer.address, Some(name)));
    let reserved = wanted.reserved.iter().map(|address| (address, None));
    // Of several that fit equally well the last one is taken: what is reserved comes first.
    let all = peers.chain(reserved);
    let fits = all.filter_map(|(address, name)| Some((fit(address, from)?, address, name)));
    let (_, address, name) = fits.max_by_key(|(fit, ..)| *fit)?;
    let name = name?;
    Some(match address {
        PeerAddress::Range(_) => format!("{name}{OF_RANGE}{}", from.ip()).into(),
        PeerAddress::Ip(_) | PeerAddress::Interface(_) => Arc::clone(name),
    })
}

/// Returns how well a router that connects is described: of several ranges the narrowest counts,
/// and its own address more than any range. `None`: it is another one.
fn fit(address: &PeerAddress, from: SocketAddr) -> Option<u8> {
    match (address, from) {
        (PeerAddress::Ip(address), from) if *address == from.ip() => Some(u8::MAX),
        (PeerAddress::Interface(name), SocketAddr::V6(from))
            if from.ip().is_unicast_link_local() =>
        {
            let index = landfall_sys::interfaces::index(name);
            (index == Some(from.scope_id())).then_some(u8::MAX)
        }
        (PeerAddress::Range(network), from)
            if network.contains(&from.ip()) && !is_link_local(from.ip()) =>
        {
            Some(network.prefix_len())
        }
        _ => None,
    }
}

/// Returns whether an address means another host on each link: then a range does not say which
/// routers it is for, and one on another link, such as that of a pod, could take the session of a
/// router with the same address. They are known by their interface.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns a router by its name, which may be one of a range; `None`: it is not wanted. One of a
/// range is not where another peer describes it better.
pub(super) fn neighbor_of(wanted: &Wanted, name: &str) -> Option<Neighbor> {
    let neighbor = wanted.peers.get(configured(name))?;
    if !matches!(neighbor.peer.address, PeerAddress::Range(_)) {
        return Some(neighbor.clone()).filter(|_| configured(name) == name);
    }
    let (_, address) = name.split_once(OF_RANGE)?;
    let address: IpAddr = address.parse().ok()?;
    if name_of(wanted, SocketAddr::new(address, 0)).as_deref() != Some(name) {
        return None;
    }
    let peer = Peer {
        address: PeerAddress::Ip(address),
        mode: Mode::Passive,
        ..neighbor.peer.clone()
    };
    let routes = Arc::clone(&neighbor.routes);
    Some(Neighbor { peer, routes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::peer;

    fn wanted(peers: &[(&str, PeerAddress)]) -> Wanted {
        let neighbor = |address: &PeerAddress| Neighbor {
            peer: Peer {
                address: address.clone(),
                ..peer()
            },
            routes: Arc::default(),
        };
        let peers = peers.iter();
        Wanted {
            peers: peers
                .map(|(name, it)| ((*name).into(), neighbor(it)))
                .collect(),
            ..Wanted::default()
        }
    }

    fn range(text: &str) -> PeerAddress {
        PeerAddress::Range(text.parse().unwrap())
    }

    #[test]
    fn a_router_is_found_by_its_address_or_the_narrowest_range_around_it() {
        let wanted = wanted(&[
            ("one", PeerAddress::Ip([10, 0, 0, 1].into())),
            ("narrow", range("10.0.0.0/24")),
            ("wide", range("10.0.0.0/8")),
        ]);
        for (from, name) in [
            ("10.0.0.1:7", Some("one")),
            ("10.0.0.2:7", Some("narrow/10.0.0.2")),
            ("10.0.1.2:7", Some("wide/10.0.1.2")),
            ("192.0.2.1:7", None),
            ("[2001:db8::1]:7", None),
        ] {
            let found = name_of(&wanted, from.parse().unwrap());
            assert_eq!(found.as_deref(), name, "{from}");
            let Some(found) = found else { continue };
            let neighbor = neighbor_of(&wanted, &found).unwrap();
            let address: SocketAddr = from.parse().unwrap();
            assert_eq!(neighbor.peer.address, PeerAddress::Ip(address.ip()));
        }
        // A range is no router, a router has no others, and none is outside of its range, nor in
        // one where another peer describes it better.
        for name in [
            "narrow",
            "one/10.0.0.1",
            "narrow/10.0.1.2",
            "narrow/x",
            "gone/10.0.0.2",
            "narrow/10.0.0.1",
            "wide/10.0.0.2",
        ] {
            assert!(neighbor_of(&wanted, name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_router_at_a_link_local_address_is_found_by_its_interface_and_not_by_a_range() {
        let loopback = landfall_sys::interfaces::index("lo").unwrap();
        let mut wanted = wanted(&[("all", range("::/0")), ("link", range("fe80::/64"))]);
        let name = |wanted: &Wanted, scope| {
            let address = std::net::SocketAddrV6::new("fe80::7".parse().unwrap(), 7, 0, scope);
            name_of(wanted, address.into())
        };
        assert_eq!(name(&wanted, loopback), None);
        for other in ["all/fe80::7", "link/fe80::7"] {
            assert!(neighbor_of(&wanted, other).is_none(), "{other}");
        }
        let mut unnumbered = wanted.peers["all"].clone();
        unnumbered.peer.address = PeerAddress::Interface("lo".into());
        wanted.peers.insert("lo".into(), unnumbered);
        assert_eq!(name(&wanted, loopback).as_deref(), Some("lo"));
        assert_eq!(name(&wanted, loopback + 1), None);
        let global = name_of(&wanted, "[2001:db8::7]:7".parse().unwrap());
        assert_eq!(global.as_deref(), Some("all/2001:db8::7"));
    }

    #[test]
    fn a_router_whose_password_is_not_known_yet_is_not_one_of_the_range_around_it() {
        let mut wanted = wanted(&[("wide", range("10.0.0.0/8"))]);
        wanted.reserved = vec![
            PeerAddress::Ip([10, 0, 0, 1].into()),
            range("10.1.0.0/16"),
            range("0.0.0.0/0"),
        ];
        for (from, name) in [
            ("10.0.0.1:7", None),
            ("10.1.0.1:7", None),
            ("10.0.0.2:7", Some("wide/10.0.0.2")),
        ] {
            let found = name_of(&wanted, from.parse().unwrap());
            assert_eq!(found.as_deref(), name, "{from}");
        }
        assert!(neighbor_of(&wanted, "wide/10.0.0.1").is_none());
        assert!(neighbor_of(&wanted, "wide/10.0.0.2").is_some());
    }
}
