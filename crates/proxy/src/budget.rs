//! The descriptors, UDP ports and memory for buffers of the process: how much there is, who holds
//! it, and a hold on it that is given back when dropped. Counts only; [`crate::admission`] decides.
//!
//! All counts are plain atomics that workers share. A connection changes four to six of them, which
//! is little beside the system calls that it takes. Between reading and adding, another worker may
//! add as well: limits are exceeded by at most a connection per worker, which the reserve covers.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use landfall_model::Uid;

use crate::access_log::Failures;
use crate::admission::{Counts, Decision, Division, Excess};
use crate::clients::source_of;
use crate::memory;

/// Counters per row of a [`Sources`]; a power of two, of 14 bits.
const CELLS: usize = 1 << 14;

/// How many accounts of Services that are gone may be remembered.
const KEPT: usize = 64;

/// What the process has for traffic.
#[derive(Debug)]
pub struct Budget {
    division: Division,
    services: AtomicU32,
    /// Namespaces that have Services.
    inhabited: AtomicU32,
    descriptors: Resource,
    ports: Resource,
    /// In units of [`memory::UNIT`](crate::memory::UNIT).
    memory: Resource,
    /// Sockets of listeners, and how many of these are of the common part.
    listeners: AtomicU32,
    common_listeners: AtomicU32,
    /// Refusals and failures for want of descriptors, ports or memory.
    shortages: AtomicU64,
    overloaded: AtomicBool,
    accounts: Mutex<HashMap<Uid, Weak<Account>>>,
    namespaces: Mutex<HashMap<String, Weak<Namespace>>>,
    /// What keeps clients from knowing with whom they share a counter.
    key: RandomState,
}

/// One thing of which there is a limited number.
#[derive(Debug)]
struct Resource {
    limit: AtomicU32,
    used: AtomicU32,
    common: AtomicU32,
    sources: Sources,
}

/// What source addresses hold, at most: two rows of counters in which each address has a place by
/// its hash. Bounded whatever number of addresses there is; keyed, so that no client knows whom it
/// shares a place with.
#[derive(Debug)]
struct Sources {
    rows: [Box<[AtomicU32]>; 2],
}

/// How many Services there are, in how many namespaces, and in that of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    services: u32,
    namespaces: u32,
    siblings: u32,
}

/// What all Services of a namespace have of the common parts.
#[derive(Debug, Default)]
struct Namespace {
    services: AtomicU32,
    descriptors: AtomicU32,
    ports: AtomicU32,
    memory: AtomicU32,
    listeners: AtomicU32,
}

/// What one Service holds.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    namespace: Arc<Namespace>,
    descriptors: Usage,
    ports: Usage,
    memory: Usage,
    listeners: Usage,
    /// What it wrote of failures into the access log.
    failures: Failures,
}

#[derive(Debug, Default)]
struct Usage {
    minimum: AtomicU32,
    common: AtomicU32,
}

/// A source address, as the counts know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(u32);

/// A hold on descriptors, and for UDP on a port. Given back with `Account::give_back`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    source: Option<Source>,
    descriptors: Option<Held>,
    port: Option<Held>,
}

/// A rule of [`Counts`].
type Decide = fn(&Counts, u32) -> Decision;

/// What is held of one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    cost: u8,
    common: bool,
}

/// A hold on one more descriptor for a connection to a member.
#[derive(Debug)]
pub struct Extra {
    account: Arc<Account>,
    share: Share,
}

/// A hold on the descriptors of a listener's sockets.
#[derive(Debug)]
pub struct Sockets {
    account: Arc<Account>,
    count: u32,
    common: bool,
}

/// A hold on descriptors that belong to no Service yet.
#[derive(Debug)]
pub(crate) struct Aside {
    budget: Arc<Budget>,
    count: u32,
}

/// What a new connection or flow needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The client's socket and the member's.
    Connection,
    /// A socket of one's own toward the member, and its port.
    Flow,
}

/// A reading of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How descriptors are divided.
    pub division: Division,
    /// How many descriptors connections and flows may have at present.
    pub limit: u32,
    /// How many they have.
    pub used: u32,
    /// How many sockets listeners have.
    pub listeners: u32,
    /// How many UDP flows there may be.
    pub flow_limit: u32,
    /// How many there are.
    pub flows: u32,
    /// How many bytes buffers of connections may have, beyond what each connection has anyway.
    pub memory_limit: u64,
    /// How many they have.
    pub memory: u64,
    /// How often something was refused or failed for want of descriptors, ports or memory.
    pub shortages: u64,
    /// Whether few descriptors or ports are free, or little memory.
    pub scarce: bool,
    /// Whether something was scarce or refused for want of it lately.
    pub overloaded: bool,
}

// === impl Budget ===

impl Budget {
    /// The budget of a process that may open so many files and hold so many UDP flows, without a
    /// limit of memory.
    pub fn new(files: u64, flows: u32) -> Arc<Self> {
        Self::with_memory(files, flows, u64::MAX)
    }

    /// The same, where buffers may take so many bytes.
    pub fn with_memory(files: u64, flows: u32, bytes: u64) -> Arc<Self> {
        let division = Division::of(files);
        Arc::new(Self {
            division,
            services: AtomicU32::new(0),
            inhabited: AtomicU32::new(0),
            descriptors: Resource::new(division.traffic),
            ports: Resource::new(flows),
            memory: Resource::new(memory::units(bytes)),
            listeners: AtomicU32::new(0),
            common_listeners: AtomicU32::new(0),
            shortages: AtomicU64::new(0),
            overloaded: AtomicBool::new(false),
            accounts: Mutex::default(),
            namespaces: Mutex::default(),
            key: RandomState::new(),
        })
    }

    /// The source that an address belongs to: of IPv6, a client has at least the whole /64.
    pub(crate) fn source(&self, address: IpAddr) -> Source {
        Source(self.key.hash_one(source_of(address)) as u32)
    }

    /// How descriptors are divided.
    pub fn division(&self) -> Division {
        self.division
    }

    /// The account of a Service in a namespace.
    pub fn account(self: &Arc<Self>, service: &Uid, namespace: &str) -> Arc<Account> {
        let mut accounts = self.accounts();
        if let Some(account) = accounts.get(service).and_then(Weak::upgrade) {
            return account;
        }
        let account = Arc::new(Account {
            budget: self.clone(),
            namespace: self.namespace(namespace),
            descriptors: Usage::default(),
            ports: Usage::default(),
            memory: Usage::default(),
            listeners: Usage::default(),
            failures: Failures::default(),
        });
        // Not each time: thousands of Services come one after the other.
        if accounts.len() > 2 * self.services.load(Ordering::Relaxed) as usize + KEPT {
            accounts.retain(|_, account| account.strong_count() > 0);
        }
        accounts.insert(service.clone(), Arc::downgrade(&account));
        self.services.fetch_add(1, Ordering::Relaxed);
        if account.namespace.services.fetch_add(1, Ordering::Relaxed) == 0 {
            self.inhabited.fetch_add(1, Ordering::Relaxed);
        }
        account
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        // Each operation leaves the map valid at every step.
        let namespaces = self.namespaces.lock();
        let mut namespaces = namespaces.unwrap_or_else(PoisonError::into_inner);
        if let Some(namespace) = namespaces.get(name).and_then(Weak::upgrade) {
            return namespace;
        }
        let namespace = Arc::<Namespace>::default();
        if namespaces.len() > 2 * self.inhabited.load(Ordering::Relaxed) as usize + KEPT {
            namespaces.retain(|_, namespace| namespace.strong_count() > 0);
        }
        namespaces.insert(name.to_owned(), Arc::downgrade(&namespace));
        namespace
    }

    /// Takes descriptors that are open already: connections may have so many fewer.
    pub(crate) fn set_aside(self: &Arc<Self>, count: u32) -> Aside {
        let _no_sockets_meanwhile = self.accounts();
        let limit = &self.descriptors.limit;
        let count = count.min(limit.load(Ordering::Relaxed));
        limit.fetch_sub(count, Ordering::Relaxed);
        Aside {
            budget: self.clone(),
            count,
        }
    }

    /// Notes something that failed for want of descriptors, ports or memory.
    pub fn fell_short(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how things stand.
    pub fn pressure(&self) -> Pressure {
        let crowd = self.crowd();
        let descriptors = self.descriptors.counts(crowd);
        let ports = self.ports.counts(crowd);
        let memory = self.memory.counts(crowd);
        Pressure {
            division: self.division,
            limit: descriptors.limit,
            used: descriptors.used,
            listeners: self.listeners.load(Ordering::Relaxed),
            flow_limit: ports.limit,
            flows: ports.used,
            memory_limit: memory::bytes(memory.limit),
            memory: memory::bytes(memory.used),
            shortages: self.shortages.load(Ordering::Relaxed),
            scarce: [descriptors, ports, memory].iter().any(Counts::is_scarce),
            overloaded: self.overloaded.load(Ordering::Relaxed),
        }
    }

    fn crowd(&self) -> Crowd {
        Crowd {
            services: self.services.load(Ordering::Relaxed),
            namespaces: self.inhabited.load(Ordering::Relaxed),
            siblings: 0,
        }
    }

    /// Notes what was announced.
    pub(crate) fn set_overloaded(&self, overloaded: bool) {
        self.overloaded.store(overloaded, Ordering::Relaxed);
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<Uid, Weak<Account>>> {
        // Each operation leaves the map valid at every step.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Resource ===

impl Resource {
    fn new(limit: u32) -> Self {
        Self {
            limit: AtomicU32::new(limit),
            used: AtomicU32::new(0),
            common: AtomicU32::new(0),
            sources: Sources::new(),
        }
    }

    fn counts(&self, crowd: Crowd) -> Counts {
        Counts {
            limit: self.limit.load(Ordering::Relaxed),
            used: self.used.load(Ordering::Relaxed),
            common: self.common.load(Ordering::Relaxed),
            services: crowd.services,
            namespaces: crowd.namespaces,
            siblings: crowd.siblings,
            ..Counts::default()
        }
    }

    fn take(
        &self,
        (usage, namespace): (&Usage, &AtomicU32),
        crowd: Crowd,
        source: Option<Source>,
        cost: u8,
        decide: Decide,
    ) -> Result<Held, Excess> {
        let counts = Counts {
            own_minimum: usage.minimum.load(Ordering::Relaxed),
            own_common: usage.common.load(Ordering::Relaxed),
            namespace: namespace.load(Ordering::Relaxed),
            source: source.map_or(0, |source| self.sources.of(source)),
            ..self.counts(crowd)
        };
        let amount = u32::from(cost);
        let common = match decide(&counts, amount) {
            Decision::Minimum => false,
            Decision::Common => true,
            Decision::Refused(excess) => return Err(excess),
        };
        self.used.fetch_add(amount, Ordering::Relaxed);
        if common {
            self.common.fetch_add(amount, Ordering::Relaxed);
            usage.common.fetch_add(amount, Ordering::Relaxed);
            namespace.fetch_add(amount, Ordering::Relaxed);
        } else {
            usage.minimum.fetch_add(amount, Ordering::Relaxed);
        }
        if let Some(source) = source {
            self.sources.add(source, amount);
        }
        Ok(Held { cost, common })
    }

    fn give_back(
        &self,
        (usage, namespace): (&Usage, &AtomicU32),
        source: Option<Source>,
        held: Held,
    ) {
        let amount = u32::from(held.cost);
        self.used.fetch_sub(amount, Ordering::Relaxed);
        if held.common {
            self.common.fetch_sub(amount, Ordering::Relaxed);
            usage.common.fetch_sub(amount, Ordering::Relaxed);
            namespace.fetch_sub(amount, Ordering::Relaxed);
        } else {
            usage.minimum.fetch_sub(amount, Ordering::Relaxed);
        }
        if let Some(source) = source {
            self.sources.take(source, amount);
        }
    }
}

// === impl Sources ===

impl Sources {
    fn new() -> Self {
        let row = || (0..CELLS).map(|_| AtomicU32::new(0)).collect();
        Self {
            rows: [row(), row()],
        }
    }

    fn of(&self, source: Source) -> u32 {
        let counts = self.cells(source).map(|cell| cell.load(Ordering::Relaxed));
        counts.min().unwrap_or(0)
    }

    fn add(&self, source: Source, amount: u32) {
        for cell in self.cells(source) {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn take(&self, source: Source, amount: u32) {
        for cell in self.cells(source) {
            cell.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    fn cells(&self, source: Source) -> impl Iterator<Item = &AtomicU32> {
        let places = [source.0 as usize % CELLS, (source.0 >> 16) as usize % CELLS];
        let rows = self.rows.iter().zip(places);
        rows.filter_map(|(row, place)| row.get(place))
    }
}

// === impl Held ===

impl Held {
    /// How much it is.
    pub(crate) fn cost(self) -> u8 {
        self.cost
    }
}

// === impl Share ===

impl Share {
    /// Whether some of it is of the common part.
    pub(crate) fn is_common(&self) -> bool {
        let mut held = self.descriptors.iter().chain(&self.port);
        held.any(|held| held.common)
    }
}

// === impl Account ===

impl Account {
    /// An account with its own, unlimited budget.
    pub fn unlimited() -> Arc<Self> {
        Budget::new(u64::from(u32::MAX), u32::MAX).account(&Uid::new(""), "")
    }

    /// What it wrote of failures into the access log.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The budget that it draws on.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Takes what a connection or flow needs.
    pub(crate) fn take(&self, cost: Cost, source: Option<Source>) -> Result<Share, Excess> {
        let taken = match cost {
            Cost::Connection => self.take_share(2, false, source, Counts::decide),
            Cost::Flow => self.take_share(1, true, source, Counts::decide),
        };
        taken.inspect_err(|_| self.budget.fell_short())
    }

    /// Takes what a flow needs in place of one that was just ended.
    pub(crate) fn take_again(&self, source: Option<Source>) -> Result<Share, Excess> {
        self.take_share(1, true, source, Counts::decide_again)
    }

    fn take_share(
        &self,
        cost: u8,
        with_port: bool,
        source: Option<Source>,
        decide: Decide,
    ) -> Result<Share, Excess> {
        let budget = &*self.budget;
        let crowd = self.crowd();
        let (files, ports) = (&budget.descriptors, &budget.ports);
        let mut share = Share {
            source,
            descriptors: None,
            port: None,
        };
        share.descriptors = Some(files.take(self.files(), crowd, source, cost, decide)?);
        if with_port {
            match ports.take(self.flows(), crowd, source, 1, decide) {
                Ok(held) => share.port = Some(held),
                Err(excess) => {
                    self.give_back(share);
                    return Err(excess);
                }
            }
        }
        Ok(share)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, share: Share) {
        let budget = &*self.budget;
        if let Some(held) = share.descriptors {
            budget
                .descriptors
                .give_back(self.files(), share.source, held);
        }
        if let Some(held) = share.port {
            budget.ports.give_back(self.flows(), share.source, held);
        }
    }

    /// Takes so many units of memory.
    pub(crate) fn take_memory(&self, units: u8, source: Option<Source>) -> Result<Held, Excess> {
        let (memory, crowd) = (&self.budget.memory, self.crowd());
        let taken = memory.take(self.bytes(), crowd, source, units, Counts::decide);
        taken.inspect_err(|_| self.budget.fell_short())
    }

    /// Gives memory back that was taken for the same source.
    pub(crate) fn give_back_memory(&self, source: Option<Source>, held: Held) {
        self.budget.memory.give_back(self.bytes(), source, held);
    }

    /// The source that a flow from an address belongs to. Nothing proves that a datagram comes from
    /// where it says: what an address has at one Service is not held against it at another.
    pub(crate) fn flow_source(self: &Arc<Self>, address: IpAddr) -> Source {
        let key = &self.budget.key;
        Source(key.hash_one((Arc::as_ptr(self) as usize, source_of(address))) as u32)
    }

    fn crowd(&self) -> Crowd {
        Crowd {
            siblings: self.namespace.services.load(Ordering::Relaxed),
            ..self.budget.crowd()
        }
    }

    /// What it and its namespace have of the descriptors.
    fn files(&self) -> (&Usage, &AtomicU32) {
        (&self.descriptors, &self.namespace.descriptors)
    }

    /// What it and its namespace have of the ports.
    fn flows(&self) -> (&Usage, &AtomicU32) {
        (&self.ports, &self.namespace.ports)
    }

    /// What it and its namespace have of the memory.
    fn bytes(&self) -> (&Usage, &AtomicU32) {
        (&self.memory, &self.namespace.memory)
    }

    /// Takes one more descriptor, for a connection to a member that no client connection has a
    /// place for.
    pub(crate) fn extra(self: &Arc<Self>, source: Option<Source>) -> Result<Extra, Excess> {
        self.one_more(source, Counts::decide)
    }

    /// As `extra`, for a connection that is only kept for later: not while descriptors are
    /// scarce, and not of the minimum, which clients would then not have.
    pub fn spare(self: &Arc<Self>) -> Option<Extra> {
        self.one_more(None, Counts::decide_spare).ok()
    }

    fn one_more(self: &Arc<Self>, source: Option<Source>, decide: Decide) -> Result<Extra, Excess> {
        let share = self.take_share(1, false, source, decide)?;
        Ok(Extra {
            account: self.clone(),
            share,
        })
    }

    /// Whether it has more than others can't take from it.
    pub(crate) fn is_above_minimum(&self) -> bool {
        let (budget, crowd) = (&*self.budget, self.crowd());
        let is_above = |resource: &Resource, usage: &Usage| {
            let own = usage.minimum.load(Ordering::Relaxed);
            let own = own.saturating_add(usage.common.load(Ordering::Relaxed));
            own > resource.counts(crowd).minimum()
        };
        is_above(&budget.ports, &self.ports) || is_above(&budget.descriptors, &self.descriptors)
    }

    /// Whether what is only kept for later should be given back.
    pub fn is_scarce(&self) -> bool {
        let crowd = self.budget.crowd();
        self.budget.descriptors.counts(crowd).is_scarce()
    }

    /// Takes descriptors for a listener's sockets. `None`: the process would have too few left for
    /// other Services.
    pub fn sockets(self: &Arc<Self>, count: u32) -> Option<Sockets> {
        let budget = &*self.budget;
        let accounts = budget.accounts();
        let connections = budget.descriptors.counts(Crowd::default());
        let fits = connections.used.saturating_add(count) <= connections.limit;
        // The minimums that others have not used yet are no room for further listeners.
        let free = budget.descriptors.counts(self.crowd()).free();
        let counts = self.socket_counts();
        let is_first = counts.own_minimum == 0 && counts.own_common == 0;
        let common = match counts.decide_sockets(count) {
            Decision::Minimum if fits && (is_first || count <= free) => false,
            Decision::Common if fits && count <= free => true,
            Decision::Minimum | Decision::Common | Decision::Refused(_) => {
                drop(accounts);
                budget.fell_short();
                return None;
            }
        };
        for counter in self.socket_counters(common) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        budget.descriptors.limit.fetch_sub(count, Ordering::Relaxed);
        drop(accounts);
        Some(Sockets {
            account: self.clone(),
            count,
            common,
        })
    }

    /// What is known when sockets of listeners are wanted.
    fn socket_counts(&self) -> Counts {
        let (budget, crowd) = (&*self.budget, self.crowd());
        let read = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        Counts {
            limit: budget.division.listeners,
            used: read(&budget.listeners),
            common: read(&budget.common_listeners),
            services: crowd.services,
            namespaces: crowd.namespaces,
            siblings: crowd.siblings,
            own_minimum: read(&self.listeners.minimum),
            own_common: read(&self.listeners.common),
            namespace: read(&self.namespace.listeners),
            source: 0,
        }
    }

    /// All that count its sockets of listeners, of the common part or of its minimum.
    fn socket_counters(&self, common: bool) -> impl Iterator<Item = &AtomicU32> {
        let (budget, own) = (&*self.budget, &self.listeners);
        let (own, all) = if common {
            (&own.common, Some(&budget.common_listeners))
        } else {
            (&own.minimum, None)
        };
        let counters = [own, &self.namespace.listeners, &budget.listeners];
        counters.into_iter().chain(all)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.services.fetch_sub(1, Ordering::Relaxed);
        if self.namespace.services.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.budget.inhabited.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        self.account.give_back(self.share);
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for counter in self.account.socket_counters(self.common) {
            counter.fetch_sub(self.count, Ordering::Relaxed);
        }
        let limit = &self.account.budget.descriptors.limit;
        limit.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let limit = &self.budget.descriptors.limit;
        limit.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes connections until one is refused.
    fn flood(account: &Account) -> Vec<Share> {
        std::iter::from_fn(|| account.take(Cost::Connection, None).ok()).collect()
    }

    #[test]
    fn what_is_kept_for_later_takes_nothing_of_the_minimum_of_its_service() {
        let budget = Budget::new(4096, 16);
        let accounts: Vec<_> = (0..200)
            .map(|number| budget.account(&Uid::new(&format!("victim-{number}")), "victims"))
            .collect();
        let rude = budget.account(&Uid::new("rude"), "rude");
        for victim in &accounts {
            // Connections that ended; what they had of members is kept.
            let kept: Vec<_> = (0..4).filter_map(|_| victim.spare()).collect();
            let taken = flood(&rude);
            let refused = victim.take(Cost::Connection, None);
            let share = refused.expect("its minimum");
            assert!(share.descriptors.is_some_and(|held| !held.common));
            victim.give_back(share);
            drop(kept);
            for share in taken {
                rude.give_back(share);
            }
        }
        assert_eq!(budget.pressure().used, 0);
    }

    #[test]
    fn a_flood_leaves_room_for_clients_of_others_that_come_at_the_same_time() {
        let budget = Budget::new(4096, 16);
        let victims: Vec<_> = (0..200)
            .map(|number| budget.account(&Uid::new(&format!("victim-{number}")), "victims"))
            .collect();
        let rude = budget.account(&Uid::new("rude"), "rude");
        let sockets: Vec<_> = victims.iter().map(|victim| victim.sockets(2)).collect();
        assert!(sockets.iter().all(Option::is_some));
        let _taken = flood(&rude);
        // More than each one's minimum, all at one Service.
        let clients = (0..24).map(|_| victims[0].take(Cost::Connection, None));
        assert!(clients.filter_map(Result::ok).count() == 24);
    }

    #[test]
    fn the_only_service_may_open_nearly_two_hundred_ports_with_few_descriptors() {
        let budget = Budget::new(1024, 2);
        let only = budget.account(&Uid::new("only"), "shop");
        let sockets: Vec<_> = std::iter::from_fn(|| only.sockets(2)).collect();
        assert!(sockets.len() > 190, "{}", sockets.len());
        let other = budget.account(&Uid::new("other"), "shop");
        let _socket = other.sockets(2).expect("the first listener of another");
        assert!(flood(&only).len() > 50 && flood(&other).len() > 4);
    }

    #[test]
    fn listeners_that_are_opened_in_a_flood_leave_the_minimum_of_others() {
        let budget = Budget::new(1024, 2);
        let victim = budget.account(&Uid::new("victim"), "victims");
        let _socket = victim.sockets(2).expect("the first listener");
        let rude: Vec<_> = (0..8)
            .map(|number| budget.account(&Uid::new(&format!("rude-{number}")), "rude"))
            .collect();
        let _taken: Vec<Vec<Share>> = rude.iter().map(|rude| flood(rude)).collect();
        let more = || rude.iter().find_map(|rude| rude.sockets(2));
        let _sockets: Vec<_> = std::iter::from_fn(more).collect();
        let clients = std::iter::from_fn(|| victim.take(Cost::Connection, None).ok());
        assert!(clients.take(16).count() == 16);
    }
}
