//! Landfall's data plane against HAProxy and nginx, in one run.
//!
//! ```text
//! load (this process) ──> proxy (a process of its own) ──> members (this process)
//!     the other CPUs            one CPU to itself             the other CPUs
//! ```
//!
//! Every proxy has the same work, one worker, the same CPU and members of its own; they take turns,
//! and the first one changes with every round. What a proxy costs is read from `/proc`.

mod configs;
mod contestant;
mod counters;
mod figure;
pub(super) mod hyper;
pub(super) mod link;
mod load;
pub(super) mod machine;
mod members;
pub(super) mod process;
mod report;
mod scenario;
mod sizes;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::place::Place;
use crate::stage::Interrupted;

use contestant::{Contestant, Instance, Programs};
use figure::Figures;
use link::Far;
use machine::Machine;
use report::Report;
use scenario::Scenario;
use sizes::Sizes;

/// Help of `bench proxy`.
pub const HELP: &str = "\
Takes at least a few minutes, and needs an idle machine: the load before and after is printed.
docs/benchmarks.md defines each figure, how it is measured, and how the peers are configured.

Examples:
  cargo xtask bench proxy --json figures.json
  cargo xtask bench proxy --only bulk,connect --rounds 9
  cargo xtask bench proxy --quick                          (a test; its figures mean little)";

/// `bench proxy`
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Rounds; every proxy is measured once in each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
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

impl ProxyArgs {
    /// Returns whether it is a try, whose figures mean little, of a program that is there.
    pub const fn needs_no_build(&self) -> bool {
        self.quick && self.landfall.is_some()
    }
}

/// Runs `bench proxy`.
pub fn run(place: &Place, args: &ProxyArgs) -> anyhow::Result<()> {
    let mut plan = Plan::new(place, args)?;
    if plan.scenarios.contains(&Scenario::Link) && !link::enter()? {
        eprintln!("warning: no link, because network namespaces can't be made: try as root");
        plan.scenarios
            .retain(|scenario| *scenario != Scenario::Link);
    }
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
    let failed = report.own_failures();
    if !failed.is_empty() {
        let failed: Vec<_> = failed.iter().map(ToString::to_string).collect();
        bail!("Landfall failed at {}", failed.join(", "));
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

/// The proxies of one run, and what they are started with.
struct Field<'a> {
    plan: &'a Plan,
    machine: &'a Machine,
    configs: &'a Path,
    sizes: Sizes,
    running: BTreeMap<Contestant, Instance>,
}

impl Field<'_> {
    async fn start(&self, contestant: Contestant) -> anyhow::Result<Instance> {
        eprintln!("starting {contestant}");
        let folder = self.configs.join(contestant.key());
        let programs = &self.plan.programs;
        contestant
            .start(programs, self.machine, &folder, &self.sizes)
            .await
    }

    /// Has a proxy do the work of a scenario once. One that runs already goes on; after a failure
    /// it has ended, so that the next scenario gets a new one.
    async fn work(
        &mut self,
        scenario: Scenario,
        contestant: Contestant,
        warm_up: bool,
    ) -> anyhow::Result<Figures> {
        let instance = match self.running.remove(&contestant) {
            Some(instance) => instance,
            None => self.start(contestant).await?,
        };
        let figures = if warm_up {
            scenario.warm_up(&instance, &self.sizes).await?;
            Vec::new()
        } else {
            scenario.measure(&instance, &self.sizes).await?
        };
        if scenario.wants_fresh() {
            instance.stop().await?;
        } else {
            self.running.insert(contestant, instance);
        }
        Ok(figures)
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        while let Some((_, instance)) = self.running.pop_first() {
            instance.stop().await?;
        }
        Ok(())
    }
}

async fn measure(plan: &Plan, machine: Machine) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let mut sizes = plan.sizes.within(&machine);
    sizes.link = plan.scenarios.contains(&Scenario::Link);
    let far = sizes.link.then(Far::start).transpose()?;
    let mut report = Report::new(&machine, &plan.programs, plan.rounds, sizes);
    let _members = members::start(&plan.contestants, &sizes, far.as_ref())?;
    let mut field = Field {
        plan,
        machine: &machine,
        configs: plan.configs.as_deref().unwrap_or_else(|| folder.path()),
        sizes,
        running: BTreeMap::new(),
    };
    // Memory is that of a process which has done nothing else.
    let (fresh, kept): (Vec<_>, Vec<_>) = plan
        .scenarios
        .iter()
        .partition(|scenario| scenario.wants_fresh());
    for scenario in kept {
        run_scenario(&mut field, scenario, plan.rounds, &mut report).await;
    }
    field.end().await?;
    for scenario in fresh {
        let rounds = plan.rounds.min(scenario.fresh_rounds(&sizes));
        run_scenario(&mut field, scenario, rounds, &mut report).await;
    }
    report.finish();
    Ok(report)
}

/// Has every proxy do the work of a scenario in each round. One that fails has no further part.
async fn run_scenario(field: &mut Field<'_>, scenario: Scenario, rounds: u16, report: &mut Report) {
    let suits = |one: &Contestant| scenario.suits(*one);
    let takers: Vec<_> = field
        .plan
        .contestants
        .iter()
        .copied()
        .filter(suits)
        .collect();
    let warm_up = (!scenario.wants_fresh()).then_some(None);
    for round in warm_up.into_iter().chain((0..rounds).map(Some)) {
        if let Some(round) = round {
            eprintln!("{scenario}: round {} of {rounds}", round + 1);
        }
        for index in 0..takers.len() {
            let place = (index + usize::from(round.unwrap_or_default())) % takers.len();
            let Some(&contestant) = takers.get(place) else {
                continue;
            };
            if report.has_failed(scenario, contestant) {
                continue;
            }
            match field.work(scenario, contestant, round.is_none()).await {
                Ok(figures) => {
                    for (figure, value) in figures {
                        report.add(scenario, figure, contestant, value);
                    }
                }
                Err(error) => {
                    eprintln!("{contestant} failed: {error:#}");
                    report.fail(scenario, contestant, &error);
                }
            }
        }
    }
}
