//! The election among replicas: a Lease in the API server, and the guard that every write passes.
//!
//! What to do is decided in [`landfall_engine::leadership`]; this asks, and keeps the guard. It
//! never says that this replica leads for longer than its own clock allows, whatever the server
//! answers.
//!
//! The holder says in an annotation of the Lease whether it has opened its listeners. Until then
//! the replica that led before carries the traffic on.

mod candidate;
mod guard;
mod holder;
mod marker;
mod record;

use std::time::Instant;

use landfall_engine::leadership::{Course, Observation, Role, Times};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::Connection;
use crate::retry::dice;

use candidate::Candidate;
pub use guard::WriteGuard;
#[cfg(test)]
pub(crate) use guard::guard_until;
pub use holder::{LeaseHolder, holder};
pub(crate) use record::micro;

/// The Lease, and the identity of the candidate.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The identity of the candidate: see [`identity`].
    pub identity: String,
    /// How long things may take.
    pub times: Times,
    /// Whether this replica carries traffic from before its start, until another one serves.
    pub carries: bool,
    /// Whether it is able to lead from the start. It says later that it is, or is not any more.
    pub able: bool,
}

/// A running candidacy.
#[derive(Debug)]
pub struct Election {
    leading: watch::Receiver<bool>,
    role: watch::Receiver<Role>,
    serving: watch::Sender<bool>,
    able: watch::Sender<bool>,
    guard: WriteGuard,
    stop: CancellationToken,
    /// No successor is waited for any more.
    end: CancellationToken,
    ended: CancellationToken,
}

/// An identity for one life of this process: a name that people know, and a tail that is never
/// used again.
pub fn identity(name: &str) -> String {
    format!("{name}_{:016x}", dice())
}

// === impl LeaseConfig ===

impl LeaseConfig {
    /// The Lease `landfall` of a namespace, with the usual times.
    pub fn new(namespace: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: "landfall".to_owned(),
            identity: identity.to_owned(),
            times: Times::default(),
            carries: false,
            able: true,
        }
    }

    /// Returns the name of the marker that a replica has led.
    fn marker(&self) -> String {
        format!("{}-led", self.name)
    }

    fn path(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        )
    }
}

// === impl Election ===

impl Election {
    /// Stands for election, for ever. The task is the tracker's.
    pub fn start(connection: Connection, config: LeaseConfig, tasks: &TaskTracker) -> Self {
        let (term, term_seen) = watch::channel(None);
        let (leading, leading_seen) = watch::channel(false);
        let course = if config.carries {
            Course::carrying()
        } else {
            Course::default()
        };
        let (role, role_seen) = watch::channel(course.role());
        let (serving, declared) = watch::channel(false);
        let (able, is_able) = watch::channel(config.able);
        let candidate = Candidate {
            connection,
            config,
            term,
            leading,
            role,
            serving: declared,
            able: is_able,
            sight: Observation::new(Instant::now()),
            course,
            marked: false,
            first_with: None,
            renewed_at: None,
            complaint: None,
        };
        let (stop, end) = (CancellationToken::new(), CancellationToken::new());
        let ended = CancellationToken::new();
        let (stopped, forsaken) = (stop.clone(), end.clone());
        // Whichever way it ends: after a panic it renews nothing any more.
        let gone = ended.clone().drop_guard();
        tasks.spawn(async move {
            let _gone = gone;
            candidate.run(stopped, forsaken).await;
        });
        Self {
            leading: leading_seen,
            role: role_seen,
            serving,
            able,
            guard: WriteGuard {
                term: Some(term_seen),
            },
            stop,
            end,
            ended,
        }
    }

    /// Whether this replica leads. It may come to lead again after it did not.
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.leading.clone()
    }

    /// What this replica is to do with the Services.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Takes whether this replica has opened its listeners. While it leads, the others are shown.
    pub fn serving(&self) -> watch::Sender<bool> {
        self.serving.clone()
    }

    /// Takes whether this replica could do what a leader does. One that can't gives the Lease up,
    /// and looks on.
    pub fn able(&self) -> watch::Sender<bool> {
        self.able.clone()
    }

    /// What every write has to pass.
    pub fn guard(&self) -> WriteGuard {
        self.guard.clone()
    }

    /// Gives the Lease up, so that another replica leads at once. Only after everything that writes
    /// has ended.
    pub async fn release(self) {
        self.end.cancel();
        self.stop.cancel();
        self.ended.cancelled().await;
    }

    /// Gives the Lease up, and waits until another replica serves, or none comes to. Only after
    /// everything that writes has ended.
    pub async fn hand_over(self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }

    /// Is cancelled once the candidacy has ended, also by a panic. Unless that was asked for, the
    /// process should end: it can't lead any more, nor see another one lead.
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

#[cfg(test)]
mod tests;
