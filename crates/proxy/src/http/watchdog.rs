//! Timeouts of a connection. One timer, for deadlines that nearly always move away before they are
//! reached: it is only set again when it fires, or for a deadline that is nearer, so that a request
//! costs it nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes a connection at its deadline, and seldom before.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    sleep: Option<Pin<Box<Sleep>>>,
}

/// How long one of two sides has kept the other waiting.
#[derive(Debug)]
pub(super) struct Side {
    bytes: u64,
    waits: bool,
    since: Instant,
}

// === impl Side ===

impl Side {
    /// Nothing waits for this side yet.
    pub(super) fn new(since: Instant) -> Self {
        Self {
            bytes: 0,
            waits: false,
            since,
        }
    }

    /// Whether it is waited for at present, and how many bytes it has moved so far.
    pub(super) fn note(&mut self, bytes: u64, waits: bool, now: Instant) {
        if bytes != self.bytes || (waits && !self.waits) {
            self.since = now;
        }
        (self.bytes, self.waits) = (bytes, waits);
    }

    /// When it will have kept the other waiting for too long; `None` if nothing waits for it.
    pub(super) fn deadline(&self, time_limit: Duration) -> Option<Instant> {
        self.waits.then(|| self.since + time_limit)
    }
}

// === impl Watchdog ===

impl Watchdog {
    /// Ready once `deadline` has passed.
    pub(super) fn poll(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn fires_after(watchdog: &mut Watchdog, deadline: Instant) -> Duration {
        let start = Instant::now();
        poll_fn(|context| watchdog.poll(deadline, context)).await;
        start.elapsed()
    }

    #[test]
    fn a_side_is_only_late_while_it_is_waited_for_and_does_nothing() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut side = Side::new(start);
        assert_eq!(side.deadline(second), None);
        side.note(0, true, start + second);
        assert_eq!(side.deadline(second), Some(start + second * 2));
        side.note(0, true, start + second * 3);
        assert_eq!(
            side.deadline(second),
            Some(start + second * 2),
            "nothing moved"
        );
        side.note(5, true, start + second * 3);
        assert_eq!(side.deadline(second), Some(start + second * 4));
        side.note(5, false, start + second * 9);
        assert_eq!(side.deadline(second), None);
        side.note(5, true, start + second * 20);
        assert_eq!(
            side.deadline(second),
            Some(start + second * 21),
            "the wait begins again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_at_the_deadline_wherever_that_moved() {
        let second = Duration::from_secs(1);
        let mut watchdog = Watchdog::default();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let start = Instant::now();
        assert!(watchdog.poll(start + second * 5, &mut context).is_pending());
        assert!(watchdog.poll(start + second * 9, &mut context).is_pending());
        assert_eq!(
            fires_after(&mut watchdog, start + second * 8)
                .await
                .as_secs(),
            8
        );
        assert_eq!(
            fires_after(&mut watchdog, start + second * 3)
                .await
                .as_secs(),
            0
        );
        assert_eq!(
            fires_after(&mut watchdog, start + second * 10)
                .await
                .as_secs(),
            2
        );
        assert!(
            watchdog
                .poll(Instant::now() + second * 50, &mut context)
                .is_pending()
        );
        assert_eq!(
            fires_after(&mut watchdog, Instant::now() + second)
                .await
                .as_secs(),
            1
        );
    }
}
