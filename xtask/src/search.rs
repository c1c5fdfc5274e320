//! Property tests with cases that were never tried: round after round, each with another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

use crate::cargo::cargo;
use crate::place::Place;
use crate::stage::Stages;

/// Help of `search`.
pub const HELP: &str = "\
`cargo test` runs the same cases each time, from the seed in .cargo/config.toml. Here each round
has a seed of its own, which is printed. The first round with a failure ends the search; the case
that failed is then in a file below proptest-regressions, and runs first in every `cargo test`.
Commit that file together with the fix.";

/// `search`
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Begin no further round after so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    minutes: u64,
    /// Cases of each test in a round, unless a test asks for a number of its own
    #[arg(long, value_name = "N", default_value_t = 4096)]
    cases: u32,
    /// Only the tests of this package; may be repeated
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// One round with this seed: what an earlier one has printed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// A round that takes longer hangs.
const ROUND_DEADLINE: Duration = Duration::from_mins(120);

/// Runs rounds until the time is over.
pub async fn run(place: &Place, args: &SearchArgs) -> anyhow::Result<()> {
    let mut packages = packages(place)?;
    packages.retain(|name, _| args.package.is_empty() || args.package.contains(name));
    anyhow::ensure!(
        !packages.is_empty(),
        "no property test is in these packages"
    );
    let tests: BTreeSet<&String> = packages.values().flatten().collect();
    let mut line = vec!["test", "--locked", "--tests"];
    line.extend(packages.keys().flat_map(|name| ["-p", name.as_str()]));
    line.push("--");
    line.extend(tests.iter().map(|name| name.as_str()));
    let begun = Instant::now();
    let time = Duration::from_secs(args.minutes.saturating_mul(60));
    let mut round = 0;
    while round == 0 || (args.seed.is_none() && begun.elapsed() < time) {
        round += 1;
        let seed = args.seed.unwrap_or_else(fresh);
        let mut command = cargo(place, &line);
        command
            .env("PROPTEST_RNG_SEED", seed.to_string())
            .env("PROPTEST_CASES", args.cases.to_string());
        let name = format!("round {round}, seed {seed}");
        Stages::new(1)
            .run(&name, ROUND_DEADLINE, &mut command)
            .await
            .with_context(|| {
                format!(
                    "seed {seed}: the case is in a file below proptest-regressions (git status); \
                     repeat with cargo xtask search --seed {seed} --cases {}",
                    args.cases
                )
            })?;
    }
    println!("{round} rounds of {} tests found nothing", tests.len());
    Ok(())
}

/// A number that no earlier run had.
fn fresh() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The property tests of each package.
fn packages(place: &Place) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut packages = BTreeMap::new();
    for folder in fs::read_dir(place.root.join("crates")).context("crates")? {
        let folder = folder?;
        let mut tests = BTreeSet::new();
        walk(&folder.path(), &mut tests)?;
        if !tests.is_empty() {
            packages.insert(package_of(&folder.path())?, tests);
        }
    }
    Ok(packages)
}

/// The name in a package's manifest.
fn package_of(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut names = text
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let name = names.next();
    Ok(name
        .with_context(|| format!("{} names no package", path.display()))?
        .to_owned())
}

fn walk(folder: &Path, tests: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, tests)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            tests.extend(tests_in(&text));
        }
    }
    Ok(())
}

/// The names of the functions in `proptest!`.
fn tests_in(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut end: Option<String> = None;
    for line in source.lines() {
        let begin = line.trim_start();
        match &end {
            Some(last) if line == last => end = None,
            Some(_) => {
                let name = begin
                    .strip_prefix("fn ")
                    .and_then(|it| it.split('(').next());
                names.extend(name.map(str::to_owned));
            }
            None if begin == concat!("prop", "test! {") => {
                let indent = line.len() - begin.len();
                end = Some(format!("{}}}", " ".repeat(indent)));
            }
            None => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_where_the_macro_is_and_nowhere_else() {
        let source = [
            "fn before() {}",
            concat!("    prop", "test! {"),
            "        #![proptest_config(ProptestConfig::with_cases(5))]",
            "        #[test]",
            "        fn one_holds(it in any::<u8>()) {",
            "            let inner = || { () };",
            "        }",
            "        #[test]",
            "        fn another_holds(",
            "    }",
            "fn after() {}",
        ]
        .join("\n");
        assert_eq!(tests_in(&source), ["one_holds", "another_holds"]);
    }

    #[test]
    fn every_package_that_uses_proptest_has_tests_to_search_with() {
        let place = Place::find().unwrap();
        let packages = packages(&place).unwrap();
        let openstack = &packages["landfall-openstack"];
        assert!(openstack.contains("from_halfway_it_becomes_what_is_wanted_then"));
        let of_manifests = fs::read_dir(place.root.join("crates")).unwrap();
        let uses = of_manifests
            .map(|it| it.unwrap().path())
            .filter(|path| {
                let manifest = fs::read_to_string(path.join("Cargo.toml"));
                manifest.is_ok_and(|text| text.contains("\nproptest"))
            })
            .map(|path| package_of(&path).unwrap());
        assert_eq!(
            uses.collect::<BTreeSet<_>>(),
            packages.keys().cloned().collect()
        );
    }

    #[test]
    fn plain_tests_have_a_seed_and_each_search_another() {
        let place = Place::find().unwrap();
        let config = fs::read_to_string(place.root.join(".cargo/config.toml")).unwrap();
        assert!(config.contains("\nPROPTEST_RNG_SEED = \""), "{config}");
        assert_ne!(fresh(), fresh());
    }
}
