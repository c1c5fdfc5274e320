//! The streams of a client's connection. One whose client opens its window by nothing, or by next
//! to nothing, ends after the client's timeout, and gives its connection to the member back; what
//! the client says beside that, pings for one, does not count. Decides nothing about members.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::http::backpressure::Backpressure;
use crate::memory::ConnectionMemory;

/// Bytes of a response that a client must take within its timeout, if there are as many. Slower
/// than any line that people use; below it, a connection to a member costs an attacker too little.
const LEAST: u64 = 1024;

/// The longest and the shortest pause between two checks of the streams of a connection.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// The streams of one client connection, and the tasks that serve them.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    tasks: TaskTracker,
    ledger: Option<Arc<ConnectionMemory>>,
    watched: Arc<Mutex<Vec<Watched>>>,
}

/// What the clocks of a connection are compared with.
#[derive(Debug)]
pub(super) struct Looks {
    next: Instant,
    wire: Clock,
}

/// What a check of the streams finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// No response waits for its client.
    Nothing,
    /// Look again at this moment.
    Waiting(Instant),
    /// A stream is late that can't be reset, because all of its response was handed over.
    Stuck,
}

#[derive(Debug)]
struct Watched {
    backpressure: Arc<Backpressure>,
    task: AbortHandle,
    clock: Clock,
}

/// Since when too little has moved.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    mark: u64,
    since: Option<Instant>,
}

// === impl Streams ===

impl Streams {
    pub(super) fn new(tasks: TaskTracker, ledger: Option<Arc<ConnectionMemory>>) -> Self {
        Self {
            tasks,
            ledger,
            watched: Arc::default(),
        }
    }

    /// Resets streams whose client takes too little within `timeout`. `written` bytes have gone to
    /// the client in all; where the way there is `clogged`, it is slow as a whole, and streams take
    /// turns.
    pub(super) fn look(
        &self,
        looks: &mut Looks,
        (written, clogged): (u64, bool),
        timeout: Duration,
        now: Instant,
    ) -> Seen {
        let mut watched = self.watched();
        if watched.is_empty() {
            looks.wire = Clock::default();
            return Seen::Nothing;
        }
        if now < looks.next {
            return Seen::Waiting(looks.next);
        }
        looks.next = now + (timeout / 4).clamp(LOOK_AFTER, LOOK_EVERY);
        watched.retain(|stream| !stream.task.is_finished() || stream.backpressure.is_waiting());
        let waiting = watched
            .iter()
            .filter(|stream| stream.backpressure.is_waiting());
        let fair = LEAST * waiting.count() as u64;
        let flows = looks.wire.at(written, fair, now) < timeout && clogged;
        let mut stuck = false;
        for stream in watched.iter_mut() {
            if !stream.backpressure.is_waiting() {
                stream.clock = Clock::default();
                continue;
            }
            let taken = stream.backpressure.taken();
            if stream.clock.at(taken, LEAST, now) >= timeout && !flows {
                stuck |= stream.task.is_finished();
                stream.task.abort();
            }
        }
        if stuck {
            Seen::Stuck
        } else {
            Seen::Waiting(looks.next)
        }
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        // Each operation leaves the list valid at every step.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let backpressure = Backpressure::of(self.ledger.as_ref());
        let task = self.tasks.spawn(backpressure.clone().scope(stream));
        let mut watched = self.watched();
        // Requests may come and go in great number between two looks.
        if watched.len() == watched.capacity() {
            watched.retain(|stream| !stream.task.is_finished() || stream.backpressure.is_waiting());
        }
        watched.push(Watched {
            backpressure,
            task: task.abort_handle(),
            clock: Clock::default(),
        });
    }
}

// === impl Looks ===

impl Looks {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            wire: Clock::default(),
        }
    }
}

// === impl Clock ===

impl Clock {
    /// How long it has taken for less than `least` to move, of which `moved` have moved in all.
    fn at(&mut self, moved: u64, least: u64, now: Instant) -> Duration {
        match self.since {
            Some(since) if moved - self.mark < least => now.duration_since(since),
            Some(_) | None => {
                (self.mark, self.since) = (moved, Some(now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes};

    use super::*;
    use crate::http::backpressure::TrackedBytes;

    const SECOND: Duration = Duration::from_secs(1);

    /// A stream that serves until it is reset, and what it has handed over.
    async fn stream(streams: &Streams, bytes: usize) -> TrackedBytes {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        streams.execute(async move {
            let _ = sender.send(Backpressure::current().hand_over(Bytes::from(vec![0; bytes])));
            std::future::pending::<()>().await;
        });
        receiver.await.unwrap()
    }

    /// Checks once a second, as often as given, and returns how many streams are left then.
    async fn look(
        streams: &Streams,
        looks: &mut Looks,
        times: u64,
        mut wire: impl FnMut(u64) -> (u64, bool),
    ) -> usize {
        for number in 0..times {
            tokio::time::advance(SECOND).await;
            streams.look(looks, wire(number), 4 * SECOND, Instant::now());
            tokio::task::yield_now().await;
        }
        streams.tasks.len()
    }

    fn streams() -> (Streams, Looks) {
        (
            Streams::new(TaskTracker::new(), None),
            Looks::new(Instant::now()),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_which_nothing_is_taken_ends_after_the_time_out() {
        let (streams, mut looks) = streams();
        let _bytes = stream(&streams, 10).await;
        assert_eq!(look(&streams, &mut looks, 4, |_| (0, false)).await, 1);
        assert_eq!(look(&streams, &mut looks, 1, |_| (0, false)).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_as_good_as_nothing_and_a_stream_is_as_good_as_it_flows() {
        let (streams, mut looks) = streams();
        let mut trickle = stream(&streams, 100_000).await;
        let mut flow = stream(&streams, 100_000).await;
        for _ in 0..5 {
            trickle.advance(1);
            flow.advance(256);
            look(&streams, &mut looks, 1, |_| (0, false)).await;
        }
        assert_eq!(streams.tasks.len(), 1);
        assert_eq!((trickle.remaining(), flow.remaining()), (99_995, 98_720));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_taken_all_is_not_late() {
        let (streams, mut looks) = streams();
        let mut bytes = stream(&streams, 10).await;
        look(&streams, &mut looks, 3, |_| (0, false)).await;
        bytes.advance(10);
        assert_eq!(look(&streams, &mut looks, 20, |_| (0, false)).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_take_turns_on_a_slow_line() {
        let (streams, mut looks) = streams();
        let _bytes = (stream(&streams, 10).await, stream(&streams, 10).await);
        let slow = |number| (number * 600, true);
        assert_eq!(look(&streams, &mut looks, 20, slow).await, 2);
        let (streams, mut looks) = self::streams();
        let _bytes = (stream(&streams, 10).await, stream(&streams, 10).await);
        let slower = |number| (number * 300, true);
        assert_eq!(look(&streams, &mut looks, 20, slower).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_was_handed_over_whole_and_is_not_taken_ends_its_connection() {
        let (streams, mut looks) = streams();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        streams.execute(async move {
            let _ = sender.send(Backpressure::current().hand_over(Bytes::from_static(b"whole")));
        });
        let _bytes = receiver.await.unwrap();
        look(&streams, &mut looks, 4, |_| (0, false)).await;
        tokio::time::advance(SECOND).await;
        let seen = streams.look(&mut looks, (0, false), 4 * SECOND, Instant::now());
        assert_eq!(seen, Seen::Stuck);
    }
}
