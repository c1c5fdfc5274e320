//! `screenshots`: pictures of the status page for the README, from a real browser.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::process::Command;

use crate::debian;
use crate::place::Place;
use crate::stage::Stages;

/// Where the pictures come from, for `--help`.
pub const HELP: &str = "\
Without --address, a canned shop is shown (crates/web/examples/stage). To show a running instance:
  landfall demo &
  cargo xtask screenshots --address http://127.0.0.1:9640/";

/// Building the example, and three visits to the page.
const DEADLINE: Duration = Duration::from_mins(15);

/// `screenshots`
#[derive(Debug, Args)]
pub struct ScreenshotsArgs {
    /// The status page of a running instance
    #[arg(long)]
    address: Option<String>,
    /// The folder for status-light.png, status-dark.png and status-phone.png
    #[arg(long, default_value = "docs/images")]
    to: PathBuf,
    /// Wait until this many Services are shown
    #[arg(long, default_value_t = 1)]
    services: usize,
}

/// Runs `screenshots`.
pub async fn run(place: &Place, args: &ScreenshotsArgs) -> anyhow::Result<()> {
    let mut stages = Stages::new(2);
    debian::install(&mut stages, &[debian::FOR_TESTS, debian::FOR_PICTURES]).await?;
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--package", "landfall-web"])
        .args(["--example", "fixture", "--", "shoot", "--to"])
        .arg(place.root.join(&args.to))
        .arg("--services")
        .arg(args.services.to_string())
        .current_dir(&place.root);
    if let Some(address) = &args.address {
        command.args(["--address", address]);
    }
    stages.run("screenshots", DEADLINE, &mut command).await?;
    stages.summary();
    Ok(())
}
