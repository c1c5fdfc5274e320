//! Address families: which ones a Service wants, and the at most one address of each it holds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_model::rows::Family;

/// What a Service wants, made from its cluster addresses and its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedFamilies {
    /// One address of this family.
    Only(Family),
    /// One of each, from one pool.
    RequireDual,
    /// One of each from one pool if there is such a pool, else one of `first`, else one of the
    /// other.
    PreferDual {
        /// `ipFamilies[0]`.
        first: Family,
    },
}

/// At most one address of each family. Iterates IPv4 first, which is the order in status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

/// The family that this one is not.
pub(crate) fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

// === impl WantedFamilies ===

impl WantedFamilies {
    /// Whether an address of this family is of use.
    pub fn includes(self, family: Family) -> bool {
        match self {
            Self::Only(only) => only == family,
            Self::RequireDual | Self::PreferDual { .. } => true,
        }
    }

    /// What to request.
    pub(crate) fn remedy(self) -> String {
        match self {
            Self::Only(family) => format!("request one {family} address"),
            Self::RequireDual | Self::PreferDual { .. } => {
                "request one IPv4 and one IPv6 address".to_owned()
            }
        }
    }

    /// The family that decides the pool when both could.
    pub(crate) fn lead(self) -> Family {
        match self {
            Self::Only(family) | Self::PreferDual { first: family } => family,
            Self::RequireDual => Family::V4,
        }
    }

    /// The wanted family that `addresses` lacks; `None` when it lacks none, or both.
    pub(crate) fn missing(self, addresses: Addresses) -> Option<Family> {
        match self {
            Self::Only(_) => None,
            Self::RequireDual | Self::PreferDual { .. } => match (addresses.v4, addresses.v6) {
                (Some(_), None) => Some(Family::V6),
                (None, Some(_)) => Some(Family::V4),
                (None, None) | (Some(_), Some(_)) => None,
            },
        }
    }

    /// Whether `addresses` is exactly one address of each family of the Service.
    pub(crate) fn equals_families_of(self, addresses: Addresses) -> bool {
        [Family::V4, Family::V6]
            .into_iter()
            .all(|family| self.includes(family) == addresses.get(family).is_some())
    }
}

impl fmt::Display for WantedFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(family) => f.write_str(family.as_str()),
            Self::RequireDual | Self::PreferDual { .. } => f.write_str("IPv4 and IPv6"),
        }
    }
}

// === impl Addresses ===

impl Addresses {
    /// No address.
    pub const NONE: Self = Self { v4: None, v6: None };

    /// Puts an address in, and returns the one of the same family that it replaces.
    pub fn insert(&mut self, address: IpAddr) -> Option<IpAddr> {
        match address {
            IpAddr::V4(address) => self.v4.replace(address).map(IpAddr::V4),
            IpAddr::V6(address) => self.v6.replace(address).map(IpAddr::V6),
        }
    }

    /// These addresses and one more, which replaces one of its family.
    #[must_use]
    pub fn with(mut self, address: IpAddr) -> Self {
        self.insert(address);
        self
    }

    /// The address of a family.
    pub fn get(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
        }
    }

    /// IPv4, then IPv6.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [self.get(Family::V4), self.get(Family::V6)]
            .into_iter()
            .flatten()
    }

    /// Whether this very address is among them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.get(Family::of(address)) == Some(address)
    }

    /// Whether every address of `other` is among these.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|address| self.contains(address))
    }

    /// These without those of `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.iter()
            .filter(|address| !other.contains(*address))
            .collect()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// 0, 1 or 2.
    pub fn len(&self) -> usize {
        usize::from(self.v4.is_some()) + usize::from(self.v6.is_some())
    }
}

/// Of several addresses of one family the last stays.
impl FromIterator<IpAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(iter: I) -> Self {
        iter.into_iter().fold(Self::NONE, Self::with)
    }
}

impl From<IpAddr> for Addresses {
    fn from(address: IpAddr) -> Self {
        Self::NONE.with(address)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.v4, self.v6) {
            (None, None) => f.write_str("no address"),
            (Some(v4), None) => write!(f, "{v4}"),
            (None, Some(v6)) => write!(f, "{v6}"),
            (Some(v4), Some(v6)) => write!(f, "{v4} and {v6}"),
        }
    }
}
