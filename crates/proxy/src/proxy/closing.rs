//! How listeners close, one or all.

use std::sync::Arc;
use std::time::Duration;

use landfall_model::Protocol;
use tokio::sync::oneshot;

use super::{Proxy, lock};
use crate::engine::Command;
use crate::identity::ListenerId;
use crate::listener::ListenerState;
use crate::worker::Worker;

/// How long clients get to end a handshake before their listener closes.
const HANDSHAKES: Duration = Duration::from_millis(100);

/// How long connections that rest between requests get at least to end in order.
const LEAST: Duration = Duration::from_millis(100);

/// How many listeners close together, so that none keeps clients waiting for long before it does.
const CLOSED_AT_ONCE: usize = 1024;

impl Proxy {
    /// Closes all listeners, as [`Self::close`] does, and fails no client on its way to another
    /// process that serves on the same ports: handshakes under way get 0.1 s to end, and
    /// later ones are the other's.
    pub async fn close_all(&self) {
        let ids: Vec<ListenerId> = self.listeners().keys().copied().collect();
        for ids in ids.chunks(CLOSED_AT_ONCE) {
            let mut any = false;
            for id in ids.iter().filter(|id| id.key.protocol == Protocol::Tcp) {
                self.report_all(*id, Command::EndHandshakes).await;
                any = true;
            }
            if any {
                tokio::time::sleep(HANDSHAKES).await;
            }
            for id in ids {
                let _one_at_a_time = self.turns.of(*id).await;
                self.close_now(*id).await;
            }
        }
    }

    pub(super) async fn shut_down(&self, grace: Duration) {
        self.close_all().await;
        self.end(grace).await;
    }

    /// Gives connections of listeners that are closed `grace` to end, and ends the workers.
    pub(super) async fn end(&self, grace: Duration) {
        let draining = lock(&self.draining).clone();
        let drained = async {
            for state in &draining {
                state.gate().drained().await;
            }
        };
        let in_time = tokio::time::timeout(grace.max(LEAST), drained)
            .await
            .is_ok();
        self.stop.cancel();
        for state in &draining {
            state.cut().cancel();
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.monitors.stopped().await;
        tracing::info!(in_time, "data plane stopped");
        for worker in self.workers.iter() {
            // Gone already is as good.
            let _ = worker.report(Command::Stop).await;
        }
        let threads: Vec<_> = self
            .workers
            .iter()
            .filter_map(Worker::take_thread)
            .collect();
        let joined = tokio::task::spawn_blocking(move || {
            threads
                .into_iter()
                .map(std::thread::JoinHandle::join)
                .all(|joined| joined.is_ok())
        });
        if !joined.await.unwrap_or(false) {
            tracing::error!("a worker panicked");
        }
    }

    pub(super) async fn close_now(&self, id: ListenerId) -> bool {
        self.close_by(id, Command::Close).await
    }

    pub(super) async fn close_by(&self, id: ListenerId, command: Closing) -> bool {
        let Some(state) = self.listeners().remove(&id) else {
            return false;
        };
        self.report_all(id, command).await;
        state.hold_sockets(None);
        state.closing().cancel();
        tracing::info!(listener = %id, service = %state.owner(), "listener closed");
        lock(&self.draining).push(state.clone());
        self.changes.note(&state.owner().uid);
        let drain = state.config().listener.drain;
        let (workers, stop) = (self.workers.clone(), self.stop.clone());
        let (draining, changes) = (self.draining.clone(), self.changes.clone());
        let task = async move {
            // Connections that rest between requests end.
            sweep(&workers, &state).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = state.gate().drained() => {}
                () = tokio::time::sleep(drain.max(LEAST)) => {}
            }
            state.cut().cancel();
            sweep(&workers, &state).await;
            lock(&draining).retain(|other| !Arc::ptr_eq(other, &state));
            changes.note(&state.owner().uid);
        };
        self.tasks.spawn_on(task, &self.runtime);
        true
    }

    pub(super) async fn report_all(&self, id: ListenerId, command: Closing) {
        let mut answers = Vec::with_capacity(self.workers.len());
        for worker in self.workers.iter() {
            let (done, answer) = oneshot::channel();
            let _ = worker.report(command(id, done)).await;
            answers.push(answer);
        }
        for answer in answers {
            // A worker that is gone holds no sockets.
            let _ = answer.await;
        }
    }
}

/// The command that takes a listener's sockets from a worker.
type Closing = fn(ListenerId, oneshot::Sender<()>) -> Command;

pub(super) async fn sweep(workers: &[Worker], state: &Arc<ListenerState>) {
    for worker in workers {
        // A worker that is gone has nothing left to cut.
        let _ = worker.report(Command::Sweep(state.clone())).await;
    }
}
