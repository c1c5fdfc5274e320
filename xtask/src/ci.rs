//! The one test command: everything, from nothing, in an order that fails early. It never skips.

use std::time::Duration;

use clap::Args;
use tokio::process::Command;

use crate::cargo::cargo;
use crate::check;
use crate::debian::{self, FOR_BENCH, FOR_TESTS};
use crate::image;
use crate::openstack;
use crate::place::Place;
use crate::soak;
use crate::stage::Stages;
use crate::tools;

/// Help of `ci`.
pub const HELP: &str = "\
This is the README's test command, and what .ci/run calls. Stages, in order:
  packages, tools     install missing packages (as root on Debian; else the command is printed)
  check               as `cargo xtask check`
  build               the tests
  openstack up        Keystone, Neutron, Octavia and Barbican, for the tests; needs root
  test                every test of the workspace; those in clusters beside all others
  openstack down      also when a test failed; one that ran before keeps running
  examples            those of the documentation
  static program      the binary as it is shipped
  image, try          the container image, run from nothing but its own files
  demo                `landfall demo --once`: real requests through every address
  soak                a minute of it
  bench               short runs of the benchmarks, as a test
The first stage that fails ends it, and prints the command that repeats that stage.";

/// `ci`
#[derive(Debug, Args)]
pub struct CiArgs {}

/// A hang becomes a failure that names its stage. Far above what two slow cores need.
const TEST_DEADLINE: Duration = Duration::from_mins(60);
const BUILD_DEADLINE: Duration = Duration::from_mins(30);
const RUN_DEADLINE: Duration = Duration::from_mins(10);

/// What is tested. The feature is named so that its own tests run even where no crate asks for it.
/// Equal arguments reuse a build; others would compile half of the workspace once more.
const EVERYTHING: [&str; 3] = ["--workspace", "--features", "landfall-testkit/stack"];

/// Test binaries that run beside all others.
const IN_CLUSTERS: [&str; 2] = ["--test", "cluster"];

/// All others: patterns can't leave out one name, so they leave out those that begin with `c`, and
/// add what begins with `cl` again.
const OTHERS: [&str; 6] = ["--lib", "--bins", "--test", "[!c]*", "--test", "cl[!u]*"];

/// Returns the command that runs these of all tests.
fn test(place: &Place, which: &[&str]) -> Command {
    let always = ["test", "--locked", "--no-fail-fast"];
    cargo(place, &[&always, &EVERYTHING[..], which].concat())
}

/// Runs everything.
pub async fn run(place: &Place, _args: &CiArgs) -> anyhow::Result<()> {
    let mut stages =
        Stages::new(1 + tools::STAGES + check::STAGES + openstack::STAGES + 3 + image::STAGES + 4);
    debian::install(&mut stages, &[FOR_TESTS, FOR_BENCH]).await?;
    tools::install(&mut stages, place).await?;
    check::stages(&mut stages, place).await?;

    // Plain `cargo test` on purpose: it is everywhere, and it runs one test binary at a time, so
    // that tests under load don't disturb each other. Those in clusters mostly wait, and run beside
    // all others. After a failure it goes on: one run names all that fails.
    let mut build = test(place, &["--no-run"]);
    stages.run("build", BUILD_DEADLINE, &mut build).await?;
    let mut in_clusters = test(place, &IN_CLUSTERS);
    let mut others = test(place, &OTHERS);
    openstack::around(&mut stages, place, async |stages| {
        let both = [&mut in_clusters, &mut others];
        stages.run_tests("test", TEST_DEADLINE, both).await
    })
    .await?;
    let mut examples = test(place, &["--doc"]);
    stages
        .run("examples", BUILD_DEADLINE, &mut examples)
        .await?;

    // One build for the image, the demonstration and the benchmarks.
    let landfall = image::stages(&mut stages, place).await?;

    let mut demo = Command::new(&landfall);
    demo.current_dir(&place.root).args(["demo", "--once"]);
    stages.run("demo", RUN_DEADLINE, &mut demo).await?;
    let mut minute = soak::command(place, 1, &EVERYTHING);
    stages.run("soak", RUN_DEADLINE, &mut minute).await?;

    let mut fill = cargo(
        place,
        &[
            "bench",
            "--locked",
            "-p",
            "landfall-ipam",
            "--bench",
            "fill",
        ],
    );
    stages.run("bench ipam", BUILD_DEADLINE, &mut fill).await?;

    // This program as it is: what it would measure better with an optimized build, which takes
    // minutes, is of no use here.
    let mut peers = Command::new(std::env::current_exe()?);
    peers
        .current_dir(&place.root)
        .args(["bench", "proxy", "--quick", "--landfall"])
        .arg(&landfall);
    stages.run("bench proxy", RUN_DEADLINE, &mut peers).await?;

    stages.summary();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn no_test_binary_is_left_out() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let folders = fs::read_dir(crates).unwrap();
        let folders = folders.map(|it| it.unwrap().path().join("tests"));
        let names = folders
            .filter(|it| it.is_dir())
            .flat_map(|it| fs::read_dir(it).unwrap())
            .filter_map(|it| it.unwrap().path().file_stem()?.to_str().map(str::to_owned));
        let mut count = 0;
        for name in names {
            let is_other =
                !name.starts_with('c') || (name.starts_with("cl") && !name.starts_with("clu"));
            assert!(
                is_other || name == "cluster",
                "{name} matches no pattern of OTHERS"
            );
            count += 1;
        }
        assert!(count > 20, "{count}");
    }
}
