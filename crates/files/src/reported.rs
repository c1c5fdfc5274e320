//! What was sent already, so that only changes are sent. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, ServiceRow};

use crate::catalog::Changes;
use crate::manifest::{Object, ObjectKey};
use crate::registry::{Pools, Rows};

/// Reasons by the part of the source that they are about.
pub(crate) type Problems = BTreeMap<Arc<str>, Vec<Reason>>;

/// The last word on everything.
#[derive(Debug, Default)]
pub(crate) struct FactDiff {
    objects: BTreeMap<ObjectKey, Object>,
    services: Rows,
    problems: Problems,
    pools_incomplete: bool,
}

// === impl FactDiff ===

impl FactDiff {
    /// Returns facts about all of these but Services: what appeared, and what vanished. What others
    /// depend on comes first, and is taken back last: what vanished is to be sent after the
    /// Services, so that one that goes together with its endpoints is not first left without any.
    pub(crate) fn objects(&mut self, changes: Changes) -> (Vec<Fact>, Vec<Fact>) {
        let (mut facts, mut gone) = (Vec::new(), Vec::new());
        for (key, object) in changes {
            let Some(object) = object else {
                if self.objects.remove(&key).is_some() {
                    gone.push(key);
                }
                continue;
            };
            let known = self.objects.get(&key);
            if !known.is_some_and(|known| known.is_same(&object) || *known == object) {
                facts.push(appeared(&object));
            }
            self.objects.insert(key, object);
        }
        (facts, gone.iter().rev().map(vanished).collect())
    }

    /// Returns whether something that was sent is in no file any more: one of these objects, or a
    /// pool that is not among these.
    pub(crate) fn misses_any(&self, changes: &Changes, pools: &Pools) -> bool {
        let mut gone = changes.iter().filter(|(_, object)| object.is_none());
        gone.any(|(key, _)| self.objects.contains_key(key))
            || self.pools().any(|name| !pools.contains_key(name))
    }

    /// Returns the names of the pools that were sent.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &String> {
        let from = ObjectKey::Pool(String::new());
        let pools = self.objects.range(from..);
        pools.map_while(|(key, _)| match key {
            ObjectKey::Pool(name) => Some(name),
            _ => None,
        })
    }

    /// Facts about Services that may have changed.
    pub(crate) fn services(
        &mut self,
        changes: Vec<(ServiceKey, Option<Arc<ServiceRow>>)>,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        for (key, row) in changes {
            let known = self.services.get(&key);
            match row {
                None => {
                    if self.services.remove(&key).is_some() {
                        facts.push(Fact::ServiceGone(key));
                    }
                }
                Some(row) if known == Some(&row) => {}
                Some(row) => {
                    // Another Service under the same name: the first one is gone, although no
                    // survey was made in between.
                    if known.is_some_and(|known| known.uid != row.uid) {
                        facts.push(Fact::ServiceGone(key.clone()));
                    }
                    self.services.insert(key, row.clone());
                    facts.push(Fact::Service(row));
                }
            }
        }
        facts
    }

    /// The fact that pools may be missing, or not any more.
    pub(crate) fn set_pools_incomplete(&mut self, incomplete: bool) -> Option<Fact> {
        let before = std::mem::replace(&mut self.pools_incomplete, incomplete);
        (before != incomplete).then(|| Fact::PoolsIncomplete {
            part: "manifests".into(),
            incomplete,
        })
    }

    /// Facts about what is wrong.
    pub(crate) fn problems(&mut self, problems: Problems) -> Vec<Fact> {
        let mut facts = Vec::new();
        for (part, reasons) in &problems {
            if self.problems.get(part) != Some(reasons) {
                facts.push(Fact::SourceProblems {
                    part: part.clone(),
                    reasons: reasons.clone(),
                });
            }
        }
        let healed = self
            .problems
            .keys()
            .filter(|part| !problems.contains_key(*part));
        facts.extend(healed.map(|part| Fact::SourceProblems {
            part: part.clone(),
            reasons: Vec::new(),
        }));
        self.problems = problems;
        facts
    }
}

/// The fact that an object is there.
pub(crate) fn appeared(object: &Object) -> Fact {
    match object.clone() {
        Object::Namespace(row) => Fact::Namespace(row),
        Object::Pool(row) => Fact::Pool(row),
        Object::Resource(row) => Fact::Resource(row),
        Object::Node(row) => Fact::Node(row),
        Object::Secret(row) => Fact::Secret(row),
        Object::Slice(row) => Fact::Slice(row),
        Object::Service(row) => Fact::Service(row),
    }
}

fn vanished(key: &ObjectKey) -> Fact {
    match key.clone() {
        ObjectKey::Namespace(name) => Fact::NamespaceGone(name),
        ObjectKey::Pool(name) => Fact::PoolGone(name),
        ObjectKey::Resource(kind, key) => Fact::ResourceGone(kind, key),
        ObjectKey::Node(name) => Fact::NodeGone(name),
        ObjectKey::Secret(key) => Fact::SecretGone(key),
        ObjectKey::Slice(key) => Fact::SliceGone(key),
        ObjectKey::Service(key) => Fact::ServiceGone(key),
    }
}
