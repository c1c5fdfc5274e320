//! The claims of all Services: what each holds, gave up, or would get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_ipam::{Allocator, Restore};
use landfall_model::intent::{Claim, Intent};
use landfall_model::provider::{Applied, ProviderError, Published};
use landfall_model::rows::{Cooling, PoolRow, ResourceProblem};
use landfall_model::{ServiceKey, Uid};

use crate::decide::{Answer, Change, Part, decide, ipv4_first};
use crate::parts;
use crate::step::AddressStep;

/// Claims and pools. A clone is independent: a dry run works on one.
#[derive(Clone, Debug, Default)]
pub struct Addressing {
    pub(crate) allocator: Allocator,
    /// Claims of Services that another instance or none serves. They are reserved here.
    foreign: BTreeMap<Uid, Claim>,
    /// Those of them that name an address which a Service of this process holds.
    contested: BTreeMap<IpAddr, BTreeSet<Uid>>,
    /// Services whose record may name other addresses than they hold.
    unrecorded: BTreeSet<Uid>,
    /// Services that have, or had, several addresses of a family.
    several: BTreeSet<Uid>,
    /// Until when addresses that were given up are given to no other Service.
    cooling: BTreeMap<IpAddr, Instant>,
    /// Whether a source may hide pools.
    pub(crate) pools_incomplete: bool,
    /// The pools as they are configured.
    pub(crate) rows: Vec<Arc<PoolRow>>,
    /// What is wrong with those that are objects.
    pub(crate) pool_problems: Vec<ResourceProblem>,
}

/// What one Service holds, and what the allocator would assign to it.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// The addresses that it holds.
    pub held: Vec<IpAddr>,
    /// Addresses that it gave up and that stay reserved, because a record may still name them.
    pub leaving: Vec<IpAddr>,
    /// Whether its record may name other addresses than it holds.
    pub unrecorded: bool,
    /// The allocator's answer, for Services that want an address. Of several answers that which
    /// refuses, or else lacks, something.
    pub answer: Option<Answer>,
    /// What it holds once the claim has changed, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// How the claim changes.
    pub(crate) change: Change,
    /// Addresses that it shares with Services of other namespaces although their pool does not
    /// allow that any more.
    pub shared_by_exception: Vec<IpAddr>,
}

// === impl Addressing ===

impl Addressing {
    /// Returns what a Service holds, and what the allocator would assign to it.
    pub fn observe(&self, want: &Intent) -> Holdings {
        let uid = &want.uid;
        // Nothing of a Service that is not served here is released.
        let foreign = want.load_balancer.is_none() && self.foreign.contains_key(uid);
        let parts: Vec<Part> = self.parts(uid).map(|uid| self.part(uid)).collect();
        let held = parts.iter().flat_map(|part| part.held.iter().copied());
        let held = ipv4_first(held.filter(|_| !foreign));
        let spec = want.load_balancer.as_ref();
        let (answer, change, addresses) =
            match spec.map(|spec| decide(&self.allocator, want, spec, &parts)) {
                Some(verdict) => (Some(verdict.answer), verdict.change, verdict.addresses),
                None => (None, Change::default(), held.clone()),
            };
        Holdings {
            held,
            leaving: self.leaving(uid),
            unrecorded: self.unrecorded.contains(uid),
            answer,
            addresses,
            change,
            shared_by_exception: self
                .parts(uid)
                .flat_map(|part| self.allocator.shared_by_exception(&part))
                .collect(),
        }
    }

    fn part(&self, uid: Uid) -> Part {
        let claim = self.allocator.held(&uid);
        Part {
            held: claim.map_or_else(Vec::new, |claim| claim.addresses.iter().collect()),
            terms: claim.map(|claim| claim.claimant.terms.clone()),
            uid,
        }
    }

    /// The identities under which a Service may hold something.
    fn parts<'a>(&self, service: &'a Uid) -> impl Iterator<Item = Uid> + use<'a> {
        let several = self.several.contains(service);
        let most = if several { usize::MAX } else { 1 };
        parts::all(service).take(most)
    }

    /// The addresses that a Service gave up and that are still reserved.
    fn leaving(&self, service: &Uid) -> Vec<IpAddr> {
        let parts = self.parts(service);
        parts
            .flat_map(|part| self.allocator.leaving(&part))
            .collect()
    }

    fn holds(&self, service: &Uid) -> Vec<IpAddr> {
        let parts = self.parts(service).map(|uid| self.part(uid));
        parts.flat_map(|part| part.held).collect()
    }

    /// Lets addresses be given out again whose time is over.
    pub fn warm(&mut self, now: Instant) {
        for (address, _) in self.cooling.extract_if(.., |_, until| *until <= now) {
            self.allocator.warm(address);
        }
    }

    /// Returns when the next address can be given out again that a Service gave up.
    pub fn next_warm(&self) -> Option<Instant> {
        self.cooling.values().min().copied()
    }

    /// Returns the addresses that no other Service gets yet after one released them: until when,
    /// and the Service that had it.
    pub fn cooling(&self) -> impl Iterator<Item = (IpAddr, Instant, &ServiceKey)> {
        let cooling = self.cooling.iter();
        cooling.filter_map(|(address, until)| {
            let service = self.allocator.cooling(*address)?;
            Some((*address, *until, service))
        })
    }

    /// Returns what pools that are objects have on record of earlier processes, by name.
    pub fn recorded_cooling(&self) -> impl Iterator<Item = (&str, &Cooling)> {
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row.name.as_str(), &row.resource.as_ref()?.cooling)))
    }

    /// Returns the addresses that Services of this process have, in pools that keep released ones
    /// for a time.
    pub fn held_to_cool(&self) -> BTreeSet<IpAddr> {
        let keeps = |address: &IpAddr| self.cool_down_of(*address).is_some();
        if !self.rows.iter().any(|row| row.cool_down.is_some()) {
            return BTreeSet::new();
        }
        let taken = self.allocator.taken();
        let ours = taken.filter(|(uid, _)| !self.foreign.contains_key(&parts::service_of(uid)));
        ours.map(|(_, address)| address).filter(keeps).collect()
    }

    /// Returns for how long an address is kept from other Services once it is released.
    pub fn cool_down_of(&self, address: IpAddr) -> Option<Duration> {
        self.allocator.pool_of(address)?.cool_down()
    }

    /// Keeps an address from other Services until then, which a Service released before this
    /// process began. Returns whether it is kept: none holds it, and its pool still asks for that.
    pub fn restore_cooling(
        &mut self,
        address: IpAddr,
        service: ServiceKey,
        until: Instant,
    ) -> bool {
        let is_kept = self.allocator.cool(address, service);
        if is_kept {
            self.cooling.insert(address, until);
        }
        is_kept
    }

    /// The pool of an address.
    pub fn pool_of(&self, address: IpAddr) -> Option<&str> {
        let pool = self.allocator.pool_of(address)?;
        Some(pool.name().as_str())
    }

    /// Carries one step out, at a time.
    ///
    /// # Errors
    /// Another Service got the address since the plan was made.
    #[expect(
        clippy::result_large_err,
        reason = "what Provider::apply returns, once per step"
    )]
    pub fn apply(&mut self, step: &AddressStep, now: Instant) -> Result<Applied, ProviderError> {
        match step {
            AddressStep::Claim {
                uid,
                grant,
                publish,
                ..
            } => {
                self.change(uid, grant)?;
                Ok(if self.unrecorded.contains(uid) {
                    Applied::Addressed(publish.clone())
                } else {
                    Applied::Done
                })
            }
            AddressStep::Reduce {
                uid,
                parts,
                publish,
                ..
            } => {
                self.end(uid, parts);
                Ok(Applied::Addressed(publish.clone()))
            }
            AddressStep::Record { publish, .. } => Ok(Applied::Addressed(publish.clone())),
            AddressStep::Withdraw { uid, .. } => {
                self.withdraw(uid);
                Ok(Applied::Addressed(Published::default()))
            }
            AddressStep::Release { uid, addresses } => {
                self.release(uid, addresses, now);
                Ok(Applied::Done)
            }
        }
    }

    /// Changes a claim. What is added is taken back if one part of it can't be had any more.
    #[expect(clippy::result_large_err, reason = "as Self::apply")]
    fn change(&mut self, service: &Uid, change: &Change) -> Result<(), ProviderError> {
        let mut added = Vec::new();
        for (request, proposal) in &change.claims {
            let part = &request.claimant.uid;
            let before = self.part(part.clone()).held;
            if let Err(refusal) = self.allocator.claim(request, proposal) {
                // What a Service gave up before may be among it, so that it stays reserved.
                self.end(service, &added);
                return Err(ProviderError::outdated(refusal.reason()));
            }
            if part != service {
                self.several.insert(service.clone());
            }
            if self.part(part.clone()).held != before {
                self.unrecorded.insert(service.clone());
            }
            if before.is_empty() {
                added.push(part.clone());
            }
        }
        self.end(service, &change.ends);
        Ok(())
    }

    /// Ends parts of a claim. Their addresses stay reserved until that is on record.
    fn end(&mut self, service: &Uid, parts: &[Uid]) {
        for part in parts {
            self.allocator.retire(part);
            self.unrecorded.insert(service.clone());
        }
    }

    /// Restores claims from the record, before anything is assigned to another Service.
    pub fn restore_claims(&mut self, claims: &[Claim]) {
        let mut restored = Vec::new();
        for claim in claims {
            self.foreign.remove(&claim.uid);
            restored.extend(self.split(claim));
        }
        let refused = self.allocator.restore_all(restored);
        for (claimant, refusal) in refused {
            tracing::warn!(
                service = %claimant.service,
                %refusal,
                "a recorded address could not be restored"
            );
        }
    }

    /// Reserves a claim of a Service that is not served here, in place of the one before; `None`:
    /// it has ended.
    pub fn set_foreign_claim(&mut self, claimant: &Uid, claim: Option<&Claim>) {
        if self.foreign.remove(claimant).is_some() {
            let mut released = Vec::new();
            for part in self.parts(claimant) {
                let claim = self.allocator.release(&part);
                released.extend(claim.into_iter().flat_map(|it| it.addresses.iter()));
            }
            self.forget_parts(claimant);
            self.reserve_contested(&released);
        }
        if let Some(claim) = claim {
            self.foreign.insert(claimant.clone(), claim.clone());
            self.reserve_foreign(claimant);
        }
    }

    /// Reserves what such a Service claims. What a Service of this process holds stays its own
    /// until it gives it up.
    fn reserve_foreign(&mut self, claimant: &Uid) {
        let Some(claim) = self.foreign.get(claimant).cloned() else {
            return;
        };
        for part in self.split(&claim) {
            self.allocator.restore(&part);
        }
        let held = self.holds(claimant);
        let addresses = claim.addresses.iter().map(IpAddr::to_canonical);
        for address in addresses.filter(|address| !held.contains(address)) {
            let contested = self.contested.entry(address).or_default();
            contested.insert(claimant.clone());
        }
    }

    /// Splits a claim into its parts, and notes that there are several. Parts of a claim before
    /// that it does not have end.
    fn split(&mut self, claim: &Claim) -> Vec<Restore> {
        let parts = parts::split(claim);
        for part in self.parts(&claim.uid).skip(parts.len()) {
            self.allocator.release(&part);
        }
        if parts.len() > 1 {
            self.several.insert(claim.uid.clone());
        }
        parts
    }

    /// Reserves addresses that have been released for those that claimed them meanwhile.
    fn reserve_contested(&mut self, released: &[IpAddr]) {
        for address in released {
            for claimant in self.contested.remove(address).unwrap_or_default() {
                self.reserve_foreign(&claimant);
            }
        }
    }

    /// Notes that the record of a Service names what it holds.
    pub fn on_recorded(&mut self, service: &Uid) {
        self.unrecorded.remove(service);
        for part in self.parts(service) {
            self.allocator.on_recorded(&part);
        }
    }

    /// Notes that no record names what a Service gave up.
    pub fn on_forgotten(&mut self, service: &Uid, now: Instant) {
        if self.holds(service).is_empty() {
            self.unrecorded.remove(service);
            self.free(service, now);
        }
    }

    /// Forgets all claims. Those on record are restored next.
    pub fn forget_claims(&mut self) {
        self.allocator.forget_claims();
        self.cooling.clear();
        self.foreign.clear();
        self.contested.clear();
        self.unrecorded.clear();
        self.several.clear();
    }

    /// Ends the claim of a Service. Its addresses stay reserved until that is on record.
    fn withdraw(&mut self, service: &Uid) {
        if self.holds(service).is_empty() {
            return;
        }
        for part in self.parts(service) {
            self.allocator.retire(&part);
        }
        self.unrecorded.insert(service.clone());
    }

    /// Releases what a Service gave up, and its claim, if these are addresses of that. They stay
    /// reserved until no record names them.
    fn release(&mut self, service: &Uid, addresses: &[IpAddr], now: Instant) {
        let held = self.holds(service);
        if !held.is_empty() && held.iter().all(|it| addresses.contains(it)) {
            self.withdraw(service);
        }
        if !self.unrecorded.contains(service) {
            self.free(service, now);
        }
    }

    /// Frees what a Service gave up, at once or after the time that its pool says.
    fn free(&mut self, service: &Uid, now: Instant) {
        let left = self.leaving(service);
        for part in self.parts(service) {
            for (address, time) in self.allocator.free(&part) {
                // A time beyond what the clock can say does not end in this process.
                if let Some(until) = now.checked_add(time) {
                    self.cooling.insert(address, until);
                }
            }
        }
        self.forget_parts(service);
        self.reserve_contested(&left);
    }

    /// Notes that a Service has no further parts, if none of them has anything.
    fn forget_parts(&mut self, service: &Uid) {
        let allocator = &self.allocator;
        let is_empty =
            |part: Uid| allocator.held(&part).is_none() && allocator.leaving(&part).is_empty();
        if parts::all(service).skip(1).all(is_empty) {
            self.several.remove(service);
        }
    }
}

// === impl Holdings ===

impl Holdings {
    /// Returns whether nothing is left of what it gave up.
    pub(crate) fn is_cleared(&self) -> bool {
        self.leaving.is_empty() && !self.unrecorded
    }
}
