//! When a connection over HTTP/2 ends: it is idle for too long, the listener closes, or its client
//! does not read.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::streams::{Looks, Seen, Streams};
use super::{Client, LINGER};
use crate::http::front::Front;
use crate::http::watchdog::Watchdog;

/// What a connection is to do next.
pub(super) enum Turn {
    /// Be polled again.
    Again,
    /// Accept no more requests, and go on with what is under way.
    SayGoodbye,
    /// End: responses are not read.
    Stuck,
    /// End.
    Over,
}

/// How long a connection has been idle, and whether its end has begun.
pub(super) struct Ending {
    /// How many requests had begun, and since when there was none.
    idle: (u64, Instant),
    begun: Option<Instant>,
    looks: Looks,
    watchdog: Watchdog,
}

impl Ending {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            idle: (u64::MAX, now),
            begun: None,
            looks: Looks::new(now),
            watchdog: Watchdog::default(),
        }
    }

    /// Returns whether no more requests are accepted.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn poll(
        &mut self,
        closes: bool,
        front: &Front,
        shared: &Client,
        streams: &Streams,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        let begun = shared.begun.load(Ordering::Relaxed);
        let busy = shared.busy.load(Ordering::Relaxed) > 0;
        let now = Instant::now();
        if busy || self.idle.0 != begun {
            self.idle = (begun, now);
        }
        if closes {
            return Poll::Ready(self.begin(shared, now));
        }
        let timeout = front.settings().timeouts.client_data;
        let wire = (
            shared.written.load(Ordering::Relaxed),
            shared.clogged.load(Ordering::Relaxed),
        );
        let look = match streams.look(&mut self.looks, wire, timeout, now) {
            Seen::Nothing => None,
            Seen::Waiting(next) => Some(next),
            Seen::Stuck => return Poll::Ready(Turn::Stuck),
        };
        let pause = if self.has_begun() { LINGER } else { timeout };
        let end = self.begun.unwrap_or(self.idle.1).max(self.idle.1) + pause;
        if let Some(look) = look.filter(|&look| look < end || busy) {
            return self.watchdog.poll(look, context).map(|()| Turn::Again);
        }
        ready!(self.watchdog.poll(end, context));
        Poll::Ready(if busy {
            // The end of a request need not have woken this task: so it looks now and then.
            Turn::Again
        } else if self.has_begun() {
            Turn::Over
        } else {
            self.begin(shared, now)
        })
    }

    fn begin(&mut self, shared: &Client, now: Instant) -> Turn {
        self.begun = Some(now);
        shared.goodbye.store(true, Ordering::Relaxed);
        Turn::SayGoodbye
    }
}
