//! UPDATE messages that are sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use ipnet::IpNet;
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::community::{Community, LargeCommunity};
use netgauze_bgp_pkt::nlri::{Ipv4Unicast, Ipv4UnicastAddress, Ipv6Unicast, Ipv6UnicastAddress};
use netgauze_bgp_pkt::path_attribute::{
    As2PathSegment, As4Path, As4PathSegment, AsPath, AsPathSegmentType, Communities,
    LargeCommunities, LocalPreference, MpReach, MpUnreach, NextHop as Ipv4NextHop, Origin,
    PathAttribute, PathAttributeValue,
};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_parse_utils::WritablePdu as _;

use super::open::AS_TRANS;
use super::{HEADER, LONGEST};
use crate::route::Attributes;

/// Bytes for prefixes in a message that only withdraws: header, two lengths, and the start of
/// `MP_UNREACH_NLRI`.
const ROOM_TO_WITHDRAW: usize = LONGEST - HEADER - 4 - 7;

/// How the attributes of a session's routes look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// The AS of this side in the path; `None`: the router is of the same AS, and sees local
    /// preferences.
    pub path: Option<NonZeroU32>,
    /// Whether AS numbers have four bytes.
    pub four_octet_as: bool,
}

/// The next hop of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NextHop {
    /// For IPv4, in the attribute of RFC 4271.
    Classic(Ipv4Addr),
    /// In `MP_REACH_NLRI`; a link-local address beside a global one.
    Ipv6(Ipv6Addr, Option<Ipv6Addr>),
}

/// Returns whether a prefix can be announced at all.
pub(crate) fn is_unicast(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(net) => Ipv4Unicast::from_net(*net).is_ok(),
        IpNet::V6(net) => Ipv6Unicast::from_net(*net).is_ok(),
    }
}

/// Returns how many of these prefixes, which are of one family, fit into a message that withdraws
/// them.
pub(crate) fn fit_to_withdraw<'p>(prefixes: impl IntoIterator<Item = &'p IpNet>) -> usize {
    fit(prefixes, ROOM_TO_WITHDRAW)
}

/// Writes a message that withdraws prefixes, which are of one family and fit. Without any it is the
/// End-of-RIB marker of IPv6 or, `ipv4`, of IPv4 (RFC 4724, 2).
pub(crate) fn withdraw(prefixes: &[IpNet], ipv4: bool) -> Vec<u8> {
    let update = if ipv4 {
        BgpUpdateMessage::new(ipv4_nlri(prefixes), [], [])
    } else {
        let nlri = ipv6_nlri(prefixes).into();
        let unreach = PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri });
        let attributes: Vec<_> = attribute(unreach).into_iter().collect();
        BgpUpdateMessage::new([], attributes, [])
    };
    super::written(&BgpMessage::Update(update))
}

/// Prefixes of one family with the same attributes, which become messages.
pub(crate) struct Announcement {
    attributes: Vec<PathAttribute>,
    next_hop: NextHop,
    ipv4: bool,
    room: usize,
}

impl Announcement {
    /// Prepares the attributes.
    pub fn new(of: &Attributes, next_hop: NextHop, ipv4: bool, style: Style) -> Self {
        let mut values = vec![PathAttributeValue::Origin(Origin::IGP)];
        values.extend(as_path(style));
        if let NextHop::Classic(address) = next_hop {
            values.push(PathAttributeValue::NextHop(Ipv4NextHop::new(address)));
        }
        if style.path.is_none() {
            let preference = of.local_preference.unwrap_or(Attributes::LOCAL_PREFERENCE);
            let value = LocalPreference::new(preference);
            values.push(PathAttributeValue::LocalPreference(value));
        }
        if !of.communities.is_empty() {
            let all = of.communities.iter().map(|it| Community::new(it.number()));
            let value = Communities::new(all.collect::<Vec<_>>());
            values.push(PathAttributeValue::Communities(value));
        }
        if !of.large_communities.is_empty() {
            let all = of.large_communities.iter();
            let all = all.map(|it| LargeCommunity::new(it.0, it.1, it.2));
            let value = LargeCommunities::new(all.collect::<Vec<_>>());
            values.push(PathAttributeValue::LargeCommunities(value));
        }
        let attributes: Vec<_> = values.into_iter().filter_map(attribute).collect();
        let length: usize = attributes.iter().map(PathAttribute::len).sum();
        // The start of MP_REACH_NLRI: four bytes of an attribute, family, next hop, one reserved.
        let start = match next_hop {
            NextHop::Classic(_) => 0,
            NextHop::Ipv6(_, None) => 4 + 3 + 1 + 16 + 1,
            NextHop::Ipv6(_, Some(_)) => 4 + 3 + 1 + 32 + 1,
        };
        let room = LONGEST.saturating_sub(HEADER + 4 + length + start);
        Self {
            attributes,
            next_hop,
            ipv4,
            room,
        }
    }

    /// Returns how many of these prefixes fit into a message.
    pub fn fit<'p>(&self, prefixes: impl IntoIterator<Item = &'p IpNet>) -> usize {
        fit(prefixes, self.room)
    }

    /// Writes a message with these prefixes, which fit.
    pub fn write(&self, prefixes: &[IpNet]) -> Vec<u8> {
        let NextHop::Ipv6(global, local) = self.next_hop else {
            let update = BgpUpdateMessage::new([], self.attributes.clone(), ipv4_nlri(prefixes));
            return super::written(&BgpMessage::Update(update));
        };
        let reach = if self.ipv4 {
            MpReach::Ipv4Unicast {
                next_hop: IpAddr::V6(global),
                next_hop_local: local,
                nlri: ipv4_nlri(prefixes).into(),
            }
        } else {
            MpReach::Ipv6Unicast {
                next_hop_global: global,
                next_hop_local: local,
                nlri: ipv6_nlri(prefixes).into(),
            }
        };
        // It should be the first one (RFC 7606, 5.1).
        let reach = attribute(PathAttributeValue::MpReach(reach));
        let attributes: Vec<_> = reach
            .into_iter()
            .chain(self.attributes.iter().cloned())
            .collect();
        let update = BgpUpdateMessage::new([], attributes, []);
        super::written(&BgpMessage::Update(update))
    }
}

fn fit<'p>(prefixes: impl IntoIterator<Item = &'p IpNet>, mut room: usize) -> usize {
    let fits = |prefix: &&IpNet| {
        let length = 1 + usize::from(prefix.prefix_len()).div_ceil(8);
        match room.checked_sub(length) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        }
    };
    prefixes.into_iter().take_while(fits).count()
}

/// Returns `AS_PATH`, and `AS4_PATH` where it is needed (RFC 6793, 4.2.2).
fn as_path(style: Style) -> Vec<PathAttributeValue> {
    let sequence = AsPathSegmentType::AsSequence;
    let long = |asn: NonZeroU32| vec![As4PathSegment::new(sequence, [asn.get()])];
    let Some(asn) = style.path else {
        let empty = AsPath::as4_path_segments(Vec::new());
        return vec![PathAttributeValue::AsPath(empty)];
    };
    if style.four_octet_as {
        return vec![PathAttributeValue::AsPath(AsPath::as4_path_segments(long(
            asn,
        )))];
    }
    let short = u16::try_from(asn.get());
    let segment = As2PathSegment::new(sequence, [short.unwrap_or(AS_TRANS)]);
    let mut values = vec![PathAttributeValue::AsPath(AsPath::as2_path_segments([
        segment,
    ]))];
    if short.is_err() {
        values.push(PathAttributeValue::As4Path(As4Path::new(long(asn))));
    }
    values
}

/// Wraps a value, with the flags that its type asks for. Lengths have two bytes where they may be
/// needed.
fn attribute(value: PathAttributeValue) -> Option<PathAttribute> {
    let optional = value.can_be_optional().unwrap_or(true);
    let transitive = value.can_be_transitive().unwrap_or(true);
    let extended = match &value {
        PathAttributeValue::MpReach(_) | PathAttributeValue::MpUnreach(_) => true,
        PathAttributeValue::Communities(it) => it.communities().len() > 63,
        PathAttributeValue::LargeCommunities(it) => it.communities().len() > 21,
        _ => false,
    };
    // It is there: the flags are those of its type.
    PathAttribute::from(optional, transitive, false, extended, value).ok()
}

fn ipv4_nlri(prefixes: &[IpNet]) -> Vec<Ipv4UnicastAddress> {
    let one = |prefix: &IpNet| match prefix {
        IpNet::V4(net) => Ipv4Unicast::from_net(*net).ok(),
        IpNet::V6(_) => None,
    };
    let all = prefixes.iter().filter_map(one);
    all.map(Ipv4UnicastAddress::new_no_path_id).collect()
}

fn ipv6_nlri(prefixes: &[IpNet]) -> Vec<Ipv6UnicastAddress> {
    let one = |prefix: &IpNet| match prefix {
        IpNet::V6(net) => Ipv6Unicast::from_net(*net).ok(),
        IpNet::V4(_) => None,
    };
    let all = prefixes.iter().filter_map(one);
    all.map(|net| Ipv6UnicastAddress::new(None, net)).collect()
}
