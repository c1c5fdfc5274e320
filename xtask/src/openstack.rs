//! The OpenStack of the test bed. `testbed/openstack/stack.sh` does the work; this finds it, and
//! makes it a part of the one test command.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tokio::process::Command;

use crate::place::{CACHE_VARIABLE, Place};
use crate::stage::{self, Stages};

/// Help of `openstack`.
pub const HELP: &str = "\
It lives in $LANDFALL_CACHE/openstack (default ~/.cache/landfall/openstack) and listens on 127.0.0.1
only. Tests find it, and start it if it doesn't run; it keeps running when they end.
LANDFALL_OPENSTACK=<clouds.yaml> makes them use another one.";

/// `openstack ...`
#[derive(Debug, Subcommand)]
pub enum Openstack {
    /// Start what doesn't run of it, as root, and print where the clouds.yaml of its administrator
    /// is
    Up(UpArgs),
    /// Stop it; what its databases hold is kept
    Down,
    /// Print where the clouds.yaml of its administrator is, or will be
    Env,
}

/// `openstack up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Begin with empty databases
    #[arg(long)]
    fresh: bool,
}

/// Names the clouds.yaml of a stack that this command does not manage.
const VARIABLE: &str = "LANDFALL_OPENSTACK";

/// From empty databases it takes one minute, three on a machine that has much else to do.
const UP_DEADLINE: Duration = Duration::from_mins(15);
const DOWN_DEADLINE: Duration = Duration::from_mins(5);

/// Downloads 56 MB, and unpacks half a GB.
const INSTALL_DEADLINE: Duration = Duration::from_mins(25);

/// Runs `openstack ...`.
pub async fn run(place: &Place, command: Openstack) -> anyhow::Result<()> {
    match command {
        Openstack::Up(arguments) => {
            let fresh = arguments.fresh.then_some("--fresh");
            stage::run_group(script(place, "up").args(fresh), UP_DEADLINE).await
        }
        Openstack::Down => stage::run_group(&mut script(place, "down"), DOWN_DEADLINE).await,
        Openstack::Env => stage::run_group(&mut script(place, "env"), DOWN_DEADLINE).await,
    }
}

/// A stage that installs its Python packages, unless they are here.
pub async fn install(stages: &mut Stages, place: &Place) -> anyhow::Result<()> {
    let mut command = script(place, "install");
    stages
        .run("openstack install", INSTALL_DEADLINE, &mut command)
        .await
}

/// How many stages [`around`] adds to those of the work itself.
pub const STAGES: usize = 2;

/// Starts the stack, does the work, and stops the stack whatever came of either: an error and an
/// interrupt, too. One that ran before is left running.
pub async fn around(
    stages: &mut Stages,
    place: &Place,
    work: impl AsyncFnOnce(&mut Stages) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let kept = if is_given() || runs(place).await? {
        let line = "cargo xtask openstack up: it runs already";
        stages.work("openstack up", line, async { Ok(()) }).await?;
        true
    } else {
        false
    };
    let worked = async {
        if !kept {
            let mut up = script(place, "up");
            stages.run("openstack up", UP_DEADLINE, &mut up).await?;
        }
        work(stages).await
    }
    .await;
    let stopped = if kept {
        let line = "nothing to do: it ran before";
        let left = async { Ok(()) };
        stages.work("openstack down", line, left).await
    } else {
        let mut down = script(place, "down");
        stages.run("openstack down", DOWN_DEADLINE, &mut down).await
    };
    // What went wrong first is what matters.
    worked.and(stopped)
}

fn is_given() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}

async fn runs(place: &Place) -> anyhow::Result<bool> {
    let status = script(place, "running").status().await;
    Ok(status
        .with_context(|| format!("{} can't be run", script_path(place).display()))?
        .success())
}

fn script_path(place: &Place) -> PathBuf {
    place.root.join("testbed/openstack/stack.sh")
}

fn script(place: &Place, command: &str) -> Command {
    let mut script = Command::new(script_path(place));
    script.arg(command).env(CACHE_VARIABLE, &place.cache);
    script
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A checkout whose script writes down how it was called, and fails at one of its commands.
    fn checkout(failing: &str) -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let script = root.join("testbed/openstack/stack.sh");
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        let text = format!(
            "#!/bin/sh\necho $1 >>{}/calls\ncase $1 in running|{failing}) exit 1 ;; esac\n",
            root.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let cache = root.join("cache");
        (folder, Place { root, cache })
    }

    fn calls(place: &Place) -> Vec<String> {
        let text = fs::read_to_string(place.root.join("calls")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn around_work(place: &Place, result: anyhow::Result<()>) -> anyhow::Result<()> {
        stage::block_on(async {
            let mut stages = Stages::new(STAGES);
            around(&mut stages, place, async |_| result).await
        })
    }

    #[test]
    fn the_stack_is_stopped_after_the_work_and_after_work_that_failed() {
        for (result, message) in [
            (Ok(()), None),
            (Err(anyhow::anyhow!("tests failed")), Some("tests failed")),
        ] {
            let (_folder, place) = checkout("nothing");
            let ended = around_work(&place, result);
            assert_eq!(
                ended.err().map(|error| error.to_string()).as_deref(),
                message
            );
            assert_eq!(calls(&place), ["running", "up", "down"]);
        }
    }

    #[test]
    fn a_stack_that_does_not_start_is_stopped_too_and_no_work_is_done() {
        let (_folder, place) = checkout("up");
        let error = around_work(&place, Err(anyhow::anyhow!("never reached"))).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("openstack up failed after "), "{text}");
        assert_eq!(calls(&place), ["running", "up", "down"]);
    }
}
