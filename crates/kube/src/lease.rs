//! The election among replicas: a Lease in the API server, and the guard that every write passes.
//!
//! What to do is decided in [`landfall_engine::leadership`]; this asks, and keeps the guard. It never
//! says that this replica leads for longer than its own clock allows, whatever the server answers.
//!
//! The holder says in an annotation of the Lease whether it has opened its listeners. Until then
//! the replica that led before carries the traffic on.

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use jiff::Timestamp;
use landfall_engine::leadership::{
    Course, Decision, Record, Role, Sight, Standing, Times, awaits_successor, decide,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
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
    /// Kept as it is: labels and annotations of others stay.
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: LeaseSpec,
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
    role: watch::Sender<Role>,
    serving: watch::Receiver<bool>,
    able: watch::Receiver<bool>,
    sight: Sight<(Lease, Record)>,
    course: Course,
    renewed_at: Option<Instant>,
    complaint: Option<String>,
}

/// What came of a write to the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Done,
    /// Someone else changed it in between.
    Outdated,
    /// It is not there any more.
    Gone,
    /// There was no answer, or another refusal.
    Failed,
}

/// The annotation that names the holder once it serves. It is empty before: versions that don't
/// know it, or leave it out until then, are told apart.
const SERVING: &str = "landfall.dev/serving";

/// The transitions of a Lease that was made and not renewed since.
const UNPROVEN: i64 = 0;

/// The shortest time that a question of a replica that does not lead may take.
const SHORTEST_QUESTION: Duration = Duration::from_secs(1);

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
            sight: Sight::new(Instant::now()),
            course,
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

async fn ended(term: Option<&mut watch::Receiver<Option<Term>>>) {
    let ended = match term {
        Some(term) => term.wait_for(Option::is_none).await.is_ok(),
        None => false,
    };
    // Where nothing is renewed any more, the time that is left counts alone.
    if !ended {
        std::future::pending::<()>().await;
    }
}

// === impl Candidate ===

impl Candidate {
    async fn run(mut self, stop: CancellationToken, end: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            never = self.campaign() => match never {},
        }
        self.give_up().await;
        tokio::select! {
            () = end.cancelled() => {}
            () = self.follow_successor() => {}
        }
    }

    async fn campaign(&mut self) -> std::convert::Infallible {
        self.look().await;
        loop {
            let now = Instant::now();
            let times = self.config.times;
            let leads = self.renewed_at.is_some();
            match decide(&self.standing(), &times, now) {
                Decision::Wait(_) if leads && self.is_undeclared() => self.renew().await,
                Decision::Acquire | Decision::Renew => self.renew().await,
                Decision::Wait(until) => {
                    // Looks are cheap, and a Lease that was given up is not to lie about.
                    let often = if leads { times.retry } else { times.retry / 2 };
                    self.pause(until.saturating_duration_since(now).min(often))
                        .await;
                    if !leads {
                        self.look().await;
                    }
                }
                Decision::StepDown => {
                    tracing::warn!(
                        "the Lease could not be renewed in time, or another replica took it; \
                         nothing is written, and traffic is carried on"
                    );
                    self.step_down();
                    self.look().await;
                }
                Decision::GiveUp => {
                    tracing::warn!("this replica can't work; another one may lead");
                    self.give_up().await;
                    self.look().await;
                }
            }
        }
    }

    /// Writes the Lease, and looks at what came in between where that did not succeed.
    async fn renew(&mut self) {
        let retry = self.config.times.retry;
        let leads = self.renewed_at.is_some();
        match self.write().await {
            // It is put back at once by the one that leads.
            Written::Done | Written::Gone => return,
            Written::Outdated => self.look().await,
            Written::Failed if !leads => self.look().await,
            // The next attempt tells whether this one came through.
            Written::Failed => {}
        }
        // Not again in the same breath.
        self.pause(if leads { retry / 4 } else { retry }).await;
    }

    /// Looks at the Lease until another replica serves, or none comes to.
    async fn follow_successor(&mut self) {
        let (released_at, times) = (Instant::now(), self.config.times);
        while self.course.role() == Role::Carrying {
            let (record, identity) = (self.record(), &self.config.identity);
            if !awaits_successor(record, identity, released_at, &times, Instant::now()) {
                tracing::info!("no other replica is seen to serve");
                return;
            }
            self.pause(times.retry / 4).await;
            self.look().await;
        }
    }

    fn record(&self) -> Option<&Record> {
        self.sight.seen().map(|(_, record)| record)
    }

    fn standing(&self) -> Standing<'_> {
        Standing {
            identity: &self.config.identity,
            record: self.record(),
            seen_at: self.sight.since(),
            renewed_at: self.renewed_at,
            blind: self.sight.is_blind(),
            able: *self.able.borrow(),
        }
    }

    /// Whether the others are still to be shown that this replica serves, or does not.
    fn is_undeclared(&self) -> bool {
        let serving = *self.serving.borrow();
        self.record()
            .is_some_and(|record| record.serving != serving)
    }

    /// Waits, a little less each time than was asked for, so that replicas fall out of step; never
    /// past the moment at which this replica has to step down, nor when it comes to serve or is
    /// able to lead.
    async fn pause(&mut self, wanted: Duration) {
        let jittered = wanted.mul_f64(0.8 + (dice() % 200) as f64 / 1000.0);
        let left = self.time_left().unwrap_or(jittered);
        tokio::select! {
            () = tokio::time::sleep(jittered.min(left)) => {}
            Ok(()) = self.serving.changed() => {}
            Ok(()) = self.able.changed() => {}
        }
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
        let found = match self.ask(ask).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                self.sight.fail();
                return self.complain(&error);
            }
        };
        self.take(found);
    }

    /// Tries to become or to stay the holder.
    async fn write(&mut self) -> Written {
        let now = Timestamp::now();
        let before = self.sight.seen().map(|(lease, _)| lease.spec.clone());
        let before = before.unwrap_or_default();
        let stays = before.holder_identity.as_deref() == Some(&self.config.identity);
        let makes = self.sight.seen().is_none();
        let transitions = before.lease_transitions.unwrap_or(0);
        let transitions = if makes {
            UNPROVEN
        } else if stays {
            transitions.max(1)
        } else {
            // The API server takes no more than this.
            transitions.saturating_add(1).min(i32::MAX.into())
        };
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
        let serving = *self.serving.borrow_and_update() && self.renewed_at.is_some();
        // From before it is asked: the server may renew at any moment from now on.
        let asked_at = Instant::now();
        let by_the_wall = SystemTime::now();
        match self.put(&spec, serving).await {
            Ok(lease) => {
                let record = lease.record();
                let same = self.is_same(Some(&lease));
                let (now, times) = (Instant::now(), self.config.times);
                self.sight.take(Some((lease, record)), same, &times, now);
                self.complaint = None;
                // One that is made has to be held for a while, unless it is put back.
                if !makes || self.renewed_at.is_some() {
                    self.lead(asked_at, by_the_wall);
                }
                Written::Done
            }
            // Where it was to be made, its namespace is missing.
            Err(error) if error.is_not_found() && !makes => {
                self.take(None);
                Written::Gone
            }
            Err(error) if error.is_conflict() => Written::Outdated,
            Err(error) => {
                self.complain(&error);
                Written::Failed
            }
        }
    }

    /// Notes that the Lease was written at this time, by both clocks.
    fn lead(&mut self, asked_at: Instant, by_the_wall: SystemTime) {
        let deadline = self.config.times.renew_deadline;
        self.renewed_at = Some(asked_at);
        let until = asked_at + deadline;
        if until <= Instant::now() {
            return;
        }
        self.term.send_replace(Some(Term {
            until,
            until_by_the_wall: by_the_wall + deadline,
        }));
        if !*self.leading.borrow() {
            tracing::info!(holder = self.config.identity, "this replica leads");
        }
        self.course.lead();
        self.publish();
    }

    async fn put(&self, spec: &LeaseSpec, serving: bool) -> Result<Lease, ApiError> {
        let known = self.sight.seen().map(|(lease, _)| &lease.metadata);
        let mut metadata = known.cloned().unwrap_or_default();
        metadata.remove("managedFields");
        metadata.insert("name".into(), self.config.name.clone().into());
        metadata.insert("namespace".into(), self.config.namespace.clone().into());
        declare(
            &mut metadata,
            if serving { &self.config.identity } else { "" },
        );
        let (method, path, what) = if known.is_some() {
            let path = format!("{}/{}", self.config.path(), self.config.name);
            (Method::PUT, path, "update leases.coordination.k8s.io")
        } else {
            let path = self.config.path();
            (Method::POST, path, "create leases.coordination.k8s.io")
        };
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        self.ask(Ask::send(method, path, JSON, &body, what)).await
    }

    async fn ask(&self, ask: Ask) -> Result<Lease, ApiError> {
        // A leader must not sit waiting past its own deadline, and no one learns anything from a
        // look that took longer.
        let longest = self.config.times.renew_deadline.max(SHORTEST_QUESTION);
        let left = self.time_left().map_or(longest, |left| left.min(longest));
        api::request_json(&self.connection, ask, left).await
    }

    fn is_same(&self, lease: Option<&Lease>) -> bool {
        let before = self.sight.seen().map(|(lease, _)| lease.version());
        before == lease.map(Lease::version)
    }

    fn take(&mut self, lease: Option<Lease>) {
        let (now, times) = (Instant::now(), self.config.times);
        let same = self.is_same(lease.as_ref());
        let found = lease.map(|lease| {
            let record = lease.record();
            (lease, record)
        });
        self.log_holder(found.as_ref().map(|(_, record)| record));
        self.sight.take(found, same, &times, now);
        let record = self.sight.seen().map(|(_, record)| record);
        self.course
            .see(record, &self.config.identity, !same, Instant::now());
        self.publish();
    }

    /// Tells of another holder than before.
    fn log_holder(&self, now: Option<&Record>) {
        let before = self.record().map(|record| &record.holder);
        let now = now.map(|record| &record.holder);
        if let Some(holder) = now.filter(|holder| Some(*holder) != before)
            && !holder.is_empty()
            && *holder != self.config.identity
        {
            let LeaseConfig {
                namespace, name, ..
            } = &self.config;
            let lease = format!("{namespace}/{name}");
            tracing::info!(lease, holder, "another replica leads");
        }
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
        self.course.lose();
        self.publish();
    }

    /// Shows the role. One that leads may write by now, and any other can't any more.
    fn publish(&self) {
        let role = self.course.role();
        let leads = matches!(role, Role::Leading { .. });
        self.role
            .send_if_modified(|before| std::mem::replace(before, role) != role);
        self.leading
            .send_if_modified(|leading| std::mem::replace(leading, leads) != leads);
    }

    /// Lets go of the Lease, if it is ours and we know it.
    async fn give_up(&mut self) {
        let led = self.time_left().is_some_and(|left| !left.is_zero());
        // Before the Lease is free for others.
        self.step_down();
        if !led {
            return;
        }
        // A renewal that was broken off may have come through.
        self.look().await;
        let Some((lease, record)) = self.sight.seen() else {
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
        match self.put(&spec, false).await {
            Ok(_) => tracing::info!(holder = self.config.identity, "the Lease was given up"),
            Err(error) => tracing::warn!(%error, "the Lease could not be given up; it runs out"),
        }
    }
}

// === impl Lease ===

impl Lease {
    fn version(&self) -> Option<&str> {
        self.metadata.get("resourceVersion")?.as_str()
    }

    /// What of it decides anything.
    fn record(&self) -> Record {
        let holder = self.spec.holder_identity.clone().unwrap_or_default();
        let annotations = self.metadata.get("annotations");
        let said = annotations.and_then(|it| it.get(SERVING)?.as_str());
        let serving = !holder.is_empty() && said == Some(&holder);
        let seconds = self.spec.lease_duration_seconds.unwrap_or(0);
        Record {
            serving,
            // A word about another holder says nothing of this one.
            declares: serving || said == Some(""),
            holder,
            lease: Duration::from_secs(seconds.try_into().unwrap_or(0)),
            unproven: self.spec.lease_transitions.unwrap_or(UNPROVEN) == UNPROVEN,
        }
    }
}

/// Says in the metadata of a Lease which holder serves; empty: the holder does not.
fn declare(metadata: &mut Map<String, Value>, serving: &str) {
    let mut annotations = match metadata.remove("annotations") {
        Some(Value::Object(annotations)) => annotations,
        _ => Map::new(),
    };
    annotations.insert(SERVING.into(), serving.into());
    metadata.insert("annotations".into(), annotations.into());
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

    fn term_of(left: Duration) -> Term {
        Term {
            until: Instant::now() + left,
            until_by_the_wall: SystemTime::now() + left,
        }
    }

    #[tokio::test]
    async fn a_write_that_began_before_a_renewal_goes_on_after_it() {
        let soon = Duration::from_millis(20);
        let term = watch::Sender::new(Some(term_of(soon)));
        let guard = WriteGuard {
            term: Some(term.subscribe()),
        };
        let write = async {
            term.send_replace(Some(term_of(Duration::from_secs(3600))));
            tokio::time::sleep(soon * 2).await;
            "written"
        };
        assert_eq!(guard.while_allowed(write).await, Some("written"));
    }

    #[tokio::test]
    async fn a_write_ends_with_the_lease() {
        let soon = Duration::from_millis(20);
        let never = std::future::pending::<()>;
        assert_eq!(guard_until(Some(soon)).while_allowed(never()).await, None);
        let term = watch::Sender::new(Some(term_of(Duration::from_secs(3600))));
        let guard = WriteGuard {
            term: Some(term.subscribe()),
        };
        let lost_and_won_again = async {
            term.send_replace(None);
            tokio::task::yield_now().await;
            term.send_replace(Some(term_of(Duration::from_secs(3600))));
            never().await;
        };
        assert_eq!(guard.while_allowed(lost_and_won_again).await, None);
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

    /// A runtime that goes takes its tasks with it, as a panic takes one.
    #[test]
    fn a_candidacy_that_is_gone_says_so_and_allows_no_more_writes() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap()
        };
        let (lost, here) = (runtime(), runtime());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let config = json!({
            "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "me", "user": {"token": "t"}}], "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        let origin = crate::Origin::Kubeconfig {
            path: Some(path),
            context: None,
        };
        let connection = here.block_on(Connection::new(origin, "test")).unwrap();
        let election = {
            let _inside = lost.enter();
            let lease = LeaseConfig::new("landfall-system", "test");
            Election::start(connection, lease, &TaskTracker::new())
        };
        let ended = election.ended();
        assert!(!ended.is_cancelled());
        drop(lost);
        assert!(ended.is_cancelled());
        assert_eq!(election.guard().allows(), None);
        // Nothing waits for it.
        here.block_on(election.hand_over());
    }

    #[test]
    fn times_of_leases_have_six_digits() {
        assert_eq!(micro(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        let time: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
        assert_eq!(micro(time), "2026-01-01T00:00:00.123456Z");
    }

    #[test]
    fn a_holder_that_does_not_serve_says_so_and_one_of_an_older_version_says_nothing() {
        let read = |metadata: &Map<String, Value>| {
            let spec = LeaseSpec {
                holder_identity: Some("holder".into()),
                ..LeaseSpec::default()
            };
            let metadata = metadata.clone();
            let record = Lease { metadata, spec }.record();
            (record.declares, record.serving)
        };
        let mut metadata = Map::new();
        assert_eq!(
            read(&metadata),
            (false, false),
            "written by an older version"
        );
        declare(&mut metadata, "");
        assert_eq!(read(&metadata), (true, false));
        declare(&mut metadata, "holder");
        assert_eq!(read(&metadata), (true, true));
        declare(&mut metadata, "the holder before");
        assert_eq!(read(&metadata), (false, false));
    }

    #[test]
    fn what_others_say_about_a_lease_stays() {
        let theirs = json!({"annotations": {"team": "net"}, "labels": {"a": "b"}});
        let mut metadata: Map<String, Value> = serde_json::from_value(theirs).unwrap();
        declare(&mut metadata, "");
        assert_eq!(metadata["annotations"]["team"], "net");
        assert_eq!(metadata["labels"]["a"], "b");
    }

    #[test]
    fn an_identity_is_never_used_twice() {
        assert_ne!(identity("pod"), identity("pod"));
        assert!(identity("pod").starts_with("pod_"));
    }
}
