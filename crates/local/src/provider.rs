//! The provider itself: the shell around planning, the allocator and the data plane.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use landfall_model::Uid;
use landfall_model::intent::{Claim, Intent};
use landfall_model::limits::Limits;
use landfall_model::listener::Listener;
use landfall_model::plan::Plan;
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, Target,
};
use landfall_model::reach::MemberRules;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{PoolRow, ResourceProblem};
use landfall_model::status::HELD_ADDRESSES;
use landfall_model::view::{ListenerView, PoolView};
use landfall_proxy::changes::Subscription;
use landfall_proxy::{ListenerId, Proxy};

use crate::carrier::{Carrier, Listeners, OpenAddresses};
use crate::live::{self, Members};
use crate::observed::Observed;
use crate::plan;
use crate::quota::Quota;
use crate::shortage::{Shared, Shortages};
use crate::state::State;
use crate::status;
use crate::step::Step;
use crate::support::support;

/// In so many parts it is kept what was seen of Services.
const SEEN_PARTS: usize = 16;

/// Serves Services on this machine.
#[derive(Debug)]
pub struct Local {
    pub(crate) listeners: Listeners,
    /// The members of each Service as they were seen last; none since a step changed them. Locked
    /// while members are read, so that what was read first does not replace what was read last:
    /// each part for the Services whose hash leads there, so that others need not wait.
    seen: [Mutex<HashMap<Uid, Members>>; SEEN_PARTS],
    hasher: RandomState,
    /// The Services that the data plane changes from the beginning on.
    changes: Option<Subscription>,
    /// Of which Services clients are refused.
    shortages: Mutex<Shortages>,
    profile: ProviderProfile,
}

// === impl Local ===

impl Local {
    /// A provider whose traffic goes through this data plane. It holds no address yet; listeners
    /// that an earlier provider of this process left open are its own, to be changed or closed.
    pub fn new(proxy: Arc<Proxy>) -> Self {
        let (mut state, mut quota) = (State::default(), Quota::default());
        for (id, owner) in proxy.owners() {
            quota.opened(id, &owner.service);
            let listener = Arc::new(Listener::new(id.key.protocol, id.key.port));
            let message = format!("{id} is still open, and was not checked since the take-over");
            let problem = Some(Reason::warning(Code::ListenFailed, message));
            state.note(&owner.uid, id, listener, problem);
        }
        Self::with(Listeners::new(Carrier::DataPlane(proxy), state, quota))
    }

    /// A provider over a data plane that opens no sockets, for model tests.
    #[cfg(feature = "memory")]
    pub fn in_memory(memory: Arc<crate::memory::Memory>) -> Self {
        Self::with(Listeners::new(
            Carrier::Memory(memory),
            State::default(),
            Quota::default(),
        ))
    }

    /// A provider that holds nothing and carries nothing, for plans from nothing.
    pub fn offline() -> Self {
        Self::with(Listeners::new(
            Carrier::Nothing,
            State::default(),
            Quota::default(),
        ))
    }

    /// The same, with rules about what may be a member.
    #[must_use]
    pub fn allowing(mut self, members: MemberRules) -> Self {
        self.profile.members = members;
        self
    }

    /// The same, with limits on what one Service or one namespace may have.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.profile.limits = limits;
        self.listeners.quota().limit(limits.ports_per_namespace);
        self
    }

    /// A copy of what is held now that changes nothing outside itself, for plans.
    #[must_use]
    pub fn sandbox(&self) -> Self {
        let (state, quota) = (self.state().clone(), self.listeners.quota().clone());
        let copy = Self::with(Listeners::new(Carrier::Nothing, state, quota));
        copy.allowing(self.profile.members.clone())
            .within(self.profile.limits)
    }

    fn with(listeners: Listeners) -> Self {
        let profile = ProviderProfile {
            provider: "local",
            target: Target::Pod,
            support,
            takes_pools: true,
            immediate: true,
            marks: &[HELD_ADDRESSES],
            ..ProviderProfile::default()
        };
        let proxy = listeners.proxy();
        let changes = proxy.map(|proxy| proxy.changes().subscribe());
        Self {
            listeners,
            seen: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            changes,
            shortages: Mutex::default(),
            profile,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.listeners.state()
    }

    fn seen(&self, service: &Uid) -> MutexGuard<'_, HashMap<Uid, Members>> {
        let [first, ..] = &self.seen;
        let place = self.hasher.hash_one(service) % SEEN_PARTS as u64;
        let part = usize::try_from(place).ok().and_then(|at| self.seen.get(at));
        let part = part.unwrap_or(first);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the members of a Service, and whether they are not as they were seen last.
    pub(crate) fn look(&self, service: &Uid) -> (Members, bool) {
        let mut seen = self.seen(service);
        let members = live::members(&self.listeners, service);
        let turned = note(&mut seen, service, &members);
        (members, turned)
    }

    /// The Services that the data plane changes, if there is one.
    pub(crate) fn changes(&self) -> Option<Subscription> {
        self.changes.clone()
    }

    pub(crate) fn shortages(&self) -> MutexGuard<'_, Shortages> {
        self.shortages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What all Services share of the data plane.
    fn shared(&self) -> Option<Shared> {
        let pressure = self.proxy()?.pressure();
        Some(Shared {
            descriptors: pressure.division.traffic,
            flows: pressure.flow_limit,
        })
    }

    /// What is wrong with the data plane as a whole.
    pub fn problem(&self) -> Option<Reason> {
        let pressure = self.proxy()?.pressure();
        pressure.overloaded.then(|| {
            let message = format!(
                "connections use {} of {} file descriptors and {} of {} MiB of buffer memory, and \
                 {} of {} UDP flows are open: what exceeds the share of its Service or client is \
                 refused",
                pressure.used,
                pressure.limit,
                pressure.memory >> 20,
                pressure.memory_limit >> 20,
                pressure.flows,
                pressure.flow_limit
            );
            Reason::warning(Code::Overloaded, message)
        })
    }

    /// Where it has listeners, followed by what is returned.
    pub fn addresses(&self) -> OpenAddresses {
        self.listeners.addresses()
    }

    /// The data plane, if it has one.
    pub fn proxy(&self) -> Option<&Arc<Proxy>> {
        self.listeners.proxy()
    }
}

impl Provider for Local {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let members = self.look(&want.uid).0;
        let mut state = self.state();
        state.addressing.warm(Instant::now());
        Ok(Observed {
            addresses: state.addressing.observe(want),
            listeners: self.listeners.observed(&state, &want.uid),
            short_of: self
                .shortages()
                .has(&want.uid)
                .then(|| self.shared())
                .flatten(),
            members,
        })
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        plan::plan(want, have)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        // The reconcile reads the members when all steps are done. If it does not get there, the
        // next change of them is news.
        self.seen(step.service()).remove(step.service());
        match step {
            Step::Address(step) => self.state().addressing.apply(step, Instant::now()),
            step => self.listeners.apply(step).await,
        }
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        status::status(want, have)
    }

    /// Names the Services whose listener the data plane does not have, or has for another Service.
    /// Listeners that failed to open are retried by their Services.
    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        self.listeners.quota().look_over();
        let state = self.state();
        for (uid, id, _) in state.all() {
            if let Some(listener) = self.listeners.find(uid, *id) {
                listener.pool().forget_failures(Instant::now());
            }
        }
        let mut lost: Vec<Uid> = state
            .all()
            .filter(|(uid, id, opened)| {
                opened.problem.is_none() && !self.listeners.carries(uid, **id)
            })
            .map(|(uid, _, _)| uid.clone())
            .collect();
        lost.sort_unstable();
        lost.dedup();
        Ok(lost)
    }

    fn restore_claims(&self, claims: &[Claim]) {
        self.state().addressing.restore_claims(claims);
    }

    fn reserve_listeners(&self, claims: &[Claim]) {
        let mut quota = self.listeners.quota();
        for claim in claims {
            for address in &claim.addresses {
                for key in &claim.ports {
                    let (address, key) = (*address, *key);
                    quota.keep(ListenerId { address, key }, &claim.service);
                }
            }
        }
    }

    fn on_recorded(&self, service: &Uid) {
        self.state().addressing.on_recorded(service);
    }

    fn on_forgotten(&self, service: &Uid) {
        self.state()
            .addressing
            .on_forgotten(service, Instant::now());
    }

    fn set_foreign_claim(&self, claimant: &Uid, claim: Option<&Claim>) {
        let mut state = self.state();
        state.addressing.set_foreign_claim(claimant, claim);
    }

    fn set_pools_incomplete(&self, incomplete: bool) {
        self.state().addressing.set_pools_incomplete(incomplete);
    }

    fn invalidate_caches(&self, others_led: bool) {
        if others_led {
            self.state().addressing.forget_claims();
        }
    }

    async fn retire(&self) {
        self.listeners.close_all().await;
    }

    fn set_pools(&self, rows: &[Arc<PoolRow>]) -> Vec<Reason> {
        self.state().addressing.set_pools(rows)
    }

    fn resource_problems(&self) -> Vec<ResourceProblem> {
        self.state().addressing.pool_problems()
    }

    fn live(&self, service: &Uid) -> Vec<ListenerView> {
        live::listeners(&self.listeners, service)
    }

    fn pools(&self) -> Vec<PoolView> {
        self.state().addressing.pools()
    }
}

/// Notes the members of a Service; returns whether they are not as they were seen last.
fn note(seen: &mut HashMap<Uid, Members>, service: &Uid, members: &Members) -> bool {
    if members.is_empty() {
        seen.remove(service);
        return false;
    }
    let before = seen.insert(service.clone(), members.clone());
    before.as_ref() != Some(members)
}

#[cfg(test)]
mod tests {
    use landfall_model::listener::{ListenerKey, Protocol};
    use landfall_proxy::pool::Reach;

    use super::*;

    fn members(healthy: usize) -> Members {
        let key = ListenerKey {
            protocol: Protocol::Tcp,
            port: 80.try_into().unwrap(),
        };
        let counts = Reach {
            serving: healthy,
            total: 3,
            failure: None,
        };
        Members::from([(key, counts)])
    }

    #[test]
    fn members_are_news_once() {
        let (mut seen, web) = (HashMap::new(), Uid::new("web"));
        assert!(note(&mut seen, &web, &members(3)), "never seen");
        assert!(!note(&mut seen, &web, &members(3)));
        assert!(note(&mut seen, &web, &members(2)));
        assert!(!note(&mut seen, &web, &members(2)));
    }

    #[test]
    fn a_service_without_listeners_is_forgotten() {
        let web = Uid::new("web");
        let mut seen = HashMap::from([(web.clone(), members(3))]);
        assert!(!note(&mut seen, &web, &Members::new()));
        assert!(seen.is_empty());
    }
}
