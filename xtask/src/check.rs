//! `cargo xtask check`: all that can be said of the code without running it.

mod commits;
mod layers;
mod lines;
mod manifests;
mod sizes;
mod sources;
mod words;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;

use crate::cargo::cargo;
use crate::place::Place;
use crate::stage::{self, Stages};
use crate::tools;

/// Help of `check`.
pub const HELP: &str = "\
Stages, in order:
  lockfile   Cargo.lock fits the manifests, and every crate in it is available
  sources    sizes of files, #[ignore], todo!, unimplemented!, unsafe outside landfall-sys, paths of
             one machine
  sizes      files over 500 lines, functions over 80, circles of imports, tests left out
  words      lines of at most 100 columns in Rust and Markdown, the words that docs/glossary.md
             excludes, subjects of commits
  manifests  banned crates, versions in one place, licence, lints
  layers     a crate uses only crates below it (ARCHITECTURE.md)
  fmt        cargo fmt --check
  deny       licences, sources and banned crates of the whole graph (deny.toml)
  clippy     every target of the workspace, warnings are errors
  doc        rustdoc, warnings are errors
Security advisories need a database from the network, so they are a separate command:
  cargo deny check advisories";

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {}

/// How many stages [`stages`] runs.
pub const STAGES: usize = 10;

/// Compiling may take this long from nothing on a slow machine.
const DEADLINE: Duration = Duration::from_mins(30);

/// Runs `check`.
pub async fn run(place: &Place, _args: &CheckArgs) -> anyhow::Result<()> {
    let mut all = Stages::new(1 + STAGES);
    tools::cargo_deny(&mut all, place).await?;
    stages(&mut all, place).await?;
    all.summary();
    Ok(())
}

/// The stages of `check`, as a part of a longer command.
pub async fn stages(stages: &mut Stages, place: &Place) -> anyhow::Result<()> {
    let again = "cargo xtask check";
    stages
        .run(
            "lockfile",
            DEADLINE,
            &mut cargo(place, &["fetch", "--locked"]),
        )
        .await?;
    stages
        .work("sources", again, async {
            settle(&sources::validate(place)?)
        })
        .await?;
    stages
        .work("sizes", again, async { settle(&sizes::check(place)?) })
        .await?;
    stages
        .work("words", again, async { settle(&texts(place)?) })
        .await?;
    let metadata = Metadata::read(place).await?;
    let graph = graph(place).await?;
    stages
        .work("manifests", again, async {
            settle(&manifests::validate(place, &metadata, &graph)?)
        })
        .await?;
    stages
        .work("layers", again, async {
            settle(&layers::validate(&metadata))
        })
        .await?;
    stages
        .run(
            "fmt",
            DEADLINE,
            &mut cargo(place, &["fmt", "--all", "--check"]),
        )
        .await?;

    let mut deny = tokio::process::Command::new(tools::cargo_deny_program(place));
    deny.current_dir(&place.root).args([
        "--locked",
        "--offline",
        "--workspace",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    stages.run("deny", DEADLINE, &mut deny).await?;

    let mut clippy = cargo(
        place,
        &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    );
    stages.run("clippy", DEADLINE, &mut clippy).await?;

    let mut doc = cargo(place, &["doc", "--locked", "--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    stages.run("doc", DEADLINE, &mut doc).await
}

/// Every crate that is built for any target, with any feature. Other than `cargo metadata` and
/// Cargo.lock it leaves out what only a feature that is off would need.
async fn graph(place: &Place) -> anyhow::Result<String> {
    let mut command = cargo(place, &["tree", "--locked", "--offline", "--workspace"]);
    command
        .args([
            "--all-features",
            "--target",
            "all",
            "--edges",
            "normal,build,dev",
        ])
        .args(["--prefix", "none"]);
    stage::output(&mut command).await
}

/// Checks lines and words of all files, and subjects of commits.
fn texts(place: &Place) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let glossary = std::fs::read_to_string(place.root.join(words::GLOSSARY))
        .with_context(|| format!("{} can't be read", words::GLOSSARY))?;
    let excluded = words::table(&glossary)?;
    sources::each(place, |path, text| {
        lines::check_file(path, text, &mut findings);
        words::check_file(path, text, &excluded, &mut findings);
    })?;
    commits::check(place, &mut findings);
    Ok(findings)
}

/// Returns what follows the last dot in the name of a file.
fn extension(path: &str) -> Option<&str> {
    Path::new(path).extension()?.to_str()
}

/// What a rule found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// These fail the check.
    pub errors: Vec<String>,
    /// These are printed.
    pub warnings: Vec<String>,
}

/// Prints findings, and fails if there are errors.
fn settle(findings: &Findings) -> anyhow::Result<()> {
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    if !findings.errors.is_empty() {
        bail!("{} broken rules, printed above", findings.errors.len());
    }
    Ok(())
}

/// What we read of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// One package of the graph.
#[derive(Debug, Deserialize)]
pub struct Package {
    id: String,
    name: String,
    license: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
    dependencies: Vec<Dependency>,
}

/// One line under `[dependencies]` and its kin.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    name: String,
    /// `None` for a normal one, else `dev` or `build`.
    kind: Option<String>,
    path: Option<String>,
}

impl Metadata {
    async fn read(place: &Place) -> anyhow::Result<Self> {
        let mut command = cargo(
            place,
            &[
                "metadata",
                "--locked",
                "--offline",
                "--all-features",
                "--format-version",
                "1",
            ],
        );
        let text = stage::output(&mut command).await?;
        serde_json::from_str(&text).context("cargo metadata can't be understood")
    }

    /// Our own packages, by name.
    fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }
}
