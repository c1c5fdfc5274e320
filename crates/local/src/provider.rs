//! The provider itself: the shell around planning, the allocator and the data plane.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use landfall_ipam::{Addresses, Pool, PoolSet, Restore};
use landfall_model::intent::{Claim, Intent};
use landfall_model::limits::Limits;
use landfall_model::listener::{Listener, Mode};
use landfall_model::option::OptionId;
use landfall_model::plan::Plan;
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, Published, Retry, Scope,
    Support, Target,
};
use landfall_model::reach::MemberRules;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::PoolRow;
use landfall_model::status::HELD_ADDRESSES;
use landfall_model::view::{ListenerView, PoolView};
use landfall_model::{ServiceKey, Uid};
use landfall_proxy::{ListenError, ListenerConfig, ListenerId, ListenerState, Owner, Proxy};
use tokio_util::task::TaskTracker;

use crate::failure::listen_failure;
use crate::plan::{Answer, Observed, Opened};
use crate::quota::Quota;
use crate::request::{claimant, request};
use crate::shortage::{Shared, Shortages};
use crate::state::State;
use crate::step::Step;
use crate::wakes::Members;
use crate::{live, plan, pools, standing};

/// Serves Services on this machine.
#[derive(Debug)]
pub struct Local {
    carrier: Carrier,
    /// Shared with changes of sockets that outlive the pass which began them.
    state: Arc<Mutex<State>>,
    pool_rows: Mutex<Vec<Arc<PoolRow>>>,
    /// The members of each Service as they were looked at last; none while steps change them.
    seen: Mutex<HashMap<Uid, Members>>,
    /// Of which Services clients are refused.
    shortages: Mutex<Shortages>,
    quota: Arc<Mutex<Quota>>,
    /// Changes of sockets under way. A pass that is broken off leaves its own to end by itself.
    changes: TaskTracker,
    profile: ProviderProfile,
}

/// What the data plane makes of each option.
fn support(option: OptionId) -> Support {
    match option {
        OptionId::ProtocolSctp => Support::Refused {
            why: "the data plane supports TCP and UDP only",
        },
        // A machine that has no member of its own would serve nothing.
        OptionId::ExternalTrafficPolicy => Support::LeftOut {
            why: "members on all nodes get traffic, and they see this machine's address instead of \
                  the client's",
            remedy: "members get the client's address by the PROXY protocol \
                     (landfall.dev/proxy-protocol) or by X-Forwarded-For; otherwise write Cluster",
        },
        OptionId::ExternalIps => Support::LeftOut {
            why: "no listener is opened on these addresses; kube-proxy on the nodes serves them",
            remedy: "request addresses with the annotation landfall.dev/addresses",
        },
        OptionId::TrafficDistribution => Support::Emulated {
            how: "members on all nodes and in all zones get traffic, by their weights",
        },
        OptionId::InternalTrafficPolicy => Support::Emulated {
            how: "it applies to traffic to the cluster IP, which nodes serve",
        },
        OptionId::Addresses
        | OptionId::AddressPool
        | OptionId::SharingKey
        | OptionId::Hostname
        | OptionId::Endpoints
        | OptionId::Algorithm
        | OptionId::Mode
        | OptionId::TlsSecret
        | OptionId::ForwardedHeaders
        | OptionId::TrustedHops
        | OptionId::MemberProtocol
        | OptionId::ProxyProtocol
        | OptionId::AcceptProxyProtocolFrom
        | OptionId::ConnectionLimit
        | OptionId::TimeoutClientData
        | OptionId::TimeoutMemberConnect
        | OptionId::TimeoutMemberData
        | OptionId::TimeoutTcpInspect
        | OptionId::Drain
        | OptionId::SourceRanges
        | OptionId::Monitor
        | OptionId::MonitorMethod
        | OptionId::MonitorPath
        | OptionId::MonitorCodes
        | OptionId::MonitorDelay
        | OptionId::MonitorTimeout
        | OptionId::MonitorMaxRetries
        | OptionId::MonitorMaxRetriesDown
        | OptionId::MonitorPort
        | OptionId::MemberWeights
        | OptionId::BackupMembers
        | OptionId::SourceConnectionLimit
        | OptionId::SourceConnectionRate
        | OptionId::SourceRequestRate
        | OptionId::MemberConnectionLimit
        | OptionId::MemberQueue
        | OptionId::MemberQueueTimeout
        | OptionId::SlowStart
        | OptionId::OutlierDetection
        | OptionId::RetryBudget
        | OptionId::TlsMinimumVersion
        | OptionId::TlsStrictNames
        | OptionId::HttpsRedirect
        | OptionId::MemberTls
        | OptionId::MemberCaSecret
        | OptionId::MemberServerName
        | OptionId::MemberClientSecret
        | OptionId::MonitorHost
        | OptionId::MonitorBody
        | OptionId::MonitorGrpcService
        | OptionId::SessionAffinity => Support::Supported,
    }
}

/// Who carries the traffic.
#[derive(Clone, Debug)]
enum Carrier {
    DataPlane(Arc<Proxy>),
    #[cfg(feature = "memory")]
    Memory(Arc<crate::memory::Memory>),
    /// Nobody: this is a dry run.
    Nobody,
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
        Self {
            quota: Arc::new(Mutex::new(quota)),
            ..Self::with(Carrier::DataPlane(proxy), state, Vec::new())
        }
    }

    /// A provider over a data plane that opens no sockets, for model tests.
    #[cfg(feature = "memory")]
    pub fn in_memory(memory: Arc<crate::memory::Memory>) -> Self {
        Self::with(Carrier::Memory(memory), State::default(), Vec::new())
    }

    /// A provider that holds nothing and carries nothing, for plans from nothing.
    pub fn offline() -> Self {
        Self::with(Carrier::Nobody, State::default(), Vec::new())
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
        self.quota().limit(limits.ports_per_namespace);
        self
    }

    fn quota(&self) -> MutexGuard<'_, Quota> {
        locked(&self.quota)
    }

    /// A copy of what is held now that changes nothing outside itself, for plans.
    #[must_use]
    pub fn sandbox(&self) -> Self {
        let quota = Arc::new(Mutex::new(self.quota().clone()));
        let copy = Self {
            quota,
            ..Self::with(
                Carrier::Nobody,
                self.state().clone(),
                self.pool_rows().clone(),
            )
        };
        copy.allowing(self.profile.members.clone())
            .within(self.profile.limits)
    }

    fn with(carrier: Carrier, state: State, pool_rows: Vec<Arc<PoolRow>>) -> Self {
        let profile = ProviderProfile {
            provider: "local",
            target: Target::Pod,
            support,
            takes_pools: true,
            immediate: true,
            marks: &[HELD_ADDRESSES],
            ..ProviderProfile::default()
        };
        Self {
            carrier,
            state: Arc::new(Mutex::new(state)),
            pool_rows: Mutex::new(pool_rows),
            seen: Mutex::default(),
            shortages: Mutex::default(),
            quota: Arc::default(),
            changes: TaskTracker::new(),
            profile,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, HashMap<Uid, Members>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn pool_rows(&self) -> MutexGuard<'_, Vec<Arc<PoolRow>>> {
        self.pool_rows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

    /// The data plane, if it has one.
    pub fn proxy(&self) -> Option<&Arc<Proxy>> {
        match &self.carrier {
            Carrier::DataPlane(proxy) => Some(proxy),
            #[cfg(feature = "memory")]
            Carrier::Memory(_) => None,
            Carrier::Nobody => None,
        }
    }

    /// Opens a listener or changes it in place.
    async fn serve(
        &self,
        uid: &Uid,
        service: &ServiceKey,
        id: ListenerId,
        listener: &Arc<Listener>,
    ) -> Result<Applied, ProviderError> {
        let owner = Owner {
            uid: uid.clone(),
            service: service.clone(),
        };
        let taken = self.quota().take(id, service);
        let is_new = match taken {
            Ok(is_new) => is_new,
            Err(reason) => {
                let problem = Some(Reason::clone(&reason));
                self.state().note(uid, id, listener.clone(), problem);
                return Err(ProviderError {
                    reason: *reason,
                    retry: Retry::Backoff,
                    scope: Scope::Step,
                });
            }
        };
        let Err(error) = self.carry(id, &owner, listener, is_new, None).await else {
            return Ok(Applied::Done);
        };
        let failure = listen_failure(&error);
        let opened = self.listeners(&self.state(), uid).remove(&id);
        let Some(serving) = opened.filter(|it| it.problem.is_none()) else {
            let problem = Some(failure.reason.clone());
            self.state().note(uid, id, listener.clone(), problem);
            return Err(failure);
        };
        // A listener that serves goes on with what it had.
        if matches!(error, ListenError::Certificate { .. }) {
            let kept = Arc::new(with_mode_of(&serving.listener, listener));
            let refused = Some((listener.clone(), failure.reason.clone()));
            if self.carry(id, &owner, &kept, false, refused).await.is_ok() {
                return Err(ProviderError {
                    retry: Retry::Now,
                    ..failure
                });
            }
        }
        Err(failure)
    }

    /// Lets a listener serve in this way, and notes that it does. `is_new`: its place was taken for
    /// this, and is given back if it fails; `refused`: in place of a newer version, and why.
    async fn carry(
        &self,
        id: ListenerId,
        owner: &Owner,
        listener: &Arc<Listener>,
        is_new: bool,
        refused: Option<(Arc<Listener>, Reason)>,
    ) -> Result<(), ListenError> {
        let quota = self.quota.clone();
        let give_back = move |_: &ListenError| {
            if is_new {
                locked(&quota).closed(id);
            }
        };
        let note = {
            let (uid, listener) = (owner.uid.clone(), listener.clone());
            move |state: &mut State| match refused {
                Some(refused) => state.note_refused(&uid, id, listener, refused),
                None => state.note(&uid, id, listener, None),
            }
        };
        match &self.carrier {
            Carrier::DataPlane(proxy) => {
                let (proxy, owner, listener) = (proxy.clone(), owner.clone(), listener.clone());
                let (state, quota) = (self.state.clone(), self.quota.clone());
                // A pass may be broken off at any moment, and a change of sockets must not be: it
                // is a task of its own, which ends by itself within moments. So does the note of
                // it: what is open and not noted would never be closed.
                let change = async move {
                    let applied = proxy.apply(id, &owner, &listener).await;
                    applied.inspect_err(give_back)?;
                    let mut state = locked(&state);
                    // It may have passed to another Service meanwhile.
                    if proxy.find(id).is_some_and(|it| it.owner().uid == owner.uid) {
                        locked(&quota).opened(id, &owner.service);
                        note(&mut state);
                    }
                    Ok(())
                };
                let changed = self.changes.spawn(change).await;
                changed.unwrap_or(Err(ListenError::ShuttingDown { id }))
            }
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => {
                ListenerConfig::new(id, listener).inspect_err(give_back)?;
                memory.open(id, owner);
                self.quota().opened(id, &owner.service);
                note(&mut self.state());
                Ok(())
            }
            Carrier::Nobody => {
                ListenerConfig::new(id, listener).inspect_err(give_back)?;
                self.quota().opened(id, &owner.service);
                note(&mut self.state());
                Ok(())
            }
        }
    }

    async fn close(&self, id: ListenerId, owner: &Uid) {
        match &self.carrier {
            Carrier::DataPlane(proxy) => {
                let (proxy, owner) = (proxy.clone(), owner.clone());
                // As above.
                let closing = self
                    .changes
                    .spawn(async move { proxy.close(id, &owner).await });
                let _closed = closing.await;
            }
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => memory.close(id, owner),
            Carrier::Nobody => {}
        }
    }

    /// Whether the data plane has this listener, and for this Service.
    fn carries(&self, service: &Uid, id: ListenerId) -> bool {
        match &self.carrier {
            Carrier::DataPlane(_) => self.find(service, id).is_some(),
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => memory.owner(id).as_ref() == Some(service),
            Carrier::Nobody => true,
        }
    }

    /// A listener of a Service, live.
    pub(crate) fn find(&self, service: &Uid, id: ListenerId) -> Option<Arc<ListenerState>> {
        let listener = self.proxy()?.find(id)?;
        (listener.owner().uid == *service).then_some(listener)
    }

    /// The listeners of a Service as they are noted, except that one which the data plane does not
    /// have for it does not serve.
    fn listeners(&self, state: &State, service: &Uid) -> BTreeMap<ListenerId, Opened> {
        let mut listeners = state.listeners(service);
        for (id, opened) in &mut listeners {
            if opened.problem.is_none() && !self.carries(service, *id) {
                let message = format!("{id} is not open any more");
                opened.problem = Some(Reason::warning(Code::ListenFailed, message));
            }
        }
        listeners
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The newest version with the certificates of the one that serves (or its whole mode, where that
/// one has none): its members and options must not wait for a certificate.
fn with_mode_of(serving: &Listener, newest: &Listener) -> Listener {
    let mut kept = newest.clone();
    kept.mode = serving.mode.clone();
    kept.pool.tls.clone_from(&serving.pool.tls);
    match (&mut kept.mode, &newest.mode) {
        (Mode::Https { http, .. }, Mode::Https { http: wanted, .. }) => *http = *wanted,
        (Mode::Stream | Mode::Tls { .. } | Mode::Http(_) | Mode::Https { .. }, _) => {}
    }
    kept
}

impl Provider for Local {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let question = want.load_balancer.as_ref().map(|spec| request(want, spec));
        let members = live::members(self, &want.uid);
        self.seen().insert(want.uid.clone(), members.clone());
        let state = self.state();
        let held = state.allocator.held(&want.uid);
        // Of a Service that nobody here serves, nothing is to be given back.
        let foreign = want.load_balancer.is_none() && state.reserved.contains(&want.uid);
        let addresses: Vec<IpAddr> = held
            .filter(|_| !foreign)
            .map(|claim| claim.addresses.iter().collect())
            .unwrap_or_default();
        let terms = held.map(|claim| claim.claimant.terms.clone());
        let answer = question.map(|question| match question {
            Ok(request) => Answer {
                outcome: state.allocator.propose(&request),
                retold: terms.is_some_and(|terms| terms != request.claimant.terms),
                request: Some(request),
            },
            Err(refusal) => Answer {
                request: None,
                outcome: Err(refusal),
                retold: false,
            },
        });
        Ok(Observed {
            held: addresses,
            answer,
            listeners: self.listeners(&state, &want.uid),
            leaving: state.allocator.leaving(&want.uid),
            unrecorded: state.is_unrecorded(&want.uid),
            shared_by_exception: state.allocator.shared_by_exception(&want.uid),
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
        // The reconcile looks at the members when all steps are done.
        self.seen().remove(step.service());
        match step {
            Step::Claim { grant, publish, .. } => {
                let (request, proposal) = &**grant;
                let claimed = self.state().claim(request, proposal);
                match claimed {
                    Ok(true) => Ok(Applied::Addressed(publish.clone())),
                    Ok(false) => Ok(Applied::Done),
                    // Another Service took it since the plan was made: look again.
                    Err(refusal) => Err(ProviderError::outdated(refusal.reason())),
                }
            }
            Step::Record { publish, .. } => Ok(Applied::Addressed(publish.clone())),
            Step::Withdraw { uid, .. } => {
                self.state().withdraw(uid);
                Ok(Applied::Addressed(Published::default()))
            }
            Step::Open {
                uid,
                service,
                id,
                listener,
            }
            | Step::Change {
                uid,
                service,
                id,
                listener,
                ..
            } => self.serve(uid, service, *id, listener).await,
            Step::Close { uid, id } => {
                if self.carries(uid, *id) {
                    self.quota().closed(*id);
                }
                self.close(*id, uid).await;
                self.state().forget(uid, *id);
                Ok(Applied::Done)
            }
            Step::Release { uid, addresses } => {
                self.state().release(uid, addresses);
                Ok(Applied::Done)
            }
        }
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        standing::standing(want, have)
    }

    /// Names the Services whose listener the data plane does not have, or has for another Service.
    /// Listeners that failed to open are retried by their Services.
    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        self.quota().look_over();
        let state = self.state();
        for (uid, id, _) in state.all() {
            if let Some(listener) = self.find(uid, *id) {
                listener.pool().forget_failures(Instant::now());
            }
        }
        let mut lost: Vec<Uid> = state
            .all()
            .filter(|(uid, id, opened)| opened.problem.is_none() && !self.carries(uid, **id))
            .map(|(uid, _, _)| uid.clone())
            .collect();
        lost.dedup();
        Ok(lost)
    }

    fn restore_claims(&self, claims: &[Claim]) {
        let refused = {
            let mut state = self.state();
            for claim in claims {
                state.reserved.remove(&claim.uid);
            }
            state
                .allocator
                .restore_all(claims.iter().map(restore).collect())
        };
        for (claimant, refusal) in refused {
            tracing::warn!(
                service = %claimant.service,
                %refusal,
                "a recorded address could not be restored"
            );
        }
    }

    fn reserve_listeners(&self, claims: &[Claim]) {
        let mut quota = self.quota();
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
        self.state().recorded(service);
    }

    fn on_forgotten(&self, service: &Uid) {
        self.state().forgotten(service);
    }

    fn set_foreign_claims(&self, claims: &[Claim]) {
        let mut state = self.state();
        let claimed: BTreeSet<Uid> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let before = std::mem::replace(&mut state.reserved, claimed);
        for uid in before.difference(&state.reserved.clone()) {
            state.allocator.release(uid);
        }
        // What a Service of ours holds, too, it goes on holding.
        state
            .allocator
            .restore_all(claims.iter().map(restore).collect());
    }

    fn set_pools_incomplete(&self, incomplete: bool) {
        self.state().pools_in_doubt = incomplete;
    }

    fn invalidate_caches(&self, others_led: bool) {
        if others_led {
            self.state().forget_claims();
        }
    }

    async fn retire(&self) {
        // No pass runs any more, and a change that outlived its own must not open anything later.
        self.changes.close();
        self.changes.wait().await;
        self.changes.reopen();
        self.state().forget_everything();
        self.quota().clear();
        if let Some(proxy) = self.proxy() {
            proxy.close_all().await;
        }
    }

    fn set_pools(&self, rows: &[Arc<PoolRow>]) -> Vec<Reason> {
        let mut problems = Vec::new();
        let mut candidates = Vec::new();
        for row in rows {
            match Pool::parse(&pools::spec(row)) {
                Ok(pool) => candidates.push(pool),
                Err(errors) => problems.extend(errors.iter().map(|error| {
                    let origin = row.source.as_ref().map(|source| source.origin_of("spec"));
                    Reason::error(Code::InvalidPool, error.to_string())
                        .remedy(error.remedy())
                        .origin(origin)
                })),
            }
        }
        let mut state = self.state();
        // A pool that can't be read any more stays as it was: nobody loses an address to a typo.
        for row in rows {
            let established = state
                .allocator
                .pools()
                .iter()
                .find(|it| it.name().as_str() == row.name);
            if let Some(pool) = established
                && !candidates.iter().any(|it| it.name() == pool.name())
            {
                candidates.push(pool.clone());
            }
        }
        let (set, collisions) = PoolSet::keep_good(candidates, state.allocator.pools());
        problems.extend(collisions.iter().map(|error| {
            Reason::error(Code::InvalidPool, error.to_string()).remedy(error.remedy())
        }));
        state.allocator.set_pools(set);
        // A pool that is written wrongly, and was not known before, is one that is missing.
        let in_doubt = state.pools_in_doubt || !problems.is_empty();
        state.allocator.doubt(in_doubt);
        drop(state);
        *self.pool_rows() = rows.to_vec();
        problems
    }

    fn live(&self, service: &Uid) -> Vec<ListenerView> {
        live::listeners(self, service)
    }

    fn pools(&self) -> Vec<PoolView> {
        let rows = self.pool_rows().clone();
        let counters = self.state().allocator.counters();
        let view = |counters: &landfall_ipam::Counters| {
            let name = counters.pool.to_string();
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            PoolView {
                addresses: rows
                    .iter()
                    .find(|row| row.name == name)
                    .map(|row| row.addresses.clone())
                    .unwrap_or_default(),
                assigned_ipv4: count(counters.assigned_ipv4),
                available_ipv4: count(counters.available_ipv4),
                assigned_ipv6: count(counters.assigned_ipv6),
                available_ipv6: count(counters.available_ipv6),
                limit_ipv4: counters.limit_ipv4.map(count),
                limit_ipv6: counters.limit_ipv6.map(count),
                largest_ipv4: count(counters.largest_ipv4),
                largest_ipv6: count(counters.largest_ipv6),
                name,
            }
        };
        counters.iter().map(view).collect()
    }
}

/// What is on record of a Service, as the allocator takes it.
fn restore(claim: &Claim) -> Restore {
    let mut requested = Addresses::NONE;
    for address in &claim.requested {
        requested.insert(*address);
    }
    Restore {
        claimant: Arc::new(claimant(claim)),
        addresses: claim.addresses.clone(),
        pool: None,
        requested,
    }
}
