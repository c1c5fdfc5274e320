//! The soak: Services under load and edits beside others that are misused in every way by turns.

use std::time::Duration;

use clap::Args;
use tokio::process::Command;

use crate::cargo::cargo;
use crate::place::Place;
use crate::stage::Stages;

/// Help of `soak`.
pub const HELP: &str = "\
One process with 4,096 descriptors serves 200 Services (TCP, HTTP/1, HTTP/2, TLS, UDP) under load
and edits, while clients misuse another Service in all known ways, by turns. Those that are meant to
reach a limit (of descriptors, sources, rates, members, flows, checks) must reach it. No request
within the limits may fail, and the last quarter may hold no more descriptors and memory than the
first. It is a test of `landfall`, optimized here, so that a machine with two cores can do other
things meanwhile; `cargo test` runs it for 30 s.";

/// The test that it is.
const TEST: &str = "attacks::soak::a_soak_fails_no_request_within_limits_and_leaks_nothing";

/// How much longer than its time it may take, to build and to end.
const MORE: Duration = Duration::from_mins(30);

/// `soak`
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// How long it takes
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    minutes: u64,
}

/// Runs it.
pub async fn run(place: &Place, args: &SoakArgs) -> anyhow::Result<()> {
    let within = Duration::from_mins(args.minutes) + MORE;
    let mut stages = Stages::new(1);
    stages
        .run(
            "soak",
            within,
            &mut command(place, args.minutes, &OPTIMIZED),
        )
        .await
}

/// The build that a long soak is worth.
const OPTIMIZED: [&str; 4] = ["--profile", "fuzz", "-p", "landfall"];

/// The command that runs it for so long, with what these arguments of cargo build.
pub fn command(place: &Place, minutes: u64, build: &[&str]) -> Command {
    let line = ["test", "--locked", "--test", "it"];
    let filter = ["--", "--exact", TEST, "--nocapture"];
    let mut command = cargo(place, &[&line[..], build, &filter[..]].concat());
    command.env("LANDFALL_SOAK_SECONDS", (60 * minutes).to_string());
    command
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_soak_is_a_test() {
        let place = Place::find().unwrap();
        let (_, function) = TEST.rsplit_once("::").unwrap();
        let path = place.root.join("crates/landfall/tests/it/attacks/soak.rs");
        let source = fs::read_to_string(path).unwrap();
        assert!(source.contains(&format!("async fn {function}()")));
        assert!(source.contains("\"LANDFALL_SOAK_SECONDS\""));
    }
}
