//! Bytes in less room: what they repeat, and what many Services say in the same words, is there as
//! a reference. What is kept of a Service is mostly its own words: the version on record and the
//! conditions.
//!
//! ```text
//!  dense ::= LENGTH part*
//!  part  ::= (COUNT << 2 | PLAIN) byte*      so many bytes as they are
//!          | (COUNT << 2 | COPY) DISTANCE    so many bytes from that far before
//!          | (COUNT << 2 | DIGITS) byte*     twice as many digits of a hash
//! ```
//!
//! Before the first byte are the [`PHRASES`]. Equal bytes have equal dense forms. Written and read
//! in this process only, so the form may change with any version.

use std::sync::LazyLock;

use super::bytes::{Reader, Writer};

/// What many Services say. The last one of two that begin alike is found first.
const PHRASES: &[u8] = b"\
loadbalancer.openstack.org/load-balancer-id\
loadbalancer.openstack.org/load-balancer-address\
state.landfall.dev/load-balancer\
state.landfall.dev/addresses\
app.kubernetes.io/component\
app.kubernetes.io/instance\
app.kubernetes.io/managed-by\
app.kubernetes.io/part-of\
app.kubernetes.io/version\
app.kubernetes.io/name\
helm.sh/chart\
the Service has no endpoints; start pods that its selector matches, or write an EndpointSlice with \
the label kubernetes.io/service-name: \
none of the endpoints can serve; see which endpoints are left out, and why\
 is not announced: no L2Advertisement or BGPAdvertisement is for pool \
 and this Service\
 is not announced: there is no L2Advertisement or BGPAdvertisement\
; create an L2Advertisement for pool , or a BGPAdvertisement and a BGPPeer; one without a spec \
announces all pools on all nodes (and 1 more)\
the load balancer is being created\
traffic flows\
clients connect to \
every field and annotation is valid\
instance=, addresses=sha256:, load-balancer=sha256:, accepted=sha256:\
\"externalTrafficPolicy\":\"Local\",\"healthCheckNodePort\":\
\"internalTrafficPolicy\":\"Local\",\
\"ipFamilies\":[\"IPv4\",\"IPv6\"],\"ipFamilyPolicy\":\"PreferDualStack\",\
\"ipFamilies\":[\"IPv6\"],\"ipFamilyPolicy\":\"RequireDualStack\",\
\"loadBalancerClass\":\"landfall.dev/\
\"loadBalancerIP\":\"\
\"loadBalancerSourceRanges\":[\"\
\"],\"ports\":[{\"appProtocol\":\"kubernetes.io/h2c\",\
\"name\":\"https\",\"nodePort\":443,\"port\":443,\"protocol\":\"UDP\",\"targetPort\":8443},\
\"sessionAffinity\":\"ClientIP\",\"sessionAffinityConfig\":{\"clientIP\":{\
\"timeoutSeconds\":10800}},\
{\"namespaceLabels\":{\"kubernetes.io/metadata.name\":\"default\"},\"labels\":{},\
\"families\":[\"IPv4\"],\"policy\":\"SingleStack\",\"requested\":[],\"requestedBy\":\"\",\
\"pool\":null,\"count\":1,\"sharingKey\":null,\"backendKey\":\"\",\"held\":[\"\
metallb.io/ip-allocated-from-pool\
state.landfall.dev/instance\
state.landfall.dev/accepted\
{\"annotations\":{},\"spec\":{\"allocateLoadBalancerNodePorts\":false,\
\"externalTrafficPolicy\":\"Cluster\",\"ipFamilies\":[\"IPv4\"],\"ipFamilyPolicy\":\"SingleStack\",\
\"ports\":[{\"name\":\"http\",\"port\":80,\"protocol\":\"TCP\",\"targetPort\":8080}],\
\"ports\":[{\"port\":80,\"protocol\":\"TCP\",\"targetPort\":80}],\
\"selector\":{\"app.kubernetes.io/name\":\"\
\"selector\":{\"app\":\"\
\"},\"sessionAffinity\":\"None\",\"type\":\"LoadBalancer\"}}";

const PLAIN: u64 = 0;
const COPY: u64 = 1;
const DIGITS: u64 = 2;

/// How many bits say which.
const KIND: u32 = 2;

/// Fewer bytes are no shorter as a reference.
const SHORTEST: usize = 4;

/// Fewer pairs of digits are no hash.
const FEWEST_PAIRS: usize = 8;

/// After so many bytes that are in no reference one is skipped at a time, then two, and so on up to
/// as many: a long text that has nothing in common with others takes little work.
const STRIDE: usize = 64;

/// The most bytes that are made from a dense form: beyond every object of an API server.
const MOST: usize = 64 << 20;

/// Room for most rows.
const LIKELY: usize = 4096;

/// Where the phrases have a beginning of so many bytes.
static IN_PHRASES: LazyLock<Places<2048>> = LazyLock::new(|| {
    let mut places = Places::none();
    for (place, beginning) in PHRASES.windows(SHORTEST).enumerate() {
        places.note(beginning, place);
    }
    places
});

/// Where a beginning was seen last, by its hash. What is found there may be another one.
struct Places<const N: usize>([u32; N]);

/// Bytes that are there already: from where, and how many.
#[derive(Clone, Copy)]
struct Found {
    distance: usize,
    count: usize,
}

// === impl Places ===

impl<const N: usize> Places<N> {
    fn none() -> Self {
        Self([0; N])
    }

    fn note(&mut self, beginning: &[u8], place: usize) {
        // One more, because 0 says that there is none.
        let place = u32::try_from(place + 1).unwrap_or(0);
        if let Some(slot) = hash(beginning).and_then(|hash| self.0.get_mut(hash % N)) {
            *slot = place;
        }
    }

    fn find(&self, beginning: &[u8]) -> Option<usize> {
        let place = self.0.get(hash(beginning)? % N)?;
        usize::try_from(place.checked_sub(1)?).ok()
    }
}

/// Returns the dense form of bytes.
pub(crate) fn of(bytes: &[u8]) -> Box<[u8]> {
    let mut to = Writer::new();
    to.count(bytes.len());
    let mut seen = Places::<512>::none();
    let (mut at, mut plain_from) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let found = find(bytes, at, rest, &seen);
        seen.note(rest, at);
        let digits = pairs_of_digits(rest) * 2;
        let copied = found.map_or(0, |found| found.count);
        if digits.max(copied) == 0 {
            at += 1 + ((at - plain_from) / STRIDE).min(STRIDE);
            continue;
        }
        write_plain(&mut to, bytes, plain_from..at);
        if let Some(Found { distance, count }) = found.filter(|_| copied >= digits) {
            part(&mut to, COPY, count);
            to.count(distance);
        } else {
            part(&mut to, DIGITS, digits / 2);
            let value = |byte: u8, digit: &u8| (byte << 4) | value_of(*digit);
            for pair in rest.chunks_exact(2).take(digits / 2) {
                to.byte(pair.iter().fold(0, value));
            }
        }
        at += digits.max(copied);
        plain_from = at;
    }
    write_plain(&mut to, bytes, plain_from..bytes.len());
    to.finish()
}

/// Returns the bytes of a dense form; `None`: it is none.
pub(crate) fn open(dense: &[u8]) -> Option<Vec<u8>> {
    let mut from = Reader::new(dense);
    let length = from.count().filter(|length| *length <= MOST)?;
    let mut bytes = Vec::with_capacity(length.min(LIKELY));
    while bytes.len() < length {
        let head = from.number()?;
        let count = usize::try_from(head >> KIND).ok()?;
        match head & ((1 << KIND) - 1) {
            PLAIN => bytes.extend_from_slice(from.bytes(count)?),
            COPY => copy(&mut bytes, from.count()?, count)?,
            _ => bytes.extend(from.bytes(count)?.iter().flat_map(|byte| {
                [byte >> 4, byte & 0xf].map(|value| match value {
                    0..=9 => b'0' + value,
                    _ => b'a' - 10 + value,
                })
            })),
        }
    }
    (bytes.len() == length).then_some(bytes)
}

/// Returns how many bytes a dense form stands for.
pub(crate) fn length(dense: &[u8]) -> Option<usize> {
    Reader::new(dense).count()
}

fn part(to: &mut Writer, kind: u64, count: usize) {
    to.number(((count as u64) << KIND) | kind);
}

fn write_plain(to: &mut Writer, bytes: &[u8], range: std::ops::Range<usize>) {
    if let Some(plain) = bytes.get(range).filter(|plain| !plain.is_empty()) {
        part(to, PLAIN, plain.len());
        to.bytes(plain);
    }
}

/// Appends what stands so far before the end of the bytes, or of the phrases before them.
fn copy(bytes: &mut Vec<u8>, distance: usize, count: usize) -> Option<()> {
    if let Some(first) = bytes.len().checked_sub(distance) {
        let end = first.checked_add(count).filter(|end| *end <= bytes.len())?;
        bytes.extend_from_within(first..end);
    } else {
        let first = (PHRASES.len() + bytes.len()).checked_sub(distance)?;
        bytes.extend_from_slice(PHRASES.get(first..first.checked_add(count)?)?);
    }
    Some(())
}

/// Finds the longest that is known of where the rest begins with it.
fn find(bytes: &[u8], at: usize, rest: &[u8], seen: &Places<512>) -> Option<Found> {
    let before = seen.find(rest).and_then(|place| {
        let count = common(bytes.get(place..at)?, rest);
        let distance = at - place;
        Some(Found { distance, count })
    });
    let in_phrases = IN_PHRASES.find(rest).and_then(|place| {
        let count = common(PHRASES.get(place..)?, rest);
        let distance = PHRASES.len() + at - place;
        Some(Found { distance, count })
    });
    let found = before.into_iter().chain(in_phrases);
    found
        .filter(|found| found.count >= SHORTEST)
        // Of two that are as long, the first: it is nearer.
        .reduce(|one, other| if other.count > one.count { other } else { one })
}

/// Returns how many bytes are the same at the beginning of both.
fn common(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// Returns how many pairs of digits a hash has that stands first; 0: there is none.
fn pairs_of_digits(rest: &[u8]) -> usize {
    let is_digit = |byte: &&u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(*byte);
    let pairs = rest.iter().take_while(is_digit).count() / 2;
    if pairs < FEWEST_PAIRS { 0 } else { pairs }
}

fn value_of(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

fn hash(beginning: &[u8]) -> Option<usize> {
    let first: &[u8; SHORTEST] = beginning.first_chunk()?;
    let mixed = u32::from_le_bytes(*first).wrapping_mul(0x9e37_79b1);
    usize::try_from(mixed >> 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces that occur in each other, in phrases and in hashes.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<Vec<u8>>(),
            "[a-f0-9]{0,70}".prop_map(String::into_bytes),
            "(ab|abc){0,30}".prop_map(String::into_bytes),
            (any::<prop::sample::Index>(), 0..200_usize).prop_map(|(from, count)| {
                let rest = &PHRASES[from.index(PHRASES.len())..];
                rest[..count.min(rest.len())].to_vec()
            }),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn bytes_are_read_back_as_they_were(bytes in any_bytes()) {
            let dense = of(&bytes);
            prop_assert_eq!(open(&dense), Some(bytes.clone()));
            prop_assert_eq!(length(&dense), Some(bytes.len()));
            // What can't be made shorter takes a few bytes more.
            prop_assert!(dense.len() <= bytes.len() + 8 + bytes.len() / 16);
        }

        #[test]
        fn other_bytes_are_nothing_or_others(
            bytes in any_bytes(),
            other in any::<Vec<u8>>(),
            (cut, changed, byte) in any::<(prop::sample::Index, prop::sample::Index, u8)>(),
        ) {
            let mut dense = of(&bytes).into_vec();
            let part = &dense[..cut.index(dense.len())];
            prop_assert_eq!(open(part), None);
            // Whatever it is, it ends, and takes no more room than it may.
            prop_assert!(open(&other).is_none_or(|bytes| bytes.len() <= MOST));
            let changed = changed.index(dense.len());
            dense[changed] = byte;
            prop_assert!(open(&dense).is_none_or(|bytes| bytes.len() <= MOST));
        }
    }

    #[test]
    fn a_form_that_refers_to_what_is_not_there_or_too_large_is_nothing() {
        let form = |length: usize, kind: u64, count: usize, distance: usize| {
            let mut to = Writer::new();
            to.count(length);
            part(&mut to, kind, count);
            to.count(distance);
            to.finish()
        };
        let all = PHRASES.len();
        assert_eq!(open(&form(all, COPY, all, all)).as_deref(), Some(PHRASES));
        for (count, distance) in [
            (1, 0),
            (2, 1),
            (1, all + 1),
            (all + 1, all),
            (9, usize::MAX),
        ] {
            assert_eq!(open(&form(count, COPY, count, distance)), None);
        }
        assert_eq!(open(&form(4, COPY, usize::MAX >> KIND, all)), None);
        assert_eq!(open(&form(4, PLAIN, usize::MAX >> KIND, 0)), None);
        assert_eq!(open(&form(MOST + 1, COPY, 4, all)), None);
        // Parts of nothing end with the form.
        assert_eq!(open(&form(4, COPY, 0, 0)), None);
        assert_eq!(open(&[]), None);
    }

    #[test]
    fn a_long_text_is_read_back_and_what_follows_it_is_found() {
        let mut state = 1_u32;
        let mut any_byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let noise: Vec<u8> = (0..300_000).map(|_| any_byte()).collect();
        let phrases = PHRASES.repeat(30);
        for bytes in [
            vec![b'x'; 300_000],
            noise.clone(),
            [noise, phrases].concat(),
        ] {
            let dense = of(&bytes);
            assert_eq!(open(&dense), Some(bytes.clone()));
            assert!(dense.len() <= 310_000, "{}", dense.len());
        }
    }

    #[test]
    fn what_many_services_say_takes_no_room_and_a_hash_half_of_it() {
        assert!(of(b"every field and annotation is valid").len() <= 5);
        let hash = b"367b8bcc1bb458964a181ac3981bf2c2b87a57eb434a775ed5142d19d6f86576";
        assert_eq!(of(hash).len(), 1 + 2 + 32);
    }
}
