//! Whether a worker works: it is asked now and then, and has to answer in time.

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Between an answer and the next question.
const EVERY: Duration = Duration::from_secs(2);

/// A worker that does not answer for so long does nothing any more. One pass of a worker takes
/// milliseconds, so that even on a busy machine this means that it is stuck.
const WITHIN: Duration = Duration::from_secs(30);

/// How a worker failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerFailure {
    /// Its thread ended.
    Ended,
    /// It does not answer.
    Stuck,
}

/// Asks again and again; `ask` returns whether there was an answer. Returns when there is none.
pub(crate) async fn watch<A: Future<Output = bool>>(mut ask: impl FnMut() -> A) -> WorkerFailure {
    loop {
        match timeout(WITHIN, ask()).await {
            Ok(true) => sleep(EVERY).await,
            Ok(false) => return WorkerFailure::Ended,
            Err(_) => return WorkerFailure::Stuck,
        }
    }
}

// === impl WorkerFailure ===

impl fmt::Display for WorkerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("ended unexpectedly"),
            Self::Stuck => write!(f, "has not answered for {} s", WITHIN.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_stops_answering_is_noticed_in_due_time() {
        let begun = Instant::now();
        let asked = &Cell::new(0);
        let ask = || async move {
            asked.set(asked.get() + 1);
            if asked.get() > 5 {
                pending::<()>().await;
            }
            true
        };
        assert_eq!(watch(ask).await, WorkerFailure::Stuck);
        assert_eq!(begun.elapsed(), 5 * EVERY + WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_an_answer() {
        let asked = &Cell::new(0);
        let ask = || async move {
            asked.set(asked.get() + 1);
            sleep(WITHIN / 2).await;
            asked.get() < 10
        };
        assert_eq!(watch(ask).await, WorkerFailure::Ended);
        assert_eq!(asked.get(), 10);
    }
}
