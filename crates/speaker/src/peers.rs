//! The routers of this node: how each session is made, of what `BGPPeer` and `BFDProfile` say.
//! Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::time::Duration;

use landfall_bfd::packet::authentication::Method;
use landfall_bfd::session::{Role, Settings};
use landfall_bfd::table::{Hops as BfdHops, Path};
use landfall_bgp::peer::{Families, Hops, Mode, Password, Peer, PeerAddress, RemoteAsn, Timers};
use landfall_metallb as metallb;
use landfall_metallb::{BfdProfile, BgpPeer, PasswordSource};
use landfall_model::ServiceKey;

/// For how long a router keeps routes of a speaker that restarts: enough to fetch an image. Where
/// the whole node went away without notice, all that goes to it is lost for so long.
const RESTART: Duration = Duration::from_mins(1);

/// A router of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// How the session is made; the password only where it stands in the object.
    pub peer: Peer,
    /// The Secret with the password.
    pub secret: Option<ServiceKey>,
    /// What is wrong with the password in the object.
    pub password_problem: Option<String>,
    /// How the loss of the router is noticed; the key is in its Secret.
    pub bfd: Option<(Path, Settings)>,
    /// The key of BFD.
    pub bfd_key: Option<BfdKeySpec>,
}

/// A key of BFD that a Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdKeySpec {
    /// The Secret.
    pub secret: ServiceKey,
    /// The number that both sides have for the key.
    pub id: u8,
    /// How it is used.
    pub method: Method,
}

/// Returns a router as this node, with this router ID, meets it. `namespace`: of the object.
pub fn desired(
    peer: &BgpPeer,
    profile: Option<&BfdProfile>,
    namespace: &str,
    router_id: Ipv4Addr,
) -> PeerSpec {
    let families = match &peer.address {
        metallb::PeerAddress::Ip(address) => Families {
            ipv4: address.is_ipv4() || peer.dual_stack,
            ipv6: address.is_ipv6() || peer.dual_stack,
        },
        metallb::PeerAddress::Interface(_) => Families {
            ipv4: true,
            ipv6: true,
        },
    };
    let (secret, password, password_problem) = match &peer.password {
        None => (None, None, None),
        Some(PasswordSource::Secret(name, written)) => {
            let namespace = written.as_deref().unwrap_or(namespace);
            (Some(ServiceKey::new(namespace, name)), None, None)
        }
        Some(PasswordSource::Text(text)) => match Password::new(text.reveal()) {
            Ok(password) => (None, Some(password), None),
            Err(error) => (None, None, Some(error.to_string())),
        },
    };
    let timers = Timers::default();
    PeerSpec {
        peer: Peer {
            asn: peer.local_asn.unwrap_or(peer.my_asn),
            remote_asn: match peer.peer_asn {
                metallb::RemoteAsn::Number(number) => RemoteAsn::Number(number),
                metallb::RemoteAsn::Internal => RemoteAsn::Internal,
                metallb::RemoteAsn::External => RemoteAsn::External,
            },
            address: match (&peer.address, peer.passive) {
                (_, Some(metallb::Passive::Range(range))) => PeerAddress::Range(range),
                (metallb::PeerAddress::Ip(address), _) => PeerAddress::Ip(*address),
                (metallb::PeerAddress::Interface(name), _) => PeerAddress::Interface(name.clone()),
            },
            port: peer.port,
            source: peer.source,
            mode: if peer.passive.is_some() {
                Mode::Passive
            } else {
                Mode::Active
            },
            router_id: peer.router_id.unwrap_or(router_id),
            timers: Timers {
                hold: peer.timers.hold.unwrap_or(timers.hold),
                keepalive: peer.timers.keepalive,
                connect: peer.timers.connect.unwrap_or(timers.connect),
            },
            password,
            hops: if peer.multihop {
                Hops::Multihop
            } else {
                Hops::Direct
            },
            vrf: peer.vrf.clone(),
            families,
            graceful_restart: peer.graceful_restart.then_some(RESTART),
        },
        secret,
        password_problem,
        bfd: profile.map(|profile| bfd(peer, profile)),
        bfd_key: profile
            .and_then(|it| it.key.as_ref())
            .map(|key| BfdKeySpec {
                secret: ServiceKey::new(namespace, &key.secret),
                id: key.id,
                method: if key.is_meticulous {
                    Method::MeticulousKeyedSha1
                } else {
                    Method::KeyedSha1
                },
            }),
    }
}

/// Returns how the loss of a router is noticed. Its address is `::` where only its interface is
/// known.
fn bfd(peer: &BgpPeer, profile: &BfdProfile) -> (Path, Settings) {
    let (address, interface) = match &peer.address {
        metallb::PeerAddress::Ip(address) => (*address, None),
        metallb::PeerAddress::Interface(name) => (
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            Some(name.as_str().into()),
        ),
    };
    // A router of the same AS may be anywhere; the TTL that a profile names is for several hops.
    let is_internal = match peer.peer_asn {
        metallb::RemoteAsn::Number(number) => number == peer.local_asn.unwrap_or(peer.my_asn),
        metallb::RemoteAsn::Internal => true,
        metallb::RemoteAsn::External => false,
    };
    let is_far = peer.multihop || (is_internal && profile.minimum_ttl.is_some());
    let defaults = Settings::default();
    let path = Path {
        peer: address,
        hops: if is_far {
            BfdHops::Multi
        } else {
            BfdHops::Single
        },
        interface,
        vrf: peer.vrf.as_deref().map(Into::into),
        local: peer.source,
    };
    let echo = profile.echo_mode && !is_far && address.is_ipv4();
    let settings = Settings {
        transmit_interval: profile.transmit_interval,
        receive_interval: profile.receive_interval,
        detect_multiplier: NonZeroU8::new(profile.detect_multiplier)
            .unwrap_or(defaults.detect_multiplier),
        role: if profile.passive_mode {
            Role::Passive
        } else {
            Role::Active
        },
        echo: echo.then_some(profile.echo_interval),
        minimum_ttl: profile.minimum_ttl.unwrap_or(defaults.minimum_ttl),
        ..defaults
    };
    (path, settings)
}

/// Returns the router ID of a node where none is written: its first IPv4 address, else a number
/// made of its name as MetalLB makes it.
pub fn router_id(name: &str, addresses: &[IpAddr]) -> Ipv4Addr {
    let first = addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) if !address.is_unspecified() => Some(*address),
        _ => None,
    });
    first.unwrap_or_else(|| {
        let made = Ipv4Addr::from(crc32(name.as_bytes()).to_le_bytes());
        // No router takes 0.0.0.0.
        if made.is_unspecified() {
            Ipv4Addr::from_bits(1)
        } else {
            made
        }
    })
}

/// CRC-32 as of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let all = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            let low = crc & 1;
            (crc >> 1) ^ (0xedb8_8320 * low)
        })
    });
    !all
}

// === impl PeerSpec ===

impl PeerSpec {
    /// Returns the Secrets that are needed for the session and for BFD.
    pub fn secrets(&self) -> impl Iterator<Item = &ServiceKey> {
        let of_bfd = self.bfd_key.as_ref().map(|key| &key.secret);
        self.secret.iter().chain(of_bfd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_id_is_the_first_ipv4_address_or_the_number_that_metallb_makes_of_the_name() {
        let addresses = ["2001:db8::1", "192.0.2.7", "192.0.2.8"];
        let addresses: Vec<IpAddr> = addresses.iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(router_id("node-a", &addresses), Ipv4Addr::new(192, 0, 2, 7));
        let made = Ipv4Addr::new(171, 77, 153, 120);
        assert_eq!(router_id("node-a", &addresses[..1]), made);
    }
}
