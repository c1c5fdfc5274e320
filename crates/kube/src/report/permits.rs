//! Permits to write to the API server: what traffic waits for goes first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_engine::queue::{Line, Turn};
use tokio::sync::oneshot;

/// Writes at the same time. Each takes a connection of its own, and the API server grants each user
/// a share of what it does at a time.
const WRITES: usize = 64;

/// How many of them may be other writes while Services wait for their finalizer: a Service is
/// served once that is on it, and its status and events follow. No more than one, because each
/// takes from the API server what the first traffic of another Service waits for; not none, because
/// Services that are created without end must not keep those before them from being reported.
const OTHERS: usize = 1;

/// Permits to write: of each kind, namespaces have turns, and a namespace's writes are in order.
#[derive(Clone, Debug, Default)]
pub(super) struct WritePermits(Arc<Mutex<State>>);

/// A permit to write, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct WritePermit {
    permits: WritePermits,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What traffic waits for.
    First,
    /// Anything else.
    Later,
}

/// A write that waits for its permit.
#[derive(Debug)]
struct Waiting {
    namespace: Arc<str>,
    answer: oneshot::Sender<WritePermit>,
}

#[derive(Debug, Default)]
struct State {
    firsts: usize,
    laters: usize,
    waiting_firsts: Line<Waiting>,
    waiting_laters: Line<Waiting>,
}

// === impl WritePermits ===

impl WritePermits {
    /// Waits for a permit to write what traffic waits for.
    pub(super) async fn first(&self, namespace: &str) -> Option<WritePermit> {
        self.permit(namespace, |state| &mut state.waiting_firsts)
            .await
    }

    /// Waits for a permit to write anything else.
    pub(super) async fn later(&self, namespace: &str) -> Option<WritePermit> {
        self.permit(namespace, |state| &mut state.waiting_laters)
            .await
    }

    async fn permit(
        &self,
        namespace: &str,
        line: fn(&mut State) -> &mut Line<Waiting>,
    ) -> Option<WritePermit> {
        let (answer, permit) = oneshot::channel();
        let namespace = Arc::from(namespace);
        line(&mut self.state()).push_back(Waiting { namespace, answer });
        self.hand_out();
        // What waits is only ever dropped by handing it a permit.
        permit.await.ok()
    }

    /// Gives free permits to those that wait.
    fn hand_out(&self) {
        loop {
            // Sent when the state is free again: a permit that is not taken ends at once.
            let next = self.state().next();
            let Some((kind, waiting)) = next else { return };
            let permit = WritePermit {
                permits: self.clone(),
                kind,
            };
            drop(waiting.answer.send(permit));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WritePermit ===

impl Drop for WritePermit {
    fn drop(&mut self) {
        self.permits.state().end(self.kind);
        self.permits.hand_out();
    }
}

// === impl Waiting ===

impl Turn for Waiting {
    fn turn(&self) -> &Arc<str> {
        &self.namespace
    }
}

// === impl State ===

impl State {
    /// Takes the next permit, if one is free and something waits for it.
    fn next(&mut self) -> Option<(Kind, Waiting)> {
        // Those given up would otherwise count as waiting.
        for line in [&mut self.waiting_firsts, &mut self.waiting_laters] {
            while line.peek().is_some_and(|next| next.answer.is_closed()) {
                line.pop();
            }
        }
        if self.firsts + self.laters >= WRITES {
            return None;
        }
        let later_first = self.waiting_firsts.peek().is_none() || self.laters < OTHERS;
        if later_first && let Some(waiting) = self.waiting_laters.pop() {
            self.laters += 1;
            return Some((Kind::Later, waiting));
        }
        let waiting = self.waiting_firsts.pop()?;
        self.firsts += 1;
        Some((Kind::First, waiting))
    }

    fn end(&mut self, kind: Kind) {
        match kind {
            Kind::First => self.firsts -= 1,
            Kind::Later => self.laters -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Looks once whether a future is done.
    fn look<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Takes all permits.
    fn taken(permits: &WritePermits) -> Vec<WritePermit> {
        let firsts = (0..WRITES).map(|_| look(&mut Box::pin(permits.first("shop"))));
        firsts.map(|permit| permit.flatten().unwrap()).collect()
    }

    #[test]
    fn one_other_write_is_made_beside_what_traffic_waits_for() {
        let permits = WritePermits::default();
        let mut taken = taken(&permits);
        let mut firsts: Vec<_> = (0..WRITES)
            .map(|_| Box::pin(permits.first("shop")))
            .collect();
        let mut laters: Vec<_> = (0..WRITES)
            .map(|_| Box::pin(permits.later("shop")))
            .collect();
        assert!(firsts.iter_mut().all(|it| look(it).is_none()));
        assert!(laters.iter_mut().all(|it| look(it).is_none()));
        taken.truncate(WRITES / 2);
        let reported: Vec<_> = laters.iter_mut().filter_map(look).collect();
        let served: Vec<_> = firsts.iter_mut().filter_map(look).collect();
        assert_eq!(
            (reported.len(), served.len()),
            (OTHERS, WRITES / 2 - OTHERS)
        );
    }

    #[test]
    fn statuses_have_all_turns_when_nothing_else_waits() {
        let permits = WritePermits::default();
        let mut laters: Vec<_> = (0..=WRITES)
            .map(|_| Box::pin(permits.later("shop")))
            .collect();
        let mut reported: Vec<_> = laters.iter_mut().filter_map(look).collect();
        assert_eq!(reported.len(), WRITES);
        reported.pop();
        assert!(laters.last_mut().and_then(look).flatten().is_some());
    }

    #[test]
    fn statuses_that_wait_have_all_turns_once_nothing_else_does() {
        let permits = WritePermits::default();
        let taken = taken(&permits);
        let mut laters: Vec<_> = (0..WRITES)
            .map(|_| Box::pin(permits.later("shop")))
            .collect();
        assert!(laters.iter_mut().all(|it| look(it).is_none()));
        drop(taken);
        assert!(laters.iter_mut().all(|it| look(it).flatten().is_some()));
    }

    #[test]
    fn a_status_is_written_however_many_finalizers_are_asked_for_after_it() {
        let permits = WritePermits::default();
        let mut taken = taken(&permits);
        let mut status = Box::pin(permits.later("shop"));
        assert!(look(&mut status).is_none());
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(permits.first("shop"))).collect();
        assert!(others.iter_mut().all(|it| look(it).is_none()));
        taken.pop();
        let permit = look(&mut status);
        assert!(permit.is_some());
        assert!(others.iter_mut().all(|it| look(it).is_none()));
    }

    #[test]
    fn a_write_that_was_given_up_takes_no_turn() {
        let permits = WritePermits::default();
        let mut taken = taken(&permits);
        let mut given_up = Box::pin(permits.first("shop"));
        assert!(look(&mut given_up).is_none());
        let mut after = Box::pin(permits.first("shop"));
        assert!(look(&mut after).is_none());
        drop(given_up);
        taken.pop();
        let permit = look(&mut after).flatten();
        assert!(permit.is_some());
        drop((permit, taken));
        assert_eq!(permits.state().firsts, 0);
    }

    #[test]
    fn a_turn_that_is_handed_to_a_write_just_given_up_goes_to_the_next() {
        let permits = WritePermits::default();
        let mut taken = taken(&permits);
        let mut given_up = Box::pin(permits.first("shop"));
        assert!(look(&mut given_up).is_none());
        let mut after = Box::pin(permits.first("shop"));
        assert!(look(&mut after).is_none());
        taken.pop();
        drop(given_up);
        assert!(look(&mut after).flatten().is_some());
    }

    #[test]
    fn a_namespace_with_many_writes_keeps_no_other_waiting() {
        for first in [true, false] {
            let permits = WritePermits::default();
            let mut taken = taken(&permits);
            let ask = |namespace: &'static str| {
                let permits = permits.clone();
                Box::pin(async move {
                    if first {
                        permits.first(namespace).await
                    } else {
                        permits.later(namespace).await
                    }
                })
            };
            let mut many: Vec<_> = (0..1000).map(|_| ask("many")).collect();
            assert!(many.iter_mut().all(|it| look(it).is_none()));
            let mut one = ask("one");
            assert!(look(&mut one).is_none());
            taken.truncate(WRITES - 2);
            assert!(look(&mut one).is_some(), "{first}");
        }
    }
}
