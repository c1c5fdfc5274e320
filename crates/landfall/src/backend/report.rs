//! What commands print about the clouds of instances, whichever cloud it is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::reason::Reason;
use landfall_model::rows::ServiceRow;
use landfall_model::view::{CloudCallsView, TimesView};
use landfall_openstack::client::{CallCount, CallKey};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Why the configuration switches an instance off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// What does it.
    pub why: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// A cloud that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Where it was asked.
    pub endpoint: String,
    /// The version of its API.
    pub version: String,
}

/// Why a cloud can't be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There was no answer, or a failure that may pass.
    #[error("{0}")]
    NoAnswer(String),
    /// The configuration is wrong, or the account lacks a permission. Only a person can fix it.
    #[error("{0}")]
    Refused(String),
}

/// A cloud and what it says about itself.
#[derive(Debug, Default, Serialize)]
pub struct CloudReport {
    /// The instance that uses it.
    pub instance: String,
    /// What it says, for programs.
    #[serde(flatten)]
    pub facts: Map<String, Value>,
    /// The same for people.
    #[serde(skip)]
    pub text: String,
    /// Why it can't be used.
    #[serde(skip)]
    pub problem: Option<Reason>,
    /// What is wrong with what the configuration names in it.
    #[serde(skip)]
    pub findings: Vec<Reason>,
}

/// An object in the cloud that a Service takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// In words: `load balancer`, `floating IP`.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its name or address.
    pub name: String,
}

/// The Services that may own objects in a cloud.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Those of type `LoadBalancer`, and those whose load balancer is still being deleted.
    pub services: Vec<Arc<ServiceRow>>,
    /// Whether their UIDs are those of the cluster. Manifests rarely contain UIDs.
    pub have_uids: bool,
}

/// An object in the cloud that no Service owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Orphan {
    /// In words: `load balancer`, `floating IP`.
    #[serde(serialize_with = "camel_case")]
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its name or address.
    pub name: String,
    /// Whose it was: a clause.
    pub whose: String,
    /// Whether only its name says so, and it may serve another cluster of the same name.
    pub unproven: bool,
}

/// What reading a cloud for orphans found.
#[derive(Clone, Debug, Default)]
pub struct FoundOrphans {
    /// What no Service owns, in the order in which it can be deleted.
    pub orphans: Vec<Orphan>,
    /// How many objects of each kind were read, orphans or not.
    pub read: Vec<(&'static str, usize)>,
}

/// Returns the counters of a client as metrics of an instance.
pub fn cloud_calls(
    instance: &str,
    calls: BTreeMap<CallKey, CallCount>,
) -> impl Iterator<Item = CloudCallsView> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    calls.into_iter().map(move |(key, calls)| CloudCallsView {
        instance: instance.to_owned(),
        method: key.method.to_owned(),
        resource: key.resource.to_owned(),
        outcome: key.outcome.to_owned(),
        times: TimesView {
            buckets: calls
                .buckets()
                .map(|(bound, count)| (micros(bound), count))
                .collect(),
            sum: micros(calls.time),
            count: calls.count,
        },
    })
}

/// Writes words as a name in JSON: `floating IP` as `floatingIp`.
pub fn camel_cased(words: &str) -> String {
    let mut name = String::new();
    for word in words.split(' ') {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if !name.is_empty() => name.extend(first.to_uppercase()),
            Some(first) => name.extend(first.to_lowercase()),
            None => {}
        }
        name.push_str(&letters.as_str().to_lowercase());
    }
    name
}

fn camel_case<S: Serializer>(words: &&'static str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&camel_cased(words))
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            id,
            name,
            whose,
            ..
        } = self;
        write!(f, "{kind} {name} ({id}), {whose}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_objects_are_names_in_json() {
        for (words, name) in [
            ("load balancer", "loadBalancer"),
            ("floating IP", "floatingIp"),
            ("security group rule", "securityGroupRule"),
        ] {
            assert_eq!(camel_cased(words), name);
        }
    }
}
