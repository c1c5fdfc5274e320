//! The figures that scenarios yield.

use std::fmt;

use serde::Serialize;

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    GbitPerCpuSecond,
    GbitPerSecond,
    CpuPerConnection,
    ConnectionsPerSecond,
    ConnectionsDone,
    ConnectionsFailed,
    Slowest,
    CpuPerRequest,
    RequestsPerSecond,
    LatencyP50,
    LatencyP99,
    MemoryAtRest,
    MemoryIdle,
    MemoryPerConnection,
    CpuShare,
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    /// It only helps to read the others.
    Neither,
}

/// What one measurement came to.
pub type Figures = Vec<(Figure, f64)>;

impl Figure {
    pub fn better(self) -> Better {
        match self {
            Self::GbitPerCpuSecond
            | Self::GbitPerSecond
            | Self::ConnectionsPerSecond
            | Self::ConnectionsDone
            | Self::RequestsPerSecond => Better::Higher,
            Self::CpuPerConnection
            | Self::CpuPerRequest
            | Self::Slowest
            | Self::LatencyP50
            | Self::LatencyP99
            | Self::MemoryAtRest
            | Self::MemoryIdle
            | Self::MemoryPerConnection => Better::Lower,
            Self::CpuShare | Self::ConnectionsFailed => Better::Neither,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::GbitPerCpuSecond => "Gbit per CPU-second",
            Self::GbitPerSecond => "Gbit/s",
            Self::CpuPerConnection => "CPU per connection, µs",
            Self::ConnectionsPerSecond => "connections/s",
            Self::ConnectionsDone => "connections done",
            Self::ConnectionsFailed => "connections failed",
            Self::Slowest => "slowest, ms",
            Self::CpuPerRequest => "CPU per exchange, µs",
            Self::RequestsPerSecond => "exchanges/s",
            Self::LatencyP50 => "latency p50, µs",
            Self::LatencyP99 => "latency p99, µs",
            Self::MemoryAtRest => "at rest, MiB",
            Self::MemoryIdle => "with idle ones, MiB",
            Self::MemoryPerConnection => "per connection, KiB",
            Self::CpuShare => "the proxy's CPU was busy, %",
        })
    }
}
