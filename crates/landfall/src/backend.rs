//! The kinds of providers of this binary behind one type, so that one process can hold instances of
//! each. What one kind needs is in its own file: see [`Kind`], and "How to add a provider" in
//! CONTRIBUTING.md.

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use landfall_config::clouds_yaml::Surroundings;
use landfall_config::provider::ProviderConfig;
use landfall_model::Uid;
use landfall_model::intent::{Claim, Intent};
use landfall_model::limits::Limits;
use landfall_model::plan::{Plan, Planned, Wait};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, ProviderStep,
};
use landfall_model::reach::MemberRules;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{PoolRow, ResourceProblem, ResourceRow};
use landfall_model::view::{ListenerView, MetricsView, PoolView};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::cli::InstancesArgs;
use crate::data_plane::DataPlane;
use crate::lifetime::Lifetime;

#[macro_use]
mod dispatch;
mod exoscale;
mod local;
mod metal;
mod openstack;
mod report;

pub use local::{pool_problems, resources};
pub use openstack::of_cloud_conf;
pub use report::{
    Adopted, Answer, CloudReport, Disabled, FoundOrphans, Orphan, Owners, Unusable, camel_cased,
    cloud_calls,
};

backends! {
    Local => local::Local,
    OpenStack => openstack::OpenStack,
    Exoscale => exoscale::Exoscale,
    Metal => metal::Metal,
}

/// How much a provider may do outside of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads and writes.
    Live,
    /// Reads; steps change nothing.
    ReadOnly,
    /// Neither: only the profile of the provider is known.
    Offline,
}

/// What bounds the Services of an instance.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The addresses that may be members.
    pub members: MemberRules,
    /// The limits of one Service or one namespace.
    pub limits: Limits,
}

/// A configured instance of one kind of provider, and what the binary does with it and with its
/// [`Provider`]. What a kind leaves out does nothing.
pub trait Kind: Clone + fmt::Debug + Send + Sync + Sized + 'static {
    /// Its part of landfall.yaml.
    type Config;
    /// Its provider.
    type Provider: Provider + fmt::Debug;

    /// Whether all that its provider reads and writes is in this process. Outside of
    /// [`Mode::Live`] such a provider is a copy in memory, which may be read and changed.
    const IN_PROCESS: bool = false;

    /// Applies flags of the command line.
    fn override_with(_config: &mut Self::Config, _args: &InstancesArgs) {}

    /// Reads the files that the configuration names. Blocks on the disk.
    fn read(
        instance: &str,
        config: &Self::Config,
        surroundings: &Surroundings,
        args: &InstancesArgs,
    ) -> anyhow::Result<Self>;

    /// Returns what the provider can do, by landfall.yaml alone.
    fn outline(config: &Self::Config, bounds: Bounds) -> ProviderProfile;

    /// Returns what the files say that is ignored, or is not what it seems.
    fn warnings(&self) -> &[Reason] {
        &[]
    }

    /// Returns why the configuration switches the instance off.
    fn disabled(&self) -> Option<Disabled> {
        None
    }

    /// Sets the id of the cluster, which marks objects as this cluster's.
    fn set_cluster_id(&mut self, _id: Option<&str>) {}

    /// Creates a provider that has contacted nothing and holds nothing in this process.
    fn detached(&self, bounds: Bounds) -> Self::Provider;

    /// Creates the provider that serves.
    fn live(&self, bounds: Bounds, _data_plane: &mut DataPlane) -> anyhow::Result<Self::Provider> {
        Ok(self.detached(bounds))
    }

    /// Connects to the cloud.
    fn check(&self) -> impl Future<Output = Result<Answer, Unusable>> + Send {
        ready(Ok(Answer::default()))
    }

    /// Connects to the cloud and describes it, for people.
    fn survey(&self) -> impl Future<Output = CloudReport> + Send {
        ready(CloudReport::default())
    }

    /// Reads the objects in the cloud that no Service owns.
    fn find_orphans(
        &self,
        _owners: &Owners,
    ) -> impl Future<Output = anyhow::Result<FoundOrphans>> + Send {
        ready(Ok(FoundOrphans::default()))
    }

    /// Deletes an orphan after reading it once more; returns whether it still was one.
    fn delete_orphan(
        &self,
        _owners: &Owners,
        _orphan: &Orphan,
    ) -> impl Future<Output = anyhow::Result<bool>> + Send {
        ready(Ok(false))
    }

    /// Creates a copy for plans, which begins with what the provider holds in this process.
    fn sandbox(provider: &Self::Provider) -> Self::Provider;

    /// Starts the tasks that queue Services for what happens outside of the engine.
    fn start(_provider: &Arc<Self::Provider>, _wakes: &mpsc::Sender<Uid>, _lifetime: &Lifetime) {}

    /// Adds its metrics.
    fn metrics(_provider: &Self::Provider, _instance: &str, _metrics: &mut MetricsView) {}

    /// Returns what is wrong with all that the provider serves.
    fn problem(_provider: &Self::Provider) -> Option<Reason> {
        None
    }

    /// Returns the objects in the cloud that a Service takes over.
    fn adopted(_have: &<Self::Provider as Provider>::Observed) -> Vec<Adopted> {
        Vec::new()
    }
}

/// A configured instance.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name.
    pub instance: String,
    kind: AnySetup,
}

/// The provider of an instance.
#[derive(Debug)]
pub struct Backend {
    mode: Mode,
    provider: AnyProvider,
}

// === impl Setup ===

impl Setup {
    /// Creates an instance on this machine.
    pub fn local(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            kind: AnySetup::Local(Box::default()),
        }
    }

    /// Whether its provider carries traffic in this process.
    pub fn carries_traffic(&self) -> bool {
        matches!(self.kind, AnySetup::Local(_))
    }

    /// Whether its provider is on bare metal, as MetalLB is.
    pub fn is_metal(&self) -> bool {
        matches!(self.kind, AnySetup::Metal(_))
    }

    /// Writes into the log what the files say that is not what it seems.
    pub fn log_warnings(&self) {
        for warning in self.warnings() {
            tracing::warn!(instance = self.instance, "{warning}");
        }
    }
}

// === impl Backend ===

impl Backend {
    /// Whether it reads a cloud, now or when it is asked.
    pub fn reads_a_cloud(&self) -> bool {
        !self.is_in_process() && self.mode != Mode::Offline
    }

    /// Whether it is on bare metal, as MetalLB is.
    pub fn is_metal(&self) -> bool {
        matches!(self.provider, AnyProvider::Metal(_))
    }

    fn reads(&self) -> bool {
        self.is_in_process() || self.mode != Mode::Offline
    }

    fn writes(&self) -> bool {
        self.is_in_process() || self.mode == Mode::Live
    }
}

/// Returns the same plan in steps of this binary.
fn of<S>(plan: Plan<S>, wrap: impl Fn(S) -> Step) -> Plan<Step> {
    let steps = plan.steps.into_iter().map(|planned| Planned {
        step: wrap(planned.step),
        because: planned.because,
        members_only: planned.members_only,
        claims: planned.claims,
    });
    Plan {
        steps: steps.collect(),
        waits: plan.waits,
        upcoming: plan.upcoming,
    }
}

/// Returns why a provider refuses what another one read or planned. The engine never does that.
fn of_another() -> Reason {
    Reason::error(
        Code::ProviderFailed,
        "this was planned for another provider",
    )
}

#[cfg(test)]
mod tests;
