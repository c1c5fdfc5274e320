//! The loop that stands for election: reads and writes the Lease as [`decide`] orders.

use std::time::{Duration, Instant, SystemTime};

use http::Method;
use jiff::Timestamp;
use landfall_engine::leadership::{
    Course, Decision, Marker, Observation, Record, ReplicaView, Role, awaits_successor, decide,
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::LeaseConfig;
use super::guard::Term;
use super::marker;
use super::record::{Lease, LeaseSpec, UNPROVEN, declare, micro};
use crate::api::{self, Ask, JSON};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::retry::dice;

/// The thin loop around [`decide`].
pub(super) struct Candidate {
    pub(super) connection: Connection,
    pub(super) config: LeaseConfig,
    pub(super) term: watch::Sender<Option<Term>>,
    pub(super) leading: watch::Sender<bool>,
    pub(super) role: watch::Sender<Role>,
    pub(super) serving: watch::Receiver<bool>,
    pub(super) able: watch::Receiver<bool>,
    pub(super) sight: Observation<(Lease, Record)>,
    pub(super) course: Course,
    /// Whether the marker exists, or can't be made.
    pub(super) marked: bool,
    /// The version of the Lease that this replica made as the first that ever leads.
    pub(super) first_with: Option<String>,
    pub(super) renewed_at: Option<Instant>,
    pub(super) complaint: Option<String>,
}

/// What came of a write to the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// Another program changed it in between.
    Outdated,
    /// It is not there any more.
    Gone,
    /// There was no answer, or another refusal.
    Failed,
}

/// The shortest time that a question of a replica that does not lead may take.
const SHORTEST_QUESTION: Duration = Duration::from_secs(1);

impl Candidate {
    pub(super) async fn run(mut self, stop: CancellationToken, end: CancellationToken) {
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
                Decision::Mark => self.mark().await,
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
                        "the Lease could not be renewed in time, or another replica got it; \
                        nothing is written, and traffic continues"
                    );
                    self.step_down();
                    self.look().await;
                }
                Decision::GiveUp => {
                    tracing::warn!("this replica can't work; it leaves the Lease to another one");
                    self.give_up().await;
                    self.look().await;
                }
            }
        }
    }

    /// Writes the Lease, and reads what came in between where that did not succeed.
    async fn renew(&mut self) {
        let retry = self.config.times.retry;
        let leads = self.renewed_at.is_some();
        match self.write().await {
            // It is put back at once by the one that leads.
            Written::Done | Written::Gone => return,
            Written::Outdated => self.look().await,
            Written::Failed if !leads => self.look().await,
            // The next attempt shows whether this one came through.
            Written::Failed => {}
        }
        // Not again in the same breath.
        self.pause(if leads { retry / 4 } else { retry }).await;
    }

    /// Makes the marker, and finds out whether this replica is the first that ever leads.
    async fn mark(&mut self) {
        let time_limit = self.config.times.renew_deadline.max(SHORTEST_QUESTION);
        let made = self.sight.seen().filter(|(_, record)| {
            // Nothing else wrote it since.
            record.unproven && record.holder == self.config.identity
        });
        let version = made.and_then(|(lease, _)| lease.version().map(ToOwned::to_owned));
        match marker::make(&self.connection, &self.config, time_limit).await {
            Ok(marker) => {
                self.marked = true;
                let held = match marker {
                    Marker::Made if version.is_some() => self.is_any_held(time_limit).await,
                    Marker::Made | Marker::NotMade => None,
                };
                self.first_with = version.filter(|_| marker.is_first(held));
            }
            Err(error) => {
                self.complain(&error);
                self.pause(self.config.times.retry).await;
                self.look().await;
            }
        }
    }

    /// Whether any Service has the finalizer; `None`: that can't be found out.
    async fn is_any_held(&mut self, time_limit: Duration) -> Option<bool> {
        match marker::is_any_held(&self.connection, time_limit).await {
            Ok(held) => Some(held),
            Err(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// Reads the Lease until another replica serves, or none comes to.
    async fn follow_successor(&mut self) {
        let (released_at, times) = (Instant::now(), self.config.times);
        while self.course.role() == Role::Carrying {
            let (record, identity) = (self.record(), &self.config.identity);
            if !awaits_successor(record, identity, released_at, &times, Instant::now()) {
                tracing::info!("no other replica serves yet");
                return;
            }
            self.pause(times.retry / 4).await;
            self.look().await;
        }
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.sight.seen().map(|(_, record)| record)
    }

    fn standing(&self) -> ReplicaView<'_> {
        let version = self.sight.seen().and_then(|(lease, _)| lease.version());
        ReplicaView {
            identity: &self.config.identity,
            record: self.record(),
            seen_at: self.sight.since(),
            never_seen: self.sight.has_never_seen(),
            marked: self.marked,
            first: self.first_with.is_some() && self.first_with.as_deref() == version,
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

    /// Reads the Lease. What can't be seen is as it was.
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
    pub(super) async fn write(&mut self) -> Written {
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
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
                "spec": spec,
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

    /// Logs a change of the holder.
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
            tracing::warn!(lease = self.config.name, %error, "an answer for the election is \
                                                             missing");
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
            Ok(_) => tracing::info!(holder = self.config.identity, "the Lease was released"),
            Err(error) => tracing::warn!(%error, "the Lease could not be released; it will expire"),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // A task that is dropped renews nothing any more.
        self.step_down();
    }
}
