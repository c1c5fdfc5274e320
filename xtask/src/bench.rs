//! Benchmarks against peers, in the same run. Programs, not timed tests: they print figures and
//! validate nothing.

mod addresses;
mod admin;
mod cluster;
mod distribution;
mod failover;
mod listening;
mod proxy;
mod up;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;
use clap::Subcommand;

use crate::cargo::cargo;
use crate::debian;
use crate::place::Place;
use crate::stage::{self, Stages};

/// `bench`
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The data plane against HAProxy and nginx: CPU, throughput, latency, memory
    #[command(after_help = proxy::HELP)]
    Proxy(proxy::ProxyArgs),
    /// The peer on hyper, which `bench proxy` starts
    #[command(hide = true)]
    Hyper(proxy::hyper::HyperArgs),
    /// `landfall controller` on a large cluster: memory, time to know it, CPU per event, writes
    #[command(after_help = cluster::HELP)]
    Cluster(cluster::ClusterArgs),
    /// `landfall up` with many Services: time to serve them, bytes written, memory, edits
    #[command(after_help = up::HELP)]
    Up(up::UpArgs),
    /// BFD: sessions that end although their way works, with idle and with busy cores; as root
    Bfd,
    /// `landfall speaker` on many nodes: how long an address is silent when its node dies
    #[command(after_help = failover::HELP)]
    Failover(failover::FailoverArgs),
    /// `landfall controller` with MetalLB's pools: time and writes of many addresses
    #[command(after_help = addresses::HELP)]
    Addresses(addresses::AddressesArgs),
    /// Calls to an OpenStack, and their time: cloud-provider-openstack and Landfall, side by side
    Calls {
        /// The Landfall to measure, if not one that is built now
        #[arg(long, value_name = "PROGRAM")]
        landfall: Option<PathBuf>,
        /// What the benchmark itself takes; `-- --help` shows it
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// 10,000 Services announced to 8 routers: time to the full table, memory, CPU of a change
    Routes,
    /// The address allocator: filling pools, claiming and releasing
    Ipam,
}

/// Runs a benchmark.
pub fn run(place: &Place, bench: Bench) -> anyhow::Result<()> {
    let unfit =
        cfg!(debug_assertions) && !matches!(&bench, Bench::Proxy(args) if args.needs_no_build());
    if let Bench::Failover(args) = &bench {
        // Before a build of minutes.
        args.check()?;
    }
    match bench {
        // With a program of its own, what is left to this one is to wait.
        Bench::Cluster(args) if !args.landfall.is_empty() => {
            stage::block_on(cluster::run(place, &args))
        }
        Bench::Up(args) if args.landfall.is_some() => up::run(place, &args),
        Bench::Failover(args) if args.landfall.is_some() => failover::run(place, &args),
        Bench::Addresses(args) if args.landfall.is_some() => {
            stage::block_on(addresses::run(place, &args))
        }
        Bench::Proxy(_)
        | Bench::Cluster(_)
        | Bench::Up(_)
        | Bench::Failover(_)
        | Bench::Addresses(_)
            if unfit =>
        {
            again_optimised(place)
        }
        Bench::Hyper(args) => proxy::hyper::run(&args),
        Bench::Cluster(args) => stage::block_on(cluster::run(place, &args)),
        Bench::Up(args) => up::run(place, &args),
        Bench::Failover(args) => failover::run(place, &args),
        Bench::Addresses(args) => stage::block_on(addresses::run(place, &args)),
        Bench::Proxy(args) => {
            stage::block_on(async {
                let mut stages = Stages::new(1);
                debian::install(&mut stages, &[debian::FOR_BENCH]).await
            })?;
            proxy::run(place, &args)
        }
        Bench::Bfd => {
            let line = [
                "run",
                "--locked",
                "--profile",
                "tools",
                "-p",
                "landfall-bfd",
            ];
            let example = ["--example", "busy"];
            replace(cargo(place, &[&line[..], &example].concat()).into_std())
        }
        Bench::Routes => {
            let line = [
                "run",
                "--locked",
                "--profile",
                "tools",
                "-p",
                "landfall-speaker",
                "--example",
                "full_table",
            ];
            replace(cargo(place, &line).into_std())
        }
        Bench::Calls {
            landfall,
            arguments,
        } => calls(place, landfall, &arguments),
        Bench::Ipam => {
            replace(cargo(place, &["bench", "-p", "landfall-ipam", "--bench", "fill"]).into_std())
        }
    }
}

/// Runs both programs; what is left to this one is to build.
fn calls(place: &Place, landfall: Option<PathBuf>, arguments: &[String]) -> anyhow::Result<()> {
    let landfall = if let Some(program) = landfall {
        failover::absolute(&program)?
    } else {
        build(
            place,
            &["build", "--locked", "--profile", "dist", "-p", "landfall"],
        )?;
        place.target().join("dist/landfall")
    };
    let line = [
        "bench",
        "--locked",
        "--profile",
        "dev",
        "-p",
        "landfall-testkit",
        "--features",
        "cluster,openstack,stack",
        "--bench",
        "beside",
        "--",
        "--landfall",
    ];
    let mut command = cargo(place, &line).into_std();
    command.arg(landfall).args(arguments);
    replace(command)
}

/// A load generator without optimisation would measure itself: builds it again, and Landfall as it
/// is shipped, and gives its place to that build.
fn again_optimised(place: &Place) -> anyhow::Result<()> {
    let builds = [
        ["build", "--locked", "--profile", "dist", "-p", "landfall"],
        ["build", "--locked", "--profile", "tools", "-p", "xtask"],
    ];
    for arguments in builds {
        build(place, &arguments)?;
    }
    let mut command = Command::new(place.target().join("tools/xtask"));
    command.args(std::env::args_os().skip(1));
    replace(command)
}

fn build(place: &Place, arguments: &[&str]) -> anyhow::Result<()> {
    let status = cargo(place, arguments).into_std().status()?;
    if !status.success() {
        bail!("cargo {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

fn replace(mut command: Command) -> anyhow::Result<()> {
    let error = command.exec();
    bail!(
        "{} can't be started: {error}",
        command.get_program().display()
    )
}

/// Waits while another process works.
#[expect(
    clippy::disallowed_methods,
    reason = "the measured process is another one, without figures"
)]
fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
