//! The provider: the shell around planning and the client.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use landfall_model::plan::{Plan, Wait};
use landfall_model::provider::{Applied, Provider, ProviderError, ProviderProfile, ProviderStatus};
use landfall_model::view::ListenerView;
use landfall_model::{Intent, Reason, Uid};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ApiError, Cloud};
use crate::errors::failure;
use crate::live::Shown;
use crate::memory::Memory;
use crate::memory::lists::Lists;
use crate::objects::{Id, LoadBalancer};
use crate::observed::{Found, Observed};
use crate::settings::Settings;
use crate::step::Step;
use crate::{plan, status};

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
    profile: ProviderProfile,
}

/// From one check of busy load balancers to the next: at least, and at most.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// The longest pause between two checks of a load balancer.
const LONGEST_POLL: Duration = Duration::from_secs(30);
/// The pause grows by this part of the time that the load balancer has been busy.
const POLL_GROWTH: u32 = 4;
/// So few busy load balancers are checked as often as may be.
const FEW_BUSY: usize = 3;
/// After a reconcile that publishes an address, until the next one does what waits for that.
const STATUS_PAUSE: Duration = Duration::from_millis(50);
/// While one load balancer is waited for, a list of the others may be this old.
const AT_HAND: Duration = Duration::from_secs(180);

// === impl OpenStack ===

impl OpenStack {
    /// A provider that knows nothing of the cloud yet.
    pub fn new(cloud: Cloud, settings: Settings) -> Self {
        Self {
            profile: settings.profile(),
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

    /// The client, for commands that read the cloud beside the engine.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// What the operator has configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The receiver of Services that must be checked because of what became of another one: the
    /// `wakes` of `landfall_engine::Engine::run`. It is set once; without it they follow at the
    /// next audit.
    pub fn wake_through(&self, wakes: mpsc::Sender<Uid>) {
        let _ = self.wakes.set(wakes);
    }

    /// Has a Service checked soon. An engine whose queue is full sees it at the next
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

    /// From one check of busy load balancers to the next.
    pub(crate) fn poll_interval(&self) -> Duration {
        self.poll_interval_with(&self.memory())
    }

    pub(crate) fn poll_interval_with(&self, memory: &Memory) -> Duration {
        let _ = self;
        if memory.busy() <= FEW_BUSY {
            return POLL_INTERVAL.0;
        }
        memory.timing.settle.clamp(POLL_INTERVAL.0, POLL_INTERVAL.1)
    }

    /// The pause until the next check of a load balancer that has been busy for this long. It
    /// grows, so that what never ends costs little.
    pub(crate) fn pause_after(&self, busy_for: Duration, memory: &Memory) -> Duration {
        let grown = (POLL_INTERVAL.0 + busy_for / POLL_GROWTH).min(LONGEST_POLL);
        self.poll_interval_with(memory).max(grown)
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

    /// All load balancers of the project, where `one` of them is waited for, each with when it was
    /// asked for: that one as it was at `since` or later. If it is the only one that Octavia works
    /// on, it is read alone.
    pub(crate) async fn rows_with(
        &self,
        one: Option<&Id>,
        since: Instant,
    ) -> Result<Arc<Vec<(LoadBalancer, Instant)>>, ApiError> {
        let Some(id) = one.filter(|id| self.memory().is_only_busy(id)) else {
            return self.rows(since).await;
        };
        let recent = since.checked_sub(AT_HAND).unwrap_or(since);
        let at_hand = self.lists.roster.at_hand().await;
        let is_it = |(row, _): &&(LoadBalancer, Instant)| row.id == *id;
        let Some((at, rows)) = at_hand.filter(|(at, _)| *at >= recent) else {
            return self.rows(since).await;
        };
        let row_at = rows.iter().find(is_it).map(|(_, at)| *at);
        if at >= since || row_at.is_some_and(|at| at >= since) {
            return Ok(rows);
        }
        let now = Instant::now();
        let row = match row_at {
            Some(_) => self.cloud.load_balancer(id).await?,
            None => None,
        };
        // It may be gone, and another one have taken its place.
        let Some(row) = row else {
            return self.rows(since).await;
        };
        let renew = |all: &mut Vec<(LoadBalancer, Instant)>| {
            for it in all.iter_mut().filter(|(row, _)| row.id == *id) {
                *it = (row.clone(), now);
            }
        };
        self.lists.roster.amend(renew).await;
        match self.lists.roster.at_hand().await {
            Some((_, rows)) => Ok(rows),
            None => self.rows(since).await,
        }
    }

    /// All load balancers of the project as they were at `since` or later, and when they were asked
    /// for.
    pub(crate) async fn roster(
        &self,
        since: Instant,
    ) -> Result<(Vec<LoadBalancer>, Instant), ApiError> {
        let list = self.rows(since).await?;
        // One of them may have been read after the others.
        let at = list.iter().map(|(_, at)| *at).min().unwrap_or(since);
        Ok((list.iter().map(|(it, _)| it.clone()).collect(), at))
    }
}

impl Provider for OpenStack {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let have = self.observe_service(want).await?;
        self.shown.note(want, &have);
        if want.load_balancer.is_none() && matches!(have.found, Found::Nothing) {
            self.memory().forget(&want.uid);
        }
        self.memory().set_kept(&want.uid, !have.others.is_empty());
        Ok(have)
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        plan::plan(want, have, &self.settings)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        self.carry_out(step).await
    }

    fn on_waiting(&self, wait: &Wait) -> Duration {
        if plan::is_for_status(wait) {
            return STATUS_PAUSE;
        }
        self.wait_for(&Id::new(&wait.id))
    }

    fn on_planned(&self, service: &Uid, refused: bool) {
        self.memory().set_refused(service, refused);
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        status::status(want, have, &self.settings)
    }

    fn invalidate_caches(&self, _others_led: bool) {
        *self.memory() = Memory::default();
        self.lists.expire(Instant::now());
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
