//! The guard that every write passes: whether, and for how long, this replica may write.

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// Whether, and for how long, this replica may write.
#[derive(Clone, Debug)]
pub struct WriteGuard {
    /// `None`: there are no other replicas.
    pub(super) term: Option<watch::Receiver<Option<Term>>>,
}

/// Until when this replica may write, by two clocks: a machine that was suspended may find that the
/// first one stood still meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) until: Instant,
    pub(super) until_by_the_wall: SystemTime,
}

impl WriteGuard {
    /// For a process that has no replicas.
    pub fn always() -> Self {
        Self { term: None }
    }

    /// How long a write that begins now may take; `None`: it must not begin.
    pub(crate) fn allows(&self) -> Option<Duration> {
        let Some(term) = &self.term else {
            return Some(Duration::MAX);
        };
        let term = (*term.borrow())?;
        let left = term.until.checked_duration_since(Instant::now())?;
        let left_by_the_wall = term
            .until_by_the_wall
            .duration_since(SystemTime::now())
            .ok()?;
        Some(left.min(left_by_the_wall)).filter(|left| !left.is_zero())
    }

    /// Carries out a write for as long as that is allowed; `None`: it is not, or not any more. A
    /// Lease that is renewed meanwhile prolongs it: many writes at a time may each take as long as
    /// it takes until the next renewal.
    pub(crate) async fn while_allowed<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        let mut write = pin!(write);
        let mut term = self.term.clone();
        loop {
            let left = self.allows()?;
            tokio::select! {
                biased;
                done = &mut write => return Some(done),
                // What began in one term does not go on in another one.
                () = ended(term.as_mut()) => return None,
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

pub(super) async fn ended(term: Option<&mut watch::Receiver<Option<Term>>>) {
    let ended = match term {
        Some(term) => term.wait_for(Option::is_none).await.is_ok(),
        None => false,
    };
    // Where nothing is renewed any more, the time that is left counts alone.
    if !ended {
        std::future::pending::<()>().await;
    }
}

/// A guard whose term is set by hand, for tests of writers.
#[cfg(test)]
pub(crate) fn guard_until(left: Option<Duration>) -> WriteGuard {
    let term = left.map(|left| Term {
        until: Instant::now() + left,
        until_by_the_wall: SystemTime::now() + left,
    });
    WriteGuard {
        term: Some(watch::Sender::new(term).subscribe()),
    }
}
