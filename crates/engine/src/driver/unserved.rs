//! Services that no instance serves: what they hold stays theirs, be it from a time in which they
//! were ours or because another controller publishes it. Of those that were ours it is reported
//! why one of them can't be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::intent::Claim;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};
use tokio::task::JoinSet;

use super::{Engine, clock};
use crate::claims::{claim as recorded, foreign_claim};
use crate::instance::InstanceId;
use crate::report::{Event, Report};
use crate::select::Ownership;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct UnservedServices {
    /// What they hold.
    claims: BTreeMap<ServiceKey, Claim>,
    /// Those that wait to be deleted, and when each is reported next.
    blocked_deletions: BTreeMap<ServiceKey, (Uid, Instant)>,
    /// Events on their way.
    pub(super) reporting: JoinSet<()>,
}

/// How long a Service may wait to be deleted before it is reported: another process may serve its
/// class, and be about to clear it away.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two reports. Events are forgotten after an hour, as API servers are set up.
const AGAIN: Duration = Duration::from_secs(30 * 60);

// === impl UnservedServices ===

impl UnservedServices {
    pub(super) fn remembers(&self, key: &ServiceKey) -> bool {
        self.blocked_deletions.contains_key(key)
    }

    /// Returns whether a Service is to be reported now, and how long until this is asked again.
    fn wait(&mut self, row: &ServiceRow, now: Instant) -> (bool, Duration) {
        let begun = || (row.uid.clone(), now + TIMEOUT);
        let (uid, next) = self
            .blocked_deletions
            .entry(row.key.clone())
            .or_insert_with(begun);
        if *uid != row.uid {
            (*uid, *next) = begun();
        }
        let due = *next <= now;
        if due {
            *next = now + AGAIN;
        }
        (due, next.saturating_duration_since(now))
    }
}

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    /// Keeps every instance from giving away what these Services hold that none serves. The
    /// providers hold no such claim yet.
    pub(super) fn reserve_all(&mut self, claims: BTreeMap<ServiceKey, Claim>) {
        self.unserved.claims = claims;
        for claim in self.unserved.claims.values() {
            self.reserve(&claim.uid, Some(claim));
        }
    }

    /// Follows what changed while no reconciles were made.
    pub(super) fn follow_all_foreign(&mut self) {
        let known = self.unserved.claims.keys().cloned();
        let keys: BTreeSet<ServiceKey> = self.world.keys().chain(known).collect();
        self.follow_foreign(keys.iter());
    }

    /// Follows what Services claim that no instance serves, before any of them is reconciled.
    pub(super) fn follow_foreign<'a>(&mut self, keys: impl Iterator<Item = &'a ServiceKey>) {
        let mut gives_back = false;
        let mut handed_over: Vec<(InstanceId, Claim)> = Vec::new();
        for key in keys {
            if !self.may_claim(key) {
                continue;
            }
            let row = self.world.service(key);
            let classes = &self.config.classes;
            let claim = row
                .as_ref()
                .and_then(|it| foreign_claim(it, &self.world, classes));
            let before = self.unserved.claims.remove(key);
            let is_same = before == claim;
            if let Some(claim) = &claim {
                self.unserved.claims.insert(key.clone(), claim.clone());
            }
            if is_same {
                continue;
            }
            gives_back |= before.is_some();
            if let Some(ended) = &before
                && claim.as_ref().is_none_or(|claim| claim.uid != ended.uid)
            {
                self.reserve(&ended.uid, None);
            }
            if let Some(claim) = &claim {
                self.reserve(&claim.uid, Some(claim));
            }
            // It comes with what it holds.
            if let Some(row) = row
                && let Ownership::Ours(instance) = self.validate(&row)
                && before.is_some_and(|claim| claim.uid == row.uid)
            {
                handed_over.extend(recorded(&row).map(|claim| (instance, claim)));
            }
        }
        for (instance, claim) in handed_over {
            if let Some(provider) = instance.of(&self.handle.providers) {
                provider.restore_claims(&[claim]);
            }
        }
        if gives_back {
            self.wake_waiting();
        }
    }

    /// Whether a Service may claim something without being served, or did. Of most Services the
    /// fields that show the owner say that it does not.
    fn may_claim(&self, key: &ServiceKey) -> bool {
        if self.unserved.claims.contains_key(key) {
            return true;
        }
        let Some(service) = self.world.affiliation(key) else {
            return false;
        };
        let namespace = self.world.namespace(key.namespace());
        let namespace = namespace.map(AsRef::as_ref);
        match self.config.classes.validate_affiliation(service, namespace) {
            Ownership::Ours(_) => false,
            Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => {
                service.published || service.reported || service.instance.is_some()
            }
        }
    }

    /// Passes the claim of a Service that no instance serves on to all of them.
    fn reserve(&self, claimant: &Uid, claim: Option<&Claim>) {
        for provider in self.handle.providers.iter() {
            provider.set_foreign_claim(claimant, claim);
        }
    }

    /// Says why a Service is not deleted; `None`: it is no such Service.
    pub(super) fn follow_blocked_deletion(
        &mut self,
        key: &ServiceKey,
        row: Option<&Arc<ServiceRow>>,
        belongs: Ownership,
    ) -> Option<Reason> {
        let classes = &self.config.classes;
        let blocked = |row: &&Arc<ServiceRow>| {
            row.deleting && row.finalized && classes.has_lost(row, belongs)
        };
        let Some(row) = row.filter(blocked) else {
            self.unserved.blocked_deletions.remove(key);
            return None;
        };
        let namespace = self.world.namespace(key.namespace());
        let reason = classes.blocked_deletion(row, namespace.map(AsRef::as_ref));
        let now = clock();
        let (due, wait) = self.unserved.wait(row, now);
        self.queue.push_after(key, wait, now);
        if due {
            tracing::warn!(service = %key, %reason, "a Service can't be deleted");
            let event = Event {
                reason: "SyncLoadBalancerFailed",
                warning: true,
                message: format!("Error syncing load balancer: {reason}; {}", reason.remedy),
            };
            let (reporter, row) = (self.reporter.clone(), row.clone());
            self.unserved
                .reporting
                .spawn(async move { reporter.event(&row, &event).await });
        }
        Some(reason)
    }
}
