//! Which Services name a Secret: a fact about it costs as much as they are, whatever else their
//! namespace carries.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use landfall_model::rows::ServiceRow;
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::{ServiceKey, named};

/// The Services that name Secrets, found by these. One that names none takes no room.
///
/// A number stands for the name of a Secret: each Service may have names of its own, as long as
/// names can be.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretUsers {
    hasher: RandomState,
    of: BTreeMap<Arc<str>, OfNamespace>,
    /// How many places were searched for users.
    #[cfg(test)]
    pub(super) searched: Arc<std::sync::atomic::AtomicUsize>,
}

/// The same in one namespace.
#[derive(Clone, Debug, Default)]
struct OfNamespace {
    /// What each Service names, in order.
    names: BTreeMap<Arc<str>, Box<[(Version, u32)]>>,
    /// By what they name, the Services.
    users: BTreeSet<(u32, Arc<str>)>,
}

/// Which version of a Service names a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Newest,
    /// On record as the one that is served.
    Accepted,
    /// The one before the newest, unless that is on record. It may be the one that is served, and
    /// not be on record: not yet, or because it is too long.
    Before,
}

// === impl SecretUsers ===

impl SecretUsers {
    /// Takes in what a Service names.
    pub(super) fn set(&mut self, row: &ServiceRow) {
        let newest = self.prints(&named::now(row));
        let accepted = self.prints(&named::accepted(row));
        let is_on_record = newest == accepted && row.status.marks.contains_key(ACCEPTED_VERSION);
        let old = self.names(&row.key);
        let of = |version| {
            let names = old.iter().filter(move |(of, _)| *of == version);
            names.map(|(_, print)| *print)
        };
        let before: BTreeSet<u32> = if is_on_record {
            BTreeSet::new()
        } else if newest.iter().copied().eq(of(Version::Newest)) {
            of(Version::Before).collect()
        } else {
            of(Version::Newest).collect()
        };
        let versions = [
            (Version::Newest, newest),
            (Version::Accepted, accepted),
            (Version::Before, before),
        ];
        let names = versions.into_iter().flat_map(|(version, prints)| {
            let names = prints.into_iter();
            names.map(move |print| (version, print))
        });
        let names: Box<[_]> = names.collect();
        if *names != *old {
            self.replace(&row.key, names);
        }
    }

    /// Forgets what a Service names.
    pub(super) fn remove(&mut self, service: &ServiceKey) {
        self.replace(service, Box::default());
    }

    /// The Services that name a Secret, and hardly ever another one.
    pub(super) fn of(&self, secret: &ServiceKey) -> impl Iterator<Item = ServiceKey> {
        let print = self.print(secret);
        let found = self.of.get_key_value(secret.namespace());
        found
            .into_iter()
            .flat_map(move |(namespace, of_namespace)| {
                let from_first = of_namespace.users.range((print, Arc::from(""))..);
                #[cfg(test)]
                let from_first = from_first.inspect(|_| {
                    self.searched
                        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
                let users = from_first.take_while(move |(of, _)| *of == print);
                users.map(|(_, name)| ServiceKey::shared(namespace, name))
            })
    }

    /// Gives room back that growing has left.
    pub(super) fn compact(&mut self) {
        for of_namespace in self.of.values_mut() {
            let OfNamespace { names, users } = of_namespace;
            *names = std::mem::take(names).into_iter().collect();
            *users = std::mem::take(users).into_iter().collect();
        }
    }

    fn names(&self, service: &ServiceKey) -> &[(Version, u32)] {
        let of_namespace = self.of.get(service.namespace());
        let names = of_namespace.and_then(|it| it.names.get(service.name()));
        names.map_or(&[], |names| names)
    }

    fn replace(&mut self, service: &ServiceKey, names: Box<[(Version, u32)]>) {
        let of_namespace = match self.of.get_mut(service.namespace()) {
            Some(of_namespace) => of_namespace,
            None if names.is_empty() => return,
            None => {
                let namespace = service.shared_namespace().clone();
                self.of.entry(namespace).or_default()
            }
        };
        of_namespace.replace(service.shared_name(), names);
        if of_namespace.names.is_empty() {
            self.of.remove(service.namespace());
        }
    }

    fn prints(&self, secrets: &BTreeSet<ServiceKey>) -> BTreeSet<u32> {
        secrets.iter().map(|secret| self.print(secret)).collect()
    }

    fn print(&self, secret: &ServiceKey) -> u32 {
        u32::try_from(self.hasher.hash_one(secret.name()) >> 32).unwrap_or_default()
    }
}

// === impl OfNamespace ===

impl OfNamespace {
    fn replace(&mut self, service: &Arc<str>, names: Box<[(Version, u32)]>) {
        for (_, print) in self.names.remove(service).unwrap_or_default() {
            self.users.remove(&(print, service.clone()));
        }
        if names.is_empty() {
            return;
        }
        self.users
            .extend(names.iter().map(|(_, print)| (*print, service.clone())));
        self.names.insert(service.clone(), names);
    }
}

#[cfg(test)]
mod tests;
