//! What Landfall counted of what went wrong, for a benchmark that failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::contestant::Contestant;
use crate::bench::admin;

/// What may be the cause where a client failed.
const NAMES: [&str; 4] = [
    "landfall_listener_refused_total",
    "landfall_listener_local_failures_total",
    "landfall_listener_broken_total",
    "landfall_member_connections_failed_total",
];

/// Series with their values.
#[derive(Debug, Default)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Asks for them now. None of other proxies, nor of one that does not answer.
    pub async fn of(contestant: Contestant) -> Self {
        if contestant != Contestant::Landfall {
            return Self::default();
        }
        let admin = contestant.addresses().admin();
        let text = admin::get(admin.into(), "/metrics").await;
        Self::read(&text.unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let wanted = text
            .lines()
            .filter(|line| NAMES.iter().any(|name| line.starts_with(name)));
        let series = wanted.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// What has grown since, a line each.
    pub fn since(&self, before: &Self) -> String {
        let mut text = String::new();
        for (series, count) in &self.0 {
            let more = count.saturating_sub(before.0.get(series).copied().unwrap_or_default());
            if more > 0 {
                let _ = writeln!(text, "{series} +{more}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_that_came_since_are_printed() {
        let before = Counters::read(
            "# TYPE landfall_listener_refused_total counter\n\
             landfall_listener_refused_total{reason=\"tls\"} 2\n\
             landfall_listener_broken_total{cause=\"member_reset\"} 1\n",
        );
        let after = Counters::read(
            "landfall_listener_refused_total{reason=\"tls\"} 2\n\
             landfall_listener_broken_total{cause=\"member_reset\"} 4\n\
             landfall_listener_local_failures_total{cause=\"ports\"} 1\n\
             landfall_listener_sent_bytes_total 100\n",
        );
        assert_eq!(
            after.since(&before),
            "landfall_listener_broken_total{cause=\"member_reset\"} +3\n\
             landfall_listener_local_failures_total{cause=\"ports\"} +1\n"
        );
        assert_eq!(after.since(&after), "");
    }
}
