//! The provider itself: a lock around claims and resources.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use landfall_addressing::{AddressStep, Addressing, plan, plan_removal};
use landfall_metallb::{Config, Findings};
use landfall_model::Uid;
use landfall_model::dialect::metallb::ALLOCATED_FROM_POOL;
use landfall_model::intent::{Claim, Intent};
use landfall_model::limits::Limits;
use landfall_model::plan::Plan;
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, Target,
};
use landfall_model::reach::MemberRules;
use landfall_model::reason::Reason;
use landfall_model::rows::{PoolRow, ResourceKind, ResourceProblem, ResourceRow};
use landfall_model::status::HELD_ADDRESSES;
use landfall_model::view::PoolView;

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::cooling::{Ends, Now};
use crate::data_plane::DataPlane;
use crate::events::event_reason;
use crate::observed::{Announced, Observed};
use crate::status;
use crate::support::{by_kube_proxy, by_landfall};

/// The resources that it reads beside pools.
const RESOURCES: &[ResourceKind] = &[
    ResourceKind::L2Advertisement,
    ResourceKind::BgpAdvertisement,
    ResourceKind::Community,
    ResourceKind::BgpPeer,
    ResourceKind::BfdProfile,
];

/// Assigns addresses that speakers announce.
#[derive(Debug)]
pub struct Metal {
    state: Mutex<State>,
    data_plane: DataPlane,
    /// Notified whenever an address may have been given up.
    warming: Notify,
    profile: ProviderProfile,
}

/// Claims, and the resources in force. A clone is independent: a dry run works on one.
#[derive(Clone, Debug, Default)]
struct State {
    addressing: Addressing,
    /// As they were delivered last; they come into force together with the pools.
    resources: Vec<Arc<ResourceRow>>,
    config: Config,
    /// What is wrong with the resources.
    findings: Findings,
    /// The Services whose last plan was refused.
    refused: BTreeSet<Uid>,
    /// Until when released addresses are kept.
    ends: Ends,
}

// === impl Metal ===

impl Default for Metal {
    fn default() -> Self {
        Self::new(DataPlane::default())
    }
}

impl Metal {
    /// Creates a provider that holds no address yet.
    pub fn new(data_plane: DataPlane) -> Self {
        Self::with(data_plane, State::default())
    }

    /// The same, with rules about what may be an endpoint.
    #[must_use]
    pub fn allowing(mut self, members: MemberRules) -> Self {
        self.profile.members = members;
        self
    }

    /// The same, with limits on what one Service or one namespace may have.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.profile.limits = limits;
        self
    }

    /// Copies what is held now, for plans.
    #[must_use]
    pub fn sandbox(&self) -> Self {
        let copy = Self::with(self.data_plane, self.state().clone());
        copy.allowing(self.profile.members.clone())
            .within(self.profile.limits)
    }

    /// Lets addresses be given out again whose time is over. Returns the Services that wait.
    fn warm(&self, now: Instant) -> BTreeSet<Uid> {
        let mut state = self.state();
        state.addressing.warm(now);
        state.refused.clone()
    }

    fn with(data_plane: DataPlane, state: State) -> Self {
        let support = match data_plane {
            DataPlane::KubeProxy => by_kube_proxy,
            DataPlane::Landfall => by_landfall,
        };
        let profile = ProviderProfile {
            provider: "metal",
            target: Target::Pod,
            support,
            takes_pools: true,
            resources: RESOURCES,
            immediate: true,
            marks: &[HELD_ADDRESSES, ALLOCATED_FROM_POOL],
            event_reason,
            ..ProviderProfile::default()
        };
        Self {
            state: Mutex::new(state),
            data_plane,
            warming: Notify::new(),
            profile,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of tokio's clock, by which tests let it pass.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn both_clocks() -> Now {
    Now {
        instant: now(),
        wall: Timestamp::now(),
    }
}

/// Sends the Services that were refused an address whenever one can be given out again. Until
/// cancelled.
pub async fn watch_cooling(metal: Arc<Metal>, wakes: mpsc::Sender<Uid>, cancel: CancellationToken) {
    let next = async || {
        let due = metal.state().addressing.next_warm();
        match due {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    };
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            // Another one may be due earlier.
            () = metal.warming.notified() => continue,
            () = next() => {}
        }
        let refused = metal.warm(now());
        for service in refused {
            if wakes.send(service).await.is_err() {
                return;
            }
        }
    }
}

impl Provider for Metal {
    type Observed = Observed;
    type Step = AddressStep;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let mut state = self.state();
        state.addressing.warm(now());
        Ok(state.observe(want))
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<AddressStep>, Vec<Reason>> {
        let addresses = match &want.load_balancer {
            None => plan_removal(want, &have.addresses),
            Some(spec) => {
                let publish = |addresses: &[IpAddr]| {
                    status::published(spec, have, addresses, self.data_plane)
                };
                plan(want, &have.addresses, false, publish)?
            }
        };
        Ok(Plan {
            steps: addresses.around(Vec::new()),
            ..Plan::default()
        })
    }

    async fn apply(&self, step: &AddressStep) -> Result<Applied, ProviderError> {
        let applied = self.state().addressing.apply(step, now());
        self.warming.notify_one();
        applied
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        status::status(want, have, self.data_plane)
    }

    /// Names nothing: what it holds is in its own memory, and it has nothing outside of that.
    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(Vec::new())
    }

    fn restore_claims(&self, claims: &[Claim]) {
        let mut state = self.state();
        let State {
            addressing, ends, ..
        } = &mut *state;
        addressing.restore_claims(claims);
        ends.begin(addressing, both_clocks());
    }

    fn on_planned(&self, service: &Uid, refused: bool) {
        let mut state = self.state();
        if refused {
            state.refused.insert(service.clone());
        } else {
            state.refused.remove(service);
        }
    }

    fn on_recorded(&self, service: &Uid) {
        self.state().addressing.on_recorded(service);
    }

    fn on_forgotten(&self, service: &Uid) {
        self.state().addressing.on_forgotten(service, now());
        self.warming.notify_one();
    }

    fn set_foreign_claim(&self, claimant: &Uid, claim: Option<&Claim>) {
        let mut state = self.state();
        state.addressing.set_foreign_claim(claimant, claim);
    }

    fn invalidate_caches(&self, others_led: bool) {
        if others_led {
            self.state().forget_claims();
        }
    }

    async fn retire(&self) {
        self.state().forget_claims();
    }

    fn set_resources(&self, resources: &[Arc<ResourceRow>]) -> Vec<Reason> {
        // What is wrong with them depends on the pools, which follow.
        self.state().resources = resources.to_vec();
        Vec::new()
    }

    fn set_pools_incomplete(&self, incomplete: bool) {
        self.state().addressing.set_pools_incomplete(incomplete);
    }

    fn set_pools(&self, rows: &[Arc<PoolRow>]) -> Vec<Reason> {
        let mut state = self.state();
        // By the same rules, so that what is wrong with pools is among the findings.
        state.addressing.set_pools(rows);
        let State {
            addressing, ends, ..
        } = &mut *state;
        ends.restore(addressing, both_clocks());
        let (config, findings) = Config::build(rows, &state.resources, &state.config);
        let reasons = findings.reasons();
        (state.config, state.findings) = (config, findings);
        reasons
    }

    fn resource_problems(&self) -> Vec<ResourceProblem> {
        let state = self.state();
        let all = state.findings.iter().flat_map(|(object, reasons)| {
            reasons.iter().map(|reason| ResourceProblem {
                kind: object.kind,
                key: object.key.clone(),
                reason: reason.clone(),
            })
        });
        all.collect()
    }

    fn pools(&self) -> Vec<PoolView> {
        let mut state = self.state();
        let State {
            addressing, ends, ..
        } = &mut *state;
        let mut views = addressing.pools();
        ends.show(addressing, &mut views, both_clocks());
        views
    }
}

// === impl State ===

impl State {
    fn forget_claims(&mut self) {
        self.addressing.forget_claims();
        self.ends.forget();
    }

    fn observe(&self, want: &Intent) -> Observed {
        let addresses = self.addressing.observe(want);
        // Also of those that it would get: what is published with the claim is what holds then.
        let all = addresses.held.iter().chain(&addresses.addresses);
        let all: BTreeSet<IpAddr> = all.copied().collect();
        let announced = all.into_iter();
        let announced = announced
            .map(|address| self.announced(address, want))
            .collect();
        let config = &self.config;
        Observed {
            addresses,
            announced,
            has_advertisements: !config.l2_advertisements().is_empty()
                || !config.bgp_advertisements().is_empty(),
        }
    }

    fn announced(&self, address: IpAddr, want: &Intent) -> Announced {
        let config = &self.config;
        let spec = want.load_balancer.as_ref();
        let labels = spec.map(|spec| &spec.address.labels);
        let l2 = labels.map(|labels| config.l2_of(address, labels));
        let l2 = l2.unwrap_or_default();
        let bgp = labels.map(|labels| config.bgp_of(address, labels).len());
        let selects = |place: &usize| {
            let advertised = config.l2_advertisements().get(*place);
            advertised.is_some_and(|it| !it.advertisement.services.is_empty())
        };
        let pool = config.pools().pool_of(address);
        Announced {
            address,
            pool: pool.map(|pool| pool.name().to_string()),
            by_l2: l2.len(),
            by_bgp: bgp.unwrap_or_default(),
            l2_selects_services: l2.iter().any(selects),
        }
    }
}
