//! Objects of one kind: which of them are in force, and in which version.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{ResourceKind, ResourceRow};

use crate::fields::Fields;
use crate::findings::{Findings, ObjectName};

/// Objects of one kind by namespace and name.
pub(crate) type Objects<T> = BTreeMap<ServiceKey, Arc<T>>;

/// Objects that want to be in force, the first of which excludes those after it: first what is as
/// it was, then what changed, then what is new, and of these the older one.
pub(crate) struct Candidates<T> {
    kind: ResourceKind,
    all: Vec<Candidate<T>>,
}

/// An object that wants to be in force.
pub(crate) struct Candidate<T> {
    rank: Rank,
    created: Option<Timestamp>,
    pub(crate) key: ServiceKey,
    pub(crate) value: Arc<T>,
    /// How it was, if it changed.
    pub(crate) before: Option<Arc<T>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    AsItWas,
    Changed,
    New,
}

// === impl Candidates ===

impl<T: PartialEq> Candidates<T> {
    /// Reads the objects of a kind. One that can't be read is a candidate as it was.
    pub(crate) fn read(
        kind: ResourceKind,
        rows: &[Arc<ResourceRow>],
        last: &Objects<T>,
        findings: &mut Findings,
        read: impl Fn(&mut Fields<'_, '_>, &ResourceRow) -> Option<T>,
    ) -> Self {
        let mut rows: Vec<&Arc<ResourceRow>> = rows.iter().filter(|it| it.kind == kind).collect();
        // Of two rows with one name, which no source delivers, always the same one counts.
        rows.sort_by_cached_key(|row| (row.key.clone(), row.created, row.spec.to_string()));
        rows.dedup_by(|one, other| one.key == other.key);
        let mut all = Vec::new();
        for row in rows {
            let mut reasons = Vec::new();
            let mut fields = Fields::of_spec(&row.spec, &mut reasons);
            let value = read(&mut fields, row);
            fields.finish();
            let refused = reasons.iter().any(|it| it.severity == Severity::Error);
            let value = value.filter(|_| !refused).map(Arc::new);
            let seen = last.get(&row.key).cloned();
            let recorded = || accepted(row, &read).map(Arc::new);
            // At a start what was valid last is on record.
            let before = if row.is_on_record() {
                recorded().or(seen)
            } else {
                seen.or_else(recorded)
            };
            if value.is_none() && before.is_some() {
                reasons.push(as_it_was());
            }
            let located = reasons.into_iter().map(|reason| located(reason, row));
            findings.add(&ObjectName::from(&**row), located);
            let rank = match (&value, &before) {
                (None, _) => Rank::AsItWas,
                (Some(value), Some(before)) if value == before => Rank::AsItWas,
                (Some(_), Some(_)) => Rank::Changed,
                // Before those of which it is recorded that they are not in force as written.
                (Some(_), None) if last.is_empty() => Rank::AsItWas,
                (Some(_), None) => Rank::New,
            };
            all.extend(value.or_else(|| before.clone()).map(|value| Candidate {
                rank,
                created: row.created,
                key: row.key.clone(),
                value,
                before: before.filter(|_| rank == Rank::Changed),
            }));
        }
        all.sort_by(|a, b| {
            let place = |it: &Candidate<T>| (it.rank, it.created.is_none(), it.created);
            (place(a), &a.key).cmp(&(place(b), &b.key))
        });
        Self { kind, all }
    }

    /// Returns those that go together. `clash` says why one can't be beside those before it.
    pub(crate) fn admit(
        self,
        findings: &mut Findings,
        clash: impl Fn(&Objects<T>, &T) -> Option<Reason>,
    ) -> Objects<T> {
        let mut admitted = Objects::new();
        for candidate in self.all {
            let Some(reason) = clash(&admitted, &candidate.value) else {
                admitted.insert(candidate.key, candidate.value);
                continue;
            };
            let mut reasons = vec![reason];
            if let Some(before) = candidate.before
                && clash(&admitted, &before).is_none()
            {
                admitted.insert(candidate.key.clone(), before);
                reasons.push(as_it_was());
            }
            let object = ObjectName {
                kind: self.kind,
                key: candidate.key,
            };
            findings.add(&object, reasons);
        }
        admitted
    }

    /// Returns all of them.
    pub(crate) fn all(self) -> Objects<T> {
        let all = self.all.into_iter();
        all.map(|candidate| (candidate.key, candidate.value))
            .collect()
    }

    /// Returns them in their order.
    pub(crate) fn in_order(self) -> impl Iterator<Item = Candidate<T>> {
        self.all.into_iter()
    }

    /// Iterates over them in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &T)> {
        self.all.iter().map(|it| (&it.key, &*it.value))
    }
}

/// Reads the version of an object that was valid last, if it is recorded.
fn accepted<T>(
    row: &ResourceRow,
    read: impl Fn(&mut Fields<'_, '_>, &ResourceRow) -> Option<T>,
) -> Option<T> {
    let accepted = row.accepted.as_ref()?;
    let mut reasons = Vec::new();
    let mut fields = Fields::of_spec(&accepted.spec, &mut reasons);
    let row = ResourceRow {
        annotations: accepted.annotations.clone(),
        ..row.clone()
    };
    let value = read(&mut fields, &row);
    fields.finish();
    let refused = reasons.iter().any(|it| it.severity == Severity::Error);
    value.filter(|_| !refused)
}

/// Makes the remark that an older version stays in force.
pub(crate) fn as_it_was() -> Reason {
    Reason::warning(
        Code::InvalidResource,
        "the last valid version stays in force",
    )
}

fn located(reason: Reason, row: &ResourceRow) -> Reason {
    let origin = row.origin_of(reason.field.as_deref().unwrap_or("spec"));
    reason.origin(origin)
}
