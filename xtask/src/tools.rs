//! Tools that cargo, Go and pip can build, kept outside the checkout by version.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use landfall_testkit::cluster::MetalLb;
use tokio::process::Command;

use crate::go;
use crate::openstack;
use crate::place::Place;
use crate::stage::Stages;

/// Validates licences, sources and banned crates. Its own rules are in `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

/// What helm is built of, with its checksums beside it.
const HELM_MODULE: &str = include_str!("../../testbed/helm/go.mod");
const HELM_FOLDER: &str = "testbed/helm";
const HELM_PACKAGE: &str = "helm.sh/helm/v3";

/// Two idle cores take one minute; a busy machine and a slow registry take longer.
const BUILD_DEADLINE: Duration = Duration::from_mins(25);

/// Where the pinned cargo-deny is, or will be.
pub fn cargo_deny_program(place: &Place) -> PathBuf {
    place
        .cache
        .join(format!("tools/cargo-deny-{CARGO_DENY}/bin/cargo-deny"))
}

/// A stage that builds cargo-deny unless that version is here.
pub async fn cargo_deny(stages: &mut Stages, place: &Place) -> anyhow::Result<()> {
    let program = cargo_deny_program(place);
    if program.is_file() {
        let line = format!("{} is here", program.display());
        return stages.work("tools", &line, async { Ok(()) }).await;
    }
    let mut command = Command::new("cargo");
    // Without optimisation: it is built once and runs for seconds.
    command
        .args([
            "install",
            "--locked",
            "--debug",
            "--no-default-features",
            "cargo-deny",
        ])
        .args(["--version", CARGO_DENY, "--root"])
        .arg(place.cache.join(format!("tools/cargo-deny-{CARGO_DENY}")))
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    stages.run("tools", BUILD_DEADLINE, &mut command).await
}

/// How many stages [`install`] runs.
pub const STAGES: usize = 4;

/// Stages that build every tool which is not here.
pub async fn install(stages: &mut Stages, place: &Place) -> anyhow::Result<()> {
    go::check(place, &helm_program(place)).await?;
    cargo_deny(stages, place).await?;
    helm(stages, place).await?;
    metallb(stages).await?;
    openstack::install(stages, place).await
}

/// The pinned version of helm: `v1.2.3`.
pub fn helm_version() -> &'static str {
    HELM_MODULE
        .lines()
        .filter_map(|line| line.trim().strip_prefix(HELM_PACKAGE))
        .find_map(|rest| rest.split_whitespace().next())
        .unwrap_or("unknown")
}

/// Where the pinned helm is, or will be.
pub fn helm_program(place: &Place) -> PathBuf {
    let version = helm_version();
    place.cache.join(format!("tools/helm-{version}/bin/helm"))
}

/// A stage that builds helm unless that version is here.
async fn helm(stages: &mut Stages, place: &Place) -> anyhow::Result<()> {
    let program = helm_program(place);
    if program.is_file() {
        let line = format!("{} is here", program.display());
        return stages.work("helm", &line, async { Ok(()) }).await;
    }
    let folder = program.parent().context("helm has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    // Renamed into place, so that an interrupted build leaves nothing that looks like a program.
    let part = program.with_extension("part");
    let flags = format!(
        "-s -w -X {HELM_PACKAGE}/internal/version.version={}",
        helm_version()
    );
    let mut command = Command::new("go");
    command
        .current_dir(place.root.join(HELM_FOLDER))
        .args(["build", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(&part)
        .arg(format!("{HELM_PACKAGE}/cmd/helm"))
        .env("CGO_ENABLED", "0");
    stages.run("helm", BUILD_DEADLINE, &mut command).await?;
    fs::rename(&part, &program).with_context(|| format!("{} can't be made", program.display()))
}

/// A stage that builds MetalLB, for tests of what is taken over from it, unless it is here.
async fn metallb(stages: &mut Stages) -> anyhow::Result<()> {
    let line = "cargo test -p landfall --test cluster metallb";
    let found = stages.work("metallb", line, async { Ok(MetalLb::find().await?) });
    let MetalLb { controller, .. } = found.await?;
    eprintln!("{} is here", controller.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_helm_comes_from_its_module() {
        let version = helm_version();
        assert!(version.starts_with("v3."), "{version}");
        assert!(HELM_MODULE.contains(&format!("\ntool {HELM_PACKAGE}/cmd/helm\n")));
    }
}
