//! What is measured: scenarios, and the figures that each yields.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::contestant::{Contestant, Instance};
use super::counters::Counters;
use super::figure::{Figure, Figures};
use super::load::{self, Talk};
use super::sizes::Sizes;
use super::work::Work;

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// TCP: as many bytes as go through, toward the client
    Bulk,
    /// TCP: connect, one small exchange, close
    Connect,
    /// TCP: small exchanges on kept connections, as fast as they go
    KeepAlive,
    /// TCP: small exchanges on kept connections at a moderate, fixed rate
    Paced,
    /// HTTP: connect, one request, close
    HttpConnect,
    /// HTTP: requests on kept connections, as fast as they go
    HttpKeepAlive,
    /// HTTP: requests on kept connections at a moderate, fixed rate
    HttpPaced,
    /// Memory at rest, and with idle connections
    Memory,
    /// TCP: as connect, to one member behind a link that is not loopback
    Link,
}

/// How long a proxy gets to close what its clients have closed, before its CPU time is read.
const SETTLE: Duration = Duration::from_millis(200);
/// How long idle connections idle before memory is read: longer than buffers of any proxy are kept.
const IDLE: Duration = Duration::from_secs(2);
/// How long the connections over the link may take. The kernel keeps ports for a minute.
const LINK: Duration = Duration::from_secs(40);

impl Scenario {
    pub const ALL: [Self; 9] = [
        Self::Bulk,
        Self::Connect,
        Self::KeepAlive,
        Self::Paced,
        Self::HttpConnect,
        Self::HttpKeepAlive,
        Self::HttpPaced,
        Self::Memory,
        Self::Link,
    ];

    /// Whether a proxy in this configuration takes part.
    pub fn suits(self, contestant: Contestant) -> bool {
        let is_http = matches!(
            self,
            Self::HttpConnect | Self::HttpKeepAlive | Self::HttpPaced
        );
        match contestant {
            Contestant::Hyper => is_http,
            _ => self == Self::Bulk || !contestant.is_for_bulk(),
        }
    }

    /// Whether every measurement wants a proxy that has done nothing yet.
    pub fn wants_fresh(self) -> bool {
        matches!(self, Self::Memory | Self::Link)
    }

    /// How many measurements with a new proxy say enough.
    pub fn fresh_rounds(self, sizes: &Sizes) -> u16 {
        match self {
            // A second round would find the ports that the first has used up.
            Self::Link => 1,
            _ => sizes.fresh_rounds,
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Connect => "connect",
            Self::KeepAlive => "keep-alive",
            Self::Paced => "paced",
            Self::HttpConnect => "http-connect",
            Self::HttpKeepAlive => "http-keep-alive",
            Self::HttpPaced => "http-paced",
            Self::Memory => "memory",
            Self::Link => "link",
        }
    }

    /// One line for people.
    pub fn title(self, sizes: &Sizes) -> String {
        let Sizes {
            connections,
            clients,
            kept,
            rate,
            idle,
            ..
        } = sizes;
        let seconds = sizes.time().as_secs_f64();
        match self {
            Self::Bulk => {
                format!(
                    "TCP, bulk toward the client: {} connections for {seconds} s",
                    sizes.bulk_streams
                )
            }
            Self::Connect => format!(
                "TCP, new connections: {connections}, by {clients} clients, each with one exchange \
                of 64 and 128 bytes"
            ),
            Self::KeepAlive => format!(
                "TCP, exchanges on {kept} kept connections, as fast as they go, for {seconds} s"
            ),
            Self::Paced => format!(
                "TCP, {rate} exchanges per second on {kept} kept connections, for {seconds} s"
            ),
            Self::HttpConnect => {
                format!(
                    "HTTP/1.1, new connections: {connections}, by {clients} clients, each with one \
                    request"
                )
            }
            Self::HttpKeepAlive => {
                format!(
                    "HTTP/1.1, requests on {kept} kept connections, as fast as they go, for \
                    {seconds} s"
                )
            }
            Self::HttpPaced => {
                format!(
                    "HTTP/1.1, {rate} requests per second on {kept} kept connections, for \
                    {seconds} s"
                )
            }
            Self::Memory => format!("fresh, and with {idle} idle TCP connections"),
            Self::Link => format!(
                "TCP, {} new connections to one member over a link, by {clients} clients, for at \
                most {} s",
                sizes.link_connections,
                LINK.as_secs()
            ),
        }
    }

    /// Work whose cost is not counted: caches, pools and lazily made things are filled.
    pub async fn warm_up(self, instance: &Instance, sizes: &Sizes) -> anyhow::Result<()> {
        self.measure(instance, &sizes.small()).await.map(drop)
    }

    /// Has one proxy do the work once.
    pub async fn measure(self, instance: &Instance, sizes: &Sizes) -> anyhow::Result<Figures> {
        // One that is new has counted nothing, and its memory is not to grow by this.
        let before = if self.wants_fresh() {
            Counters::default()
        } else {
            Counters::of(instance.contestant).await
        };
        let measured = match self {
            Self::Bulk => bulk(instance, sizes).await,
            Self::Connect => connections(instance, Work::Small, sizes).await,
            Self::HttpConnect => connections(instance, Work::Http, sizes).await,
            Self::KeepAlive => exchanges(instance, Work::Small, None, sizes).await,
            Self::HttpKeepAlive => exchanges(instance, Work::Http, None, sizes).await,
            Self::Paced => exchanges(instance, Work::Small, Some(sizes.rate), sizes).await,
            Self::HttpPaced => exchanges(instance, Work::Http, Some(sizes.rate), sizes).await,
            Self::Memory => memory(instance, sizes).await,
            Self::Link => over_a_link(instance, sizes).await,
        };
        let Err(error) = measured else {
            return measured;
        };
        let counted = Counters::of(instance.contestant).await.since(&before);
        Err(error.context(format!(
            "{} failed at {self}\n{counted}{}",
            instance.contestant,
            instance.last_words()
        )))
    }
}

async fn bulk(instance: &Instance, sizes: &Sizes) -> anyhow::Result<Figures> {
    let before = instance.cpu_seconds()?;
    let target = instance.addresses.listener(Work::Bulk);
    let (bytes, wall) = load::bulk(target, sizes.bulk_streams, sizes.time()).await?;
    tokio::time::sleep(SETTLE).await;
    let cpu = instance.cpu_seconds()? - before;
    let gbit = bytes as f64 * 8.0 / 1e9;
    Ok(vec![
        (Figure::GbitPerCpuSecond, gbit / at_least_a_tick(cpu)),
        (Figure::GbitPerSecond, gbit / wall.as_secs_f64()),
        (Figure::CpuShare, 100.0 * cpu / wall.as_secs_f64()),
    ])
}

async fn connections(instance: &Instance, work: Work, sizes: &Sizes) -> anyhow::Result<Figures> {
    let before = instance.cpu_seconds()?;
    let target = instance.addresses.listener(work);
    let wall =
        load::connections(target, Talk::about(work), sizes.connections, sizes.clients).await?;
    tokio::time::sleep(SETTLE).await;
    let cpu = instance.cpu_seconds()? - before;
    let count = sizes.connections as f64;
    Ok(vec![
        (Figure::CpuPerConnection, cpu * 1e6 / count),
        (Figure::ConnectionsPerSecond, count / wall.as_secs_f64()),
        (Figure::CpuShare, 100.0 * cpu / wall.as_secs_f64()),
    ])
}

async fn exchanges(
    instance: &Instance,
    work: Work,
    rate: Option<u32>,
    sizes: &Sizes,
) -> anyhow::Result<Figures> {
    let before = instance.cpu_seconds()?;
    let target = instance.addresses.listener(work);
    let done = load::exchanges(target, Talk::about(work), sizes.kept, rate, sizes.time()).await?;
    tokio::time::sleep(SETTLE).await;
    let cpu = instance.cpu_seconds()? - before;
    let count = done.latencies.len() as f64;
    let mut figures = Vec::new();
    if rate.is_none() {
        figures.extend([
            (Figure::RequestsPerSecond, count / done.wall.as_secs_f64()),
            (Figure::CpuPerRequest, cpu * 1e6 / count),
        ]);
    }
    figures.extend([
        (Figure::LatencyP50, done.percentile(0.5)),
        (Figure::LatencyP99, done.percentile(0.99)),
        (Figure::CpuShare, 100.0 * cpu / done.wall.as_secs_f64()),
    ]);
    Ok(figures)
}

async fn memory(instance: &Instance, sizes: &Sizes) -> anyhow::Result<Figures> {
    const MIB: f64 = 1024.0 * 1024.0;
    let rest = instance.resident()?;
    let held = load::idle(instance.addresses.listener(Work::Small), sizes.idle).await?;
    tokio::time::sleep(IDLE).await;
    let full = instance.resident()?;
    let per_connection = (full - rest) / 1024.0 / held.len().max(1) as f64;
    drop(held);
    Ok(vec![
        (Figure::MemoryAtRest, rest / MIB),
        (Figure::MemoryIdle, full / MIB),
        (Figure::MemoryPerConnection, per_connection),
    ])
}

async fn over_a_link(instance: &Instance, sizes: &Sizes) -> anyhow::Result<Figures> {
    let before = instance.cpu_seconds()?;
    let target = instance.addresses.listener(Work::Link);
    let (total, clients) = (sizes.link_connections, sizes.clients);
    let made = load::connections_within(target, Talk::Tcp, total, clients, LINK).await?;
    tokio::time::sleep(SETTLE).await;
    let cpu = instance.cpu_seconds()? - before;
    let done = made.done.max(1) as f64;
    Ok(vec![
        (Figure::ConnectionsDone, made.done as f64),
        (Figure::ConnectionsFailed, made.failed as f64),
        (
            Figure::ConnectionsPerSecond,
            made.done as f64 / made.wall.as_secs_f64(),
        ),
        (Figure::Slowest, made.slowest.as_secs_f64() * 1e3),
        (Figure::CpuPerConnection, cpu * 1e6 / done),
    ])
}

/// The kernel reports CPU time in ticks of 10 ms; a short run may have used less than one.
fn at_least_a_tick(cpu: f64) -> f64 {
    cpu.max(0.01)
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.key())
    }
}
