//! `BFDProfile` (`v1beta1`): how the loss of a router is detected (RFC 5880).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fields::Fields;

/// A `BFDProfile`. What is left out is filled in with the defaults of FRR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdProfile {
    /// The shortest interval at which packets are received.
    pub receive_interval: Duration,
    /// The shortest interval at which packets are sent.
    pub transmit_interval: Duration,
    /// How many packets may be lost.
    pub detect_multiplier: u8,
    /// Whether echo packets are used.
    pub echo_mode: bool,
    /// The shortest interval of echo packets.
    pub echo_interval: Duration,
    /// Whether the other side begins.
    pub passive_mode: bool,
    /// The smallest TTL of packets over several hops; `None`: any.
    pub minimum_ttl: Option<u8>,
    /// The key of all packets: annotations, which MetalLB does not have.
    pub key: Option<BfdKey>,
}

/// A key that both sides have (RFC 5880, 6.7.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdKey {
    /// The name of the Secret that holds it, in the namespace of the profile.
    pub secret: String,
    /// The number that both sides have for it.
    pub id: u8,
    /// Whether the sequence number grows with every packet.
    pub is_meticulous: bool,
}

/// The annotation with the name of the Secret that holds a key.
pub const KEY_SECRET: &str = "landfall.dev/bfd-key-secret";

/// The annotation with the number of the key.
pub const KEY_ID: &str = "landfall.dev/bfd-key-id";

/// The annotation by which the sequence number grows with every packet.
pub const KEY_METICULOUS: &str = "landfall.dev/bfd-key-meticulous";

/// The number of a key where none is written.
const DEFAULT_ID: u8 = 1;

/// Bounds of intervals, in milliseconds.
const INTERVAL: std::ops::RangeInclusive<u32> = 10..=60_000;

// === impl BfdProfile ===

impl BfdProfile {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut interval = |field, default: u32| {
            let millis = fields.number(field, INTERVAL).unwrap_or(default);
            Duration::from_millis(millis.into())
        };
        Self {
            receive_interval: interval("receiveInterval", 300),
            transmit_interval: interval("transmitInterval", 300),
            echo_interval: interval("echoInterval", 50),
            detect_multiplier: fields.number("detectMultiplier", 2..=255).unwrap_or(3),
            echo_mode: fields.flag("echoMode").unwrap_or(false),
            passive_mode: fields.flag("passiveMode").unwrap_or(false),
            minimum_ttl: fields.number("minimumTtl", 1..=254),
            key: None,
        }
    }

    /// Reads the annotations about the key. Where they are wrong, no packet would be taken.
    pub(crate) fn read_key(
        &mut self,
        fields: &mut Fields<'_, '_>,
        annotations: &BTreeMap<String, String>,
    ) {
        let get = |key| annotations.get(key).map(|value| value.trim());
        let id = get(KEY_ID).map_or(Ok(DEFAULT_ID), |value| {
            value.parse().inspect_err(|_| {
                let remedy = "write the number that the router has for the key";
                fields.refuse_annotation(KEY_ID, value, "not a number from 0 to 255", remedy);
            })
        });
        let is_meticulous = match get(KEY_METICULOUS) {
            None | Some("false") => false,
            Some("true") => true,
            Some(value) => {
                let (message, remedy) = ("neither true nor false", "write true or false");
                fields.refuse_annotation(KEY_METICULOUS, value, message, remedy);
                false
            }
        };
        let Some(secret) = get(KEY_SECRET) else {
            for key in [KEY_ID, KEY_METICULOUS] {
                if let Some(value) = get(key) {
                    let message = "there is no key that this is about";
                    let remedy = "name its Secret by landfall.dev/bfd-key-secret, or remove this";
                    fields.refuse_annotation(key, value, message, remedy);
                }
            }
            return;
        };
        if !is_name(secret) {
            let remedy = "write the name of a Secret in the namespace of the profile";
            fields.refuse_annotation(KEY_SECRET, secret, "not the name of a Secret", remedy);
        }
        self.key = id.ok().map(|id| BfdKey {
            secret: secret.to_owned(),
            id,
            is_meticulous,
        });
    }
}

/// Returns whether an object may have this name.
fn is_name(text: &str) -> bool {
    let is_part = |it: char| matches!(it, 'a'..='z' | '0'..='9' | '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(is_part)
}
