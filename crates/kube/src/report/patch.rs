//! What a status patch says: our own entries, and only where they differ. Pure.
//!
//! Conditions are merged by type, so others' survive by themselves. The list of addresses is one
//! value to the API server: each write replaces all of it. So what others have put there is
//! found and written back, and the patch holds only for the version in which it was found.
//!
//! | in the list | whose |
//! |---|---|
//! | an entry with an address | ours: the status is the record of our claims |
//! | an entry with only a name | ours if our condition `Addressed` says so, else foreign |
//! | `hostname` beside our address | ours if wanted now or named in `Addressed`, else foreign |
//! | `ports` beside our address | ours if wanted now or if it has one of our codes, else foreign |

use std::collections::BTreeMap;

use landfall_model::marks::marks_of;
use landfall_model::reason::Code;
use landfall_model::recorded::{RECORDED, keep_vouched};
use landfall_model::rows::ServiceRow;
use landfall_model::status::{Condition, ConditionType, INSTANCE, ServiceStatus};
use landfall_model::wire::{self, ConditionShape, IngressShape, ServiceStatusShape};
use serde_json::{Value, json};

/// The status as it is in the API server, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) version: Option<String>,
    pub(super) ingress: Vec<IngressShape>,
    /// Ours.
    pub(super) conditions: Vec<Condition>,
    pub(super) finalized: bool,
    /// Annotations of ours.
    pub(super) marks: BTreeMap<String, String>,
    /// What vouches for them.
    pub(super) recorded: Option<String>,
}

// === impl Live ===

impl Live {
    /// As the source reported it.
    pub(super) fn of_row(row: &ServiceRow) -> Self {
        Self {
            version: row.resource_version.as_deref().map(str::to_owned),
            ingress: ServiceStatusShape::of(&row.status).load_balancer.ingress,
            conditions: row.status.conditions.clone(),
            finalized: row.finalized,
            marks: row.status.marks.clone(),
            recorded: row.recorded.as_deref().map(str::to_owned),
        }
    }

    /// As the API server answered.
    pub(super) fn of_answer(mut service: wire::Service) -> Self {
        let finalized = service
            .metadata
            .finalizers
            .iter()
            .any(|it| it == landfall_model::status::FINALIZER);
        let ingress = service.status.load_balancer.ingress.clone();
        let recorded = service.status.recorded().map(str::to_owned);
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        let annotations = &mut service.metadata.annotations;
        keep_vouched(uid, annotations, recorded.as_deref());
        let marks = marks_of(annotations);
        Self {
            version: service.metadata.resource_version,
            ingress,
            conditions: service.status.into_status().conditions,
            finalized,
            marks,
            recorded,
        }
    }

    /// Whether an entry's name was published by us.
    fn published(&self, hostname: &str) -> bool {
        let addressed = self
            .conditions
            .iter()
            .find(|it| it.kind == ConditionType::Addressed);
        addressed.is_some_and(|condition| {
            let mut words = condition.message.split([' ', ',']);
            words.any(|word| word == hostname)
        })
    }
}

/// The patch that makes the live status say what is wanted; `None`: it does already.
pub(super) fn status_patch(uid: &str, live: &Live, wanted: &ServiceStatus) -> Option<Value> {
    let ingress = merged(live, &ServiceStatusShape::of(wanted).load_balancer.ingress);
    let changed = ingress != live.ingress;
    let mut conditions = Vec::new();
    let shapes = ServiceStatusShape::of(wanted).conditions;
    for (condition, shape) in wanted.conditions.iter().zip(shapes) {
        if !live.conditions.contains(condition) {
            conditions.push(json!(shape));
        }
    }
    for kind in ConditionType::ALL {
        let there = live
            .conditions
            .iter()
            .any(|condition| condition.kind == kind);
        if there && wanted.condition(kind).is_none() {
            conditions.push(json!({"$patch": "delete", "type": kind.as_str()}));
        }
    }
    let recorded = ConditionShape::recorded(uid, wanted);
    if recorded.as_ref().map(|it| &it.message) != live.recorded.as_ref() {
        let gone = || json!({"$patch": "delete", "type": RECORDED});
        conditions.push(recorded.map_or_else(gone, |it| json!(it)));
    }
    let marks = marks_patch(live, wanted);
    if !changed && conditions.is_empty() && marks.is_empty() {
        return None;
    }
    let mut status = serde_json::Map::new();
    if changed {
        let list = if ingress.is_empty() {
            Value::Null
        } else {
            json!(ingress)
        };
        status.insert("loadBalancer".to_owned(), json!({"ingress": list}));
    }
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    let mut metadata = json!({"uid": uid});
    // Conditions merge on whatever is there; addresses only on what was checked.
    if changed && let Some(version) = &live.version {
        metadata["resourceVersion"] = version.as_str().into();
    }
    if !marks.is_empty() {
        metadata["annotations"] = marks.into();
    }
    Some(json!({"metadata": metadata, "status": status}))
}

/// Annotations that differ from what is wanted; `null` takes one away.
fn marks_patch(live: &Live, wanted: &ServiceStatus) -> serde_json::Map<String, Value> {
    let mut patch = serde_json::Map::new();
    for (key, value) in &wanted.marks {
        let there = live.marks.get(key);
        // Another instance on record is a user's request, which is still on its way to us.
        let asked = key == INSTANCE && there.is_some();
        if there != Some(value) && !asked {
            patch.insert(key.clone(), value.as_str().into());
        }
    }
    for key in live.marks.keys() {
        if !wanted.marks.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

/// The patch that puts our finalizer beside others', with a status where one is given; `None`: both
/// are there already.
pub(super) fn finalizer_patch(
    uid: &str,
    live: &Live,
    status: Option<&ServiceStatus>,
) -> Option<Value> {
    let patch = status.and_then(|status| status_patch(uid, live, status));
    if live.finalized {
        return patch;
    }
    let mut patch = patch.unwrap_or_else(|| json!({"metadata": {"uid": uid}}));
    patch["metadata"]["finalizers"] = json!([landfall_model::status::FINALIZER]);
    Some(patch)
}

/// The patch that takes ours away from among others', and our part of the status; `None`: there is
/// nothing of ours.
pub(super) fn release_patch(uid: &str, live: &Live) -> Option<Value> {
    hand_back_patch(uid, live, &ServiceStatus::default())
}

/// The patch that takes ours away from among others', and leaves of our part of the status what
/// another controller goes on from; `None`: there is nothing else of ours.
pub(super) fn hand_back_patch(uid: &str, live: &Live, left: &ServiceStatus) -> Option<Value> {
    let patch = status_patch(uid, live, left);
    if !live.finalized {
        return patch;
    }
    let mut patch = patch.unwrap_or_else(|| json!({"metadata": {"uid": uid}}));
    patch["metadata"]["$deleteFromPrimitiveList/finalizers"] =
        json!([landfall_model::status::FINALIZER]);
    Some(patch)
}

/// What is wanted, with what others put beside it, and then what is others' altogether.
fn merged(live: &Live, wanted: &[IngressShape]) -> Vec<IngressShape> {
    let counterpart = |entry: &IngressShape| {
        live.ingress.iter().position(|it| match &entry.ip {
            Some(ip) => it.ip.as_ref() == Some(ip),
            None => it.ip.is_none() && it.hostname == entry.hostname,
        })
    };
    let mut used = Vec::new();
    let mut list: Vec<IngressShape> = Vec::new();
    for entry in wanted {
        let mut entry = entry.clone();
        if let Some(index) = counterpart(&entry) {
            used.push(index);
            if let Some(there) = live.ingress.get(index) {
                adopt(&mut entry, there, live);
            }
        }
        list.push(entry);
    }
    for (index, entry) in live.ingress.iter().enumerate() {
        let ours = match (&entry.ip, &entry.hostname) {
            (Some(_), _) => true,
            (None, Some(hostname)) => live.published(hostname),
            (None, None) => false,
        };
        if !ours && !used.contains(&index) {
            list.push(entry.clone());
        }
    }
    list
}

/// Takes over what stands beside our address and is not ours.
fn adopt(entry: &mut IngressShape, there: &IngressShape, live: &Live) {
    if entry.hostname.is_none()
        && !there
            .hostname
            .as_deref()
            .is_some_and(|name| live.published(name))
    {
        entry.hostname.clone_from(&there.hostname);
    }
    // The API server fills in its default where we say nothing.
    if entry.ip_mode.is_none() {
        entry.ip_mode.clone_from(&there.ip_mode);
    }
    let is_ours = |error: &str| Code::ALL.iter().any(|code| code.as_str() == error);
    let reported_by_us = there
        .ports
        .iter()
        .filter_map(|port| port.error.as_deref())
        .any(is_ours);
    if entry.ports.is_empty() && !reported_by_us {
        entry.ports.clone_from(&there.ports);
    }
}

#[cfg(test)]
mod tests;
