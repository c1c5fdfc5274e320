//! Datagrams that only holders of a key can write and read.
//!
//! ```text
//!   version 1 | key 4 | session 16 | number 8 | sealed packet | tag 16
//! ```
//!
//! Each session of each sender has a key of its own, derived from the shared one (HKDF, RFC 5869),
//! so that its datagrams can be numbered, and no nonce is used twice (AES-256-GCM).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::packet::SessionId;

/// Bytes in front of what is sealed.
const HEADER: usize = 29;

/// Bytes behind it.
const TAG: usize = 16;

const VERSION: u8 = 1;

/// Sessions whose keys are kept derived.
const DERIVED: usize = 1_024;

/// Bytes that a key has at least.
pub const SHORTEST_KEY: usize = 16;

/// A key that all members share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: [u8; 4],
    secret: Arc<[u8]>,
}

/// A key that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has {SHORTEST_KEY} bytes at least, this one has {0}")]
pub struct ShortKey(pub usize);

/// The keys: the first seals, all open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Seals.
    pub first: Key,
    /// Open beside the first.
    pub others: Vec<Key>,
}

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is of another version, or none of ours.
    Version,
    /// It is sealed with a key that is not among ours.
    Key,
    /// It was not written by a holder of the key, or was changed on its way.
    Forged,
}

/// A datagram that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The session of the sender.
    pub session: SessionId,
    /// The number within it.
    pub number: u64,
    /// What was sealed.
    pub packet: Vec<u8>,
}

/// Seals what this process sends, and opens what it receives.
pub struct Sealer {
    keys: Keys,
    session: SessionId,
    number: u64,
    own: Option<LessSafeKey>,
    derived: HashMap<([u8; 4], SessionId), LessSafeKey>,
}

// === impl Key ===

impl Key {
    /// Makes a key of any secret bytes.
    pub fn new(secret: &[u8]) -> Result<Self, ShortKey> {
        if secret.len() < SHORTEST_KEY {
            return Err(ShortKey(secret.len()));
        }
        let mut hash = Context::new(&SHA256);
        hash.update(b"landfall membership, name of a key\0");
        hash.update(secret);
        let hash = hash.finish();
        Ok(Self {
            id: hash.as_ref().first_chunk().copied().unwrap_or_default(),
            secret: secret.into(),
        })
    }

    fn derive(&self, session: SessionId) -> Result<LessSafeKey, Unspecified> {
        let secret = Salt::new(HKDF_SHA256, &session.0).extract(&self.secret);
        let key = secret.expand(&[b"landfall membership 1"], &AES_256_GCM)?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

// === impl Keys ===

impl Keys {
    fn find(&self, id: [u8; 4]) -> Option<&Key> {
        let mut all = [&self.first].into_iter().chain(&self.others);
        all.find(|key| key.id == id)
    }
}

// === impl Sealer ===

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Sealer");
        debug
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// A sealer for a session, which must be one that was never used before.
    pub fn new(keys: Keys, session: SessionId) -> Self {
        let own = keys.first.derive(session).ok();
        Self {
            keys,
            session,
            number: 0,
            own,
            derived: HashMap::new(),
        }
    }

    /// Replaces the keys.
    pub fn set_keys(&mut self, keys: Keys) {
        self.own = keys.first.derive(self.session).ok();
        self.derived.retain(|(id, _), _| keys.find(*id).is_some());
        self.keys = keys;
    }

    /// The session of this process.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Begins another session, which must be one that was never used before.
    pub fn begin(&mut self, session: SessionId) {
        self.session = session;
        self.own = self.keys.first.derive(session).ok();
    }

    /// Returns the datagram with this packet; `None` if the cipher refuses it.
    pub fn seal(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        self.number = self.number.checked_add(1)?;
        let mut datagram = Vec::with_capacity(HEADER + packet.len() + TAG);
        datagram.push(VERSION);
        datagram.extend_from_slice(&self.keys.first.id);
        datagram.extend_from_slice(&self.session.0);
        datagram.extend_from_slice(&self.number.to_be_bytes());
        datagram.extend_from_slice(packet);
        let (header, sealed) = datagram.split_at_mut_checked(HEADER)?;
        let nonce = nonce(self.number);
        let own = self.own.as_ref()?;
        let tag = own.seal_in_place_separate_tag(nonce, Aad::from(&*header), sealed);
        datagram.extend_from_slice(tag.ok()?.as_ref());
        Some(datagram)
    }

    /// Opens a datagram.
    pub fn open(&mut self, datagram: &[u8]) -> Result<Opened, Refused> {
        let (header, sealed) = datagram
            .split_first_chunk::<HEADER>()
            .ok_or(Refused::Version)?;
        let [version, rest @ ..] = header;
        if *version != VERSION || sealed.len() < TAG {
            return Err(Refused::Version);
        }
        let (id, rest) = rest.split_first_chunk().ok_or(Refused::Version)?;
        let (session, rest) = rest.split_first_chunk().ok_or(Refused::Version)?;
        let (number, _) = rest.split_first_chunk().ok_or(Refused::Version)?;
        let (session, number) = (SessionId(*session), u64::from_be_bytes(*number));
        let key = self.keys.find(*id).ok_or(Refused::Key)?;
        let mut packet = sealed.to_vec();
        let mut open = |key: &LessSafeKey| {
            let opened = key.open_in_place(nonce(number), Aad::from(header), &mut packet);
            opened
                .map(|opened| opened.len())
                .map_err(|_| Refused::Forged)
        };
        let length = if let Some(derived) = self.derived.get(&(*id, session)) {
            open(derived)?
        } else {
            let derived = key.derive(session).map_err(|_| Refused::Key)?;
            let length = open(&derived)?;
            if self.derived.len() >= DERIVED {
                self.derived.clear();
            }
            self.derived.insert((*id, session), derived);
            length
        };
        packet.truncate(length);
        Ok(Opened {
            session,
            number,
            packet,
        })
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    if let Some(end) = nonce.last_chunk_mut() {
        *end = number.to_be_bytes();
    }
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secrets: &[&str]) -> Keys {
        let mut keys = secrets.iter().map(|it| Key::new(it.as_bytes()).unwrap());
        Keys {
            first: keys.next().unwrap(),
            others: keys.collect(),
        }
    }

    const ONE: &str = "the first of the keys";
    const TWO: &str = "the second of the keys";

    fn sealer(secrets: &[&str], session: u8) -> Sealer {
        Sealer::new(keys(secrets), SessionId([session; 16]))
    }

    #[test]
    fn what_is_sealed_is_opened_with_session_and_number() {
        let (mut sender, mut receiver) = (sealer(&[ONE], 1), sealer(&[ONE], 2));
        for number in 1..4 {
            let datagram = sender.seal(b"hello").unwrap();
            assert!(!datagram.windows(5).any(|it| it == b"hello"));
            let expected = Opened {
                session: SessionId([1; 16]),
                number,
                packet: b"hello".to_vec(),
            };
            assert_eq!(receiver.open(&datagram), Ok(expected));
        }
    }

    #[test]
    fn a_datagram_that_was_changed_anywhere_is_refused() {
        let datagram = sealer(&[ONE], 1).seal(b"hello").unwrap();
        let mut receiver = sealer(&[ONE], 2);
        receiver.open(&datagram).unwrap();
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            receiver.open(&changed).unwrap_err();
            receiver.open(&datagram[..at]).unwrap_err();
        }
    }

    #[test]
    fn keys_are_rotated_without_a_datagram_refused() {
        let (mut one, mut other) = (sealer(&[ONE], 1), sealer(&[ONE], 2));
        let steps: [&[&str]; 4] = [&[ONE], &[ONE, TWO], &[TWO, ONE], &[TWO]];
        for step in steps {
            for is_first in [true, false] {
                let turned = if is_first { &mut one } else { &mut other };
                turned.set_keys(keys(step));
                let datagram = one.seal(b"hello").unwrap();
                other.open(&datagram).unwrap();
                let datagram = other.seal(b"hello").unwrap();
                one.open(&datagram).unwrap();
            }
        }
        let stale = sealer(&[ONE], 3).seal(b"hello").unwrap();
        assert_eq!(one.open(&stale), Err(Refused::Key));
    }

    #[test]
    fn a_key_is_not_printed_and_not_short() {
        let debug = format!("{:?}", keys(&[ONE]));
        assert!(
            !debug.contains("first of") && debug.contains("Key(..)"),
            "{debug}"
        );
        assert_eq!(Key::new(b"short"), Err(ShortKey(5)));
    }
}
