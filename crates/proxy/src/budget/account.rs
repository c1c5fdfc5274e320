//! What a Service holds of the budget, and what it takes and gives back.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_model::Uid;

use super::sources::Source;
use super::{Budget, Namespace, Resource, ServiceCounts};
use crate::admission::{Counts, Decision, Excess};
use crate::failures::Failures;
use crate::rate::source_of;

/// What one Service holds.
#[derive(Debug)]
pub struct Account {
    pub(super) budget: Arc<Budget>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) descriptors: Usage,
    pub(super) ports: Usage,
    pub(super) memory: Usage,
    pub(super) listeners: Usage,
    /// What it wrote of failures into the access log.
    pub(super) failures: Failures,
}

#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) minimum: AtomicU32,
    pub(super) common: AtomicU32,
}

/// A hold on descriptors, and for UDP on a port. Given back with `Account::give_back`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(super) source: Option<Source>,
    pub(super) descriptors: Option<Held>,
    port: Option<Held>,
}

/// A rule of [`Counts`].
pub(super) type Decide = fn(&Counts, u32) -> Decision;

/// What is held of one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(super) cost: u8,
    pub(super) common: bool,
}

/// A hold on one more descriptor for a connection to a member.
#[derive(Debug)]
pub struct Extra {
    pub(super) account: Arc<Account>,
    pub(super) share: Share,
}

/// A hold on the descriptors of a listener's sockets.
#[derive(Debug)]
pub struct Sockets {
    pub(super) account: Arc<Account>,
    pub(super) count: u32,
    pub(super) common: bool,
}

/// What a new connection or flow needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The client's socket and the member's.
    Connection,
    /// A socket of one's own toward the member, and its port.
    Flow,
}

impl Held {
    /// How much it is.
    pub(crate) fn cost(self) -> u8 {
        self.cost
    }
}

impl Share {
    /// Whether some of it is of the common part.
    pub(crate) fn is_common(&self) -> bool {
        let mut held = self.descriptors.iter().chain(&self.port);
        held.any(|held| held.common)
    }
}

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

    /// As `take_memory`, for what is only kept for later: not while memory is scarce, and not of
    /// the minimum. That there is none is no shortage.
    pub(crate) fn keep_memory(&self, units: u8) -> Option<Held> {
        let (memory, crowd) = (&self.budget.memory, self.crowd());
        let kept = memory.take(self.bytes(), crowd, None, units, Counts::decide_spare);
        kept.ok()
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

    pub(super) fn crowd(&self) -> ServiceCounts {
        ServiceCounts {
            siblings: self.namespace.services.load(Ordering::Relaxed),
            ..self.budget.crowd()
        }
    }

    /// What it and its namespace have of the descriptors.
    pub(super) fn files(&self) -> (&Usage, &Usage) {
        (&self.descriptors, &self.namespace.descriptors)
    }

    /// What it and its namespace have of the ports.
    pub(super) fn flows(&self) -> (&Usage, &Usage) {
        (&self.ports, &self.namespace.ports)
    }

    /// What it and its namespace have of the memory.
    pub(super) fn bytes(&self) -> (&Usage, &Usage) {
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
        let connections = budget.descriptors.counts(ServiceCounts::default());
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
            namespace_minimum: 0,
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
