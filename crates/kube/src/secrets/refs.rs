//! Which Secrets are named, and which facts wait for them: pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use landfall_model::limits::Limits;
use landfall_model::rows::{Fact, SecretRow, ServiceRow};
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::view::SecretsView;
use landfall_model::{ServiceKey, named, wire};

/// Which Secrets are named, and which facts wait for them: pure.
#[derive(Debug, Default)]
pub(super) struct SecretRefs {
    pub(super) limits: Limits,
    /// How many Secrets of each namespace are watched.
    pub(super) watched: HashMap<Arc<str>, usize>,
    /// How many there are of them in all.
    pub(super) watched_in_all: usize,
    /// Those that would be watched if there were room, by namespace: all of one wait for the same.
    pub(super) refused: BTreeMap<Arc<str>, BTreeSet<ServiceKey>>,
    /// How many there are of them in all.
    pub(super) refused_in_all: usize,
    /// How many namespaces were checked for room.
    #[cfg(test)]
    pub(super) looks: usize,
    pub(super) named: HashMap<ServiceKey, Named>,
    pub(super) secrets: HashMap<ServiceKey, Secret>,
    pub(super) held: HashMap<ServiceKey, Held>,
    pub(super) current: Option<Current>,
}

/// What one Service names.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// By the newest version.
    pub(super) now: BTreeSet<ServiceKey>,
    /// By the version that is on record as the one being served, because later ones are invalid.
    pub(super) accepted: BTreeSet<ServiceKey>,
    /// By the version before, unless the newest is on record. An invalid version leaves that one
    /// being served, with its certificates, until it is on record.
    pub(super) before: BTreeSet<ServiceKey>,
}

#[derive(Debug, Default)]
pub(super) struct Secret {
    users: usize,
    pub(super) known: bool,
}

/// The fact that everything is known as of some time, which follows what is held back from before.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) fact: Fact,
    behind: BTreeSet<ServiceKey>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) fact: Fact,
    pub(super) until: Instant,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Order {
    Watch(ServiceKey),
    Unwatch(ServiceKey),
    Send(Fact),
}

impl SecretRefs {
    /// A fact about a Service came.
    pub(super) fn take(&mut self, fact: Fact, timeout_until: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        let key = match &fact {
            Fact::Service(row) => {
                let names = (named::now(row), named::accepted(row));
                self.name(&row.key, names, is_on_record(row), &mut orders);
                row.key.clone()
            }
            Fact::ServiceGone(key) => {
                if let Some(named) = self.named.remove(key) {
                    self.release(&named.all(), &mut orders);
                }
                key.clone()
            }
            // Nothing that is older may come after it, and a Service that a new leader sees for the
            // first time is not to be validated without its certificate.
            Fact::Current { .. } => {
                let behind = self.held.keys().cloned().collect();
                self.current = Some(Current { fact, behind });
                self.report_current(&mut orders);
                return orders;
            }
            _ => {
                orders.push(Order::Send(fact));
                return orders;
            }
        };
        if self.waits(&key) {
            // Newer news in the place of the older; timeout is not renewed.
            let until = self
                .held
                .remove(&key)
                .map_or(timeout_until, |held| held.until);
            self.held.insert(key, Held { fact, until });
        } else {
            self.held.remove(&key);
            orders.push(Order::Send(fact));
            self.report_current(&mut orders);
        }
        orders
    }

    /// Sends that everything is known, once nothing from before is held back any more.
    fn report_current(&mut self, orders: &mut Vec<Order>) {
        let held = &self.held;
        let due = self.current.take_if(|current| {
            current.behind.retain(|key| held.contains_key(key));
            current.behind.is_empty()
        });
        orders.extend(due.map(|current| Order::Send(current.fact)));
    }

    /// It is known whether a Secret is there, and what it holds.
    pub(super) fn know(&mut self, secret: &ServiceKey) -> Vec<Order> {
        if let Some(secret) = self.secrets.get_mut(secret) {
            secret.known = true;
        }
        self.let_go(|specs, key, _| !specs.waits(key))
    }

    /// Time has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Order> {
        self.let_go(|_, _, held| held.until <= now)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.values().map(|held| held.until).min()
    }

    /// Returns whether everything about every named Secret is known and sent.
    pub(super) fn is_settled(&self) -> bool {
        self.held.is_empty() && self.secrets.values().all(|secret| secret.known)
    }

    fn let_go(&mut self, ready: impl Fn(&Self, &ServiceKey, &Held) -> bool) -> Vec<Order> {
        let keys: Vec<_> = self
            .held
            .iter()
            .filter(|(key, held)| ready(self, key, held))
            .map(|(key, _)| key.clone())
            .collect();
        let released = keys.iter().filter_map(|key| self.held.remove(key));
        let mut orders = released.map(|held| Order::Send(held.fact)).collect();
        self.report_current(&mut orders);
        orders
    }

    fn waits(&self, service: &ServiceKey) -> bool {
        self.named.get(service).is_some_and(|named| {
            named
                .now
                .iter()
                .any(|secret| self.secrets.get(secret).is_some_and(|secret| !secret.known))
        })
    }

    pub(super) fn name(
        &mut self,
        service: &ServiceKey,
        (names, accepted): (BTreeSet<ServiceKey>, BTreeSet<ServiceKey>),
        is_on_record: bool,
        orders: &mut Vec<Order>,
    ) {
        // A version that names more is refused as a whole.
        let most = self.limits.certificates_per_service;
        let names: BTreeSet<ServiceKey> = names.into_iter().take(most).collect();
        let accepted: BTreeSet<ServiceKey> = accepted.into_iter().take(most).collect();
        let old = self.named.remove(service).unwrap_or_default();
        let held = old.all();
        let before = if is_on_record {
            BTreeSet::new()
        } else if names == old.now {
            old.before
        } else {
            old.now
        };
        let new = Named {
            now: names,
            accepted,
            before,
        };
        let wanted = new.all();
        for secret in wanted.difference(&held) {
            if let Some(entry) = self.secrets.get_mut(secret) {
                entry.users += 1;
                continue;
            }
            let watched = self.has_room(secret.namespace());
            if watched {
                self.watch(secret, orders);
            } else {
                let namespace = secret.shared_namespace().clone();
                let refused = self.refused.entry(namespace).or_default();
                self.refused_in_all += usize::from(refused.insert(secret.clone()));
                orders.push(Order::Send(self.not_watched(secret)));
            }
            let entry = Secret {
                users: 1,
                // Nothing more will be known of it.
                known: !watched,
            };
            self.secrets.insert(secret.clone(), entry);
        }
        self.release(&held.difference(&wanted).cloned().collect(), orders);
        if !wanted.is_empty() {
            self.named.insert(service.clone(), new);
        }
    }

    fn release(&mut self, secrets: &BTreeSet<ServiceKey>, orders: &mut Vec<Order>) {
        let mut unwatched = false;
        for secret in secrets {
            if let Some(entry) = self.secrets.get_mut(secret) {
                entry.users = entry.users.saturating_sub(1);
                if entry.users > 0 {
                    continue;
                }
                self.secrets.remove(secret);
                if self.forget_refused(secret) {
                    orders.push(Order::Send(Fact::SecretGone(secret.clone())));
                    continue;
                }
                if let Some(count) = self.watched.get_mut(secret.namespace()) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.watched.remove(secret.namespace());
                    }
                }
                self.watched_in_all = self.watched_in_all.saturating_sub(1);
                unwatched = true;
                orders.push(Order::Unwatch(secret.clone()));
            }
        }
        if unwatched {
            self.use_room(orders);
        }
    }

    /// Removes a Secret from those for which there is no room; false: it is not one of them.
    fn forget_refused(&mut self, secret: &ServiceKey) -> bool {
        let Some(refused) = self.refused.get_mut(secret.namespace()) else {
            return false;
        };
        let found = refused.remove(secret);
        self.refused_in_all = self.refused_in_all.saturating_sub(usize::from(found));
        if refused.is_empty() {
            self.refused.remove(secret.namespace());
        }
        found
    }

    /// Whether one more Secret of a namespace may be watched. Each watch is a connection, so that
    /// there are never more than all; and a namespace that has as many as are left gets no more, so
    /// that something is left for the next one.
    fn has_room(&self, namespace: &str) -> bool {
        let here = self.watched.get(namespace).copied().unwrap_or_default();
        let left = self.limits.secrets.saturating_sub(self.watched_in_all);
        here < left.min(self.limits.secrets_per_namespace)
    }

    pub(super) fn counts(&self) -> SecretsView {
        SecretsView {
            watched: self.watched_in_all as u64,
            limit: self.limits.secrets as u64,
            refused: self.refused_in_all as u64,
        }
    }

    pub(super) fn watch(&mut self, secret: &ServiceKey, orders: &mut Vec<Order>) {
        let namespace = secret.shared_namespace().clone();
        *self.watched.entry(namespace).or_default() += 1;
        self.watched_in_all += 1;
        orders.push(Order::Watch(secret.clone()));
    }

    /// Watches what there was no room for.
    fn use_room(&mut self, orders: &mut Vec<Order>) {
        loop {
            let mut namespaces = self.refused.iter().enumerate();
            let found = namespaces.find(|(_, (namespace, _))| self.has_room(namespace));
            #[cfg(test)]
            {
                self.looks += found.map_or(self.refused.len(), |(before, _)| before + 1);
            }
            let Some(secret) = found.and_then(|(_, (_, secrets))| secrets.first().cloned()) else {
                return;
            };
            self.forget_refused(&secret);
            // What was said of it holds no more.
            orders.push(Order::Send(Fact::SecretGone(secret.clone())));
            self.watch(&secret, orders);
        }
    }

    /// What is said of a Secret for which there is no room.
    fn not_watched(&self, secret: &ServiceKey) -> Fact {
        let most = self.limits.secrets_per_namespace;
        let why = format!(
            "it is not read, because the Services of the namespace name too many Secrets (at most \
             {most}, and fewer while others need many; see limits in landfall.yaml)"
        );
        Fact::Secret(Arc::new(SecretRow {
            key: secret.clone(),
            certificate: Err(why.clone()),
            authorities: Err(why),
            source: None,
        }))
    }
}

/// Whether the newest version is the one on record.
fn is_on_record(row: &ServiceRow) -> bool {
    let recorded = row.status.marks.get(ACCEPTED_VERSION);
    recorded.is_some_and(|text| wire::accepted_to_text(row).is_ok_and(|newest| newest == *text))
}

impl Named {
    fn all(&self) -> BTreeSet<ServiceKey> {
        let all = self.now.iter().chain(&self.accepted).chain(&self.before);
        all.cloned().collect()
    }
}
