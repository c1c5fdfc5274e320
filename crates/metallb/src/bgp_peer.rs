//! `BGPPeer` (`v1beta2`; the older `v1beta1` is read as well): a router, and the session with it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use landfall_model::reason::{Code, Reason, annotation_field};

use crate::fields::Fields;
use crate::selectors::Selectors;
use crate::time::{self, GoDuration};

/// A `BGPPeer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpPeer {
    /// The AS of this side.
    pub my_asn: NonZeroU32,
    /// The AS of the router.
    pub peer_asn: RemoteAsn,
    /// An AS that the router sees in place of this side's.
    pub local_asn: Option<NonZeroU32>,
    /// Where the router is.
    pub address: PeerAddress,
    /// The address from which sessions begin; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Its timers.
    pub timers: Timers,
    /// `None`: derived from the node.
    pub router_id: Option<Ipv4Addr>,
    /// The nodes with a session; none: all.
    pub nodes: Selectors,
    /// The password of TCP MD5 (RFC 2385).
    pub password: Option<PasswordSource>,
    /// The name of a `BFDProfile`.
    pub bfd_profile: Option<String>,
    /// Whether routes stay while a speaker restarts (RFC 4724).
    pub graceful_restart: bool,
    /// Whether the router may be several hops away.
    pub multihop: bool,
    /// The VRF.
    pub vrf: Option<String>,
    /// Whether both families are announced on one session.
    pub dual_stack: bool,
    /// Which routers alone begin sessions: an annotation, which MetalLB does not have.
    pub passive: Option<Passive>,
}

/// Which routers begin sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passive {
    /// The one with the address of the peer.
    Router,
    /// All with an address of this range, that of the peer among them.
    Range(IpNet),
}

/// The routers that a peer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routers<'a> {
    /// The one at this address.
    At(IpAddr),
    /// The one at the other end of this interface.
    Behind(&'a str),
    /// Those of this range.
    Of(IpNet),
}

/// The AS of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAsn {
    /// This one.
    Number(NonZeroU32),
    /// Whatever the router says, if it is this side's.
    Internal,
    /// Whatever the router says, if it is not this side's.
    External,
}

/// Where a router is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerAddress {
    /// At this address.
    Ip(IpAddr),
    /// At the other end of this interface.
    Interface(String),
}

/// Timers of a session; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// After how long without a message the session ends; zero: never.
    pub hold: Option<Duration>,
    /// How often a message is sent.
    pub keepalive: Option<Duration>,
    /// How long to wait before another attempt to connect.
    pub connect: Option<Duration>,
}

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// It stands in the object.
    Text(Password),
    /// A Secret of type `kubernetes.io/basic-auth` by name, and its namespace if one is written.
    Secret(String, Option<String>),
}

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// The shortest hold time but none (RFC 4271, 4.2), and the longest that a message can hold.
const SHORTEST_HOLD: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(65_535);

const DEFAULT_PORT: u16 = 179;

/// The first of the addresses that routers at the end of an interface have.
const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));

/// The annotation by which only the router begins sessions, or all routers of a range.
pub const PASSIVE: &str = "landfall.dev/passive";

// === impl BgpPeer ===

impl BgpPeer {
    /// Reads a peer; `older`: in version `v1beta1`. `None` if something that it can't be without is
    /// missing or wrong, which is then among the reasons.
    pub(crate) fn read(fields: &mut Fields<'_, '_>, older: bool) -> Option<Self> {
        let my_asn = fields
            .number("myASN", 1..=u32::MAX)
            .and_then(NonZeroU32::new);
        if my_asn.is_none() && !fields.has("myASN") {
            fields.refuse_unseen("myASN", "it is missing", "write the AS of this side");
        }
        let peer_asn = read_peer_asn(fields, older);
        let address = read_address(fields, older);
        // In the older version 0 is the default, also where nothing converts what is stored.
        let port = fields.number("peerPort", 0..=16_384);
        let source = fields.parsed(
            "sourceAddress",
            "not an IP address",
            "write an address of the node, or remove it",
        );
        let router_id = fields.parsed(
            "routerID",
            "not in the form of an IPv4 address",
            "write four numbers, such as 10.0.0.1",
        );
        let timers = read_timers(fields, older);
        let password = read_password(fields, older);
        let multihop = fields.flag("ebgpMultiHop").unwrap_or(false);
        let same = matches!(peer_asn, Some(RemoteAsn::Number(asn)) if Some(asn) == my_asn);
        if multihop && same {
            fields.refuse(
                "ebgpMultiHop",
                "true",
                "peerASN equals myASN, and sessions within an AS have no limit of hops",
                "remove it, or correct peerASN",
            );
        }
        let nodes = Selectors::read(fields, "nodeSelectors");
        let bfd_profile = fields.text("bfdProfile").map(str::to_owned);
        let mut peer = Self {
            my_asn: my_asn.unwrap_or(NonZeroU32::MIN),
            peer_asn: peer_asn.unwrap_or(RemoteAsn::External),
            local_asn: None,
            address: address
                .clone()
                .unwrap_or_else(|| PeerAddress::Interface(String::new())),
            source,
            port: port.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT),
            timers,
            router_id,
            nodes,
            password,
            bfd_profile,
            graceful_restart: false,
            multihop,
            vrf: None,
            dual_stack: false,
            passive: None,
        };
        if !older {
            peer.read_newer(fields);
        }
        (my_asn.is_some() && peer_asn.is_some() && address.is_some()).then_some(peer)
    }

    /// Reads what `v1beta1` does not have.
    fn read_newer(&mut self, fields: &mut Fields<'_, '_>) {
        let local_asn = fields.number("localASN", 1..=u32::MAX);
        self.local_asn = local_asn.and_then(NonZeroU32::new);
        self.graceful_restart = fields.flag("enableGracefulRestart").unwrap_or(false);
        self.vrf = fields.text("vrf").map(str::to_owned);
        self.dual_stack = fields.flag("dualStackAddressFamily").unwrap_or(false);
        // Without effect since MetalLB 0.15.
        fields.flag("disableMP");
    }

    /// Reads the annotation by which only routers begin sessions.
    pub(crate) fn read_passive(
        &mut self,
        fields: &mut Fields<'_, '_>,
        annotations: &BTreeMap<String, String>,
    ) {
        let value = annotations
            .get(PASSIVE)
            .map_or("false", |value| value.trim());
        let range = value.parse::<IpNet>().map(|range| range.trunc());
        self.passive = match (value, range) {
            ("false", _) => None,
            ("true", _) => Some(Passive::Router),
            (_, Ok(range)) => Some(Passive::Range(range)),
            (_, Err(_)) => {
                let message = "neither true, false nor a range of addresses";
                let remedy = "write true, false or, for example, 10.0.0.0/24";
                fields.refuse_annotation(PASSIVE, value, message, remedy);
                None
            }
        };
        if self.passive.is_some() && self.vrf.is_some() {
            let message = "sessions that routers begin are not accepted in a VRF";
            let remedy = "remove vrf, or the annotation";
            fields.refuse_annotation(PASSIVE, value, message, remedy);
        }
        let Some(Passive::Range(range)) = self.passive else {
            return;
        };
        if !matches!(self.address, PeerAddress::Ip(address) if range.contains(&address)) {
            let message = "the address of the peer is not in this range";
            let remedy = "write the address of one of the routers in peerAddress";
            fields.refuse_annotation(PASSIVE, value, message, remedy);
        }
        let link_local = |it: IpAddr| matches!(it, IpAddr::V6(it) if it.is_unicast_link_local());
        if link_local(range.addr()) {
            let message = "link-local addresses do not distinguish routers of different links";
            let remedy = "write interface instead of peerAddress, and true here";
            fields.refuse_annotation(PASSIVE, value, message, remedy);
        }
        if self.bfd_profile.is_some() {
            let message = "routers that are known by a range are not watched by BFD";
            let remedy = "remove bfdProfile, or write a BGPPeer for each router";
            fields.refuse_annotation(PASSIVE, value, message, remedy);
        }
    }

    /// Returns which routers it is for. `peerAddress` of a range is any one of them, and a router
    /// with a peer of its own, or in a narrower range, is not one of the range.
    fn routers(&self) -> Routers<'_> {
        match (self.passive, &self.address) {
            (Some(Passive::Range(range)), _) if range.prefix_len() == range.max_prefix_len() => {
                Routers::At(range.addr())
            }
            (Some(Passive::Range(range)), _) => Routers::Of(range),
            (_, PeerAddress::Ip(address)) => Routers::At(*address),
            (_, PeerAddress::Interface(interface)) => Routers::Behind(interface),
        }
    }

    /// Returns where it says which routers it is for: the field and its value.
    fn place(&self) -> (String, String) {
        let spec = |field: &str, value: String| (format!("spec.{field}"), value);
        match (self.passive, &self.address) {
            (Some(Passive::Range(range)), _) => (annotation_field(PASSIVE), range.to_string()),
            (_, PeerAddress::Ip(address)) => spec("peerAddress", address.to_string()),
            (_, PeerAddress::Interface(interface)) => spec("interface", interface.clone()),
        }
    }

    /// Returns why it can't be beside another one on a node that both are for: the field, its value
    /// and the problem.
    pub(crate) fn clash(&self, name: &str, other: &Self) -> Option<(String, String, String)> {
        let routers = self.routers();
        if self.vrf == other.vrf && routers == other.routers() {
            let (field, value) = self.place();
            let what = match routers {
                Routers::Of(_) => "has the same routers",
                Routers::At(_) | Routers::Behind(_) => "is the same router",
            };
            return Some((field, value, format!("{name} {what} for the same nodes")));
        }
        if let (Some(one), Some(two)) = (self.router_id, other.router_id)
            && one != two
        {
            let why = format!("{name} has {two}, and a node has one router ID");
            return Some(("spec.routerID".to_owned(), one.to_string(), why));
        }
        if self.vrf == other.vrf && self.my_asn != other.my_asn {
            let why = format!(
                "{name} has {}, and a node has one AS in a VRF",
                other.my_asn
            );
            return Some(("spec.myASN".to_owned(), self.my_asn.to_string(), why));
        }
        None
    }

    /// Returns why connections that its routers begin are dropped on a node that both are for: it
    /// has no password, and another one has one for a range around its routers. A kernel has keys
    /// of narrower prefixes, but no prefix without a key.
    pub(crate) fn unsigned(&self, name: &str, other: &Self) -> Option<Reason> {
        let Some(Passive::Range(range)) = other.passive else {
            return None;
        };
        if self.password.is_some() || self.vrf.is_some() || other.password.is_none() {
            return None;
        }
        let is_within = match self.routers() {
            Routers::At(address) => range.contains(&address),
            Routers::Of(own) => range != own && range.contains(&own),
            // Of a link-local range there is none.
            Routers::Behind(_) => range.contains(&LINK_LOCAL),
        };
        let (field, value) = self.place();
        let message = format!(
            "connections that its routers begin are dropped: they are in {range} of {name}, and \
             the kernel asks for the password of that for all connections from the range"
        );
        let remedy = format!("write a password here and in the router, or narrow {name}");
        let reason = Reason::warning(Code::InvalidResource, message).at(field);
        is_within.then(|| reason.value(value).remedy(remedy))
    }
}

fn read_peer_asn(fields: &mut Fields<'_, '_>, older: bool) -> Option<RemoteAsn> {
    let number = fields.number("peerASN", 0..=u32::MAX);
    let unread = number.is_none() && fields.has("peerASN");
    // 0 is what a number that was left out reads as.
    let number = number.and_then(NonZeroU32::new);
    if older {
        if number.is_none() && !unread {
            fields.refuse_unseen("peerASN", "it is missing", "write the AS of the router");
        }
        return number.map(RemoteAsn::Number);
    }
    let words = [
        ("internal", RemoteAsn::Internal),
        ("external", RemoteAsn::External),
    ];
    let word = fields.word("dynamicASN", &words);
    match (number, word) {
        (Some(number), Some(_)) => {
            fields.refuse_unseen(
                "dynamicASN",
                format!("peerASN says already that it is {number}"),
                "write one of peerASN and dynamicASN",
            );
            None
        }
        (Some(number), None) => Some(RemoteAsn::Number(number)),
        (None, Some(word)) => Some(word),
        (None, None) => {
            if !unread && !fields.has("dynamicASN") {
                fields.refuse_unseen(
                    "peerASN",
                    "neither peerASN nor dynamicASN is written",
                    "write the AS of the router, or dynamicASN: internal or external",
                );
            }
            None
        }
    }
}

fn read_address(fields: &mut Fields<'_, '_>, older: bool) -> Option<PeerAddress> {
    let remedy = "write the address of the router";
    let has_address = fields.has("peerAddress");
    let ip = fields.parsed::<IpAddr>("peerAddress", "not an IP address", remedy);
    let interface = if older {
        None
    } else {
        fields.text("interface")
    };
    match (ip, interface) {
        (Some(_), Some(interface)) => {
            fields.refuse(
                "interface",
                interface,
                "peerAddress is written, too",
                "write one of peerAddress and interface",
            );
            None
        }
        (Some(ip), None) => Some(PeerAddress::Ip(ip)),
        (None, Some(interface)) if !has_address || fields.is_empty_text("peerAddress") => {
            Some(PeerAddress::Interface(interface.to_owned()))
        }
        (None, _) => {
            if !has_address || fields.is_empty_text("peerAddress") {
                let message = "neither peerAddress nor interface is written";
                fields.refuse_unseen("peerAddress", message, remedy);
            }
            None
        }
    }
}

fn read_timers(fields: &mut Fields<'_, '_>, older: bool) -> Timers {
    let mut read = |field| {
        let time: Option<GoDuration> = fields.parsed(field, "not a time", time::REMEDY);
        time.map(|time| time.0)
    };
    let (mut hold, mut keepalive) = (read("holdTime"), read("keepaliveTime"));
    let connect = if older { None } else { read("connectTime") };
    if older {
        // In this version zero is what is left out.
        hold = hold.filter(|time| !time.is_zero());
        keepalive = keepalive.filter(|time| !time.is_zero());
    }
    if let Some(time) = hold
        && !time.is_zero()
        && !(SHORTEST_HOLD..=LONGEST).contains(&time)
    {
        let remedy = "write 0s, or a time from 3s to 65535s";
        fields.refuse("holdTime", format!("{time:?}"), "out of bounds", remedy);
    }
    if let (Some(hold), Some(keepalive)) = (hold, keepalive)
        && keepalive > hold
    {
        fields.refuse(
            "keepaliveTime",
            format!("{keepalive:?}"),
            format!("longer than holdTime, which is {hold:?}"),
            "write a third of holdTime, or leave it out",
        );
    }
    if let Some(time) = connect
        && (time.subsec_nanos() != 0 || !(Duration::from_secs(1)..=LONGEST).contains(&time))
    {
        let remedy = "write whole seconds from 1s to 65535s";
        fields.refuse("connectTime", format!("{time:?}"), "out of bounds", remedy);
    }
    Timers {
        hold: hold.or_else(|| keepalive.map(|time| time.saturating_mul(3))),
        keepalive: keepalive.or_else(|| hold.map(|time| time / 3)),
        connect,
    }
}

fn read_password(fields: &mut Fields<'_, '_>, older: bool) -> Option<PasswordSource> {
    let text = fields.secret("password").map(str::to_owned);
    let secret = if older {
        None
    } else {
        fields.within("passwordSecret", |fields| {
            let namespace = fields.text("namespace").map(str::to_owned);
            fields.text("name").map(|name| (name.to_owned(), namespace))
        })
    };
    match (text, secret.flatten()) {
        (Some(_), Some(_)) => {
            fields.refuse_unseen(
                "password",
                "passwordSecret is written, too",
                "write one of password and passwordSecret, best the second",
            );
            None
        }
        (Some(text), None) => Some(PasswordSource::Text(Password(text))),
        (None, Some((name, namespace))) => Some(PasswordSource::Secret(name, namespace)),
        (None, None) => None,
    }
}

// === impl Password ===

impl Password {
    /// Reveals it, for the socket option.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(...)")
    }
}
