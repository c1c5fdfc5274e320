//! One timer per connection, for deadlines that nearly always move away before they are reached: it is
//! only set again when it fires, or for a deadline that is nearer. A request costs it nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes a connection at its deadline, and seldom before.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    sleep: Option<Pin<Box<Sleep>>>,
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
    use std::time::Duration;

    use super::*;

    async fn fires_after(watchdog: &mut Watchdog, deadline: Instant) -> Duration {
        let start = Instant::now();
        poll_fn(|context| watchdog.poll(deadline, context)).await;
        start.elapsed()
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
