//! Counters of the engine itself; how they are shown is the web crate's business.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_model::view::{HistogramView, MetricsView, SecretsView};

use crate::report::EventCounts;

/// What reconciles cost and how they ended.
#[derive(Debug)]
pub struct Metrics {
    view: Mutex<MetricsView>,
}

/// Upper bounds in seconds: a local reconcile takes microseconds, a cloud's tens of seconds.
const BOUNDS: [f64; 11] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0,
];

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        let buckets = BOUNDS.iter().map(|&bound| (bound, 0)).collect();
        let reconcile_seconds = HistogramView {
            buckets,
            ..HistogramView::default()
        };
        Self {
            view: Mutex::new(MetricsView {
                reconcile_seconds,
                ..MetricsView::default()
            }),
        }
    }
}

impl Metrics {
    /// Counts a finished reconcile.
    pub fn reconcile(&self, took: Duration, outcome: &str) {
        let seconds = took.as_secs_f64();
        let mut view = self.lock();
        *view.reconciles.entry(outcome.to_owned()).or_default() += 1;
        let histogram = &mut view.reconcile_seconds;
        histogram.count += 1;
        histogram.sum += seconds;
        if let Some((_, count)) = histogram
            .buckets
            .iter_mut()
            .find(|(bound, _)| seconds <= *bound)
        {
            *count += 1;
        }
    }

    /// Counts a step that was carried out.
    pub fn step(&self, kind: &str) {
        *self.lock().steps.entry(kind.to_owned()).or_default() += 1;
    }

    /// Counts a step that failed.
    pub fn failed_step(&self, kind: &str) {
        *self.lock().failed_steps.entry(kind.to_owned()).or_default() += 1;
    }

    /// Counts a turn of the loop, and notes how many Services wait for a reconcile.
    pub fn turn(&self, depth: usize) {
        let mut view = self.lock();
        view.turns += 1;
        view.queued = depth as u64;
    }

    /// Counts a status of ours that another program rewrote.
    pub fn rewrite(&self) {
        self.lock().status_rewrites += 1;
    }

    /// Notes how many events did not become events of their own.
    pub fn events(&self, counts: EventCounts) {
        let mut view = self.lock();
        view.events_aggregated = counts.aggregated;
        view.events_dropped = counts.dropped;
    }

    /// Notes how many Secrets are watched.
    pub fn secrets(&self, secrets: SecretsView) {
        self.lock().secrets = Some(secrets);
    }

    /// All counters now.
    pub fn view(&self) -> MetricsView {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, MetricsView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_counted_once_in_the_lowest_bucket_that_holds_it() {
        let metrics = Metrics::default();
        metrics.reconcile(Duration::from_millis(2), "settled");
        metrics.reconcile(Duration::from_secs(60), "failed");
        let view = metrics.view();
        let filled: Vec<_> = view
            .reconcile_seconds
            .buckets
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(filled, [&(0.003, 1)]);
        assert_eq!(view.reconcile_seconds.count, 2);
        assert_eq!(view.reconciles["failed"], 1);
    }
}
