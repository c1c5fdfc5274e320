//! Reads `landfall.yaml`.

use std::path::Path;

use anyhow::{Context as _, bail};
use landfall_config::file::{self, Config, ProviderKind};

use crate::planning::INSTANCE;

/// The configuration in a file; without one, a single instance that serves everything.
pub async fn read(path: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = path else {
        return Ok(Config::only(INSTANCE));
    };
    let name = path.display().to_string();
    let text = tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("reading the configuration {name}"))?;
    let config = file::parse(&name, &text)?;
    for (index, instance) in config.instances.iter().enumerate() {
        match instance.provider {
            ProviderKind::Local => {}
            ProviderKind::OpenStack(_) => {
                bail!("{name}: instances[{index}].provider: openstack is not built yet");
            }
        }
    }
    Ok(config)
}
