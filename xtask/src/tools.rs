//! Tools that cargo can build, kept outside the checkout by version.

use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;

use crate::place::Place;
use crate::stage::Stages;

/// Judges licences, sources and banned crates. Its own rules are in `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

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
