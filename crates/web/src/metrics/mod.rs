//! Metrics: what Prometheus reads at `/metrics`.
//!
//! There is no registry that lives on. Each scrape renders one snapshot of the instance, so a
//! series vanishes with the Service, listener, member or pool that it was about, and the numbers of
//! one scrape belong together.

mod collect;
mod format;
mod page;
mod table;

use std::sync::Arc;
use std::time::Duration;

use landfall_model::view::{InstanceView, MetricsView};
use prometheus_client::registry::Registry;

pub use format::Format;
pub use table::{ALL, Kind, Metric, reference};

/// What is written of all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The series of single members, which are most of a large answer.
    pub members: bool,
    /// The histograms of listeners.
    pub histograms: bool,
}

impl Scope {
    /// Everything.
    pub const ALL: Self = Self {
        members: true,
        histograms: true,
    };
}

/// Returns a snapshot as `OpenMetrics` text.
///
/// # Errors
/// Only when the text can't grow.
pub fn encode(
    view: Arc<InstanceView>,
    engine: MetricsView,
    heartbeat_age: Duration,
    scope: Scope,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collect::Snapshot {
        view,
        engine,
        heartbeat_age,
        scope,
    }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
