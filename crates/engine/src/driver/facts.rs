//! Taking facts in, and which Services they concern.

use std::collections::BTreeSet;
use std::time::Instant;

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::rows::Fact;

use super::history::ReconcileHistory;
use super::self_updates::SelfUpdate;
use super::{Engine, clock, problems};
use crate::report::Report;
use crate::select::Ownership;
use crate::world::Affected;

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    pub(super) fn take_facts(&mut self, batch: Vec<Fact>) {
        let now = clock();
        let (mut of_note, mut concerns_all) = (false, false);
        let (mut named, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for fact in batch {
            let concerns_claims = claims_rest_on(&fact);
            of_note |= matches!(fact, Fact::SourceProblems { .. } | Fact::Synced);
            let self_updates = self.at_work.then(|| self.echo_of(&fact)).flatten();
            self.note_recalled(&fact);
            let affected = self.world.apply(fact);
            if !self.at_work {
                continue;
            }
            if let Affected::Services(keys) = &affected
                && concerns_claims
            {
                self.follow_foreign(keys.iter());
            }
            match (affected, self_updates) {
                (Affected::None, _) | (Affected::Services(_), Some(SelfUpdate::Finalizer)) => {}
                (Affected::Services(keys), Some(SelfUpdate::Status)) => {
                    for key in &keys {
                        self.receive(key);
                    }
                }
                (Affected::Services(keys), None) => {
                    self.push_relevant(&keys, now);
                }
                (Affected::Naming(addresses), _) => named.extend(addresses),
                (Affected::Secret(secret), _) => drop(secrets.insert(secret)),
                (Affected::All, _) => concerns_all = true,
                (Affected::Pools, _) => self.pools.push(now),
                (Affected::Resources, _) => self.note_resources(now),
            }
        }
        self.push_relevant(&self.world.naming(&named), now);
        self.push_relevant(&self.world.users_of(&secrets), now);
        if concerns_all {
            self.push_all();
        }
        // First every Service that is still to be handled is noted, and then that all is known: the
        // store must not say "ready" in between.
        self.begin();
        if of_note {
            self.note_problems();
        }
    }

    /// Keeps the row of a fact until reconciles begin, where they do as soon as everything is
    /// known: the source holds it, too, and to unpack it then is some work. Otherwise forgets what
    /// was read of a Service of which a fact says something else.
    fn note_recalled(&mut self, fact: &Fact) {
        match fact {
            Fact::Service(row) if self.begins_when_synced() => {
                self.recalled.insert(row.key.clone(), row.clone());
            }
            Fact::Service(row) => drop(self.recalled.remove(&row.key)),
            Fact::ServiceGone(key) => drop(self.recalled.remove(key)),
            _ => {}
        }
    }

    /// Queues those of these Services about which there may be something to do.
    fn push_relevant<'a>(&mut self, keys: impl IntoIterator<Item = &'a ServiceKey>, now: Instant) {
        for key in keys {
            if self.is_relevant(key) {
                self.queue.push_after(key, self.config.debounce, now);
            }
        }
    }

    /// Queues every Service of ours. What a provider asked to be left alone for, and
    /// a change that is in progress, are not disturbed, and what has just failed is delayed for a
    /// moment: nodes may come and go every second.
    pub(super) fn push_all(&mut self) {
        let keys: Vec<ServiceKey> = self
            .world
            .keys()
            .filter(|it| self.is_relevant(it))
            .collect();
        self.push_gently(&keys);
    }

    /// Queues Services as [`push_all`](Self::push_all) does.
    pub(super) fn push_gently(&mut self, keys: &[ServiceKey]) {
        let now = clock();
        for key in keys {
            let history = self.tracked.get(key).map(|tracked| &tracked.history);
            if history.is_some_and(ReconcileHistory::is_under_way) {
                self.queue.push_unless_due(key);
                continue;
            }
            match self.rest(key, now) {
                Some(rest) => self.queue.push_after(key, rest, now),
                None => self.queue.push(key),
            }
        }
    }

    /// Whether a fact about a Service may have to be acted upon. Most Services of a cluster are
    /// irrelevant here, and their facts should cost next to nothing.
    pub(super) fn is_relevant(&self, key: &ServiceKey) -> bool {
        let Some(affiliation) = self.world.affiliation(key) else {
            return self.is_remembered(key);
        };
        let namespace = self.world.namespace(key.namespace());
        let classes = &self.config.classes;
        match classes.validate_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
            Ownership::Ours(_) | Ownership::UnknownClass => true,
            Ownership::SwitchedOff => self.is_remembered(key),
            // It may be ours to clear away.
            Ownership::NotOurs => {
                affiliation.finalized || affiliation.reported || self.is_remembered(key)
            }
        }
    }

    pub(super) fn is_remembered(&self, key: &ServiceKey) -> bool {
        self.tracked.contains_key(key)
            || self.unserved.remembers(key)
            || self
                .handle
                .store
                .read(|pages| pages.records.contains_key(key))
    }

    pub(super) fn note_problems(&self) {
        let problems: Vec<Reason> = self
            .world
            .problems()
            .chain(&self.pool_problems)
            .cloned()
            .collect();
        self.handle
            .store
            .read(|pages| problems::log(&pages.problems, &problems));
        self.handle.store.write(|pages| {
            pages.problems = problems;
            pages.synced = self.world.synced();
            pages.at_work = self.at_work;
        });
    }
}

/// Whether a fact may change what Services claim that no instance serves.
fn claims_rest_on(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Service(_) | Fact::ServiceGone(_) | Fact::Namespace(_) | Fact::NamespaceGone(_)
    )
}
