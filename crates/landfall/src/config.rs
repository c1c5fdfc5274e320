//! Reads `landfall.yaml`.

use std::path::Path;

use anyhow::Context as _;
use landfall_config::file::{self, Config};

/// The name of the instance that serves one machine where nothing is configured.
pub const INSTANCE: &str = "local";

/// The configuration in a file; without one, a single instance that serves everything.
pub async fn read(path: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = path else {
        return Ok(Config::only(INSTANCE));
    };
    let name = path.display().to_string();
    let text = tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("reading the configuration {name}"))?;
    Ok(file::parse(&name, &text)?)
}
