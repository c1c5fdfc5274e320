//! What a port says of sources and of members' limits becomes part of its listener.

use landfall_model::dialect::ModeChoice;
use landfall_model::protection::{Protection, SourceLimits};

use super::findings::Findings;
use super::layers::{Choice, Layers};

/// What one source may have.
pub(super) fn of_sources(
    layers: Layers<'_>,
    mode: Option<&Choice<'_, ModeChoice>>,
    findings: &mut Findings<'_>,
) -> SourceLimits {
    let reads = mode.is_some_and(|mode| mode.given.value.reads_requests());
    let connections = layers.take(findings, |port| &port.source_connection_limit);
    let connection_rate = layers.take(findings, |port| &port.source_connection_rate);
    let request_rate = layers.take_if(
        findings,
        reads,
        "only ports in mode http and https parse requests",
        |port| &port.source_request_rate,
    );
    SourceLimits {
        connections: connections.copied().flatten(),
        connection_rate: connection_rate.copied().flatten(),
        request_rate: request_rate.copied().flatten(),
    }
}

/// What members are spared.
pub(super) fn of_members(layers: Layers<'_>, tcp: bool, findings: &mut Findings<'_>) -> Protection {
    let defaults = Protection::default();
    let connections = layers.take(findings, |port| &port.member_connection_limit);
    let connections = connections.copied().flatten();
    let queues = tcp && connections.is_some();
    let no_queue = "only with a limit for members of a TCP port does a queue exist";
    let queue = layers.take_if(findings, queues, no_queue, |port| &port.member_queue);
    let timeout = layers.take_if(findings, queues, no_queue, |port| {
        &port.member_queue_timeout
    });
    let slow_start = layers.take(findings, |port| &port.slow_start);
    let outliers = layers.take_if(
        findings,
        tcp,
        "failures of members are not detected on UDP ports",
        |port| &port.outlier_detection,
    );
    let retries = layers.take(findings, |port| &port.retry_budget);
    Protection {
        connections,
        queue: queue.copied().unwrap_or(defaults.queue),
        queue_timeout: timeout.copied().unwrap_or(defaults.queue_timeout),
        slow_start: slow_start.copied().unwrap_or(defaults.slow_start),
        outlier_failures: outliers.copied().flatten(),
        retry_budget: retries.copied().unwrap_or(defaults.retry_budget),
    }
}
