//! Metrics: what Prometheus reads at `/metrics`.
//!
//! There is no registry that lives on. Each scrape renders one snapshot of the instance, so a series
//! vanishes with the Service, listener, member or pool that it was about, and the numbers of one
//! scrape belong together.

mod collect;
mod table;

use std::sync::Arc;
use std::time::Duration;

use landfall_model::view::{InstanceView, MetricsView};
use prometheus_client::registry::Registry;

pub use table::{ALL, Kind, Metric, reference};

/// The media type of what [`encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A snapshot as `OpenMetrics` text.
///
/// # Errors
/// Only when the text can't grow.
pub fn encode(
    view: Arc<InstanceView>,
    engine: MetricsView,
    heartbeat_age: Duration,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collect::Snapshot {
        view,
        engine,
        heartbeat_age,
    }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
