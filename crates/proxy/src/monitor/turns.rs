//! Whose check comes next where not all can run at once, or begin: namespaces in turn, and of each
//! its Services in turn. No Service holds more places than it leaves to others, and no namespace
//! more than three times as many. Nor do they begin more of the checks that may begin in a tenth of
//! a second: those that end at once hold no place for long, and cost as much. The choice is pure;
//! [`Turns`] makes tasks wait for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_model::Uid;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::identity::Owner;

/// A namespace may hold this many times what it leaves to others.
const NAMESPACE: usize = 3;

/// In this time so many checks may begin.
const WINDOW: Duration = Duration::from_millis(100);

/// 4,000 each second, of which one Service alone gets half: that is what 10,000 members with the
/// usual delay of 5 s need. A check over TCP is some 0.1 ms of CPU time.
const STARTS: usize = 400;

/// Which checks run and which wait. Pure.
#[derive(Debug)]
struct Queue<W> {
    /// Whether one still waits: those that gave up have no turn, and are not kept.
    waits: fn(&W) -> bool,
    places: usize,
    running: usize,
    namespaces: BTreeMap<String, Namespace<W>>,
    /// Namespaces that wait, in the order in which their turns come.
    order: VecDeque<String>,
    started: Started,
}

/// Checks that began in this window. A Service counts though it has none at present.
#[derive(Debug)]
struct Started {
    window: Instant,
    all: usize,
    namespaces: HashMap<String, usize>,
    services: HashMap<Uid, usize>,
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
pub(super) struct Turns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Mutex<Queue<oneshot::Sender<Turn>>>,
    runtime: Handle,
    counts: Mutex<Counts>,
}

/// What all monitors do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Checks that began, ever.
    pub begun: u64,
    /// Checks that had to wait for their turn, ever.
    pub delayed: u64,
    /// Checks that wait for their turn now.
    pub waiting: u64,
    /// Whether those that wait are called when the next window begins.
    calls: bool,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    /// Namespace and Service; gone when the place is.
    holder: Option<(String, Uid)>,
}

// === impl Queue ===

impl<W> Queue<W> {
    fn new(places: usize, waits: fn(&W) -> bool, now: Instant) -> Self {
        Self {
            waits,
            places: places.max(1),
            running: 0,
            namespaces: BTreeMap::new(),
            order: VecDeque::new(),
            started: Started::new(now),
        }
    }

    /// When the next check may begin that waits for nothing else than the next window.
    fn next_window(&self) -> Option<Instant> {
        let waits = !self.order.is_empty() && self.running < self.places;
        waits.then(|| self.started.window + WINDOW)
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
        if line.waiting.len() == line.waiting.capacity() {
            line.waiting.retain(self.waits);
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
    fn next(&mut self, now: Instant) -> Option<(String, Uid, W)> {
        loop {
            let (namespace, service, waiter) = self.first(now)?;
            if let Some(waiter) = waiter {
                return Some((namespace, service, waiter));
            }
        }
    }

    /// Gives a place to the first of a Service whose turn it is; to none where all have given up.
    fn first(&mut self, now: Instant) -> Option<(String, Uid, Option<W>)> {
        let free = self.places.checked_sub(self.running + 1)?;
        self.started.roll(now);
        let left = STARTS.checked_sub(self.started.all + 1)?;
        let (namespaces, started) = (&self.namespaces, &self.started);
        let mut order = self.order.iter().enumerate();
        let (at, place) = order.find_map(|(at, name)| {
            if !started.lets_namespace(name, left) {
                return None;
            }
            let lets = |service: &Uid| started.lets_service(service, left);
            let place = namespaces.get(name)?.next(free, lets)?;
            Some((at, place))
        })?;
        let name = self.order.remove(at)?;
        let namespace = self.namespaces.get_mut(&name)?;
        let service = namespace.order.remove(place)?;
        let line = namespace.services.get_mut(&service)?;
        let gone = line.waiting.iter().take_while(|it| !(self.waits)(it));
        let gone = gone.count();
        line.waiting.drain(..gone);
        let waiter = line.waiting.pop_front();
        line.running += 1;
        if !line.waiting.is_empty() {
            namespace.order.push_back(service.clone());
        }
        namespace.running += 1;
        if !namespace.order.is_empty() {
            self.order.push_back(name.clone());
        }
        self.running += 1;
        if waiter.is_some() {
            self.started.note(&name, &service);
        } else {
            self.leave(&name, &service);
        }
        Some((name, service, waiter))
    }
}

// === impl Started ===

impl Started {
    fn new(now: Instant) -> Self {
        Self {
            window: now,
            all: 0,
            namespaces: HashMap::new(),
            services: HashMap::new(),
        }
    }

    /// Begins to count again where the window is over.
    fn roll(&mut self, now: Instant) {
        if now.saturating_duration_since(self.window) >= WINDOW {
            self.window = now;
            self.all = 0;
            self.namespaces.clear();
            self.services.clear();
        }
    }

    fn note(&mut self, namespace: &str, service: &Uid) {
        self.all += 1;
        *self.namespaces.entry(namespace.to_owned()).or_default() += 1;
        *self.services.entry(service.clone()).or_default() += 1;
    }

    /// Whether a check of the namespace may begin that leaves `left` to all.
    fn lets_namespace(&self, namespace: &str, left: usize) -> bool {
        let begun = self.namespaces.get(namespace).copied();
        begun.is_none_or(|begun| begun < NAMESPACE * left)
    }

    /// Whether a check of the Service may begin that leaves `left` to all.
    fn lets_service(&self, service: &Uid, left: usize) -> bool {
        let begun = self.services.get(service).copied();
        begun.is_none_or(|begun| begun < left)
    }
}

// === impl Namespace ===

impl<W> Namespace<W> {
    /// Returns which of its Services may have a place that leaves `free` to all.
    fn next(&self, free: usize, lets: impl Fn(&Uid) -> bool) -> Option<usize> {
        if self.running > 0 && self.running >= NAMESPACE * free {
            return None;
        }
        self.order.iter().position(|service| {
            let running = self.services.get(service).map_or(0, |line| line.running);
            (running == 0 || running < free) && lets(service)
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
    /// `runtime`: where those that wait are called.
    pub(super) fn new(places: usize, runtime: Handle) -> Self {
        Self(Arc::new(Inner {
            queue: Mutex::new(Queue::new(places, |it| !it.is_closed(), now())),
            runtime,
            counts: Mutex::default(),
        }))
    }

    /// What was done until now.
    pub(super) fn counts(&self) -> Counts {
        *self.counted()
    }

    /// Waits for a place. Giving up the wait gives up the turn. `None` never comes while the caller
    /// waits.
    pub(super) async fn take(&self, owner: &Owner) -> Option<Turn> {
        let (sender, mut turn) = oneshot::channel();
        let namespace = owner.service.namespace();
        self.queue().wait(namespace, &owner.uid, sender);
        self.call();
        let taken = if let Ok(taken) = turn.try_recv() {
            Some(taken)
        } else {
            let _waits = Waits::new(self);
            turn.await.ok()
        };
        self.counted().begun += 1;
        taken
    }

    /// Calls all for which there is a place.
    fn call(&self) {
        loop {
            let next = self.queue().next(now());
            let Some((namespace, service, waiter)) = next else {
                return self.call_later();
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

    /// Calls those that wait for the next window when it begins.
    fn call_later(&self) {
        let Some(at) = self.queue().next_window() else {
            return;
        };
        if std::mem::replace(&mut self.counted().calls, true) {
            return;
        }
        let turns = self.clone();
        // It ends by itself within a window, and holds nothing but memory.
        self.0.runtime.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            turns.counted().calls = false;
            turns.call();
        });
    }

    fn queue(&self) -> MutexGuard<'_, Queue<oneshot::Sender<Turn>>> {
        // Each operation leaves the queue valid at every step.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock that sleeps follow, too.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A check that waits, counted as long as it does.
struct Waits<'a>(&'a Turns);

impl<'a> Waits<'a> {
    fn new(turns: &'a Turns) -> Self {
        let mut counts = turns.counted();
        counts.delayed += 1;
        counts.waiting += 1;
        drop(counts);
        Self(turns)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.counted().waiting -= 1;
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

    /// Those that have their turn in the first window.
    fn called(queue: &mut Queue<u32>) -> Vec<String> {
        let now = queue.started.window;
        std::iter::from_fn(|| queue.next(now))
            .map(|(_, service, number)| format!("{}{number}", service.as_str()))
            .collect()
    }

    #[test]
    fn a_service_with_endless_checks_leaves_places_for_others() {
        let mut queue = Queue::new(8, |_| true, now());
        for number in 0..100 {
            queue.wait("one", &uid("a"), number);
        }
        assert_eq!(called(&mut queue).len(), 4);
        queue.wait("one", &uid("b"), 0);
        queue.wait("one", &uid("c"), 0);
        assert_eq!(called(&mut queue), ["b0", "c0"]);
    }

    #[test]
    fn those_that_gave_up_are_not_kept_and_take_no_turn_of_others() {
        let mut queue = Queue::new(1000, |number| *number != 0, now());
        for _ in 0..100_000 {
            queue.wait("one", &uid("a"), 0);
        }
        let kept = |queue: &Queue<u32>| queue.namespaces["one"].services[&uid("a")].waiting.len();
        assert!(kept(&queue) < 100, "{}", kept(&queue));
        for number in 1..=STARTS as u32 {
            queue.wait("one", &uid("a"), number);
        }
        assert_eq!(called(&mut queue).len(), STARTS / 2);
        // One that has only such ones is gone.
        queue.wait("two", &uid("b"), 0);
        assert_eq!(called(&mut queue), Vec::<String>::new());
        assert!(!queue.namespaces.contains_key("two"));
    }

    #[test]
    fn services_that_wait_have_turns() {
        let mut queue = Queue::new(1, |_| true, now());
        for number in 0..3 {
            queue.wait("one", &uid("a"), number);
        }
        queue.wait("one", &uid("b"), 0);
        let mut order = Vec::new();
        while let Some((namespace, service, number)) = queue.next(now()) {
            order.push(format!("{}{number}", service.as_str()));
            queue.leave(&namespace, &service);
        }
        assert_eq!(order, ["a0", "b0", "a1", "a2"]);
        assert!(queue.namespaces.is_empty(), "{queue:?}");
    }

    #[test]
    fn many_services_of_one_namespace_leave_places_for_another() {
        let mut queue = Queue::new(8, |_| true, now());
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

    /// Has checks of these Services begin and end at once for a second, each with as many more as
    /// ever it can have. Returns how many each had, and the longest wait of the last one.
    fn second(services: &[(&str, &str)], modest: (&str, &str)) -> (Vec<usize>, Duration) {
        let start = now();
        let mut queue = Queue::new(1000, |_| true, start);
        let mut begun = vec![0; services.len()];
        let (mut asked, mut longest) = (None, Duration::ZERO);
        for (number, (namespace, service)) in services.iter().enumerate() {
            for _ in 0..10 {
                queue.wait(namespace, &uid(service), number);
            }
        }
        for millisecond in 0..1000 {
            let now = start + Duration::from_millis(millisecond);
            if millisecond % 50 == 7 && asked.is_none() {
                queue.wait(modest.0, &uid(modest.1), usize::MAX);
                asked = Some(now);
            }
            while let Some((namespace, service, number)) = queue.next(now) {
                queue.leave(&namespace, &service);
                if let Some(count) = begun.get_mut(number) {
                    *count += 1;
                    queue.wait(&namespace, &service, number);
                } else {
                    let waited = asked.take().map(|at| now - at);
                    longest = longest.max(waited.unwrap_or_default());
                }
            }
        }
        assert_eq!(asked, None, "it had its turn each time");
        (begun, longest)
    }

    #[test]
    fn checks_that_end_at_once_leave_half_of_the_starts_to_other_services() {
        let (begun, longest) = second(&[("one", "greedy")], ("two", "modest"));
        assert_eq!(longest, Duration::ZERO, "there is a start left at any time");
        let most = STARTS * 10 / 2;
        assert!((most - 30..=most).contains(&begun[0]), "{begun:?}");
    }

    #[test]
    fn many_services_of_one_namespace_leave_a_quarter_of_the_starts_to_others() {
        let names: Vec<String> = (0..50).map(|number| format!("greedy-{number}")).collect();
        let services: Vec<_> = names.iter().map(|name| ("one", &**name)).collect();
        let (begun, longest) = second(&services, ("two", "modest"));
        assert_eq!(longest, Duration::ZERO, "there is a start left at any time");
        let all: usize = begun.iter().sum();
        assert!(all <= STARTS * 10 / 4 * 3, "{all}");
        let (least, most) = (begun.iter().min().unwrap(), begun.iter().max().unwrap());
        assert!(most - least <= 20, "they have turns: {begun:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn checks_above_the_rate_begin_as_its_windows_do_and_are_counted() {
        let turns = Turns::new(10_000, Handle::current());
        let begun = tokio::time::Instant::now();
        let mut checks = tokio::task::JoinSet::new();
        for _ in 0..STARTS * 2 {
            let turns = turns.clone();
            checks.spawn(async move { turns.take(&owner("a")).await.is_some() });
        }
        let all = checks.join_all().await;
        assert!(all.into_iter().all(|it| it));
        assert_eq!(begun.elapsed().as_millis() / WINDOW.as_millis(), 3);
        let counts = turns.counts();
        let half = STARTS as u64 / 2;
        assert_eq!(
            (counts.begun, counts.delayed, counts.waiting),
            (4 * half, 3 * half, 0)
        );
    }

    #[tokio::test]
    async fn a_place_that_is_not_wanted_any_more_goes_to_the_next() {
        let turns = Turns::new(1, Handle::current());
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
