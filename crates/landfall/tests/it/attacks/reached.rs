//! Which limit an abuse is to reach, and whether it did: one whose clients are too few for it would
//! pass for one that is withstood.

use std::time::Instant;

use super::abuse::{Abuse, FEW, HASTY, QUEUED, REQUESTS, SOURCE, STREAM};
use crate::lab::{DEADLINE, LOOK, Lab};

impl Abuse {
    /// The port where it is refused, and the reason under which that is counted.
    pub fn reaches(self) -> Option<(u16, &'static str)> {
        match self {
            Self::Crowd => Some((STREAM, "share")),
            Self::SourceCrowd => Some((SOURCE, "source_limit")),
            Self::Hasty => Some((HASTY, "source_rate")),
            Self::Requests => Some((REQUESTS, "source_rate")),
            Self::Queue => Some((QUEUED, "queue")),
            Self::Few => Some((FEW, "limit")),
            Self::Silence
            | Self::SilentHttp
            | Self::SlowHeads
            | Self::LongHeads
            | Self::Pipelines
            | Self::Extensions
            | Self::Trailers
            | Self::Tunnels
            | Self::HalfHellos
            | Self::Names
            | Self::ClosedWindows
            | Self::Settings
            | Self::Priorities
            | Self::Continuations
            | Self::Resets
            | Self::Pings
            | Self::Datagrams
            | Self::Claims
            | Self::EndlessClaims => None,
        }
    }

    /// How often the misused Service refused for it, until now.
    pub async fn refused(self, lab: &Lab) -> u64 {
        let Some((port, reason)) = self.reaches() else {
            return 0;
        };
        let of = format!("listener=\"{port}/");
        let why = format!("reason=\"{reason}\"");
        sum(lab, "landfall_listener_refused_total", |line| {
            line.contains("namespace=\"rude\"") && line.contains(&of) && line.contains(&why)
        })
        .await
    }

    /// Waits until it was refused more often than `before`; does not wait where nothing refuses it.
    pub async fn reached(self, lab: &Lab, before: u64) {
        let began = Instant::now();
        while self.reaches().is_some() && self.refused(lab).await <= before {
            assert!(began.elapsed() < DEADLINE, "{self:?} reaches no limit");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What the series of a metric add up to, of those lines that count.
pub async fn sum(lab: &Lab, metric: &str, counts: impl Fn(&str) -> bool) -> u64 {
    let metrics = lab.text("/metrics?members=false").await;
    let lines = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(metric);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && counts(line)
    });
    let counts = lines.filter_map(|line| {
        let count = line.rsplit(' ').next()?;
        count.split('.').next()?.parse::<u64>().ok()
    });
    counts.sum()
}
