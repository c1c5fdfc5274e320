//! A sign of life of the loop: when it last turned.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When something last happened.
#[derive(Debug)]
pub struct Heartbeat(Mutex<Instant>);

// === impl Heartbeat ===

impl Default for Heartbeat {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Heartbeat {
    /// It happened now.
    pub fn beat(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// How long ago it last happened.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
