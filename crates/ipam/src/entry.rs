//! One entry of a pool: a prefix or a range, as text and as the addresses it stands for.
//!
//! Also the numbering of a range's usable addresses. A pool that avoids .0 and .255 numbers its
//! addresses around them, so that everything above works on 0, 1, 2, ... without holes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use landfall_model::rows::Family;

use crate::reservation::Reservation;

/// Usable addresses in each block of 256 once .0 and .255 are left out.
const USABLE_OF_256: u64 = 254;

/// A range of this many addresses, aligned, saturates the counters (62 host bits).
const SATURATING: u128 = 1 << 62;

/// An entry of a pool, with the text it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    text: String,
    range: Range,
    /// What is written, of which `range` is a part where addresses are excluded or reserved.
    written: Range,
    /// The Services for which it is reserved.
    reserved_for: Option<Reservation>,
}

/// Addresses of one family from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// What is wrong with the text of an entry. The pool and the entry are named by
/// [`PoolError`](crate::PoolError), which carries this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Nothing but white space.
    #[error("it is empty")]
    Empty,
    /// One address without a prefix length.
    #[error("an address alone is neither a prefix nor a range")]
    BareAddress {
        /// The address.
        address: IpAddr,
    },
    /// A part that should be an address is invalid.
    #[error("{part:?} is not an IP address")]
    NotAnAddress {
        /// The part.
        part: String,
    },
    /// The prefix length is no number or too large.
    #[error("{length:?} is not a prefix length of {family}")]
    BadPrefixLength {
        /// What stands behind the slash.
        length: String,
        /// Family of the address before the slash.
        family: Family,
    },
    /// The ends are of different families. The reference accepts this and hands out nothing.
    #[error("the range begins with {first} and ends with {last}, which are of different families")]
    MixedFamilies {
        /// First end.
        first: IpAddr,
        /// Last end.
        last: IpAddr,
    },
    /// The first end lies above the last.
    #[error("the range begins with {first}, which is after its end {last}")]
    Backwards {
        /// First end.
        first: IpAddr,
        /// Last end.
        last: IpAddr,
    },
    /// No Service can be reached at some of its addresses.
    #[error("{block} has {kind} addresses, which can't be assigned")]
    Unusable {
        /// The block of such addresses that it reaches into.
        block: IpNet,
        /// What they are.
        kind: &'static str,
    },
    /// An IPv4 address in IPv6 clothes.
    #[error("{address} is an IPv4 address written as IPv6")]
    Mapped {
        /// The address as written.
        address: Ipv6Addr,
        /// What it stands for.
        v4: Ipv4Addr,
    },
}

// === impl Entry ===

impl Entry {
    /// The entry as the user wrote it, trimmed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The addresses it stands for.
    pub fn range(&self) -> Range {
        self.range
    }

    /// What the user wrote, of which [`range`](Self::range) is a part where addresses are excluded
    /// or reserved.
    pub fn written(&self) -> Range {
        self.written
    }

    /// The Services for which its addresses are reserved, if they are.
    pub(crate) fn reserved_for(&self) -> Option<&Reservation> {
        self.reserved_for.as_ref()
    }

    /// Whether its first address is the anycast address of a subnet's routers (RFC 4291, 2.6.1):
    /// the one of an IPv6 prefix, unless the prefix links two hosts (RFC 6164) or is one address.
    pub(crate) fn begins_with_anycast(&self) -> bool {
        let Range { first, last } = self.written;
        let more_than_two = to_bits(last) - to_bits(first) > 1;
        let is_whole = self.range.first == first && self.reserved_for.is_none();
        first.is_ipv6() && self.text.contains('/') && more_than_two && is_whole
    }

    /// Returns what is left of it without a range, in order.
    pub(crate) fn without(&self, range: Range) -> Vec<Self> {
        self.cut(range, None)
    }

    /// Returns its parts, in order, of which the one within a range is reserved.
    pub(crate) fn reserving(&self, range: Range, reservation: &Reservation) -> Vec<Self> {
        self.cut(range, Some(reservation))
    }

    fn cut(&self, range: Range, middle: Option<&Reservation>) -> Vec<Self> {
        let whole = self.range;
        let apart = whole.family() != range.family();
        if apart || range.last < whole.first || whole.last < range.first {
            return vec![self.clone()];
        }
        let (first, last) = (to_bits(whole.first), to_bits(whole.last));
        let from = to_bits(range.first).max(first);
        let to = to_bits(range.last).min(last);
        let part = |first: u128, last: u128, reserved_for: Option<Reservation>| Self {
            range: Range {
                first: from_bits(whole.family(), first),
                last: from_bits(whole.family(), last),
            },
            reserved_for,
            ..self.clone()
        };
        let before = (first < from).then(|| part(first, from - 1, self.reserved_for.clone()));
        let middle = middle.map(|it| part(from, to, Some(it.clone())));
        let after = (to < last).then(|| part(to + 1, last, self.reserved_for.clone()));
        before.into_iter().chain(middle).chain(after).collect()
    }

    /// Why a pool can't have it: some of its addresses can't be a load balancer's.
    pub(crate) fn unusable(&self) -> Option<EntryError> {
        let blocks: [(IpAddr, u8, &'static str); 5] = [
            (Ipv4Addr::UNSPECIFIED.into(), 8, "unspecified"),
            (Ipv4Addr::new(224, 0, 0, 0).into(), 4, "multicast"),
            (Ipv4Addr::BROADCAST.into(), 32, "broadcast"),
            (Ipv6Addr::UNSPECIFIED.into(), 128, "unspecified"),
            (
                Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(),
                8,
                "multicast",
            ),
        ];
        blocks.into_iter().find_map(|(address, length, kind)| {
            let block = IpNet::new(address, length).ok()?;
            let reaches =
                self.range.first <= block.broadcast() && block.network() <= self.range.last;
            reaches.then_some(EntryError::Unusable { block, kind })
        })
    }
}

impl FromStr for Entry {
    type Err = EntryError;

    /// Parses `CIDR` or `FIRST-LAST`. Host bits of a prefix are masked: `198.51.100.10/24` is the
    /// whole /24.
    fn from_str(text: &str) -> Result<Self, EntryError> {
        let text = text.trim();
        let range = if text.is_empty() {
            return Err(EntryError::Empty);
        } else if let Some((address, length)) = text.split_once('/') {
            parse_prefix(address, length)?
        } else if let Some((first, last)) = text.split_once('-') {
            parse_range(first, last)?
        } else {
            let address = parse_address(text)?;
            return Err(EntryError::BareAddress { address });
        };
        Ok(Self {
            text: text.to_owned(),
            range,
            written: range,
            reserved_for: None,
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_prefix(address: &str, length: &str) -> Result<Range, EntryError> {
    let address = parse_address(address)?;
    let net = length
        .parse::<u8>()
        .ok()
        // `u8` also reads "+8", which no other reader of prefixes takes.
        .filter(|_| length.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|length| IpNet::new(address, length).ok())
        .ok_or_else(|| EntryError::BadPrefixLength {
            length: length.to_owned(),
            family: Family::of(address),
        })?;
    let last = match net {
        // An IPv4 network's last address is its broadcast address, and it is usable.
        IpNet::V4(net) => IpAddr::V4(net.broadcast()),
        IpNet::V6(net) => IpAddr::V6(net.broadcast()),
    };
    Ok(Range {
        first: net.network(),
        last,
    })
}

fn parse_range(first: &str, last: &str) -> Result<Range, EntryError> {
    let (first, last) = (parse_address(first)?, parse_address(last)?);
    if Family::of(first) != Family::of(last) {
        return Err(EntryError::MixedFamilies { first, last });
    }
    if first > last {
        return Err(EntryError::Backwards { first, last });
    }
    Ok(Range { first, last })
}

fn parse_address(part: &str) -> Result<IpAddr, EntryError> {
    let part = part.trim();
    let address: IpAddr = part.parse().map_err(|_| EntryError::NotAnAddress {
        part: part.to_owned(),
    })?;
    if let IpAddr::V6(address) = address
        && let Some(v4) = address.to_ipv4_mapped()
    {
        return Err(EntryError::Mapped { address, v4 });
    }
    Ok(address)
}

// === impl EntryError ===

impl EntryError {
    /// What to write instead.
    pub fn remedy(&self) -> String {
        match self {
            Self::Empty => "write a prefix such as 192.0.2.0/24 or a range such as \
                            192.0.2.10-192.0.2.20, or remove the entry"
                .to_owned(),
            Self::BareAddress { address } => {
                format!(
                    "write {address}/{} for this one address",
                    bits(Family::of(*address))
                )
            }
            Self::NotAnAddress { .. } => "write addresses in full, such as 192.0.2.0/24, \
                                          192.0.2.10-192.0.2.20 or 2001:db8::/64"
                .to_owned(),
            Self::BadPrefixLength { family, .. } => {
                format!("write a whole number from 0 to {}", bits(*family))
            }
            Self::MixedFamilies { .. } => {
                "write two ranges, one with both ends IPv4 and one with both ends IPv6".to_owned()
            }
            Self::Backwards { first, last } => format!("write {last}-{first}"),
            Self::Unusable { block, .. } => format!("exclude the addresses of {block}"),
            Self::Mapped { v4, .. } => format!("write it as IPv4: {v4}"),
        }
    }
}

fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

// === impl Range ===

impl FromStr for Range {
    type Err = EntryError;

    /// Parses an entry, or one address.
    fn from_str(text: &str) -> Result<Self, EntryError> {
        match text.parse::<Entry>() {
            Err(EntryError::BareAddress { address }) => Ok(Self {
                first: address,
                last: address,
            }),
            entry => Ok(entry?.range),
        }
    }
}

impl Range {
    /// Lowest address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Highest address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// Family of all its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.first)
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last
    }

    /// Number of the last usable address, counted from 0; `None` when no address is usable.
    pub(crate) fn last_place(&self, avoid_buggy: bool) -> Option<u128> {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) if avoid_buggy => {
                let first = u64::from(first.to_bits());
                let end = u64::from(last.to_bits()) + 1;
                (usable_before(end) - usable_before(first))
                    .checked_sub(1)
                    .map(u128::from)
            }
            _ => Some(to_bits(self.last) - to_bits(self.first)),
        }
    }

    /// Number of a usable address, counted from 0.
    pub(crate) fn place_of(&self, address: IpAddr, avoid_buggy: bool) -> Option<u128> {
        if !self.contains(address) || (avoid_buggy && is_buggy(address)) {
            return None;
        }
        Some(match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) if avoid_buggy => {
                let (first, address) = (u64::from(first.to_bits()), u64::from(address.to_bits()));
                u128::from(usable_before(address) - usable_before(first))
            }
            _ => to_bits(address) - to_bits(self.first),
        })
    }

    /// The usable address with this number; the inverse of [`place_of`](Self::place_of).
    pub(crate) fn address_at(&self, place: u128, avoid_buggy: bool) -> Option<IpAddr> {
        if self.last_place(avoid_buggy).is_none_or(|last| place > last) {
            return None;
        }
        Some(match self.first {
            IpAddr::V4(first) if avoid_buggy => {
                let usable = usable_before(u64::from(first.to_bits())) + place as u64;
                let bits = (usable / USABLE_OF_256) << 8 | (usable % USABLE_OF_256 + 1);
                IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
            }
            IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() + place as u32)),
            IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() + place)),
        })
    }

    /// Whether it holds a whole aligned block of 62 host bits, from which on counters read
    /// `i64::MAX`.
    pub(crate) fn saturates_counters(&self) -> bool {
        let mask = SATURATING - 1;
        to_bits(self.first)
            .checked_add(mask)
            .map(|start| start & !mask)
            .and_then(|start| start.checked_add(mask))
            .is_some_and(|end| end <= to_bits(self.last))
    }
}

/// How many IPv4 addresses below `bits` end in neither .0 nor .255.
fn usable_before(bits: u64) -> u64 {
    (bits >> 8) * USABLE_OF_256 + (bits & 0xff).saturating_sub(1)
}

/// Whether this is an IPv4 address that some old equipment takes for a network or broadcast
/// address.
pub(crate) fn is_buggy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [_, _, _, 0 | 255]),
        IpAddr::V6(_) => false,
    }
}

/// The address as a number within its family.
pub(crate) fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The inverse of [`to_bits`]; of a number too large for IPv4 only the low half counts.
pub(crate) fn from_bits(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests;
