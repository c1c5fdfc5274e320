//! Instances on this machine.

use std::sync::Arc;

use landfall_config::clouds_yaml::Surroundings;
use landfall_config::provider::local;
use landfall_l2::fsm::Scope;
use landfall_local::{Local as LocalProvider, watch_health, watch_shares};
use landfall_model::Uid;
use landfall_model::provider::{Provider as _, ProviderProfile};
use landfall_model::reason::Reason;
use landfall_model::rows::PoolRow;
use landfall_model::view::{MetricsView, ResourcesView};
use landfall_proxy::Proxy;
use tokio::sync::mpsc;

use super::{Bounds, Kind};
use crate::cli::InstancesArgs;
use crate::data_plane::DataPlane;
use crate::lifetime::Lifetime;

/// An instance on this machine.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// Where it announces its addresses; `None`: the machine has them.
    announces: Option<Scope>,
}

impl Kind for Local {
    type Config = local::Local;
    type Provider = LocalProvider;

    const IN_PROCESS: bool = true;

    fn read(
        _instance: &str,
        config: &local::Local,
        _surroundings: &Surroundings,
        _args: &InstancesArgs,
    ) -> anyhow::Result<Self> {
        let scope = |announce: &local::Announce| match announce.interfaces.as_slice() {
            [] => Scope::All,
            names => Scope::Only(names.iter().cloned().collect()),
        };
        let announces = config.announce.as_ref().map(scope);
        Ok(Self { announces })
    }

    fn outline(_config: &local::Local, bounds: Bounds) -> ProviderProfile {
        Self::default().detached(bounds).profile().clone()
    }

    fn detached(&self, bounds: Bounds) -> LocalProvider {
        bounded(LocalProvider::offline(), bounds)
    }

    fn live(&self, bounds: Bounds, data_plane: &mut DataPlane) -> anyhow::Result<LocalProvider> {
        let provider = bounded(LocalProvider::new(data_plane.start()?), bounds);
        if let Some(scope) = &self.announces {
            let announced = (provider.addresses(), scope.clone());
            data_plane.announced.push(announced);
        }
        Ok(provider)
    }

    fn sandbox(provider: &LocalProvider) -> LocalProvider {
        provider.sandbox()
    }

    fn start(provider: &Arc<LocalProvider>, wakes: &mpsc::Sender<Uid>, lifetime: &Lifetime) {
        let Lifetime { tasks, cancel } = lifetime;
        let shares = watch_shares(provider.clone(), wakes.clone(), cancel.clone());
        tasks.spawn(shares);
        tasks.spawn(watch_health(
            provider.clone(),
            wakes.clone(),
            cancel.clone(),
        ));
    }

    fn metrics(provider: &LocalProvider, _instance: &str, metrics: &mut MetricsView) {
        // All instances share one data plane.
        metrics.resources = provider.proxy().map(|proxy| resources(proxy));
    }

    fn problem(provider: &LocalProvider) -> Option<Reason> {
        provider.problem()
    }
}

/// Returns what is wrong with address pools, by the rules of the allocator.
pub fn pool_problems(pools: &[Arc<PoolRow>]) -> Vec<Reason> {
    LocalProvider::offline().set_pools(pools)
}

fn bounded(provider: LocalProvider, bounds: Bounds) -> LocalProvider {
    provider.allowing(bounds.members).within(bounds.limits)
}

/// Returns how much of what it may use a data plane uses.
pub fn resources(proxy: &Proxy) -> ResourcesView {
    let (pressure, checks) = (proxy.pressure(), proxy.checks());
    ResourcesView {
        checks: checks.begun,
        delayed_checks: checks.delayed,
        waiting_checks: checks.waiting,
        workers: proxy.workers() as u64,
        descriptors: pressure.used.into(),
        descriptor_limit: pressure.limit.into(),
        listener_sockets: pressure.listeners.into(),
        flows: pressure.flows.into(),
        flow_limit: pressure.flow_limit.into(),
        memory: pressure.memory,
        memory_limit: pressure.memory_limit,
        shortages: pressure.shortages,
        overloaded: pressure.overloaded,
        lost_access_log_lines: proxy.access_log().map_or(0, |log| log.lost()),
        left_out_access_log_lines: proxy.access_log().map_or(0, |log| log.left_out()),
    }
}
