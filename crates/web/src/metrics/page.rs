//! The text of one scrape: series of the table's metrics, in the encoder's hands. Knows no view of
//! an instance beyond histograms.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;

use landfall_model::view::{HistogramView, TimesView};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::table::{Kind, Metric};

/// Label values in the order of the table.
pub(super) type Labels = Vec<String>;

/// A metric, and where a view has its number.
pub(super) type Counted<View> = (&'static Metric, fn(&View) -> u64);

/// Writes metrics one after the other.
pub(super) struct Page<'a>(DescriptorEncoder<'a>);

// === impl Page ===

impl<'a> Page<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// A number without labels.
    pub(super) fn one(&mut self, metric: &Metric, value: u64) -> fmt::Result {
        self.series(metric, iter::once((Labels::new(), value)))
    }

    pub(super) fn gauge(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.series(metric, series)
    }

    /// Series of one metric. Equal labels are added up: two equal series would spoil the scrape.
    pub(super) fn series(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut sums = BTreeMap::<Labels, u64>::new();
        for (labels, value) in series {
            let sum = sums.entry(labels).or_default();
            *sum = sum.saturating_add(value);
        }
        self.describe(metric, |mut encoder| {
            for (values, value) in &sums {
                sample(&mut encoder, metric, values, *value)?;
            }
            Ok(())
        })
    }

    /// Writes several metrics that are about the same objects. Equal labels are added up, too.
    pub(super) fn table<View>(
        &mut self,
        metrics: &[Counted<View>],
        mut rows: Vec<(Labels, &View)>,
    ) -> fmt::Result {
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (metric, count) in metrics {
            self.describe(metric, |mut encoder| {
                for same in rows.chunk_by(|(one, _), (other, _)| one == other) {
                    let Some((labels, _)) = same.first() else {
                        continue;
                    };
                    let counts = same.iter().map(|(_, view)| count(view));
                    sample(
                        &mut encoder,
                        metric,
                        labels,
                        counts.fold(0, u64::saturating_add),
                    )?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A measured value without labels, if there is one.
    pub(super) fn measure(&mut self, metric: &Metric, value: Option<f64>) -> fmt::Result {
        self.describe(metric, |mut encoder| match value {
            Some(value) => encoder.encode_gauge(&value),
            None => Ok(()),
        })
    }

    pub(super) fn info(&mut self, metric: &Metric, values: &[String]) -> fmt::Result {
        self.describe(metric, |mut encoder| {
            encoder.encode_info(&named(metric, values))
        })
    }

    pub(super) fn histogram(&mut self, metric: &Metric, observed: &HistogramView) -> fmt::Result {
        let mut buckets = observed.buckets.clone();
        let within: u64 = buckets.iter().map(|(_, count)| count).sum();
        buckets.push((f64::INFINITY, observed.count.saturating_sub(within)));
        self.describe(metric, |mut encoder| {
            encoder.encode_histogram::<NoLabelSet>(observed.sum, observed.count, &buckets, None)
        })
    }

    /// Histograms of one metric. Those with equal labels are added up.
    pub(super) fn histograms<'v>(
        &mut self,
        metric: &Metric,
        series: impl Iterator<Item = (Labels, &'v TimesView)>,
    ) -> fmt::Result {
        let mut sums = BTreeMap::<Labels, TimesView>::new();
        for (labels, times) in series {
            sums.entry(labels).or_default().add(times);
        }
        self.describe(metric, |mut encoder| {
            for (values, times) in &sums {
                let within: u64 = times.buckets.iter().map(|(_, count)| count).sum();
                let above = (f64::INFINITY, times.count.saturating_sub(within));
                let bounds = times.buckets.iter();
                let buckets: Vec<_> = bounds
                    .map(|&(bound, count)| (seconds(bound), count))
                    .chain(iter::once(above))
                    .collect();
                let labels = named(metric, values);
                encoder
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(
                        seconds(times.sum),
                        times.count,
                        &buckets,
                        None,
                    )?;
            }
            Ok(())
        })
    }

    fn describe(
        &mut self,
        metric: &Metric,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
        write(
            self.0
                .encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?,
        )
    }
}

/// Of microseconds.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn named<'a>(metric: &Metric, values: &'a [String]) -> Vec<(&'static str, &'a str)> {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    metric
        .labels
        .iter()
        .copied()
        .zip(values.iter().map(String::as_str))
        .collect()
}

fn sample(
    encoder: &mut MetricEncoder<'_>,
    metric: &Metric,
    values: &[String],
    value: u64,
) -> fmt::Result {
    if values.is_empty() {
        return number(encoder, metric.kind, value);
    }
    let labels = named(metric, values);
    number(&mut encoder.encode_family(&labels)?, metric.kind, value)
}

fn number(encoder: &mut MetricEncoder<'_>, kind: Kind, value: u64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        Kind::Gauge | Kind::Histogram | Kind::Info => {
            encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
        }
    }
}
