//! How many connections a listener has, and may have.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use super::ListenerState;
use crate::admission::Excess;
use crate::budget::{Account, Cost, Share, Source};
use crate::clients::{Hold, TooMuch};
use crate::counters::Refusal;

/// Counts what is open, and holds the connection limit.
#[derive(Debug)]
pub struct Gate {
    pub(super) account: Arc<Account>,
    open: AtomicU32,
    limit: AtomicU32,
    waiting: AtomicUsize,
    freed: Notify,
}

/// One open connection's place, with the descriptors that it takes; given back when dropped.
#[derive(Debug)]
pub struct Place {
    pub(super) gate: Arc<Gate>,
    share: Share,
    hold: Option<Box<Hold>>,
}

impl Gate {
    pub(super) fn new(limit: Option<u32>, account: Arc<Account>) -> Self {
        Self {
            account,
            open: AtomicU32::new(0),
            limit: AtomicU32::new(limit.unwrap_or(u32::MAX)),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    /// How many places are taken.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes a place unless all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let limit = self.limit.load(Ordering::SeqCst);
        // Not "add, and take back if too many": that would wake others that wait, for nothing.
        let taken = self
            .open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
                (open < limit).then_some(open + 1)
            });
        taken.ok().map(|_| Place {
            gate: self.clone(),
            share: Share::default(),
            hold: None,
        })
    }

    /// Waits until nothing is open. Only for listeners that take nothing new.
    pub async fn drained(&self) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(self);
            freed.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Waits until a place may be free; take it with [`Self::enter`].
    pub async fn freed(&self) {
        let mut freed = std::pin::pin!(self.freed.notified());
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        freed.as_mut().enable();
        if self.open.load(Ordering::SeqCst) < self.limit.load(Ordering::SeqCst) {
            return;
        }
        freed.await;
    }

    pub(super) fn set_limit(&self, limit: Option<u32>) {
        self.limit
            .store(limit.unwrap_or(u32::MAX), Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl Place {
    /// Takes the descriptors, and for a flow the port, of what has this place.
    pub(crate) fn take(&mut self, cost: Cost, source: Option<Source>) -> Result<(), Excess> {
        self.gate.account.give_back(std::mem::take(&mut self.share));
        self.share = self.gate.account.take(cost, source)?;
        Ok(())
    }

    /// Whether something that it takes is beyond the minimum of its Service.
    pub(crate) fn is_common(&self) -> bool {
        self.share.is_common()
    }

    /// Validates and counts it as one of its client's, whose identity is known by now.
    pub(crate) fn validate(
        &mut self,
        listener: &ListenerState,
        client: IpAddr,
    ) -> Result<(), Refusal> {
        let config = listener.config();
        let limits = &config.listener.source_limits;
        if limits.is_nothing() {
            return Ok(());
        }
        match listener.clients.enter(limits, client, Instant::now()) {
            Ok(hold) => {
                self.hold = hold;
                Ok(())
            }
            Err(TooMuch::Connections) => Err(Refusal::SourceLimit),
            Err(TooMuch::Rate) => Err(Refusal::SourceRate),
        }
    }

    /// Takes what a flow needs in place of one that was just ended.
    pub(crate) fn take_again(&mut self, source: Option<Source>) -> Result<(), Excess> {
        self.gate.account.give_back(std::mem::take(&mut self.share));
        self.share = self.gate.account.take_again(source)?;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.account.give_back(self.share);
        self.gate.leave();
    }
}

/// Keeps the number of waiters right even when a wait is given up.
struct Waiting<'a>(&'a Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
