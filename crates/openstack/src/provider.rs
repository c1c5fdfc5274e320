//! The provider: the shell around planning and the client.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use landfall_model::plan::Plan;
use landfall_model::provider::{Applied, Capabilities, Provider, ProviderError, Standing};
use landfall_model::view::ListenerView;
use landfall_model::{Intent, Reason, Uid};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ApiError, Cloud};
use crate::errors::failure;
use crate::listed::Listed;
use crate::live::Shown;
use crate::memory::Memory;
use crate::names::{UID_PREFIX, service_of};
use crate::objects::{
    FloatingIp, Listener, LoadBalancer, Monitor, Network, Pool, Port, Provisioning,
    SecurityGroup,
};
use crate::observed::{Found, Observed};
use crate::settings::Settings;
use crate::step::Step;
use crate::{drift, plan, standing};

/// Load balancers of Octavia.
#[derive(Debug)]
pub struct OpenStack {
    pub(crate) cloud: Cloud,
    pub(crate) settings: Settings,
    pub(crate) lists: Lists,
    memory: Mutex<Memory>,
    shown: Shown,
    wakes: OnceLock<mpsc::Sender<Uid>>,
    /// The group that all nodes share is made by one pass at a time.
    pub(crate) group_making: tokio::sync::Mutex<()>,
    /// One subnet is read at a time.
    pub(crate) subnet_reading: tokio::sync::Mutex<()>,
    capabilities: Capabilities,
}

/// Lists of everything in the project.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) roster: Listed<(LoadBalancer, Instant)>,
    pub(crate) listeners: Listed<Listener>,
    pub(crate) pools: Listed<Pool>,
    pub(crate) monitors: Listed<Monitor>,
    pub(crate) floating_ips: Listed<FloatingIp>,
    pub(crate) networks: Listed<Network>,
    pub(crate) groups: Listed<SecurityGroup>,
    pub(crate) ports: Listed<Port>,
}

/// From one look at busy load balancers to the next: at least, and at most.
const PACE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// So few busy load balancers are looked at as often as may be.
const FEW_BUSY: usize = 3;

// === impl OpenStack ===

impl OpenStack {
    /// A provider that knows nothing of the cloud yet.
    pub fn new(cloud: Cloud, settings: Settings) -> Self {
        Self {
            capabilities: settings.capabilities(),
            cloud,
            settings,
            lists: Lists::default(),
            memory: Mutex::default(),
            shown: Shown::default(),
            wakes: OnceLock::new(),
            group_making: tokio::sync::Mutex::default(),
            subnet_reading: tokio::sync::Mutex::default(),
        }
    }

    /// The client, for commands that look at the cloud beside the engine.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// What the operator has configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whom to tell of Services that must be looked at because of what became of another one: the
    /// `wakes` of `landfall_engine::Engine::run`. It is set once; without it they follow at the
    /// next audit.
    pub fn wake_through(&self, wakes: mpsc::Sender<Uid>) {
        let _ = self.wakes.set(wakes);
    }

    /// Has a Service looked at soon. An engine that is too busy to be told sees it at the next
    /// audit.
    pub(crate) fn wake(&self, service: Uid) {
        if let Some(wakes) = self.wakes.get()
            && let Err(error) = wakes.try_send(service)
        {
            tracing::debug!(%error, "a Service can't be queued");
        }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From one look at busy load balancers to the next.
    pub(crate) fn pace(&self) -> Duration {
        self.pace_with(&self.memory())
    }

    pub(crate) fn pace_with(&self, memory: &Memory) -> Duration {
        let _ = self;
        let busy = memory.balancers.values().filter(|it| it.dirty.is_some());
        if busy.count() <= FEW_BUSY {
            return PACE.0;
        }
        memory.settle.clamp(PACE.0, PACE.1)
    }

    /// All load balancers of the project as they were at `since` or later, each with when it was
    /// asked for.
    pub(crate) async fn rows(
        &self,
        since: Instant,
    ) -> Result<Arc<Vec<(LoadBalancer, Instant)>>, ApiError> {
        self.lists
            .roster
            .since(since, async || {
                let at = Instant::now();
                let all = self.cloud.load_balancers().await?;
                Ok(all.into_iter().map(|it| (it, at)).collect())
            })
            .await
    }

    /// All load balancers of the project as they were at `since` or later, and when they were asked
    /// for.
    pub(crate) async fn roster(
        &self,
        since: Instant,
    ) -> Result<(Vec<LoadBalancer>, Instant), ApiError> {
        let list = self.rows(since).await?;
        let at = list.first().map_or(since, |(_, at)| *at);
        Ok((list.iter().map(|(it, _)| it.clone()).collect(), at))
    }

    /// One look at everything: which Services' objects are not as they were left.
    async fn differences(&self) -> Result<Vec<Uid>, ApiError> {
        let now = Instant::now();
        let (roster, at) = self.roster(now).await?;
        let listeners = self
            .lists
            .listeners
            .since(now, async || self.cloud.listeners(None).await)
            .await?;
        let pools = self
            .lists
            .pools
            .since(now, async || self.cloud.pools(None).await)
            .await?;
        let mut changed = Vec::new();
        {
            let mut memory = self.memory();
            let failed = |status: Provisioning| status == Provisioning::Error;
            let mut broken: Vec<_> = listeners
                .iter()
                .filter(|it| failed(it.provisioning_status))
                .flat_map(|it| &it.loadbalancers)
                .collect();
            let failed = pools.iter().filter(|it| failed(it.provisioning_status));
            broken.extend(failed.flat_map(|it| &it.loadbalancers));
            for row in &roster {
                if memory.balancers.contains_key(&row.id) {
                    memory.seen(row, at);
                }
            }
            let mut of: Vec<(Uid, crate::objects::Id)> = memory
                .of
                .iter()
                .map(|(uid, id)| (uid.clone(), id.clone()))
                .collect();
            of.sort();
            for (uid, id) in of {
                let row = roster.iter().find(|it| it.id == id);
                let known = memory.balancers.get(&id);
                let token = known.and_then(|known| known.token.clone());
                let sketched = memory.sketches.get(&uid).and_then(|it| it.token.clone());
                let child_failed = broken.iter().any(|it| it.id == id);
                let same = row.is_some_and(|row| {
                    row.provisioning_status == Provisioning::Active
                        && row.updated_at.is_some()
                        && (token == row.updated_at || sketched == row.updated_at)
                });
                let tag = format!("{UID_PREFIX}{uid}");
                let repeated = roster
                    .iter()
                    .any(|row| row.id != id && row.tags.contains(&tag));
                // The time of its last change does not tell of everything.
                let listed = drift::Listed::of(&id, &listeners, &pools);
                let other = same
                    && known.is_some_and(|known| {
                        let sketch = memory.sketches.get(&uid);
                        let as_sketched = sketch.is_none_or(|it| listed.has(&it.listeners));
                        let as_known = known.graph.as_ref().is_none_or(|it| listed.is(it));
                        known.dirty.is_none() && !(as_sketched && as_known)
                    });
                if child_failed || other {
                    memory.doubt(&id, now);
                }
                if !same || child_failed || other || repeated {
                    changed.push(uid);
                }
            }
        }
        if self.neutron_changed(now).await? {
            changed = self.memory().of.keys().cloned().collect();
        }
        // What could not be had may be there by now.
        changed.extend(self.memory().refused.iter().cloned());
        // A second load balancer is its Service's.
        for uid in &mut changed {
            *uid = service_of(uid);
        }
        changed.sort();
        changed.dedup();
        Ok(changed)
    }

    /// Whether floating IPs, groups or the groups of ports are others than at the last look.
    async fn neutron_changed(&self, now: Instant) -> Result<bool, ApiError> {
        let project = self.cloud.project_id().await?;
        let query = project.as_ref().map(|id| ("project_id", id.as_str()));
        let query = query.as_slice();
        let floating = self
            .lists
            .floating_ips
            .since(now, async || self.cloud.floating_ips(query).await)
            .await?;
        let mut hashes = vec![(
            "floating IPs",
            digest(
                floating
                    .iter()
                    .map(|it| (&it.id, &it.port_id, it.floating_ip_address)),
            ),
        )];
        if self.settings.conf.manage_security_groups {
            let groups = self
                .lists
                .groups
                .since(now, async || self.cloud.security_groups(&[]).await)
                .await?;
            let ports = self
                .lists
                .ports
                .since(now, async || self.cloud.ports(query).await)
                .await?;
            let rules = groups
                .iter()
                .flat_map(|group| group.rules.iter().map(|it| (&group.id, &it.id)));
            hashes.push(("groups", digest(rules)));
            hashes.push((
                "ports",
                digest(ports.iter().map(|it| (&it.id, &it.security_groups))),
            ));
        }
        let mut memory = self.memory();
        let mut changed = false;
        for (kind, hash) in hashes {
            // What happened before the first look is not known either.
            changed |= memory.audited.insert(kind, hash) != Some(hash);
        }
        Ok(changed)
    }
}

/// A number that changes with what is in a list, in whichever order.
fn digest<T: Hash>(items: impl Iterator<Item = T>) -> u64 {
    let one = |item: T| {
        let mut hasher = DefaultHasher::new();
        item.hash(&mut hasher);
        hasher.finish()
    };
    items.map(one).fold(0, u64::wrapping_add)
}

impl Provider for OpenStack {
    type Observed = Observed;
    type Step = Step;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let have = self.look(want).await?;
        self.shown.note(want, &have);
        if want.load_balancer.is_none() && matches!(have.found, Found::Nothing) {
            self.memory().forget(&want.uid);
        }
        // What is kept for others is read again until they are gone.
        let refused = !have.others.is_empty() || self.plan(want, &have).is_err();
        self.memory().set_refused(&want.uid, refused);
        Ok(have)
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        plan::plan(want, have, &self.settings)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        self.carry_out(step).await
    }

    fn standing(&self, want: &Intent, have: &Observed) -> Standing {
        standing::standing(want, have, &self.settings)
    }

    fn doubt(&self, _others_led: bool) {
        *self.memory() = Memory::default();
    }

    /// Nothing is served from here, and what is remembered another replica changes from now on.
    async fn retire(&self) {
        *self.memory() = Memory::default();
    }

    fn live(&self, service: &Uid) -> Vec<ListenerView> {
        self.shown.listeners(service, &self.memory())
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        self.differences().await.map_err(|error| failure(&error))
    }
}

/// Providers are shared by passes.
const fn assert_shared<T: Send + Sync>() {}
const _: () = assert_shared::<Arc<OpenStack>>();
