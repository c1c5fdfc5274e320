//! How much work is done.

use std::time::Duration;

use serde::Serialize;

use super::machine::Machine;
use super::work::Work;

/// How much work is done.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sizes {
    /// How long a scenario that is bound by time lasts, in milliseconds.
    pub time_ms: u64,
    /// Connections that carry bulk at once.
    pub bulk_streams: usize,
    /// New connections in one measurement.
    pub connections: u64,
    /// Clients that open them.
    pub clients: usize,
    /// Kept connections.
    pub kept: u32,
    /// Exchanges per second at the fixed rate, over TCP and over HTTP.
    pub rate: u32,
    /// Idle connections.
    pub idle: usize,
    /// How often memory is measured; it hardly varies.
    pub fresh_rounds: u16,
    /// New connections to the member behind the link: more than there are ports.
    pub link_connections: u64,
    /// Whether there is a link.
    pub link: bool,
}

impl Sizes {
    pub const FULL: Self = Self {
        time_ms: 3_000,
        bulk_streams: 4,
        connections: 20_000,
        clients: 64,
        kept: 64,
        rate: 2_000,
        idle: 10_000,
        fresh_rounds: 3,
        link_connections: 34_000,
        link: false,
    };

    pub const QUICK: Self = Self {
        time_ms: 200,
        bulk_streams: 4,
        connections: 500,
        clients: 16,
        kept: 16,
        rate: 500,
        idle: 200,
        fresh_rounds: 1,
        link_connections: 500,
        link: false,
    };

    /// What of this the machine's limit on open files allows; says so if it is less.
    pub fn within(mut self, machine: &Machine) -> Self {
        if self.idle > machine.idle_limit {
            eprintln!(
                "warning: {} idle connections instead of {}: more files can't be opened; raise the \
                hard limit (ulimit -Hn) and repeat",
                machine.idle_limit, self.idle
            );
            self.idle = machine.idle_limit;
        }
        self
    }

    /// What is served.
    pub fn works(&self) -> impl Iterator<Item = Work> {
        let link = self.link;
        Work::ALL
            .into_iter()
            .filter(move |work| link || *work != Work::Link)
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// A fifth of the work, to warm up with.
    pub(super) fn small(mut self) -> Self {
        self.time_ms /= 5;
        self.connections /= 5;
        self
    }
}
