//! A fact that repeats our own write is no change: without this a status whose words
//! change with every attempt (a cloud that counts its requests in its messages) would call for the
//! next attempt itself, past every pause.

use std::collections::BTreeMap;

use landfall_model::ServiceKey;
use landfall_model::marks::managed_annotations;
use landfall_model::provider::Provider;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::ServiceStatus;

use super::tracked::StatusOrigin;
use super::{Engine, clock};
use crate::report::Report;

/// What may be our own writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelfUpdate {
    /// No more than the finalizer.
    Finalizer,
    /// The status, or an annotation beside it.
    Status,
}

impl<P: Provider, R: Report> Engine<P, R> {
    /// What a fact that has not been taken in yet may repeat of our own write; `None`: it
    /// has more.
    pub(super) fn echo_of(&self, fact: &Fact) -> Option<SelfUpdate> {
        let Fact::Service(now) = fact else {
            return None;
        };
        if !self.tracked.contains_key(&now.key) {
            return None;
        }
        let before = self.world.service(&now.key)?;
        difference(&before, now)
    }

    /// Takes in a fact about a Service that may repeat only our own write. Requests a
    /// reconcile if it is not.
    pub(super) fn receive(&mut self, key: &ServiceKey) {
        if self.queue.is_running(key) {
            self.received.insert(key.clone());
            return;
        }
        let (row, said) = (self.world.service(key), self.said(key));
        let (Some(row), Some(tracked)) = (row, self.tracked.get_mut(key)) else {
            self.queue.push_after(key, self.config.debounce, clock());
            return;
        };
        match tracked.validate_reported(&row.status, said.as_ref()) {
            StatusOrigin::Ours => {
                tracked.confirm(&row.status);
                let kept = self.world.keep(&row);
                self.handle.store.write(|pages| {
                    if let Some(record) = pages.records.get_mut(key) {
                        // One row less to keep. A newer version that is not handled yet may have
                        // come between the two, and is not accepted yet.
                        if let Some(accepted) = &mut tracked.accepted
                            && accepted.row == *record.kept()
                            && let Some(before) = accepted.row.row()
                            && is_same_version(&before, &row)
                        {
                            accepted.row = kept.clone();
                        }
                        record.set_row(kept);
                    }
                });
            }
            StatusOrigin::Annotated => self.queue.push_after(key, self.config.debounce, clock()),
            // What we wrote last is still to come.
            StatusOrigin::Late => {}
            StatusOrigin::Foreign => self.answer_rewrite(key),
        }
    }

    /// Takes in, after a reconcile, the facts that arrived while it ran.
    pub(super) fn take_received(&mut self, key: &ServiceKey) {
        let (row, said) = (self.world.service(key), self.said(key));
        let (Some(row), Some(tracked)) = (row, self.tracked.get_mut(key)) else {
            return;
        };
        match tracked.validate_reported(&row.status, said.as_ref()) {
            StatusOrigin::Ours => tracked.confirm(&row.status),
            StatusOrigin::Annotated => self.queue.push_after(key, self.config.debounce, clock()),
            StatusOrigin::Late => {}
            StatusOrigin::Foreign => self.answer_rewrite(key),
        }
    }

    /// What the status says as the last reconcile left it.
    fn said(&self, key: &ServiceKey) -> Option<ServiceStatus> {
        self.handle.store.read(|pages| {
            let record = pages.records.get(key)?;
            Some(record.status())
        })
    }

    /// Puts right what another program wrote, unless that goes on and on.
    fn answer_rewrite(&mut self, key: &ServiceKey) {
        let (now, said) = (clock(), self.said(key));
        let tracked = self.tracked.get_mut(key);
        let sure = tracked.filter(|tracked| tracked.history.is_sure());
        let (Some(tracked), Some(said)) = (sure, said) else {
            // It may be what we wrote ourselves.
            self.queue.push_after(key, self.config.debounce, now);
            return;
        };
        self.handle.metrics.rewrite();
        tracked.written = None;
        let status_conflicts = &mut tracked.history.status_conflicts;
        let was_fight = status_conflicts.wait(now).is_some();
        if status_conflicts.rewritten(&said, now) || !was_fight {
            // The first reconcile in a conflict reports it.
            self.queue.push_after(key, self.config.debounce, now);
        } else if let Some(wait) = status_conflicts.wait(now) {
            self.queue.push_after(key, wait, now);
        }
    }
}

/// The difference of two rows, if nothing differs but what we write.
fn difference(before: &ServiceRow, now: &ServiceRow) -> Option<SelfUpdate> {
    let self_updates = match before.status == now.status {
        true if now.finalized && !before.finalized => SelfUpdate::Finalizer,
        true => return None,
        false => SelfUpdate::Status,
    };
    is_same_version(before, now).then_some(self_updates)
}

/// Whether nothing differs between two rows of a Service but what we write. The finalizer comes
/// with the first status; that it goes is never ours alone to know.
fn is_same_version(before: &ServiceRow, now: &ServiceRow) -> bool {
    before.is_same_version(now)
        && (now.finalized || !before.finalized)
        && of_others(&before.annotations).eq(of_others(&now.annotations))
        && before.source == now.source
}

/// Returns the annotations that we do not write.
fn of_others(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    let is_ours = |key: &str| managed_annotations().any(|mark| mark == key);
    annotations.iter().filter(move |(key, _)| !is_ours(key))
}
