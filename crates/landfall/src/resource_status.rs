//! What is reported on custom resources: how much of a pool is used, and what is wrong with any of
//! them. Only what changes is written, and never more often than every few seconds.
//!
//! ```text
//!  World, usage of pools, problems ──> ReportedResources::update ──> status writes, events
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::report::Event;
use landfall_engine::store::Snapshot;
use landfall_engine::{EngineHandle, World};
use landfall_kube::{CustomResources, ResourceReports};
use landfall_model::ServiceKey;
use landfall_model::provider::Provider as _;
use landfall_model::reason::{Reason, Severity};
use landfall_model::rows::{
    AcceptedResource, PoolOrigin, ResourceKind, ResourceProblem, ResourceRow,
};
use landfall_model::view::PoolView;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::backend::Backend;

/// The time from one report of what has changed to the next.
const PAUSE: Duration = Duration::from_secs(3);

/// The time after which what could not be read or written is attempted again without a change. It
/// doubles with each attempt.
const RETRY: Duration = Duration::from_secs(30);

/// The longest such time.
const LONGEST_RETRY: Duration = Duration::from_mins(10);

/// The condition that says whether an object is used as it is written.
const ACCEPTED: &str = "landfall.dev/Accepted";

/// Kind and name of an object.
type Id = (ResourceKind, ServiceKey);

/// What was reported, or was there before.
#[derive(Debug, Default)]
struct ReportedResources {
    statuses: BTreeMap<Id, Value>,
    said: BTreeMap<Id, BTreeSet<String>>,
    /// The last two versions of each object with which nothing was wrong, the later one first: an
    /// object may be read before it is known what is wrong with it.
    valid: BTreeMap<Id, Vec<AcceptedResource>>,
}

/// What is to be reported.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reports {
    statuses: Vec<(Arc<ResourceRow>, Value)>,
    events: Vec<(Arc<ResourceRow>, Event)>,
}

/// Reports on the custom resources of a cluster whenever this replica serves.
pub async fn follow(
    handle: EngineHandle<Backend>,
    reports: ResourceReports,
    resources: CustomResources,
) {
    let mut changes = handle.store.changes();
    let mut reported = None;
    // How long the next attempt waits, where the last one failed.
    let mut retry = None;
    while is_due(&mut changes, retry).await {
        tokio::time::sleep(PAUSE).await;
        changes.mark_unchanged();
        let later = Some(after(retry.take()));
        if !handle.store.read(Snapshot::serving) {
            // Another replica may report meanwhile.
            reported = None;
            continue;
        }
        let Some(world) = handle.world().await else {
            return;
        };
        let rows: Vec<_> = world.resources(&ResourceKind::ALL).cloned().collect();
        if rows.is_empty() {
            continue;
        }
        if reported.is_none() {
            reported = read(&reports, &resources).await;
        }
        let Some(reported) = &mut reported else {
            retry = later;
            continue;
        };
        let usage = usage(&world, &handle.providers);
        let providers = handle.providers.iter();
        let problems: Vec<_> = providers.flat_map(|it| it.resource_problems()).collect();
        let due = reported.update(&rows, &usage, &problems, Timestamp::now());
        for (row, event) in &due.events {
            reports.event(row, event);
        }
        for (row, status) in due.statuses {
            match reports.write_status(&row, &status).await {
                Ok(()) => reported.wrote(&row, status),
                Err(error) => {
                    tracing::debug!(resource = %row, %error, "a status was not written");
                    retry = later;
                }
            }
        }
    }
}

/// Returns the time to the next attempt after one that failed, of the time to that one.
fn after(retry: Option<Duration>) -> Duration {
    retry.map_or(RETRY, |retry| (retry * 2).min(LONGEST_RETRY))
}

/// Waits for a change, and where the last report is not complete no longer than for the next
/// attempt. Returns false once nothing changes any more.
async fn is_due(changes: &mut watch::Receiver<u64>, retry: Option<Duration>) -> bool {
    let Some(retry) = retry else {
        return changes.changed().await.is_ok();
    };
    match tokio::time::timeout(retry, changes.changed()).await {
        Ok(outcome) => outcome.is_ok(),
        Err(_) => true,
    }
}

/// Reads the statuses that there are; `None`: they can't be read now.
async fn read(reports: &ResourceReports, resources: &CustomResources) -> Option<ReportedResources> {
    let mut reported = ReportedResources::default();
    for kind in &resources.kinds {
        match reports.statuses(*kind, &resources.namespace).await {
            Ok(statuses) => {
                let id = |name: &str| (*kind, ServiceKey::new(&resources.namespace, name));
                let known = statuses.into_iter().map(|(name, it)| (id(&name), it));
                reported.statuses.extend(known);
            }
            Err(error) => {
                tracing::debug!(%kind, %error, "statuses can't be read");
                return None;
            }
        }
    }
    Some(reported)
}

/// Returns the usage of pools that are objects, by name.
fn usage(world: &World, providers: &[Arc<Backend>]) -> BTreeMap<String, PoolView> {
    let pools = world.pools().iter();
    let objects = pools.filter(|row| row.origin == PoolOrigin::Source);
    let objects: BTreeSet<&str> = objects.map(|row| row.name.as_str()).collect();
    let views = providers.iter().flat_map(|it| it.pools());
    views
        .filter(|view| objects.contains(view.name.as_str()))
        .map(|view| (view.name.clone(), view))
        .collect()
}

// === impl ReportedResources ===

impl ReportedResources {
    /// Returns what differs from what was reported. Events count as sent; statuses are reported
    /// again until [`Self::wrote`] says that they were written.
    fn update(
        &mut self,
        rows: &[Arc<ResourceRow>],
        usage: &BTreeMap<String, PoolView>,
        problems: &[ResourceProblem],
        now: Timestamp,
    ) -> Reports {
        let known: BTreeSet<Id> = rows.iter().map(|row| id(row)).collect();
        self.statuses.retain(|id, _| known.contains(id));
        self.said.retain(|id, _| known.contains(id));
        self.valid.retain(|id, _| known.contains(id));
        let mut due = Reports::default();
        for row in rows {
            let concerned = problems.iter();
            let concerned = concerned.filter(|it| (it.kind, &it.key) == (row.kind, &row.key));
            let reasons: Vec<&Reason> = concerned.map(|it| &it.reason).collect();
            let before = self.statuses.get(&id(row));
            let usage = match row.kind {
                ResourceKind::IpAddressPool => usage.get(row.key.name()),
                _ => None,
            };
            self.said_now(row, &reasons, before.cloned().as_ref(), &mut due);
            let valid = self.valid_version(row, &reasons);
            let before = self.statuses.get(&id(row));
            if let Some(status) = status(row, usage, &reasons, valid, before, now) {
                due.statuses.push((row.clone(), status));
            }
        }
        due
    }

    /// Notes that a status was written.
    fn wrote(&mut self, row: &ResourceRow, status: Value) {
        self.statuses.insert(id(row), status);
    }

    /// Notes a version with which nothing is wrong. Returns the last one before, where that is in
    /// force in place of what is written.
    fn valid_version(
        &mut self,
        row: &ResourceRow,
        reasons: &[&Reason],
    ) -> Option<AcceptedResource> {
        let version = version_of(row);
        let known = self.valid.entry(id(row)).or_default();
        if is_refused(reasons) {
            let in_force = known.iter().find(|it| **it != version).cloned();
            return in_force.map(|it| AcceptedResource {
                in_place_of: row.generation,
                ..it
            });
        }
        if known.first() != Some(&version) {
            known.insert(0, version);
            known.truncate(2);
        }
        None
    }

    /// Adds the events of reasons that were not there at the last call. What a status says that
    /// was there before is no news.
    fn said_now(
        &mut self,
        row: &Arc<ResourceRow>,
        reasons: &[&Reason],
        before: Option<&Value>,
        due: &mut Reports,
    ) {
        let texts: BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
        let said = self.said.insert(id(row), texts);
        let on_record = before.and_then(condition).map(|it| it["message"].clone());
        if said.is_none() && on_record == Some(Value::String(message(reasons))) {
            return;
        }
        for reason in reasons {
            let text = reason.to_string();
            if said.as_ref().is_none_or(|said| !said.contains(&text)) {
                let event = Event {
                    reason: reason.code.as_str(),
                    warning: reason.severity != Severity::Info,
                    message: text,
                };
                due.events.push((row.clone(), event));
            }
        }
    }
}

/// What of an object a process needs that starts while the next version is not valid.
fn version_of(row: &ResourceRow) -> AcceptedResource {
    let annotations = row.annotations.iter();
    let ours = annotations.filter(|(key, _)| key.starts_with("landfall.dev/"));
    AcceptedResource {
        annotations: ours.map(|(key, it)| (key.clone(), it.clone())).collect(),
        spec: row.spec.clone(),
        in_place_of: None,
    }
}

fn is_refused(reasons: &[&Reason]) -> bool {
    reasons.iter().any(|it| it.severity == Severity::Error)
}

fn id(row: &ResourceRow) -> Id {
    (row.kind, row.key.clone())
}

/// Returns a status that differs from the one before; `None`: none does. What others wrote in it
/// stays.
fn status(
    row: &ResourceRow,
    usage: Option<&PoolView>,
    reasons: &[&Reason],
    valid: Option<AcceptedResource>,
    before: Option<&Value>,
    now: Timestamp,
) -> Option<Value> {
    let is_map = before.filter(|before| before.is_object());
    let mut status = is_map.cloned().unwrap_or_else(|| json!({}));
    if let Some(view) = usage {
        let count = |count: u64| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
        status["assignedIPv4"] = count(view.assigned_ipv4);
        status["assignedIPv6"] = count(view.assigned_ipv6);
        status["availableIPv4"] = count(view.available_ipv4);
        status["availableIPv6"] = count(view.available_ipv6);
        record(
            &mut status,
            "cooling",
            &view.cooling,
            view.cooling.is_empty(),
        );
        record(&mut status, "held", &view.held, view.held.is_empty());
    }
    match valid {
        Some(valid) => record(&mut status, "accepted", &valid, false),
        None if is_refused(reasons) => {}
        None => record(&mut status, "accepted", &Value::Null, true),
    }
    let was = before.and_then(condition);
    if !reasons.is_empty() || was.is_some() {
        status["conditions"] = json!([accepted(row, reasons, was, now)]);
    }
    let is_empty = status.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty && before != Some(&status)).then_some(status)
}

/// Writes what the next process needs into a status, or takes it away.
fn record(status: &mut Value, field: &str, value: &impl Serialize, is_over: bool) {
    let Some(fields) = status.as_object_mut() else {
        return;
    };
    match serde_json::to_value(value) {
        Ok(value) if !is_over => drop(fields.insert(field.to_owned(), value)),
        _ => drop(fields.remove(field)),
    }
}

fn condition(status: &Value) -> Option<&Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|it| it["type"] == ACCEPTED)
}

/// Returns the condition. Its time is that of the last change of its status.
fn accepted(row: &ResourceRow, reasons: &[&Reason], was: Option<&Value>, now: Timestamp) -> Value {
    let error = reasons.iter().find(|it| it.severity == Severity::Error);
    let is = if error.is_some() { "False" } else { "True" };
    let kept = was.filter(|was| was["status"] == is);
    let since = kept.map(|was| was["lastTransitionTime"].clone());
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut condition = json!({
        "type": ACCEPTED,
        "status": is,
        "reason": error.map_or("Accepted", |it| it.code.as_str()),
        "message": message(reasons),
        "lastTransitionTime": since.unwrap_or_else(|| now.to_string().into()),
    });
    if let Some(generation) = row.generation {
        condition["observedGeneration"] = generation.into();
    }
    condition
}

fn message(reasons: &[&Reason]) -> String {
    let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    texts.join(". ")
}

#[cfg(test)]
mod tests;
