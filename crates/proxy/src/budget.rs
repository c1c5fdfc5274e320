//! The descriptors, UDP ports and memory for buffers of the process: how much there is, what holds
//! it, and a hold on it that is given back when dropped. Counts only; [`crate::admission`] decides.
//!
//! All counts are plain atomics that workers share. A connection changes four to six of them, which
//! is little beside the system calls that it takes. Between reading and adding, another worker may
//! add as well: limits are exceeded by at most a connection per worker, which the reserve covers.

mod account;
mod sources;
pub(crate) mod units;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use landfall_model::Uid;

use crate::admission::{Counts, Decision, Division, Excess};
use crate::failures::Failures;
use crate::rate::source_of;

pub use account::{Account, Extra, Sockets};
pub(crate) use account::{Cost, Held, Share};
use account::{Decide, Usage};
pub use sources::Source;
use sources::Sources;

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
    /// In units of [`units::UNIT`].
    memory: Resource,
    /// Sockets of listeners, and how many of these are of the common part.
    listeners: AtomicU32,
    common_listeners: AtomicU32,
    /// Refusals and failures for want of descriptors, ports or memory.
    shortages: AtomicU64,
    overloaded: AtomicBool,
    accounts: Mutex<HashMap<Uid, Weak<Account>>>,
    namespaces: Mutex<HashMap<String, Weak<Namespace>>>,
    /// The secret that keeps clients from knowing with which others they share a counter.
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

/// How many Services there are, in how many namespaces, and in that of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct ServiceCounts {
    services: u32,
    namespaces: u32,
    siblings: u32,
}

/// What all Services of a namespace have.
#[derive(Debug, Default)]
struct Namespace {
    services: AtomicU32,
    descriptors: Usage,
    ports: Usage,
    memory: Usage,
    listeners: AtomicU32,
}

/// A hold on descriptors that belong to no Service yet.
#[derive(Debug)]
pub(crate) struct ReservedDescriptors {
    budget: Arc<Budget>,
    count: u32,
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
            memory: Resource::new(units::of(bytes)),
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
    pub(crate) fn set_aside(self: &Arc<Self>, count: u32) -> ReservedDescriptors {
        let _no_sockets_meanwhile = self.accounts();
        let limit = &self.descriptors.limit;
        let count = count.min(limit.load(Ordering::Relaxed));
        limit.fetch_sub(count, Ordering::Relaxed);
        ReservedDescriptors {
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
            memory_limit: units::bytes(memory.limit),
            memory: units::bytes(memory.used),
            shortages: self.shortages.load(Ordering::Relaxed),
            scarce: [descriptors, ports, memory].iter().any(Counts::is_scarce),
            overloaded: self.overloaded.load(Ordering::Relaxed),
        }
    }

    fn crowd(&self) -> ServiceCounts {
        ServiceCounts {
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

    fn counts(&self, crowd: ServiceCounts) -> Counts {
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
        (usage, namespace): (&Usage, &Usage),
        crowd: ServiceCounts,
        source: Option<Source>,
        cost: u8,
        decide: Decide,
    ) -> Result<Held, Excess> {
        let counts = Counts {
            own_minimum: usage.minimum.load(Ordering::Relaxed),
            own_common: usage.common.load(Ordering::Relaxed),
            namespace_minimum: namespace.minimum.load(Ordering::Relaxed),
            namespace: namespace.common.load(Ordering::Relaxed),
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
            namespace.common.fetch_add(amount, Ordering::Relaxed);
        } else {
            usage.minimum.fetch_add(amount, Ordering::Relaxed);
            namespace.minimum.fetch_add(amount, Ordering::Relaxed);
        }
        if let Some(source) = source {
            self.sources.add(source, amount);
        }
        Ok(Held { cost, common })
    }

    fn give_back(&self, (usage, namespace): (&Usage, &Usage), source: Option<Source>, held: Held) {
        let amount = u32::from(held.cost);
        self.used.fetch_sub(amount, Ordering::Relaxed);
        if held.common {
            self.common.fetch_sub(amount, Ordering::Relaxed);
            usage.common.fetch_sub(amount, Ordering::Relaxed);
            namespace.common.fetch_sub(amount, Ordering::Relaxed);
        } else {
            usage.minimum.fetch_sub(amount, Ordering::Relaxed);
            namespace.minimum.fetch_sub(amount, Ordering::Relaxed);
        }
        if let Some(source) = source {
            self.sources.take(source, amount);
        }
    }
}

impl Drop for ReservedDescriptors {
    fn drop(&mut self) {
        let limit = &self.budget.descriptors.limit;
        limit.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
