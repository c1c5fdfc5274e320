//! What a watcher makes of success and failure: what it reports, and how long it waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::reason::{Code, Reason};
use landfall_model::rows::Fact;

use super::list_failures::{self, ListFailures};
use super::{Kind, Watcher};
use crate::error::ApiError;
use crate::retry::dice;

impl Watcher {
    /// Says what failed that was `begun` then, once, and how long to wait; `None`: the facts have
    /// no receiver any more.
    pub(super) async fn take_failure(
        &mut self,
        error: ApiError,
        begun: Instant,
    ) -> Option<Duration> {
        let kind = self.known.kind().clone();
        let pause = self.retry.next(dice());
        if kind.is_optional() && error.is_not_found() {
            return self.take_missing().await;
        }
        let text = error.to_string();
        if self.complaint.as_ref() == Some(&text) {
            tracing::debug!(kind = kind.resource(), %error, "still not watched");
        } else {
            tracing::warn!(kind = kind.resource(), %error, "can't be watched at present; the last \
                                                           known objects are used");
            self.complaint = Some(text.clone());
        }
        let denied = matches!(error, ApiError::Denied { .. });
        if denied && !self.denied {
            self.denied = true;
            // Pools may come from the configuration, and most clusters use few of the other kinds:
            // a process that may not see these perhaps needs none.
            let validated = match kind {
                Kind::Resources { .. } => Reason::warning,
                _ => Reason::error,
            };
            let reason = validated(Code::AccessDenied, text.clone());
            let problem = self.access_problem(vec![reason]);
            self.report(problem).await.ok()?;
        }
        let is_needed = self.config.needs_access && !self.renewal.is_answered();
        if denied && kind.is_optional() && !is_needed {
            // The rest goes on without it.
            self.health.recovered(&kind.to_string());
            self.note_answered();
            return Some(self.config.look_again);
        }
        self.health.failed(&kind.to_string(), text);
        self.note_lapse(begun);
        Some(error.retry_after().map_or(pause, |least| least.max(pause)))
    }

    /// The kind does not exist in this cluster. One that did so far is believed to be gone only
    /// when the server says it twice, some time apart: a server that is starting may not know it
    /// yet.
    async fn take_missing(&mut self) -> Option<Duration> {
        if self.missing_since.is_none() {
            let kind = self.known.kind().resource();
            tracing::info!(kind, "this cluster has no objects of this kind");
        }
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        self.resume_from = None;
        self.complaint = None;
        self.health.recovered(&self.known.kind().to_string());
        // A server that is starting denies what it will know nothing of.
        self.take_access().await.ok()?;
        if !self.known.is_empty() {
            if since.elapsed() < self.config.look_again {
                // What is known stands until then.
                self.note_answered();
                return Some(self.config.look_again);
            }
            let mut facts = Vec::new();
            self.known.forget_all(|fact| facts.push(fact));
            self.report(facts).await.ok()?;
        }
        self.note_answered();
        Some(self.config.look_again)
    }

    /// Access is not denied, or not any more.
    pub(super) async fn take_access(&mut self) -> Result<(), ()> {
        if !std::mem::take(&mut self.denied) {
            return Ok(());
        }
        let cleared = self.access_problem(Vec::new());
        self.report(cleared).await
    }

    pub(super) fn take_success(&mut self) {
        if self.complaint.take().is_some() {
            tracing::info!(kind = self.known.kind().resource(), "followed again");
        }
        self.missing_since = None;
        self.list_failures = ListFailures::default();
        self.renewal.fares(true, Instant::now());
        self.health.recovered(&self.known.kind().to_string());
    }

    pub(super) fn note_answered(&mut self) {
        self.list_failures = ListFailures::default();
        self.renewal.answer(Instant::now());
    }

    /// Notes an attempt that was begun then and came to nothing. After a while of them, what was
    /// known before stands in.
    pub(super) fn note_lapse(&mut self, begun: Instant) {
        let now = Instant::now();
        self.renewal.fares(false, now);
        let services = self.services.as_ref();
        let since = services.and_then(|it| self.renewal.alike(&it.borrow()));
        let lasted = self.list_failures.fail(begun, now, since);
        let kind = self.known.kind();
        if lasted.is_some_and(|lasted| lasted >= self.config.stands_in_after)
            && list_failures::stands_in(kind, self.renewal.is_answered())
            && self.renewal.answer(now)
        {
            tracing::warn!(
                kind = kind.resource(),
                "can't be listed; the last known objects are used, and other kinds are not affected"
            );
        }
    }

    pub(super) fn access_problem(&self, reasons: Vec<Reason>) -> Vec<Fact> {
        let kind = self.known.kind();
        let part: Arc<str> = format!("access to {kind}").into();
        let incomplete = kind.incomplete(&part, !reasons.is_empty());
        let problem = Fact::SourceProblems { part, reasons };
        std::iter::once(problem).chain(incomplete).collect()
    }
}
