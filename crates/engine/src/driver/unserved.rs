//! Services that were ours and that no instance serves any more: what they hold stays theirs, and
//! it is reported why one of them can't be deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::intent::Claim;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};
use tokio::task::JoinSet;

use super::{Engine, clock};
use crate::claims::lost_claim;
use crate::report::{Event, Report};
use crate::select::Ownership;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct UnservedServices {
    /// What they hold.
    pub(super) claims: BTreeMap<ServiceKey, Claim>,
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
        self.claims.contains_key(key) || self.blocked_deletions.contains_key(key)
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
    /// Keeps every instance from giving away what they hold.
    pub(super) fn reserve(&self) {
        let claims: Vec<Claim> = self.unserved.claims.values().cloned().collect();
        for provider in self.handle.providers.iter() {
            provider.set_foreign_claims(&claims);
        }
    }

    /// Follows what such a Service holds. Before its reconcile, where it has become ours.
    pub(super) fn follow_lost(
        &mut self,
        key: &ServiceKey,
        row: Option<&ServiceRow>,
        belongs: Ownership,
    ) {
        let classes = &self.config.classes;
        let claim = row.and_then(|row| lost_claim(row, &self.world, classes));
        let before = self.unserved.claims.get(key);
        if before == claim.as_ref() {
            return;
        }
        let given_back = match (before, belongs, row) {
            (None, ..) => false,
            // It comes with what it holds.
            (Some(before), Ownership::Ours(instance), Some(row)) if before.uid == row.uid => {
                if let Some(provider) = instance.of(&self.handle.providers) {
                    provider.restore_claims(std::slice::from_ref(before));
                }
                true
            }
            (Some(_), ..) => true,
        };
        match claim {
            Some(claim) => drop(self.unserved.claims.insert(key.clone(), claim)),
            None => drop(self.unserved.claims.remove(key)),
        }
        self.reserve();
        if given_back {
            self.wake_waiting();
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
