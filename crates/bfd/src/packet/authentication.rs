//! Keyed SHA1 and meticulous keyed SHA1 (RFC 5880, sections 4.4 and 6.7.4).

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use secrecy::{ExposeSecret as _, SecretBox};

use super::HEADER;

/// Bytes of a section, and the value of its length field.
pub const SECTION: usize = 28;

/// Bytes of a digest, and of a key that is filled up.
const DIGEST: usize = 20;

/// Where the digest begins in a packet.
const DIGEST_AT: usize = HEADER + SECTION - DIGEST;

/// How packets are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Keyed SHA1: the sequence number may stay.
    KeyedSha1,
    /// Meticulous keyed SHA1: the sequence number grows with every packet.
    MeticulousKeyedSha1,
}

/// A key that both sides have.
#[derive(Clone)]
pub struct Key {
    /// How it is used.
    pub method: Method,
    /// The number that both sides have for it.
    pub id: u8,
    secret: std::sync::Arc<SecretBox<[u8; DIGEST]>>,
}

/// An authentication section of SHA1, of either method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The method.
    pub method: Method,
    /// The number of the key.
    pub key_id: u8,
    /// The sequence number, against repeated packets.
    pub sequence: u32,
    /// The digest over the packet with the key in this place.
    pub digest: [u8; DIGEST],
}

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key for SHA1 has 1 to 20 bytes, not {0}")]
pub struct KeyLength(pub usize);

// === impl Method ===

impl Method {
    fn number(self) -> u8 {
        match self {
            Self::KeyedSha1 => 4,
            Self::MeticulousKeyedSha1 => 5,
        }
    }
}

// === impl Key ===

impl Key {
    /// Takes a secret of 1 to 20 bytes.
    pub fn new(method: Method, id: u8, secret: &[u8]) -> Result<Self, KeyLength> {
        let mut filled = Box::new([0; DIGEST]);
        if secret.is_empty() || secret.len() > DIGEST {
            return Err(KeyLength(secret.len()));
        }
        for (place, byte) in filled.iter_mut().zip(secret) {
            *place = *byte;
        }
        Ok(Self {
            method,
            id,
            secret: std::sync::Arc::new(SecretBox::new(filled)),
        })
    }

    /// Returns a section that has no digest yet.
    pub fn section(&self, sequence: u32) -> Section {
        Section {
            method: self.method,
            key_id: self.id,
            sequence,
            digest: [0; DIGEST],
        }
    }

    /// Writes the digest into a packet that ends with a section of this key.
    pub fn seal(&self, packet: &mut [u8]) {
        let digest = self.digest(packet);
        if let Some(place) = packet.get_mut(DIGEST_AT..DIGEST_AT + DIGEST) {
            place.copy_from_slice(&digest);
        }
    }

    /// Returns whether the section of a packet is of this key and its digest is right.
    pub fn verify(&self, packet: &[u8], section: &Section) -> bool {
        section.method == self.method
            && section.key_id == self.id
            && packet.len() >= HEADER + SECTION
            && verify_slices_are_equal(&self.digest(packet), &section.digest).is_ok()
    }

    fn digest(&self, packet: &[u8]) -> [u8; DIGEST] {
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(packet.get(..DIGEST_AT).unwrap_or_default());
        context.update(self.secret.expose_secret());
        let digest = context.finish();
        digest.as_ref().first_chunk().copied().unwrap_or_default()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let secrets = [self, other].map(|it| it.secret.expose_secret());
        self.method == other.method
            && self.id == other.id
            && verify_slices_are_equal(secrets[0], secrets[1]).is_ok()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, id {})", self.method, self.id)
    }
}

// === impl Section ===

impl Section {
    /// Reads what follows the fixed part of a packet. Sections of other methods are none of ours.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let section: &[u8; SECTION] = bytes.try_into().ok()?;
        let ([number, length, key_id, _reserved], rest) = section.split_first_chunk()?;
        let method = match number {
            4 => Method::KeyedSha1,
            5 => Method::MeticulousKeyedSha1,
            _ => return None,
        };
        if usize::from(*length) != SECTION {
            return None;
        }
        let (sequence, digest) = rest.split_first_chunk()?;
        Some(Self {
            method,
            key_id: *key_id,
            sequence: u32::from_be_bytes(*sequence),
            digest: digest.try_into().ok()?,
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.method.number(), SECTION as u8, self.key_id, 0];
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.digest);
        bytes
    }
}
