//! What a cloud gets to do from cloud-provider-openstack and from Landfall: calls and time of the
//! same scenes, with both programs as they are released, on one cloud and in one run. Prints a
//! table; nothing is validated.
//!
//! ```text
//!  main ──> for each provider and size:  Bed (cluster + cloud + one of the two programs)
//!                                         └── scenes::play ──> Line, Line, ...
//!  Table <── the lines of both programs, side by side
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark's output is its purpose"
)]

mod bed;
mod cloud;
mod counts;
mod picture;
mod program;
mod scenes;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use landfall_testkit::cluster::CloudProviderOpenStack;

use self::bed::Bed;
use self::cloud::Cloud;
use self::program::Program;
use self::scenes::Scenes;
use self::table::Table;

/// Counts the calls of cloud-provider-openstack and of Landfall to an OpenStack, and how long they
/// take for the same work
#[derive(Debug, Parser)]
#[command(after_help = "\
Each program has a cluster and a project of its own, and gets the same scenes. Without limits it
takes about half an hour on the simulated cloud, and hours on the real one.

Examples:
  cargo xtask bench calls
  cargo xtask bench calls -- --providers amphora --nodes 80 --services 10
  cargo xtask bench calls -- --cloud real --providers ovn --nodes 20 --services 5")]
struct Arguments {
    /// The Landfall to measure
    #[arg(long, value_name = "PROGRAM")]
    landfall: PathBuf,
    /// Where load balancers are made
    #[arg(long, value_enum, default_value_t = Place::Simulated)]
    cloud: Place,
    /// Octavia's providers
    #[arg(long, value_delimiter = ',', default_value = "amphora,ovn")]
    providers: Vec<String>,
    /// Sizes of the cluster at which a Service is created and deleted
    #[arg(long, value_delimiter = ',', default_value = "80,300")]
    nodes: Vec<u16>,
    /// How many Services there are when a node comes, at the first size
    #[arg(long, value_delimiter = ',', default_value = "10,30")]
    services: Vec<u16>,
    /// How many seconds nothing happens, and how many a drift may take to be repaired
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    watched: u64,
    /// How many milliseconds the simulated Octavia takes for each change
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    settle: u64,
    /// Print every call that a scene counts, by method and path
    #[arg(long)]
    routes: bool,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// The simulator of the test kit, over HTTP
    Simulated,
    /// The stack of the test bed
    Real,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let landfall = arguments.landfall.canonicalize();
    let landfall = landfall.with_context(|| arguments.landfall.display().to_string())?;
    let reference = CloudProviderOpenStack::find().await?.controller;
    let programs = [Program::reference(reference), Program::landfall(landfall)];
    for provider in &arguments.providers {
        for (index, nodes) in arguments.nodes.iter().enumerate() {
            for groups in [true, false] {
                // What is about many Services is played once.
                let services = if index == 0 && !groups {
                    arguments.services.as_slice()
                } else {
                    &[]
                };
                let scenes = Scenes {
                    provider,
                    nodes: *nodes,
                    groups,
                    services,
                    watched: Duration::from_secs(arguments.watched),
                };
                let table = both(&arguments, &programs, &scenes).await?;
                println!("{table}");
            }
        }
    }
    Ok(())
}

/// Plays the scenes with both programs.
async fn both(
    arguments: &Arguments,
    programs: &[Program; 2],
    scenes: &Scenes<'_>,
) -> anyhow::Result<Table> {
    let [reference, landfall] = programs;
    let one = async |program| {
        let cloud = match arguments.cloud {
            Place::Simulated => Cloud::simulated(Duration::from_millis(arguments.settle)).await?,
            Place::Real => Cloud::real().await?,
        };
        let bed = Bed::open(cloud, program, scenes).await?;
        scenes.play(bed).await
    };
    // The real cloud is one for both, and would be busy with the other's work.
    let (theirs, ours) = match arguments.cloud {
        Place::Simulated => tokio::try_join!(one(reference), one(landfall))?,
        Place::Real => (one(reference).await?, one(landfall).await?),
    };
    Ok(Table::new(
        scenes.to_string(),
        theirs,
        ours,
        arguments.routes,
    ))
}
