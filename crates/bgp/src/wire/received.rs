//! UPDATE messages that are received: checked as RFC 7606 asks for, counted, and forgotten.

use crate::notification::{Notification, code, update};

/// What decides how an attribute is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Whether the router is of the same AS.
    pub internal: bool,
    /// Whether AS numbers have four bytes.
    pub four_octet_as: bool,
}

/// What a message said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Prefixes announced; 0 if they are to be treated as withdrawn.
    pub announced: u64,
    /// Prefixes withdrawn, or treated so.
    pub withdrawn: u64,
    /// What is wrong with the attributes, if that does not end the session.
    pub malformed: Option<Malformed>,
    /// Whether it is an End-of-RIB marker (RFC 4724, 2).
    pub end_of_rib: bool,
}

/// What is wrong with attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The prefixes are treated as withdrawn; the number is the attribute's type, 0 if there is
    /// not one.
    Withdraw(u8),
    /// The attribute is discarded.
    Discard(u8),
}

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED: u8 = 0x10;

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MULTI_EXIT_DISC: u8 = 4;
const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const ORIGINATOR_ID: u8 = 9;
const CLUSTER_LIST: u8 = 10;
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const AS4_PATH: u8 = 17;
const AS4_AGGREGATOR: u8 = 18;
const LARGE_COMMUNITIES: u8 = 32;

/// What is known while attributes are read.
struct Walk {
    seen: [bool; 256],
    reached: Option<u64>,
    unreached: Option<u64>,
    malformed: Option<Malformed>,
}

// === impl Received ===

impl Received {
    /// Reads the body of a message. An error ends the session.
    pub fn read(body: &[u8], context: Context) -> Result<Self, Notification> {
        let (withdrawn, rest) = counted(body).ok_or_else(|| refused(update::ATTRIBUTE_LIST))?;
        let (attributes, nlri) = counted(rest).ok_or_else(|| refused(update::ATTRIBUTE_LIST))?;
        let network = || refused(update::NETWORK);
        let withdrawn = prefixes(withdrawn, 32).ok_or_else(network)?;
        let announced = prefixes(nlri, 32).ok_or_else(network)?;
        let mut walk = Walk {
            seen: [false; 256],
            reached: None,
            unreached: None,
            malformed: None,
        };
        walk.attributes(attributes, context)?;
        let reached = announced + walk.reached.unwrap_or_default();
        if reached > 0 {
            walk.mandatory(announced > 0, context);
        }
        let is_empty = reached == 0 && withdrawn == 0;
        let end_of_rib = is_empty
            && match walk.unreached {
                Some(count) => count == 0 && walk.reached.is_none(),
                None => attributes.is_empty(),
            };
        let withdrawn = withdrawn + walk.unreached.unwrap_or_default();
        let as_withdrawn = matches!(walk.malformed, Some(Malformed::Withdraw(_)));
        Ok(Self {
            announced: if as_withdrawn { 0 } else { reached },
            withdrawn: withdrawn + if as_withdrawn { reached } else { 0 },
            malformed: walk.malformed,
            end_of_rib,
        })
    }
}

// === impl Walk ===

impl Walk {
    fn attributes(&mut self, mut left: &[u8], context: Context) -> Result<(), Notification> {
        while !left.is_empty() {
            let Some((flags, kind, value, rest)) = attribute(left) else {
                // The prefixes of the message are known all the same (RFC 7606, 4).
                self.note(Malformed::Withdraw(0));
                return Ok(());
            };
            left = rest;
            let seen = self.seen.get_mut(usize::from(kind));
            if seen.is_some_and(|seen| std::mem::replace(seen, true)) {
                if kind == MP_REACH || kind == MP_UNREACH {
                    return Err(refused(update::ATTRIBUTE_LIST));
                }
                // Of the others the first one counts.
                continue;
            }
            match kind {
                MP_REACH => self.reached = Some(reach(value)?),
                MP_UNREACH => self.unreached = Some(unreach(value)?),
                _ => self.other(flags, kind, value, context)?,
            }
        }
        Ok(())
    }

    fn other(
        &mut self,
        flags: u8,
        kind: u8,
        value: &[u8],
        context: Context,
    ) -> Result<(), Notification> {
        let class = match kind {
            ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
            MULTI_EXIT_DISC | ORIGINATOR_ID | CLUSTER_LIST => OPTIONAL,
            AGGREGATOR | COMMUNITIES | EXTENDED_COMMUNITIES | LARGE_COMMUNITIES | AS4_PATH
            | AS4_AGGREGATOR => OPTIONAL | TRANSITIVE,
            _ if flags & OPTIONAL == 0 => return Err(refused(update::WELL_KNOWN)),
            _ => return Ok(()),
        };
        let discard = match kind {
            ATOMIC_AGGREGATE | AGGREGATOR | AS4_PATH | AS4_AGGREGATOR => true,
            // Attributes that routers of other ASes have no business to send.
            LOCAL_PREF | ORIGINATOR_ID | CLUSTER_LIST => !context.internal,
            _ => false,
        };
        let flags_fit = flags & (OPTIONAL | TRANSITIVE) == class;
        if !flags_fit || !is_well_formed(kind, value, context) {
            self.note(if discard {
                Malformed::Discard(kind)
            } else {
                Malformed::Withdraw(kind)
            });
        }
        Ok(())
    }

    /// Notes attributes that are missing where prefixes are announced.
    fn mandatory(&mut self, classic: bool, context: Context) {
        let needed = [
            (ORIGIN, true),
            (AS_PATH, true),
            (NEXT_HOP, classic),
            (LOCAL_PREF, context.internal),
        ];
        for (kind, is_needed) in needed {
            let seen = self.seen.get(usize::from(kind)) == Some(&true);
            if is_needed && !seen {
                self.note(Malformed::Withdraw(kind));
            }
        }
    }

    /// Keeps the strongest of several.
    fn note(&mut self, found: Malformed) {
        if !matches!(self.malformed, Some(Malformed::Withdraw(_))) {
            self.malformed = Some(found);
        }
    }
}

fn refused(subcode: u8) -> Notification {
    Notification::new(code::UPDATE, subcode, [])
}

/// Splits off as many bytes as the first two say.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([high, low], rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes([*high, *low]).into())
}

/// Returns flags, type and value of the first attribute, and the others.
fn attribute(bytes: &[u8]) -> Option<(u8, u8, &[u8], &[u8])> {
    let (flags, kind, length, rest) = match bytes {
        [flags, kind, high, low, rest @ ..] if flags & EXTENDED != 0 => (
            *flags,
            *kind,
            u16::from_be_bytes([*high, *low]).into(),
            rest,
        ),
        [flags, kind, length, rest @ ..] if flags & EXTENDED == 0 => {
            (*flags, *kind, usize::from(*length), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((flags, kind, value, rest))
}

/// Counts prefixes; `None` if one is longer than its family allows or than what is left.
fn prefixes(mut left: &[u8], longest: u8) -> Option<u64> {
    let mut count = 0;
    while let Some((&bits, rest)) = left.split_first() {
        if bits > longest {
            return None;
        }
        left = rest.get(usize::from(bits.div_ceil(8))..)?;
        count += 1;
    }
    Some(count)
}

/// Returns the longest prefix of a family; `None` for those that are not read.
fn longest(family: [u8; 3]) -> Option<u8> {
    match family {
        [0, 1, 1] => Some(32),
        [0, 2, 1] => Some(128),
        _ => None,
    }
}

/// Counts the prefixes of `MP_REACH_NLRI`.
fn reach(value: &[u8]) -> Result<u64, Notification> {
    let refused = || refused(update::OPTIONAL_ATTRIBUTE);
    let (&[a, b, c, length], rest) = value.split_first_chunk::<4>().ok_or_else(refused)?;
    let Some(longest) = longest([a, b, c]) else {
        return Ok(0);
    };
    let lengths: &[u8] = if longest == 32 {
        &[4, 16, 32]
    } else {
        &[16, 32]
    };
    if !lengths.contains(&length) {
        return Err(refused());
    }
    // One byte that is reserved stands between next hop and prefixes.
    let nlri = rest.get(usize::from(length) + 1..).ok_or_else(refused)?;
    prefixes(nlri, longest).ok_or_else(refused)
}

/// Counts the prefixes of `MP_UNREACH_NLRI`.
fn unreach(value: &[u8]) -> Result<u64, Notification> {
    let refused = || refused(update::OPTIONAL_ATTRIBUTE);
    let (&family, nlri) = value.split_first_chunk::<3>().ok_or_else(refused)?;
    match longest(family) {
        Some(longest) => prefixes(nlri, longest).ok_or_else(refused),
        None => Ok(0),
    }
}

fn is_well_formed(kind: u8, value: &[u8], context: Context) -> bool {
    let filled = |size: usize| !value.is_empty() && value.len().is_multiple_of(size);
    match kind {
        ORIGIN => matches!(value, [0..=2]),
        AS_PATH => is_path(value, if context.four_octet_as { 4 } else { 2 }),
        AS4_PATH => !value.is_empty() && is_path(value, 4),
        NEXT_HOP | MULTI_EXIT_DISC | LOCAL_PREF | ORIGINATOR_ID => value.len() == 4,
        ATOMIC_AGGREGATE => value.is_empty(),
        AGGREGATOR => value.len() == if context.four_octet_as { 8 } else { 6 },
        AS4_AGGREGATOR => value.len() == 8,
        COMMUNITIES | CLUSTER_LIST => filled(4),
        EXTENDED_COMMUNITIES => filled(8),
        LARGE_COMMUNITIES => filled(12),
        _ => true,
    }
}

/// Returns whether a value consists of segments of AS numbers.
fn is_path(mut left: &[u8], size: usize) -> bool {
    while !left.is_empty() {
        let &[kind, count, ref rest @ ..] = left else {
            return false;
        };
        // Sets, sequences, and both of confederations (RFC 5065).
        if !(1..=4).contains(&kind) || count == 0 {
            return false;
        }
        let Some(rest) = rest.get(usize::from(count) * size..) else {
            return false;
        };
        left = rest;
    }
    true
}
