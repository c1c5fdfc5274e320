//! `BFDProfile` (`v1beta1`): how the loss of a router is detected (RFC 5880).

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
}

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
        }
    }
}
