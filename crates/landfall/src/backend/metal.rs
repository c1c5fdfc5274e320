//! Instances on bare metal.

use std::sync::Arc;

use landfall_config::clouds_yaml::Surroundings;
use landfall_config::provider::metal as config;
use landfall_metal::{DataPlane, Metal as MetalProvider, watch_cooling};
use landfall_model::Uid;
use landfall_model::provider::{Provider as _, ProviderProfile};

use tokio::sync::mpsc;

use super::{Bounds, Kind};
use crate::cli::InstancesArgs;
use crate::lifetime::Lifetime;

/// An instance on bare metal.
#[derive(Clone, Copy, Debug)]
pub struct Metal {
    data_plane: DataPlane,
}

// === impl Metal ===

impl Metal {
    fn new(config: &config::Metal) -> Self {
        let data_plane = match config.data_plane {
            config::DataPlane::KubeProxy => DataPlane::KubeProxy,
            config::DataPlane::Landfall => DataPlane::Landfall,
        };
        Self { data_plane }
    }
}

impl Kind for Metal {
    type Config = config::Metal;
    type Provider = MetalProvider;

    const IN_PROCESS: bool = true;

    fn read(
        _instance: &str,
        config: &config::Metal,
        _surroundings: &Surroundings,
        _args: &InstancesArgs,
    ) -> anyhow::Result<Self> {
        Ok(Self::new(config))
    }

    fn outline(config: &config::Metal, bounds: Bounds) -> ProviderProfile {
        Self::new(config).detached(bounds).profile().clone()
    }

    fn detached(&self, bounds: Bounds) -> MetalProvider {
        MetalProvider::new(self.data_plane)
            .allowing(bounds.members)
            .within(bounds.limits)
    }

    fn start(provider: &Arc<MetalProvider>, wakes: &mpsc::Sender<Uid>, lifetime: &Lifetime) {
        let Lifetime { tasks, cancel } = lifetime;
        tasks.spawn(watch_cooling(
            provider.clone(),
            wakes.clone(),
            cancel.clone(),
        ));
    }

    fn sandbox(provider: &MetalProvider) -> MetalProvider {
        provider.sandbox()
    }
}
