//! Reading the cloud: the NLB of a Service among all, its operation in flight, its instance pool.
//!
//! What was read is used again. But no change is planned from what is old, and nothing is taken for
//! done that the cloud has not shown.

mod audit;
mod find;
mod pool;

use std::time::Duration;

use landfall_model::Intent;
use landfall_model::plan::Wait;
use landfall_model::provider::ProviderError;
use tokio::time::Instant;

use crate::client::{ApiError, Progress};
use crate::failure::failure;
use crate::memory::Key;
use crate::objects::Id;
use crate::observed::Observed;
use crate::ownership::Owner;
use crate::plan;
use crate::provider::Exoscale;
use crate::record::Record;
use crate::step::Change;
use crate::waits;

use find::Found;

/// What was read this long ago is read again before anything is changed.
const FRESH: Duration = Duration::from_secs(10);
/// What was read this long ago is read again in any case: audits have failed since.
const STALE: Duration = Duration::from_secs(900);
/// How long an NLB may be busy with what is no operation of this process. Then its state counts for
/// nothing, as that of an operation that never ends.
const BUSY: Duration = Duration::from_secs(120);
/// Reads of one reconcile that lead to another one, at most.
const ROUNDS: usize = 6;

impl Exoscale {
    /// Reads what the cloud has for a Service.
    pub(crate) async fn observe_service(&self, intent: &Intent) -> Result<Observed, ProviderError> {
        let result = self.observe_all(intent).await;
        result.map_err(|error| match error {
            ReadError::Api(error) => failure(&error),
            ReadError::Change(error) => error,
        })
    }

    async fn observe_all(&self, intent: &Intent) -> Result<Observed, ReadError> {
        let owner = self.owner(intent);
        self.list_since(Instant::now().checked_sub(STALE)).await?;
        for _ in 0..ROUNDS {
            let found = find::find(intent, &owner, &self.memory().rows);
            if let Some(pending) = self.settle(intent, &found).await? {
                let Settled::Pending(wait) = pending else {
                    continue;
                };
                return Ok(self.observed(intent, &owner, found, Some(wait)).await?);
            }
            if let Some(id) = found.unknown() {
                self.read_one(&id).await?;
                continue;
            }
            if let Some(wait) = self.wait_for_others(&found).await? {
                return Ok(self.observed(intent, &owner, found, Some(wait)).await?);
            }
            let age = found.read_at(intent, &self.memory().rows);
            let one = found.row.as_ref().map(|row| row.load_balancer.id.clone());
            let assumed = found.is_assumed();
            let have = self.observed(intent, &owner, found, None).await?;
            let planned = plan::plan(intent, &have, &self.settings);
            let steps = planned.as_ref().map_or(&[][..], |plan| &plan.steps);
            if assumed && !steps.is_empty() && steps.iter().all(|it| is_exact(&it.step.change)) {
                return Ok(have);
            }
            let is_done = planned.is_ok_and(|plan| plan.steps.is_empty());
            let certain = is_done && intent.load_balancer.is_some();
            let fresh = age.is_some_and(|at| at.elapsed() <= FRESH);
            if !assumed && (certain || fresh) {
                return Ok(have);
            }
            match one {
                Some(id) if assumed || intent.load_balancer.is_some() => self.read_one(&id).await?,
                _ => self.list_since(Some(Instant::now())).await?,
            }
        }
        Err(ApiError::ours(
            landfall_rest::ErrorKind::Stale,
            "GET /load-balancer",
            "the load balancer changes with every read",
        )
        .into())
    }

    pub(crate) fn owner(&self, intent: &Intent) -> Owner {
        Owner {
            cluster: self.settings.cluster.clone(),
            uid: intent.uid.clone(),
            service: intent.service.clone(),
            record: Record::of(intent),
        }
    }

    async fn observed(
        &self,
        intent: &Intent,
        owner: &Owner,
        found: Found,
        pending: Option<Wait>,
    ) -> Result<Observed, ApiError> {
        let load_balancer = found.row.map(|row| row.load_balancer);
        let (pool, inferred) = self.pool(intent, owner, load_balancer.as_ref()).await?;
        let refused = load_balancer.as_ref().map(|it| &it.id);
        let refused = refused.map(|id| self.memory().refused(id, Instant::now()));
        Ok(Observed {
            owner: owner.clone(),
            found: load_balancer,
            missing: found.missing,
            surplus: found
                .surplus
                .into_iter()
                .map(|row| row.load_balancer)
                .collect(),
            pool,
            inferred,
            refused: refused.unwrap_or_default(),
            pending,
        })
    }

    /// Reads all NLBs, unless they were asked for since then.
    pub(crate) async fn list_since(&self, since: Option<Instant>) -> Result<(), ApiError> {
        let _one_at_a_time = self.listing.lock().await;
        let listed_at = self.memory().rows.listed_at;
        if listed_at.is_some_and(|at| since.is_none_or(|since| at >= since)) {
            return Ok(());
        }
        let at = Instant::now();
        let list = self.cloud.load_balancers().await?;
        self.memory().rows.replace(list, at);
        Ok(())
    }

    async fn read_one(&self, id: &Id) -> Result<(), ApiError> {
        let at = Instant::now();
        let found = self.cloud.load_balancer(id).await?;
        self.memory().rows.put(id, found, at);
        Ok(())
    }

    /// Takes the end of the operation in flight, if there is one.
    async fn settle(&self, intent: &Intent, found: &Found) -> Result<Option<Settled>, ReadError> {
        let ids = found.rows().map(|row| row.load_balancer.id.clone());
        let keys = ids.map(Key::LoadBalancer);
        let keys: Vec<Key> = keys.chain([Key::Creating(intent.uid.clone())]).collect();
        for key in keys {
            let Some(in_flight) = self.memory().operations.get(&key).cloned() else {
                continue;
            };
            let change = &in_flight.change;
            let wait = match (&key, change) {
                (Key::LoadBalancer(id), _) => waits::for_load_balancer(id.as_str(), change.doing()),
                (Key::Creating(_), Change::CreateLoadBalancer { body }) => {
                    waits::for_load_balancer(body.name.as_str(), change.doing())
                }
                (Key::Creating(service), _) => {
                    waits::for_load_balancer(service.as_str(), change.doing())
                }
            };
            let Some(mut operation) = in_flight.operation else {
                return Ok(Some(Settled::Pending(wait)));
            };
            match self.cloud.poll(&mut operation).await {
                Ok(Progress::Pending(_)) => {
                    if let Some(in_flight) = self.memory().operations.get_mut(&key) {
                        in_flight.operation = Some(operation);
                    }
                    return Ok(Some(Settled::Pending(wait)));
                }
                Ok(Progress::Done(id)) => {
                    self.memory().finish(&key, change, id, Instant::now());
                    return Ok(Some(Settled::Ended));
                }
                Err(error) => {
                    self.memory().end_unknown(&key);
                    if error.is_transient() {
                        // What it led to is read.
                        tracing::info!(%error, %change, "an operation did not end well");
                        return Ok(Some(Settled::Ended));
                    }
                    return Err(ReadError::Change(self.refused(change, &error)));
                }
            }
        }
        let until = self.memory().unanswered.get(&intent.uid).copied();
        if let Some(until) = until.filter(|_| found.row.is_none()) {
            // The request may still be carried out: its name would be taken.
            if Instant::now() < until {
                self.list_since(Some(Instant::now())).await?;
                let again = find::find(intent, &self.owner(intent), &self.memory().rows);
                if again.row.is_none() {
                    let wait = waits::for_load_balancer(intent.uid.as_str(), waits::CREATED);
                    return Ok(Some(Settled::Pending(wait)));
                }
                return Ok(Some(Settled::Ended));
            }
            self.memory().unanswered.remove(&intent.uid);
        }
        Ok(None)
    }

    /// Returns what is waited for although no operation of this process is in flight: an earlier
    /// one, or a person, has begun a change.
    async fn wait_for_others(&self, found: &Found) -> Result<Option<Wait>, ApiError> {
        for row in found.rows() {
            let load_balancer = &row.load_balancer;
            let Some(doing) = waits::doing(load_balancer) else {
                self.memory().busy.remove(&load_balancer.id);
                continue;
            };
            let now = Instant::now();
            let since = *self
                .memory()
                .busy
                .entry(load_balancer.id.clone())
                .or_insert(now);
            if now.saturating_duration_since(since) > BUSY {
                continue;
            }
            if row.at.elapsed() >= pause(since) && row.at < now {
                self.read_one(&load_balancer.id).await?;
                let read = self.memory().rows.get(&load_balancer.id).cloned();
                if read.is_none_or(|row| waits::doing(&row.load_balancer).is_none()) {
                    self.memory().busy.remove(&load_balancer.id);
                    continue;
                }
            }
            let wait = waits::for_load_balancer(load_balancer.id.as_str(), doing);
            return Ok(Some(wait));
        }
        Ok(None)
    }

    /// Returns when to look again at what is waited for.
    pub(crate) fn pause(&self, wait: &Wait) -> Duration {
        let memory = self.memory();
        let id = waits::id(wait);
        let named = |change: &Change| match change {
            Change::CreateLoadBalancer { body } => body.name == wait.id,
            _ => change.load_balancer() == Some(&id),
        };
        let mut operations = memory.operations.values();
        if let Some(in_flight) = operations.find(|it| named(&it.change)) {
            let due = in_flight.operation.as_ref();
            return due.map_or(FIRST, |it| it.due_in(Instant::now()));
        }
        memory.busy.get(&id).map_or(FIRST, |since| pause(*since))
    }
}

/// Returns whether a change names all that it is about, and does no harm if that is not there any
/// more.
fn is_exact(change: &Change) -> bool {
    match change {
        Change::CreateLoadBalancer { .. } | Change::DeleteLoadBalancer { .. } => false,
        Change::UpdateLoadBalancer { .. }
        | Change::ResetDescription { .. }
        | Change::CreateService { .. } => true,
        Change::UpdateService { id, .. }
        | Change::ResetServiceDescription { id, .. }
        | Change::DeleteService { id, .. } => *id != Id::default(),
    }
}

/// The first pause.
const FIRST: Duration = Duration::from_secs(3);

/// Returns the pause between two reads of what is busy since then: it grows.
pub(crate) fn pause(since: Instant) -> Duration {
    (FIRST + since.elapsed() / 16).min(Duration::from_secs(60))
}

/// Where an operation stands.
enum Settled {
    Pending(Wait),
    /// What is known has changed.
    Ended,
}

/// Why the cloud could not be read.
pub(crate) enum ReadError {
    Api(ApiError),
    /// A change that was begun has failed.
    Change(ProviderError),
}

impl From<ApiError> for ReadError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}
