//! Messages of rtnetlink about routes and rules, without I/O.

use std::net::{IpAddr, Ipv4Addr};

use super::{ORIGIN, PRIORITY, TABLE};

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const NEW_RULE: u16 = 32;
const DELETE_RULE: u16 = 33;

/// A request whose outcome is reported.
const ACKNOWLEDGED: u16 = 0x1 | 0x4;
/// Creates something, and refuses where it exists.
const CREATE: u16 = ACKNOWLEDGED | 0x200 | 0x400;
const REQUEST_ALL: u16 = 0x1 | 0x300;

/// What a route does (`RTN_LOCAL`), and how far it reaches (`RT_SCOPE_HOST`).
const LOCAL: u8 = 2;
const HOST: u8 = 254;
/// The table's number stands in an attribute, as it has no room in the header (`RT_TABLE_UNSPEC`).
const IN_ATTRIBUTE: u8 = 0;
/// The loopback interface is the first one of each network namespace.
const LOOPBACK: u32 = 1;

/// Attributes of routes.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const SOURCE: u16 = 7;
const ROUTE_TABLE: u16 = 15;

/// What a rule does (`FR_ACT_TO_TBL`).
const LOOK_UP: u8 = 1;

/// Attributes of rules.
const RULE_PRIORITY: u16 = 6;
const RULE_TABLE: u16 = 15;
const RULE_ORIGIN: u16 = 21;
const IP_PROTOCOL: u16 = 22;

/// The length of the headers of netlink, and of routes and rules.
const HEADER: usize = 16;
const ROUTE: usize = 12;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What the kernel answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is a route of ours to this address.
    Route(IpAddr),
    /// That was all.
    Done,
    /// An error (`errno`).
    Refused(i32),
}

// === impl Family ===

impl Family {
    const fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The IP protocols whose packets are taken. ICMP informs connections about the largest packet
    /// that a path takes.
    pub const fn protocols(self) -> [u8; 3] {
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        match self {
            Self::V4 => [TCP, UDP, 1],
            Self::V6 => [TCP, UDP, 58],
        }
    }
}

/// Asks for all routes of a family.
pub fn list_routes(family: Family, sequence: u32) -> Vec<u8> {
    let mut body = [0; ROUTE];
    body[0] = family.number();
    message(GET_ROUTE, REQUEST_ALL, sequence, &body)
}

/// Adds a local route to an address.
pub fn add_route(address: IpAddr, source: Option<Ipv4Addr>, sequence: u32) -> Vec<u8> {
    let mut body = route(address);
    if let Some(source) = source {
        attribute(&mut body, SOURCE, &source.octets());
    }
    message(NEW_ROUTE, CREATE, sequence, &body)
}

/// Removes that route, if it is ours.
pub fn remove_route(address: IpAddr, sequence: u32) -> Vec<u8> {
    message(DELETE_ROUTE, ACKNOWLEDGED, sequence, &route(address))
}

/// Leads packets of an IP protocol to our table.
pub fn add_rule(family: Family, protocol: u8, sequence: u32) -> Vec<u8> {
    message(NEW_RULE, CREATE, sequence, &rule(family, protocol))
}

/// Removes that rule.
pub fn remove_rule(family: Family, protocol: u8, sequence: u32) -> Vec<u8> {
    let body = rule(family, protocol);
    message(DELETE_RULE, ACKNOWLEDGED, sequence, &body)
}

fn route(address: IpAddr) -> Vec<u8> {
    let (family, octets) = (Family::of(address), octets(address));
    let length = u8::try_from(octets.len() * 8).unwrap_or(u8::MAX);
    let (tos, from) = (0, 0);
    let mut body = vec![
        family.number(),
        length,
        from,
        tos,
        IN_ATTRIBUTE,
        ORIGIN,
        HOST,
        LOCAL,
    ];
    body.extend_from_slice(&[0; 4]);
    attribute(&mut body, DESTINATION, &octets);
    attribute(&mut body, INTERFACE, &LOOPBACK.to_ne_bytes());
    attribute(&mut body, ROUTE_TABLE, &TABLE.to_ne_bytes());
    body
}

fn rule(family: Family, protocol: u8) -> Vec<u8> {
    let mut body = vec![family.number(), 0, 0, 0, IN_ATTRIBUTE, 0, 0, LOOK_UP];
    body.extend_from_slice(&[0; 4]);
    attribute(&mut body, RULE_PRIORITY, &PRIORITY.to_ne_bytes());
    attribute(&mut body, RULE_TABLE, &TABLE.to_ne_bytes());
    attribute(&mut body, RULE_ORIGIN, &[ORIGIN]);
    attribute(&mut body, IP_PROTOCOL, &[protocol]);
    body
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(body);
    bytes
}

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the answers to a request. Those to others, and routes of others, are left out.
pub fn answers(mut bytes: &[u8], sequence: u32) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((kind, number, body, rest)) = next(bytes) {
        bytes = rest;
        if number == sequence {
            answers.extend(answer(kind, body));
        }
    }
    answers
}

fn answer(kind: u16, body: &[u8]) -> Option<Answer> {
    match kind {
        NEW_ROUTE => Some(Answer::Route(own_route(body)?)),
        DONE => Some(Answer::Done),
        ERROR => match i32::from_ne_bytes(*body.first_chunk()?) {
            0 => Some(Answer::Done),
            code => Some(Answer::Refused(code.saturating_neg())),
        },
        _ => None,
    }
}

/// The address of a route of ours; `None` if it is another's.
fn own_route(body: &[u8]) -> Option<IpAddr> {
    let (fields, mut attributes) = body.split_first_chunk::<ROUTE>()?;
    let [_, length, _, _, _, origin, _, kind, ..] = *fields;
    let (mut destination, mut table) = (None, None);
    while let Some((kind, value, rest)) = next_attribute(attributes) {
        attributes = rest;
        match kind {
            DESTINATION => destination = parse(value),
            ROUTE_TABLE => table = value.first_chunk().copied().map(u32::from_ne_bytes),
            _ => {}
        }
    }
    let address = destination?;
    let is_host = usize::from(length) == octets(address).len() * 8;
    let is_ours = origin == ORIGIN && table == Some(TABLE) && kind == LOCAL && is_host;
    is_ours.then_some(address)
}

fn parse(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
}

/// Splits the first message off: kind, number, body, and what follows.
fn next(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let whole = bytes.get(..length)?;
    let kind = u16::from_ne_bytes(*whole.get(4..)?.first_chunk()?);
    let number = u32::from_ne_bytes(*whole.get(8..)?.first_chunk()?);
    let rest = bytes.get(length.next_multiple_of(4)..);
    Some((kind, number, whole.get(HEADER..)?, rest.unwrap_or_default()))
}

fn next_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & 0x3fff;
    let value = bytes.get(4..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..);
    Some((kind, value, rest.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<Answer> {
        let mut body = route("192.0.2.7".parse().unwrap());
        change(&mut body);
        answers(&message(NEW_ROUTE, 0, 3, &body), 3)
    }

    #[test]
    fn our_routes_are_distinguished_from_those_of_others() {
        let ours = [Answer::Route("192.0.2.7".parse().unwrap())];
        assert_eq!(listed(|_| {}), ours);
        let origin = |body: &mut Vec<u8>| body[5] = 4;
        let unicast = |body: &mut Vec<u8>| body[7] = 1;
        let network = |body: &mut Vec<u8>| body[1] = 24;
        assert_eq!(listed(origin), []);
        assert_eq!(listed(unicast), []);
        assert_eq!(listed(network), []);
        let place = |body: &mut Vec<u8>| {
            let table = body.len() - 4;
            body[table..].copy_from_slice(&255_u32.to_ne_bytes());
        };
        assert_eq!(listed(place), [], "of another table");
    }

    #[test]
    fn answers_to_other_requests_are_left_out() {
        let message = message(DONE, 0, 4, &[0; 4]);
        assert_eq!(answers(&message, 3), []);
        assert_eq!(answers(&message, 4), [Answer::Done]);
    }

    #[test]
    fn an_error_is_one_unless_it_is_zero() {
        let error = |code: i32| answers(&message(ERROR, 0, 1, &code.to_ne_bytes()), 1);
        assert_eq!(error(0), [Answer::Done]);
        assert_eq!(error(-1), [Answer::Refused(1)]);
        assert_eq!(error(i32::MIN), [Answer::Refused(i32::MAX)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_left(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = answers(&bytes, 0);
        }

        #[test]
        fn a_cut_message_says_nothing_false(length in 0..44_usize) {
            let whole = message(NEW_ROUTE, 0, 1, &route("2001:db8::7".parse().unwrap()));
            prop_assert_eq!(answers(whole.get(..length).unwrap(), 1), []);
        }
    }
}
