//! Landfall's data plane against HAProxy and nginx, in one run.
//!
//! ```text
//! load (this process) ──> proxy (a process of its own) ──> members (this process)
//!     the other CPUs            one CPU to itself             the other CPUs
//! ```
//!
//! Every proxy has the same work, one worker, the same CPU and members of its own; they take turns,
//! and who goes first changes with every round. What a proxy costs is read from `/proc`.

mod configs;
mod contestant;
mod load;
mod machine;
mod members;
pub(super) mod process;
mod report;
mod scenario;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::place::Place;
use crate::stage::Interrupted;
use contestant::{Contestant, Programs};
use machine::Machine;
use report::Report;
use scenario::{Scenario, Sizes};

/// Help of `bench proxy`.
pub const HELP: &str = "\
Runs at least a few minutes, and wants the machine to itself: the load before and after is printed.
docs/benchmarks.md says what each figure means, how it is measured, and how the peers are configured.

Examples:
  cargo xtask bench proxy --json figures.json
  cargo xtask bench proxy --only bulk,connect --rounds 9
  cargo xtask bench proxy --quick                          (that it works; its figures mean little)";

/// `bench proxy`
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Rounds; every proxy is measured once in each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// One short round with little work, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only these scenarios
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SCENARIO")]
    only: Vec<Scenario>,
    /// Only these proxies
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PROXY")]
    among: Vec<Contestant>,
    /// Write every sample to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Landfall to measure, if not the one just built
    #[arg(long, value_name = "PROGRAM")]
    landfall: Option<PathBuf>,
    /// Write the configurations to this folder and leave them there
    #[arg(long, value_name = "DIR")]
    configs: Option<PathBuf>,
}

/// Runs `bench proxy`.
pub fn run(place: &Place, args: &ProxyArgs) -> anyhow::Result<()> {
    let plan = Plan::new(place, args)?;
    let machine = Machine::prepare(plan.sizes.idle)?;
    // Made after the machine was prepared, so that its threads stay off the proxies' CPU.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(machine.load_cpus().max(1))
        .enable_all()
        .build()?;
    let report = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the work ends every proxy that it had started.
        tokio::select! {
            report = measure(&plan, machine) => report,
            _ = interrupt.recv() => Err(Interrupted::new(2).into()),
            _ = terminate.recv() => Err(Interrupted::new(15).into()),
        }
    })?;
    println!("{report}");
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("{} can't be written", file.display()))?;
    }
    Ok(())
}

/// What is to be measured.
struct Plan {
    scenarios: Vec<Scenario>,
    contestants: Vec<Contestant>,
    programs: Programs,
    sizes: Sizes,
    rounds: u16,
    configs: Option<PathBuf>,
}

impl Plan {
    fn new(place: &Place, args: &ProxyArgs) -> anyhow::Result<Self> {
        let scenarios = if args.only.is_empty() {
            Scenario::ALL.to_vec()
        } else {
            args.only.clone()
        };
        let asked = |one: &Contestant| args.among.is_empty() || args.among.contains(one);
        let useful = |one: &Contestant| scenarios.iter().any(|scenario| scenario.suits(*one));
        let contestants: Vec<_> = Contestant::ALL
            .into_iter()
            .filter(|one| asked(one) && useful(one))
            .collect();
        if contestants.is_empty() {
            bail!("none of these proxies takes part in these scenarios");
        }
        let landfall = args
            .landfall
            .clone()
            .unwrap_or_else(|| place.target().join("dist/landfall"));
        let programs = Programs::find(landfall, &contestants)?;
        Ok(Self {
            scenarios,
            contestants,
            programs,
            sizes: if args.quick {
                Sizes::QUICK
            } else {
                Sizes::FULL
            },
            rounds: if args.quick { 1 } else { args.rounds },
            configs: args.configs.clone(),
        })
    }
}

async fn measure(plan: &Plan, machine: Machine) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let configs = plan.configs.as_deref().unwrap_or_else(|| folder.path());
    let sizes = plan.sizes.within(&machine);
    let mut report = Report::new(&machine, &plan.programs, plan.rounds, sizes);
    let _members = members::start(&plan.contestants)?;

    let mut running = Vec::new();
    for &contestant in &plan.contestants {
        eprintln!("starting {contestant}");
        let folder = configs.join(contestant.key());
        running.push(
            contestant
                .start(&plan.programs, &machine, &folder, &sizes)
                .await?,
        );
    }
    for &scenario in plan
        .scenarios
        .iter()
        .filter(|scenario| !scenario.wants_fresh())
    {
        let takers: Vec<_> = running
            .iter()
            .filter(|instance| scenario.suits(instance.contestant))
            .collect();
        for instance in &takers {
            scenario.warm_up(instance, &sizes).await?;
        }
        for round in 0..usize::from(plan.rounds) {
            eprintln!("{scenario}: round {} of {}", round + 1, plan.rounds);
            for index in 0..takers.len() {
                let Some(instance) = takers.get((index + round) % takers.len()) else {
                    continue;
                };
                for (figure, value) in scenario.measure(instance, &sizes).await? {
                    report.add(scenario, figure, instance.contestant, value);
                }
            }
        }
    }
    for instance in running {
        instance.stop().await?;
    }
    // Memory is that of a process which has done nothing else.
    for &scenario in plan
        .scenarios
        .iter()
        .filter(|scenario| scenario.wants_fresh())
    {
        for round in 0..usize::from(plan.rounds.min(sizes.fresh_rounds)) {
            eprintln!("{scenario}: round {}", round + 1);
            for &contestant in plan.contestants.iter().filter(|one| scenario.suits(**one)) {
                let folder = configs.join(contestant.key());
                let instance = contestant
                    .start(&plan.programs, &machine, &folder, &sizes)
                    .await?;
                for (figure, value) in scenario.measure(&instance, &sizes).await? {
                    report.add(scenario, figure, contestant, value);
                }
                instance.stop().await?;
            }
        }
    }
    report.finish();
    Ok(report)
}
