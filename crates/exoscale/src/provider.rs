//! The provider: the shell around planning and the client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_model::plan::{Plan, Wait};
use landfall_model::provider::{Applied, Provider, ProviderError, ProviderProfile, ProviderStatus};
use landfall_model::view::ListenerView;
use landfall_model::{Intent, Reason, Uid};

use crate::client::Cloud;
use crate::failure::failure;
use crate::memory::{Memory, Seen};
use crate::observed::Observed;
use crate::settings::{Settings, profile};
use crate::step::Step;
use crate::{live, plan, status};

/// Network Load Balancers of Exoscale.
#[derive(Debug)]
pub struct Exoscale {
    pub(crate) cloud: Cloud,
    pub(crate) settings: Settings,
    memory: Mutex<Memory>,
    /// All NLBs are listed for one reconcile at a time.
    pub(crate) listing: tokio::sync::Mutex<()>,
    profile: ProviderProfile,
}

// === impl Exoscale ===

impl Exoscale {
    /// Makes a provider that knows nothing of the cloud yet.
    pub fn new(cloud: Cloud, settings: Settings) -> Self {
        Self {
            cloud,
            settings,
            memory: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            profile: profile(),
        }
    }

    /// Returns the client, for commands that read the cloud beside the engine.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// Returns what the operator has configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for Exoscale {
    type Observed = Observed;
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
        let have = self.observe_service(want).await?;
        let mut memory = self.memory();
        if want.load_balancer.is_none() && have.found.is_none() && have.surplus.is_empty() {
            memory.forget(&want.uid);
        } else {
            let seen = Seen {
                load_balancer: have.found.clone(),
                infers: have.inferred,
                owner: have.owner.clone(),
                ports: live::ports(want),
            };
            memory.seen.insert(want.uid.clone(), seen);
        }
        drop(memory);
        Ok(have)
    }

    fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
        plan::plan(want, have, &self.settings)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        self.carry_out(step).await
    }

    fn on_waiting(&self, wait: &Wait) -> Duration {
        self.pause(wait)
    }

    fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
        status::status(want, have, &self.settings)
    }

    fn invalidate_caches(&self, _others_led: bool) {
        *self.memory() = Memory::default();
    }

    /// Nothing is served from here, and what is remembered another replica changes from now on.
    async fn retire(&self) {
        *self.memory() = Memory::default();
    }

    fn live(&self, service: &Uid) -> Vec<ListenerView> {
        let memory = self.memory();
        let Some(seen) = memory.seen.get(service) else {
            return Vec::new();
        };
        let id = seen.load_balancer.as_ref().map(|it| &it.id);
        let read = id.and_then(|id| memory.rows.get(id));
        let load_balancer = read
            .map(|row| &row.load_balancer)
            .or(seen.load_balancer.as_ref());
        load_balancer.map_or_else(Vec::new, |it| live::listeners(it, &seen.owner, &seen.ports))
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        self.differences().await.map_err(|error| failure(&error))
    }
}

/// Providers are shared by reconciles.
const fn assert_shared<T: Send + Sync>() {}
const _: () = assert_shared::<Arc<Exoscale>>();
