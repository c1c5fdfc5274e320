//! The election among replicas: a Lease in the API server, and the guard that every write passes.
//!
//! What to do is decided in [`landfall_engine::leadership`]; this asks, and keeps the guard. It never
//! says that this replica leads for longer than its own clock allows, whatever the server answers.

use std::time::{Duration, Instant, SystemTime};

use http::Method;
use jiff::Timestamp;
use landfall_engine::leadership::{Decision, Record, Standing, Times, decide};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, ApiError, Ask, JSON};
use crate::connect::Connection;
use crate::retry::dice;

/// Which Lease, as whom.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who asks: see [`identity`].
    pub identity: String,
    /// How long things may take.
    pub times: Times,
}

/// A running candidacy.
#[derive(Debug)]
pub struct Election {
    leading: watch::Receiver<bool>,
    guard: WriteGuard,
    stop: CancellationToken,
    released: oneshot::Receiver<()>,
}

/// Whether, and for how long, this replica may write.
#[derive(Clone, Debug)]
pub struct WriteGuard {
    /// `None`: there are no other replicas.
    term: Option<watch::Receiver<Option<Term>>>,
}

/// Until when this replica may write, by two clocks: a machine that was suspended may find that the
/// first one stood still meanwhile.
#[derive(Clone, Copy, Debug)]
struct Term {
    until: Instant,
    until_by_the_wall: SystemTime,
}

/// `coordination.k8s.io/v1` Lease, as far as it matters.
#[derive(Clone, Debug, Deserialize)]
struct Lease {
    metadata: LeaseMeta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseMeta {
    resource_version: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<i64>,
}

/// The thin loop around [`decide`].
struct Candidate {
    connection: Connection,
    config: LeaseConfig,
    term: watch::Sender<Option<Term>>,
    leading: watch::Sender<bool>,
    lease: Option<(Lease, Record)>,
    seen_at: Instant,
    renewed_at: Option<Instant>,
    complaint: Option<String>,
}

/// No answer to a question about the Lease is worth waiting longer for.
const PATIENCE: Duration = Duration::from_secs(5);

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
        }
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
        let candidate = Candidate {
            connection,
            config,
            term,
            leading,
            lease: None,
            seen_at: Instant::now(),
            renewed_at: None,
            complaint: None,
        };
        let stop = CancellationToken::new();
        let (gone, released) = oneshot::channel();
        let stopped = stop.clone();
        tasks.spawn(async move {
            candidate.run(stopped).await;
            let _nobody_waits = gone.send(());
        });
        Self {
            leading: leading_seen,
            guard: WriteGuard {
                term: Some(term_seen),
            },
            stop,
            released,
        }
    }

    /// Whether this replica leads. It may come to lead again after it did not.
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.leading.clone()
    }

    /// What every write has to pass.
    pub fn guard(&self) -> WriteGuard {
        self.guard.clone()
    }

    /// Gives the Lease up, so that another replica leads at once. Only after everything that writes
    /// has ended.
    pub async fn release(self) {
        self.stop.cancel();
        // An error means that the task is gone already.
        let _gone = self.released.await;
    }
}

// === impl WriteGuard ===

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
}

// === impl Candidate ===

impl Candidate {
    async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            never = self.campaign() => match never {},
        }
        self.give_up().await;
    }

    async fn campaign(&mut self) -> std::convert::Infallible {
        self.look().await;
        loop {
            let now = Instant::now();
            match decide(&self.standing(), &self.config.times, now) {
                Decision::Acquire | Decision::Renew => {
                    let begun = Instant::now();
                    self.write().await;
                    // Refused or unanswered: not again in the same breath.
                    if self.renewed_at.is_none_or(|at| at < begun) {
                        self.look().await;
                        self.pause(self.config.times.retry).await;
                    }
                }
                Decision::Wait(until) => {
                    let leads = self.renewed_at.is_some();
                    // Looks are cheap, and a Lease that was given up is not to lie about.
                    let often = if leads {
                        self.config.times.retry
                    } else {
                        self.config.times.retry / 2
                    };
                    self.pause(until.saturating_duration_since(now).min(often))
                        .await;
                    if !leads {
                        self.look().await;
                    }
                }
                Decision::StepDown => {
                    tracing::warn!(
                        "the Lease could not be renewed in time, or another replica took it"
                    );
                    self.step_down();
                    self.look().await;
                }
            }
        }
    }

    fn standing(&self) -> Standing<'_> {
        Standing {
            identity: &self.config.identity,
            record: self.lease.as_ref().map(|(_, record)| record),
            seen_at: self.seen_at,
            renewed_at: self.renewed_at,
        }
    }

    /// Waits, a little less each time than was asked for, so that replicas fall out of step; never
    /// past the moment at which this replica has to step down.
    async fn pause(&self, wanted: Duration) {
        let jittered = wanted.mul_f64(0.8 + (dice() % 200) as f64 / 1000.0);
        let left = self.time_left().unwrap_or(jittered);
        tokio::time::sleep(jittered.min(left)).await;
    }

    /// How long this replica still leads; `None`: it does not.
    fn time_left(&self) -> Option<Duration> {
        let until = self.renewed_at? + self.config.times.renew_deadline;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Looks at the Lease. What can't be seen is as it was.
    async fn look(&mut self) {
        let path = format!("{}/{}", self.config.path(), self.config.name);
        let ask = Ask::get(path, "get leases.coordination.k8s.io");
        match self.ask(ask).await {
            Ok(lease) => self.take(Some(lease)),
            Err(error) if error.is_not_found() => self.take(None),
            Err(error) => self.complain(&error),
        }
    }

    /// Tries to become or to stay the holder.
    async fn write(&mut self) {
        let now = Timestamp::now();
        let before = self
            .lease
            .as_ref()
            .map(|(lease, _)| lease.spec.clone())
            .unwrap_or_default();
        let stays = before.holder_identity.as_deref() == Some(&self.config.identity);
        let transitions = before.lease_transitions.unwrap_or(0) + i64::from(!stays);
        let spec = LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(self.config.times.lease.as_secs().max(1).cast_signed()),
            acquire_time: before
                .acquire_time
                .filter(|_| stays)
                .or_else(|| Some(micro(now))),
            renew_time: Some(micro(now)),
            lease_transitions: Some(transitions),
        };
        // From before it is asked: the server may renew at any moment from now on.
        let asked_at = Instant::now();
        let by_the_wall = SystemTime::now();
        let answer = self.put(&spec).await;
        match answer {
            Ok(lease) => {
                self.take(Some(lease));
                self.renewed_at = Some(asked_at);
                self.complaint = None;
                let deadline = self.config.times.renew_deadline;
                let until = asked_at + deadline;
                if until > Instant::now() {
                    let term = Term {
                        until,
                        until_by_the_wall: by_the_wall + deadline,
                    };
                    self.term.send_replace(Some(term));
                    self.leading.send_if_modified(|leading| {
                        if !*leading {
                            tracing::info!(holder = self.config.identity, "this replica leads");
                        }
                        !std::mem::replace(leading, true)
                    });
                }
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => self.complain(&error),
        }
    }

    async fn put(&self, spec: &LeaseSpec) -> Result<Lease, ApiError> {
        let mut metadata = json!({"name": self.config.name, "namespace": self.config.namespace});
        let (method, path, what) = match &self.lease {
            Some((lease, _)) => {
                metadata["resourceVersion"] = lease.metadata.resource_version.clone().into();
                let path = format!("{}/{}", self.config.path(), self.config.name);
                (Method::PUT, path, "update leases.coordination.k8s.io")
            }
            None => (
                Method::POST,
                self.config.path(),
                "create leases.coordination.k8s.io",
            ),
        };
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        self.ask(Ask::send(method, path, JSON, &body, what)).await
    }

    async fn ask(&self, ask: Ask) -> Result<Lease, ApiError> {
        // A leader must not sit waiting past its own deadline.
        let patience = self.time_left().map_or(PATIENCE, |left| left.min(PATIENCE));
        api::request_json(&self.connection, ask, patience).await
    }

    fn take(&mut self, lease: Option<Lease>) {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        let before = self.lease.as_ref().map(|(lease, _)| version(lease));
        if lease.as_ref().map(version) != before {
            self.seen_at = Instant::now();
        }
        self.lease = lease.map(|lease| {
            let record = Record {
                holder: lease.spec.holder_identity.clone().unwrap_or_default(),
                lease: Duration::from_secs(
                    lease
                        .spec
                        .lease_duration_seconds
                        .unwrap_or(0)
                        .try_into()
                        .unwrap_or(0),
                ),
            };
            (lease, record)
        });
    }

    fn complain(&mut self, error: &ApiError) {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!(lease = self.config.name, %error, "the election goes on without an answer");
            self.complaint = Some(text);
        }
    }

    fn step_down(&mut self) {
        self.renewed_at = None;
        self.term.send_replace(None);
        self.leading
            .send_if_modified(|leading| std::mem::replace(leading, false));
    }

    /// Lets go of the Lease, if it is ours and we know it.
    async fn give_up(mut self) {
        let led = self.time_left().is_some_and(|left| !left.is_zero());
        // Before the Lease is free for others.
        self.step_down();
        if !led {
            return;
        }
        // A renewal that was broken off may have come through.
        self.look().await;
        let Some((lease, record)) = &self.lease else {
            return;
        };
        if record.holder != self.config.identity {
            return;
        }
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: None,
            renew_time: Some(micro(Timestamp::now())),
            lease_transitions: lease.spec.lease_transitions,
        };
        match self.put(&spec).await {
            Ok(_) => tracing::info!(holder = self.config.identity, "the Lease was given up"),
            Err(error) => tracing::warn!(%error, "the Lease could not be given up; it runs out"),
        }
    }
}

/// `metav1.MicroTime`: always six digits.
pub(crate) fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // A task that is dropped renews nothing any more.
        self.step_down();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_without_a_term_allows_nothing() {
        assert_eq!(guard_until(None).allows(), None);
        assert_eq!(guard_until(Some(Duration::ZERO)).allows(), None);
        let left = guard_until(Some(Duration::from_secs(5))).allows();
        assert!(
            left.is_some_and(|left| left <= Duration::from_secs(5)),
            "{left:?}"
        );
        assert_eq!(WriteGuard::always().allows(), Some(Duration::MAX));
    }

    #[test]
    fn a_guard_ends_when_either_clock_says_so() {
        let (hour, now) = (Duration::from_secs(3600), Instant::now());
        let term = Term {
            until: now + hour,
            until_by_the_wall: SystemTime::now() - hour,
        };
        let guard = WriteGuard {
            term: Some(watch::Sender::new(Some(term)).subscribe()),
        };
        assert_eq!(guard.allows(), None);
    }

    #[test]
    fn times_of_leases_have_six_digits() {
        assert_eq!(micro(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        let time: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
        assert_eq!(micro(time), "2026-01-01T00:00:00.123456Z");
    }

    #[test]
    fn an_identity_is_never_used_twice() {
        assert_ne!(identity("pod"), identity("pod"));
        assert!(identity("pod").starts_with("pod_"));
    }
}
