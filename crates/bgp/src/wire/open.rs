//! OPEN messages.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::capabilities::{
    BgpCapability, ExtendedNextHopEncoding, ExtendedNextHopEncodingCapability,
    FourOctetAsCapability, GracefulRestartAddressFamily, GracefulRestartCapability,
    MultiProtocolExtensionsCapability,
};
use netgauze_bgp_pkt::open::{BgpOpenMessage, BgpOpenMessageParameter};
use netgauze_iana::address_family::{AddressFamily, AddressType};
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFrom as _;

use crate::notification::{Notification, code, open};
use crate::peer::Families;
use crate::status::{Capabilities, GracefulRestart};

/// What stands for an AS number that does not fit into two bytes (RFC 6793).
pub(crate) const AS_TRANS: u16 = 23_456;

/// The longest restart time that there is room for.
const LONGEST_RESTART: u64 = 4095;

const VERSION: u8 = 4;
const PARAMETER_CAPABILITIES: u8 = 2;
const PARAMETER_EXTENDED: u8 = 255;

/// What this side offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub asn: NonZeroU32,
    pub hold: u16,
    pub id: Ipv4Addr,
    pub families: Families,
    /// The restart time, and whether this process just restarted.
    pub graceful_restart: Option<(Duration, bool)>,
}

/// What a router says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Its AS, never 0.
    pub asn: NonZeroU32,
    /// Seconds: 0, or at least 3.
    pub hold: u16,
    pub id: Ipv4Addr,
    pub capabilities: Capabilities,
}

// === impl Offer ===

impl Offer {
    /// Writes the message.
    pub fn write(&self) -> Vec<u8> {
        let mut capabilities = Vec::new();
        for family in types(self.families) {
            let capability = MultiProtocolExtensionsCapability::new(family);
            capabilities.push(BgpCapability::MultiProtocolExtensions(capability));
        }
        capabilities.push(BgpCapability::RouteRefresh);
        if self.families.ipv4 {
            let encoding =
                ExtendedNextHopEncoding::new(AddressType::Ipv4Unicast, AddressFamily::IPv6);
            capabilities.push(BgpCapability::ExtendedNextHopEncoding(
                ExtendedNextHopEncodingCapability::new([encoding]),
            ));
        }
        if let Some((time, restarted)) = self.graceful_restart {
            let seconds = time.as_secs().min(LONGEST_RESTART) as u16;
            // The kernel goes on forwarding while this process is away.
            let families =
                types(self.families).map(|it| GracefulRestartAddressFamily::new(true, it));
            let families: Vec<_> = families.collect();
            capabilities.push(BgpCapability::GracefulRestartCapability(
                GracefulRestartCapability::new(restarted, false, seconds, families),
            ));
        }
        let asn = self.asn.get();
        capabilities.push(BgpCapability::FourOctetAs(FourOctetAsCapability::new(asn)));
        let short = u16::try_from(asn).unwrap_or(AS_TRANS);
        let parameter = BgpOpenMessageParameter::new_capabilities(capabilities);
        let open = BgpOpenMessage::new(short, self.hold, self.id, [parameter]);
        super::written(&BgpMessage::Open(open))
    }
}

fn types(families: Families) -> impl Iterator<Item = AddressType> {
    let ipv4 = families.ipv4.then_some(AddressType::Ipv4Unicast);
    ipv4.into_iter()
        .chain(families.ipv6.then_some(AddressType::Ipv6Unicast))
}

// === impl Open ===

impl Open {
    /// Reads the body of a message (RFC 4271, 4.2).
    pub fn read(body: &[u8]) -> Result<Self, Notification> {
        let refused = |subcode, data: &[u8]| Notification::new(code::OPEN, subcode, data);
        let unspecific = || refused(open::UNSPECIFIC, &[]);
        let Some((&[version, high, low, hold_high, hold_low, a, b, c, d], rest)) =
            body.split_first_chunk::<9>()
        else {
            return Err(unspecific());
        };
        if version != VERSION {
            return Err(refused(open::VERSION, &[0, VERSION]));
        }
        let hold = u16::from_be_bytes([hold_high, hold_low]);
        if hold == 1 || hold == 2 {
            return Err(refused(open::HOLD_TIME, &[hold_high, hold_low]));
        }
        let id = Ipv4Addr::new(a, b, c, d);
        if id.is_unspecified() || id.is_broadcast() || id.is_multicast() {
            return Err(refused(open::BAD_IDENTIFIER, &id.octets()));
        }
        let mut seen = Seen::default();
        let (parameters, wide) = parameters(rest).ok_or_else(unspecific)?;
        let mut left = parameters;
        while let Some((kind, value, rest)) = next(left, wide) {
            if kind != PARAMETER_CAPABILITIES {
                return Err(refused(open::OPTIONAL_PARAMETER, &[kind]));
            }
            seen.read(value).ok_or_else(unspecific)?;
            left = rest;
        }
        if !left.is_empty() {
            return Err(unspecific());
        }
        let short = u32::from(u16::from_be_bytes([high, low]));
        let asn = seen.asn.unwrap_or(short);
        let Some(asn) = NonZeroU32::new(asn) else {
            return Err(refused(open::BAD_PEER_AS, &[high, low]));
        };
        Ok(Self {
            asn,
            hold,
            id,
            capabilities: seen.capabilities(),
        })
    }
}

/// Returns the parameters, and whether their lengths have two bytes (RFC 9072).
fn parameters(rest: &[u8]) -> Option<(&[u8], bool)> {
    match rest {
        [length, PARAMETER_EXTENDED, high, low, all @ ..] if *length > 0 => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            (all.len() == length).then_some((all, true))
        }
        [length, all @ ..] => (all.len() == usize::from(*length)).then_some((all, false)),
        [] => None,
    }
}

/// Returns type and value of the first of several, and the others.
fn next(all: &[u8], wide: bool) -> Option<(u8, &[u8], &[u8])> {
    let (kind, length, rest) = match all {
        [kind, high, low, rest @ ..] if wide => {
            (*kind, u16::from_be_bytes([*high, *low]).into(), rest)
        }
        [kind, length, rest @ ..] if !wide => (*kind, usize::from(*length), rest),
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((kind, value, rest))
}

/// Capabilities that were read.
#[derive(Default)]
struct Seen {
    asn: Option<u32>,
    families: Option<Families>,
    others: Capabilities,
}

impl Seen {
    /// Reads the capabilities of one parameter. One that is malformed in itself, or unknown, is
    /// ignored (RFC 5492, 3).
    fn read(&mut self, mut left: &[u8]) -> Option<()> {
        while let Some((_, value, rest)) = next(left, false) {
            let whole = left.get(..value.len() + 2)?;
            match BgpCapability::parse(&mut SliceReader::new(whole)) {
                Ok(capability) => self.take(&capability),
                Err(error) => tracing::debug!(%error, "a capability is ignored"),
            }
            left = rest;
        }
        left.is_empty().then_some(())
    }

    fn take(&mut self, capability: &BgpCapability) {
        match capability {
            BgpCapability::FourOctetAs(it) => self.asn = Some(it.asn4()),
            BgpCapability::RouteRefresh => self.others.route_refresh = true,
            BgpCapability::MultiProtocolExtensions(it) => {
                add(self.families.get_or_insert_default(), it.address_type());
            }
            BgpCapability::ExtendedNextHopEncoding(it) => {
                self.others.extended_next_hop |= it.encodings().iter().any(|it| {
                    it.address_type() == AddressType::Ipv4Unicast
                        && it.next_hop_afi() == AddressFamily::IPv6
                });
            }
            BgpCapability::GracefulRestartCapability(it) => {
                let mut families = Families::default();
                for family in it.address_families() {
                    if family.forwarding_state() {
                        add(&mut families, family.address_type());
                    }
                }
                self.others.graceful_restart = Some(GracefulRestart {
                    restarted: it.restart(),
                    time: Duration::from_secs(it.time().into()),
                    families,
                });
            }
            _ => {}
        }
    }

    fn capabilities(&self) -> Capabilities {
        // A router without RFC 4760 exchanges prefixes of IPv4.
        let only_ipv4 = Families {
            ipv4: true,
            ipv6: false,
        };
        Capabilities {
            families: self.families.unwrap_or(only_ipv4),
            four_octet_as: self.asn.is_some(),
            ..self.others
        }
    }
}

fn add(families: &mut Families, family: AddressType) {
    match family {
        AddressType::Ipv4Unicast => families.ipv4 = true,
        AddressType::Ipv6Unicast => families.ipv6 = true,
        _ => {}
    }
}
