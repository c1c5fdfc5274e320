//! Time and ids, both of which can be replayed: tokio's clock, and a counter with a seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Returns the time as the simulated servers write it.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// Seconds since 1970 at `start`. Whole ones, so that the fraction is the same in every run.
    epoch: i64,
}

impl Clock {
    pub fn new(epoch: Option<i64>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
        Self {
            start: Instant::now(),
            epoch: epoch.unwrap_or(now),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.at(Duration::ZERO)
    }

    /// Seconds since 1970 at that instant.
    pub fn seconds_at(&self, at: Instant) -> i64 {
        let since = at.saturating_duration_since(self.start).as_secs();
        self.epoch + i64::try_from(since).unwrap_or(0)
    }

    fn at(&self, later: Duration) -> i64 {
        let since = (self.elapsed() + later).as_secs();
        self.epoch + i64::try_from(since).unwrap_or(0)
    }

    /// As Octavia writes it: no zone, whole seconds.
    pub fn plain(&self) -> String {
        plain(self.seconds())
    }

    /// As Neutron writes it.
    pub fn zulu(&self) -> String {
        format!("{}Z", self.plain())
    }

    /// As Keystone writes it, some time ahead.
    pub fn expiry(&self, later: Duration) -> String {
        format!("{}.000000Z", plain(self.at(later)))
    }
}

/// A time in seconds since 1970 without a zone.
pub(super) fn plain(seconds: i64) -> String {
    let stamp = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Numbers that look random and aren't (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        let fraction = (self.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction < probability
    }

    /// Below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll().checked_rem(end).unwrap_or(0)
    }

    /// An id in the form of a random UUID.
    pub fn uuid(&mut self) -> String {
        let (high, low) = (self.roll(), self.roll());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }
}
