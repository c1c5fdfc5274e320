//! How many listeners the Services of each namespace have open, and whether one more may be.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use landfall_proxy::ListenerId;

/// Open listeners, counted by namespace.
#[derive(Clone, Debug, Default)]
pub struct Quota {
    /// `None`: as many as there can be.
    most: Option<usize>,
    namespaces: HashMap<ListenerId, Arc<str>>,
    counts: HashMap<Arc<str>, usize>,
    /// Those that an earlier process had open, and that are not open again yet.
    kept: HashSet<ListenerId>,
    /// How often everything was checked since they are kept.
    looks: u8,
}

/// After so many checks of everything, each Service has had its turn.
const LOOKS: u8 = 2;

// === impl Quota ===

impl Quota {
    /// Sets how many a namespace may have. Those that are open stay.
    pub fn limit(&mut self, most: Option<usize>) {
        self.most = most;
    }

    /// Takes a place for one more listener of a Service; false: it has that place.
    ///
    /// # Errors
    /// Its namespace has as many as it may.
    pub fn take(&mut self, id: ListenerId, service: &ServiceKey) -> Result<bool, Box<Reason>> {
        self.validate(id, service)?;
        let is_new = !self.namespaces.contains_key(&id);
        if is_new {
            self.opened(id, service);
        }
        Ok(is_new)
    }

    fn validate(&self, id: ListenerId, service: &ServiceKey) -> Result<(), Box<Reason>> {
        let namespace = service.namespace();
        let has = self
            .namespaces
            .get(&id)
            .is_some_and(|it| **it == *namespace);
        let count = self.counts.get(namespace).copied().unwrap_or_default();
        match self.most {
            Some(most) if !has && count >= most => Err(Box::new(
                Reason::error(
                    Code::LimitReached,
                    format!(
                        "{id} is not opened: the Services of namespace {namespace} have {count} \
                     listeners open, and may have {most}"
                    ),
                )
                .remedy(
                    "remove ports or Services of this namespace, or ask the operator for a higher \
                 limits.portsPerNamespace in landfall.yaml",
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Notes an open listener.
    pub fn opened(&mut self, id: ListenerId, service: &ServiceKey) {
        let namespace = service.shared_namespace();
        self.closed(id);
        self.namespaces.insert(id, namespace.clone());
        *self.counts.entry(namespace.clone()).or_default() += 1;
    }

    /// Keeps the place of a listener that an earlier process had open.
    pub fn keep(&mut self, id: ListenerId, service: &ServiceKey) {
        self.looks = 0;
        if !self.namespaces.contains_key(&id) {
            self.opened(id, service);
            self.kept.insert(id);
        }
    }

    /// Gives up the places of those that were not opened again in all this time.
    pub fn look_over(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks >= LOOKS {
            for id in std::mem::take(&mut self.kept) {
                self.closed(id);
            }
        }
    }

    /// Notes that a listener is open no more.
    pub fn closed(&mut self, id: ListenerId) {
        self.kept.remove(&id);
        let Some(namespace) = self.namespaces.remove(&id) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&namespace);
            }
        }
    }

    /// Notes that none is open any more.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.namespaces.clear();
        self.counts.clear();
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::{ListenerKey, Protocol};

    use super::*;

    fn id(port: u16) -> ListenerId {
        ListenerId {
            address: [127, 77, 0, 1].into(),
            key: ListenerKey {
                protocol: Protocol::Tcp,
                port: port.try_into().unwrap(),
            },
        }
    }

    #[test]
    fn a_place_that_is_kept_is_given_up_where_its_listener_does_not_come_back() {
        let (early, late) = (ServiceKey::new("a", "x"), ServiceKey::new("a", "y"));
        let mut quota = Quota::default();
        quota.limit(Some(2));
        quota.keep(id(1), &late);
        quota.keep(id(2), &late);
        assert!(quota.validate(id(3), &early).is_err());
        assert_eq!(quota.validate(id(1), &late), Ok(()));
        quota.opened(id(1), &late);
        quota.look_over();
        assert!(quota.validate(id(3), &early).is_err(), "it may still come");
        quota.look_over();
        assert_eq!(quota.validate(id(3), &early), Ok(()));
        quota.opened(id(3), &early);
        assert!(quota.validate(id(4), &early).is_err(), "the other is open");
    }

    #[test]
    fn listeners_that_are_opened_at_the_same_time_share_the_places() {
        let service = ServiceKey::new("a", "x");
        let mut quota = Quota::default();
        quota.limit(Some(2));
        let taken = [1, 2, 3].map(|port| quota.take(id(port), &service).ok());
        assert_eq!(taken, [Some(true), Some(true), None]);
        // The first one could not be opened.
        quota.closed(id(1));
        assert_eq!(quota.take(id(2), &service), Ok(false), "it has that one");
        assert_eq!(quota.take(id(3), &service), Ok(true));
    }

    #[test]
    fn a_namespace_that_has_its_share_gets_no_more_and_others_do() {
        let (a, b) = (ServiceKey::new("a", "x"), ServiceKey::new("b", "y"));
        let mut quota = Quota::default();
        quota.opened(id(1), &a);
        quota.opened(id(2), &a);
        assert_eq!(quota.validate(id(3), &a), Ok(()), "no limit");
        quota.limit(Some(2));
        let refused = quota.validate(id(3), &a).unwrap_err();
        assert_eq!(refused.code, Code::LimitReached);
        assert!(refused.message.contains("namespace a have 2"), "{refused}");
        assert_eq!(quota.validate(id(2), &a), Ok(()), "it has that one");
        assert_eq!(quota.validate(id(3), &b), Ok(()));
        // One that passes to another namespace counts there.
        quota.opened(id(2), &b);
        assert_eq!(quota.validate(id(3), &a), Ok(()));
        quota.opened(id(3), &a);
        quota.closed(id(3));
        quota.closed(id(3));
        assert_eq!(quota.validate(id(4), &a), Ok(()));
        quota.opened(id(4), &b);
        assert!(quota.validate(id(5), &b).is_err());
        quota.clear();
        assert_eq!(quota.validate(id(5), &b), Ok(()));
    }
}
