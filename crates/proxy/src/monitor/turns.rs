//! Whose check comes next where not all can run at once: namespaces in turn, and of each its
//! Services in turn. No Service holds more places than it leaves to others, and no namespace more
//! than three times as many. The choice is pure; [`Turns`] makes tasks wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_model::Uid;
use tokio::sync::oneshot;

use crate::listener::Owner;

/// A namespace may hold this many times what it leaves to others.
const NAMESPACE: usize = 3;

/// Who runs and who waits. Pure.
#[derive(Debug)]
struct Queue<W> {
    places: usize,
    running: usize,
    namespaces: BTreeMap<String, Namespace<W>>,
    /// Namespaces that wait, in the order in which their turns come.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Namespace<W> {
    running: usize,
    services: BTreeMap<Uid, Line<W>>,
    /// Services that wait, in the order in which their turns come.
    order: VecDeque<Uid>,
}

#[derive(Debug)]
struct Line<W> {
    running: usize,
    waiting: VecDeque<W>,
}

/// Places for checks, given to namespaces and their Services in turn.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Mutex<Queue<oneshot::Sender<Turn>>>>);

/// A place; given back when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    /// Namespace and Service; gone when the place is.
    holder: Option<(String, Uid)>,
}

// === impl Queue ===

impl<W> Queue<W> {
    fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            running: 0,
            namespaces: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Adds one that waits.
    fn wait(&mut self, namespace: &str, service: &Uid, waiter: W) {
        let name = namespace;
        let namespace = self.namespaces.entry(name.to_owned()).or_default();
        if namespace.order.is_empty() {
            self.order.push_back(name.to_owned());
        }
        let line = namespace.services.entry(service.clone()).or_default();
        if line.waiting.is_empty() {
            namespace.order.push_back(service.clone());
        }
        line.waiting.push_back(waiter);
    }

    /// Gives a place back.
    fn leave(&mut self, namespace: &str, service: &Uid) {
        self.running = self.running.saturating_sub(1);
        let name = namespace;
        let Some(namespace) = self.namespaces.get_mut(name) else {
            return;
        };
        namespace.running = namespace.running.saturating_sub(1);
        if let Some(line) = namespace.services.get_mut(service) {
            line.running = line.running.saturating_sub(1);
            if line.running == 0 && line.waiting.is_empty() {
                namespace.services.remove(service);
            }
        }
        if namespace.services.is_empty() {
            self.namespaces.remove(name);
        }
    }

    /// Gives a place to the next one that waits, if there is one for it.
    fn next(&mut self) -> Option<(String, Uid, W)> {
        let free = self.places.checked_sub(self.running + 1)?;
        let namespaces = &self.namespaces;
        let mut order = self.order.iter().enumerate();
        let (at, place) = order.find_map(|(at, name)| {
            let place = namespaces.get(name)?.next(free)?;
            Some((at, place))
        })?;
        let name = self.order.remove(at)?;
        let namespace = self.namespaces.get_mut(&name)?;
        let service = namespace.order.remove(place)?;
        let line = namespace.services.get_mut(&service)?;
        let waiter = line.waiting.pop_front()?;
        line.running += 1;
        if !line.waiting.is_empty() {
            namespace.order.push_back(service.clone());
        }
        namespace.running += 1;
        if !namespace.order.is_empty() {
            self.order.push_back(name.clone());
        }
        self.running += 1;
        Some((name, service, waiter))
    }
}

// === impl Namespace ===

impl<W> Namespace<W> {
    /// Returns which of its Services may have a place that leaves `free` to all.
    fn next(&self, free: usize) -> Option<usize> {
        if self.running > 0 && self.running >= NAMESPACE * free {
            return None;
        }
        self.order.iter().position(|service| {
            let running = self.services.get(service).map_or(0, |line| line.running);
            running == 0 || running < free
        })
    }
}

impl<W> Default for Namespace<W> {
    fn default() -> Self {
        Self {
            running: 0,
            services: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

// === impl Line ===

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: VecDeque::new(),
        }
    }
}

// === impl Turns ===

impl Turns {
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue::new(places))))
    }

    /// Waits for a place. Giving up the wait gives up the turn. `None` never comes while the caller
    /// waits.
    pub(super) async fn take(&self, owner: &Owner) -> Option<Turn> {
        let (sender, turn) = oneshot::channel();
        let namespace = owner.service.namespace();
        self.queue().wait(namespace, &owner.uid, sender);
        self.call();
        turn.await.ok()
    }

    /// Calls all for whom there is a place.
    fn call(&self) {
        loop {
            let next = self.queue().next();
            let Some((namespace, service, waiter)) = next else {
                return;
            };
            let turn = Turn {
                turns: self.clone(),
                holder: Some((namespace, service)),
            };
            if let Err(unwanted) = waiter.send(turn) {
                // Not by dropping it, which would call from within the call.
                unwanted.give_back();
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<oneshot::Sender<Turn>>> {
        // Each operation leaves the queue valid at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Turn ===

impl Turn {
    fn give_back(mut self) {
        if let Some((namespace, service)) = self.holder.take() {
            self.turns.queue().leave(&namespace, &service);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((namespace, service)) = self.holder.take() {
            self.turns.queue().leave(&namespace, &service);
            self.turns.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(name: &str) -> Uid {
        Uid::new(name)
    }

    fn owner(name: &str) -> Owner {
        Owner {
            uid: uid(name),
            service: landfall_model::ServiceKey::new("one", name),
        }
    }

    fn called(queue: &mut Queue<u32>) -> Vec<String> {
        std::iter::from_fn(|| queue.next())
            .map(|(_, service, number)| format!("{}{number}", service.as_str()))
            .collect()
    }

    #[test]
    fn a_service_with_endless_checks_leaves_places_for_others() {
        let mut queue = Queue::new(8);
        for number in 0..100 {
            queue.wait("one", &uid("a"), number);
        }
        assert_eq!(called(&mut queue).len(), 4);
        queue.wait("one", &uid("b"), 0);
        queue.wait("one", &uid("c"), 0);
        assert_eq!(called(&mut queue), ["b0", "c0"]);
    }

    #[test]
    fn services_that_wait_have_turns() {
        let mut queue = Queue::new(1);
        for number in 0..3 {
            queue.wait("one", &uid("a"), number);
        }
        queue.wait("one", &uid("b"), 0);
        let mut order = Vec::new();
        while let Some((namespace, service, number)) = queue.next() {
            order.push(format!("{}{number}", service.as_str()));
            queue.leave(&namespace, &service);
        }
        assert_eq!(order, ["a0", "b0", "a1", "a2"]);
        assert!(queue.namespaces.is_empty(), "{queue:?}");
    }

    #[test]
    fn many_services_of_one_namespace_leave_places_for_another() {
        let mut queue = Queue::new(8);
        for number in 0..100 {
            queue.wait("one", &uid(&format!("a{number}-")), 0);
        }
        assert_eq!(called(&mut queue).len(), 6);
        queue.wait("other", &uid("b"), 0);
        assert_eq!(called(&mut queue), ["b0"]);
        queue.leave("other", &uid("b"));
        queue.wait("other", &uid("b"), 1);
        assert_eq!(called(&mut queue), ["b1"]);
    }

    #[tokio::test]
    async fn a_place_that_is_not_wanted_any_more_goes_to_the_next() {
        let turns = Turns::new(1);
        let first = turns.take(&owner("a")).await.unwrap();
        let (other, own) = (turns.clone(), owner("b"));
        let given_up = tokio::spawn(async move { other.take(&own).await });
        tokio::task::yield_now().await;
        given_up.abort();
        let _ = given_up.await;
        let (other, own) = (turns.clone(), owner("c"));
        let next = tokio::spawn(async move { other.take(&own).await.is_some() });
        tokio::task::yield_now().await;
        drop(first);
        assert!(next.await.unwrap());
        assert_eq!(turns.queue().running, 0);
    }
}
