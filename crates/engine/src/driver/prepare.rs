//! What is to be done for a Service, and by which instances: from the World and what is remembered.
//! Nothing is written from here.

use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::intent::Intent;
use landfall_model::provider::{Provider, ProviderProfile};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{OwnershipFields, ServiceRow};
use landfall_model::status::ConditionType;
use landfall_model::wire::accepted_to_text;

use super::{Engine, WorkItem};
use crate::claims;
use crate::instance::{InstanceId, Owners};
use crate::progress::Progress;
use crate::reconcile::{Job, Persisted};
use crate::report::Report;
use crate::resolve::{Accepted, resolve};
use crate::select::Ownership;
use crate::store::Record;

impl<P: Provider, R: Report> Engine<P, R> {
    /// What is to be done for a Service now; `None`: nothing.
    pub(super) fn prepare(&mut self, key: &ServiceKey) -> Option<WorkItem> {
        let row = self.recalled.remove(key);
        if self.recalled.is_empty() {
            self.recalled.shrink_to_fit();
        }
        let row = row.or_else(|| self.world.service(key));
        let wanted = row
            .as_ref()
            .map_or(Ownership::NotOurs, |row| self.validate(row));
        let blocked = self.follow_blocked_deletion(key, row.as_ref(), wanted);
        if let Some(item) = self.prepare_hand_over(key, row.as_ref(), wanted) {
            return Some(item);
        }
        let Some(row) = row else {
            self.forget(key);
            return None;
        };
        match wanted {
            Ownership::Ours(instance) if !row.deleting => Some(self.prepare_spec(row, instance)),
            Ownership::Ours(instance) if row.finalized => {
                Some(self.prepare_removal(row, Owners::only(instance)))
            }
            _ => {
                let owners = match wanted {
                    // Our finalizer was taken off by hand: what is held, and what is published,
                    // goes nevertheless.
                    Ownership::Ours(instance) if self.left_something(&row) => {
                        Some(Owners::only(instance))
                    }
                    Ownership::SwitchedOff => None,
                    _ => self.owners(&row),
                };
                if let Some(owners) = owners {
                    return Some(self.prepare_removal(row, owners));
                }
                let serving = self.still_serving(&row, wanted);
                self.forget(key);
                let unknown = || self.unknown_class(&row, wanted);
                if let Some(reason) = blocked.or_else(unknown) {
                    self.note_unserved(&row, serving, reason);
                }
                None
            }
        }
    }

    /// What an instance holds and shall not hold any more goes first: for a Service that is gone,
    /// for an earlier one of the same name, or for one that is another instance's now.
    fn prepare_hand_over(
        &mut self,
        key: &ServiceKey,
        row: Option<&Arc<ServiceRow>>,
        wanted: Ownership,
    ) -> Option<WorkItem> {
        let tracked = self.tracked.get_mut(key)?;
        let owners = tracked.owners.clone()?;
        if let Some(row) = row
            && row.uid == tracked.uid
        {
            return match wanted {
                Ownership::Ours(instance) if owners == Owners::only(instance) => None,
                Ownership::Ours(_) => {
                    tracked.replacing = true;
                    let job = tracked.removal(key, None);
                    Some(WorkItem { job, owners })
                }
                // What is on the Service is for another controller now.
                Ownership::SwitchedOff => Some(WorkItem {
                    job: tracked.removal(key, None),
                    owners,
                }),
                // The annotation names an instance that is not there: a slip must not cost what is
                // served, which stays with the Service until the annotation is fixed.
                Ownership::UnknownClass if row.class.is_none() => None,
                Ownership::NotOurs | Ownership::UnknownClass => Some(WorkItem {
                    job: tracked.removal(key, Some(row.clone())),
                    owners,
                }),
            };
        }
        tracked.replacing = row.is_some();
        Some(WorkItem {
            job: tracked.removal(key, None),
            owners,
        })
    }

    fn prepare_spec(&mut self, row: Arc<ServiceRow>, instance: InstanceId) -> WorkItem {
        let (mut intent, mut errors, accepted) = self.decide(&row, instance);
        let valid = errors.is_empty();
        let (persisted, remarks) = self.persisted(&row, instance, valid, accepted.as_ref());
        match &mut intent {
            Some(intent) => intent.remarks.extend(remarks),
            None => errors.extend(remarks),
        }
        note_invalid_newest(&row, &mut errors);
        let provider = instance.of(&self.handle.providers);
        let recalls = provider.is_some_and(|it| it.profile().takes_pools);
        let tracked = self.track(&row);
        let published = tracked.published();
        if intent.is_some() {
            tracked.accepted = accepted;
            tracked.ending = false;
            tracked.owners = Some(Owners::only(instance));
        } else if recalls && !published.is_empty() {
            // It was recalled, and has to be given back.
            tracked.owners = Some(Owners::only(instance));
        }
        let persisted = Persisted {
            obsolete: tracked.obsolete,
            published,
            ..persisted
        };
        let job = Job {
            intent,
            errors,
            status: tracked.current_status(&row),
            last_failure: tracked.last_failure.clone(),
            reporting: tracked.reporting.clone(),
            progress: Progress::default(),
            row: Some(row),
            releases_finalizer: true,
            persisted,
            unsure: tracked.history.unsure,
        };
        WorkItem {
            job,
            owners: Owners::only(instance),
        }
    }

    /// What is kept on a Service for the process that comes next, and what there is to say about
    /// what an earlier one has left there.
    fn persisted(
        &self,
        row: &ServiceRow,
        instance: InstanceId,
        valid: bool,
        accepted: Option<&Accepted>,
    ) -> (Persisted, Vec<Reason>) {
        let mut remarks = claims::complaints(row);
        let forfeited = self.forfeited.get(&row.uid).into_iter().flatten();
        remarks.extend(forfeited.clone().map(|it| it.reason(&row.key)));
        // Before a newer one is refused: a process may end between that edit and the next write.
        let text = accepted.and_then(|accepted| accepted.row.row());
        let text = text.map(|row| accepted_to_text(&row));
        let text = match text {
            Some(Ok(text)) => Some(text),
            Some(Err(reason)) => {
                // It matters only where another version is to be served.
                remarks.extend((!valid).then_some(*reason));
                None
            }
            None => None,
        };
        let name = self.config.classes.name(instance);
        let persisted = Persisted {
            instance: name.filter(|_| row.class.is_none()).map(str::to_owned),
            named: self.instance_of(row).is_some(),
            accepted: text,
            obsolete: &[],
            published: Vec::new(),
            forfeited: forfeited.map(|it| it.address).collect(),
        };
        (persisted, remarks)
    }

    /// Whether something is left of a Service that is being deleted without our finalizer.
    fn left_something(&self, row: &ServiceRow) -> bool {
        let known = self.tracked.get(&row.key);
        let held = known.is_some_and(|tracked| tracked.owners.is_some());
        held || !row.status.conditions.is_empty()
    }

    /// Decides what a Service is to have; also what is wrong with its newest version, and which one
    /// was accepted last.
    fn decide(
        &mut self,
        row: &Arc<ServiceRow>,
        instance: InstanceId,
    ) -> (Option<Intent>, Vec<Reason>, Option<Accepted>) {
        let Some(provider) = instance.of(&self.handle.providers).cloned() else {
            return (None, Vec::new(), None);
        };
        match resolve(row, &self.world, provider.profile()) {
            Ok(intent) => {
                let accepted = Accepted::new(self.world.keep(row), Some(&intent));
                (Some(intent), Vec::new(), Some(accepted))
            }
            Err(errors) => self.decide_by_previous(row, errors, provider.profile()),
        }
    }

    /// Decides by the version that was accepted last: the newest is refused for these `errors`.
    /// Members follow the facts of today in either case.
    fn decide_by_previous(
        &mut self,
        row: &Arc<ServiceRow>,
        mut errors: Vec<Reason>,
        profile: &ProviderProfile,
    ) -> (Option<Intent>, Vec<Reason>, Option<Accepted>) {
        let known = self.tracked.get_mut(&row.key);
        let mut known = known.filter(|tracked| tracked.uid == row.uid);
        let in_memory = known.as_ref().filter(|it| !it.ending);
        let accepted = in_memory.and_then(|it| it.accepted.clone());
        // This process may have begun with a version that is refused already.
        let recorded = accepted.is_none();
        let record = || {
            // The fact may be from before everything of it was removed.
            let mut row = ServiceRow::clone(row);
            if let Some(known) = &mut known {
                row.status = known.current_status(&row);
            }
            claims::accepted(&row)
        };
        let (accepted, damaged) = match (accepted, recorded.then(record).flatten()) {
            (Some(accepted), _) => (Some(accepted), None),
            (None, Some(Ok(recorded))) => (Some(Accepted::new((&recorded).into(), None)), None),
            (None, Some(Err(damaged))) => (None, Some(damaged)),
            (None, None) => (None, None),
        };
        // A version that is too long to be recorded stands in the status alone, as any did that an
        // earlier release accepted, and by the rules of today it may be refused.
        let unrecorded = accepted.is_none() && stands(row, ConditionType::Accepted);
        let accepted =
            accepted.or_else(|| unrecorded.then(|| Accepted::new(self.world.keep(row), None)));
        let previous = accepted.as_ref();
        let previous = previous.and_then(|it| it.resolve(row, &self.world, profile));
        if previous.is_some() {
            errors.push(serving_previous());
        }
        errors.extend(damaged);
        let accepted = match (accepted, &previous) {
            (Some(accepted), Some(_)) if recorded => {
                Some(Accepted::new(accepted.row, previous.as_ref()))
            }
            // A version that can't be had under any rule is no version to record.
            (_, None) if unrecorded => None,
            (accepted, _) => accepted,
        };
        (previous, errors, accepted)
    }

    fn prepare_removal(&mut self, row: Arc<ServiceRow>, owners: Owners) -> WorkItem {
        let tracked = self.track(&row);
        tracked.owners = Some(owners.clone());
        let key = row.key.clone();
        WorkItem {
            job: tracked.removal(&key, Some(row)),
            owners,
        }
    }

    /// The instances that may hold something of a Service that wants nothing of them (any more).
    fn owners(&self, row: &ServiceRow) -> Option<Owners> {
        if may_hold(row) {
            return Owners::new(InstanceId::all(&self.handle.providers));
        }
        self.instance_for_cleanup(row).map(Owners::only)
    }

    /// Returns the instance that finishes a removal which another controller left half-done: that
    /// controller put its mark on the Service, and its finalizer stays for its successor. That is
    /// the instance that serves Services without a class, as the controller did, if it continues
    /// that controller's work.
    fn instance_for_cleanup(&self, row: &ServiceRow) -> Option<InstanceId> {
        if row.wants_load_balancer || !row.finalized {
            return None;
        }
        let namespace = self.world.namespace(row.key.namespace());
        let as_it_was = OwnershipFields {
            wants_load_balancer: true,
            class: None,
            ..row.into()
        };
        let classes = &self.config.classes;
        match classes.validate_affiliation(as_it_was, namespace.map(AsRef::as_ref)) {
            Ownership::Ours(instance) => {
                let provider = instance.of(&self.handle.providers)?;
                let mark = provider.profile().predecessor_mark?;
                row.annotations.contains_key(mark).then_some(instance)
            }
            Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
        }
    }

    fn unknown_class(&self, row: &ServiceRow, wanted: Ownership) -> Option<Reason> {
        let namespace = self.world.namespace(row.key.namespace());
        let classes = &self.config.classes;
        (wanted == Ownership::UnknownClass)
            .then(|| classes.unknown(row, namespace.map(AsRef::as_ref)))
    }

    /// Returns the instance whose listeners stay open for a Service although the annotation names
    /// an instance that is not there.
    fn still_serving(&self, row: &ServiceRow, wanted: Ownership) -> Option<InstanceId> {
        if wanted != Ownership::UnknownClass || row.class.is_some() {
            return None;
        }
        self.handle.store.read(|pages| {
            let record = pages.records.get(&row.key)?;
            record.instance.filter(|_| record.kept().is_of(&row.uid))
        })
    }

    /// Notes a Service that no instance reconciles; `instance`: the one that goes on serving it.
    fn note_unserved(&self, row: &ServiceRow, instance: Option<InstanceId>, reason: Reason) {
        let key = row.key.clone();
        let record = Record {
            instance,
            reasons: [reason].into(),
            handled: true,
            ..Record::new(self.world.keep(row))
        };
        self.handle.store.write(|pages| {
            pages.records.insert(key, record);
        });
    }
}

/// Adds why a newer version than the row can't be read from its file.
fn note_invalid_newest(row: &ServiceRow, errors: &mut Vec<Reason>) {
    let newest = row.newest_invalid();
    if newest.is_empty() {
        return;
    }
    let valid = errors.is_empty();
    errors.splice(0..0, newest.iter().cloned());
    if valid {
        errors.push(serving_previous());
    }
}

fn serving_previous() -> Reason {
    Reason::info(
        Code::ServingPreviousVersion,
        "the last valid version of the Service is served",
    )
}

/// Whether the status says something of this very version.
pub(super) fn stands(row: &ServiceRow, kind: ConditionType) -> bool {
    let condition = row.status.condition(kind);
    condition.is_some_and(|it| {
        let observed = it.observed_generation;
        it.status && (observed.is_none() || observed == row.generation)
    })
}

/// Whether a Service that wants no load balancer (any more) had one of us. After a restart its
/// class does not show it: the API server clears it with the type. Nor does the finalizer, which is
/// shared by all controllers that make load balancers. Our conditions do: they are put there with
/// the finalizer, and go after it.
fn may_hold(row: &ServiceRow) -> bool {
    !row.wants_load_balancer && !row.status.conditions.is_empty()
}
