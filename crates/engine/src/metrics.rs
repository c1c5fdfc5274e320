//! Counters of the engine itself, as plain atomics; how they are shown is the web crate's business.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// What passes cost and how they ended.
#[derive(Debug, Default)]
pub struct Metrics {
    inner: Mutex<MetricsSnapshot>,
}

/// A copy of all counters at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSnapshot {
    /// Passes by their duration: upper bounds in seconds, and how many took at most that long
    /// (not cumulative).
    pub seconds: Vec<(f64, u64)>,
    /// Sum of all durations, in seconds.
    pub seconds_sum: f64,
    /// Number of passes.
    pub count: u64,
    /// Passes by outcome: `settled`, `refused`, `failed`, `busy`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Applied steps by their kind.
    pub steps: BTreeMap<String, u64>,
}

/// Upper bounds in seconds: a local pass takes microseconds, a cloud's tens of seconds.
const BOUNDS: [f64; 12] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, f64::INFINITY];

// === impl Metrics ===

impl Metrics {
    /// Counts a finished pass.
    pub fn pass(&self, took: Duration, outcome: &'static str) {
        let seconds = took.as_secs_f64();
        let mut inner = self.lock();
        inner.count += 1;
        inner.seconds_sum += seconds;
        *inner.outcomes.entry(outcome).or_default() += 1;
        if let Some((_, count)) = inner.seconds.iter_mut().find(|(bound, _)| seconds <= *bound) {
            *count += 1;
        }
    }

    /// Counts an applied step by the first word of what it does.
    pub fn step(&self, kind: &str) {
        *self.lock().steps.entry(kind.to_owned()).or_default() += 1;
    }

    /// All counters now.
    pub fn snapshot(&self) -> MetricsSnapshot {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, MetricsSnapshot> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Default for MetricsSnapshot {
    fn default() -> Self {
        Self {
            seconds: BOUNDS.iter().map(|&bound| (bound, 0)).collect(),
            seconds_sum: 0.0,
            count: 0,
            outcomes: BTreeMap::new(),
            steps: BTreeMap::new(),
        }
    }
}
