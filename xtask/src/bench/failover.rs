//! How long an address is silent when the node that announces it dies: real speakers, one per
//! network namespace, and a client of the kernel's on the same bridge. Pods are not needed: the
//! kernel of each node answers pings to the addresses, and only for ARP it is silent.
//!
//! ```text
//!   this namespace: API server, bridge 10.78.0.254, pings every 2 ms
//!        │
//!   ┌────┴────┬── ...  node-N: 10.78.1.N, speaker; 10.78.2.1 to .4 on lo, without ARP
//! ```

pub(super) mod bed;
mod bgp;
mod client;
mod connections;
mod contestant;
mod drains;
mod frr;
mod layout;
mod neighbours;
mod node;
mod objects;
mod processes;
mod requests;
mod restarts;
mod router;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use landfall_testkit::cluster::Programs;

use self::bed::Bed;
use self::bgp::Series;
use self::client::Client;
use self::contestant::{Contestant, Mode};
use self::layout::ADDRESSES;
use self::objects::Announced;
use super::distribution::distribution;
use super::proxy::{link, machine, process};
use crate::place::Place;
use crate::stage;

/// Help of `bench failover`.
pub const HELP: &str = "\
Needs root, and kube-apiserver, etcd and kubectl as the tests do. A crash takes the link of the node
down and kills its speaker; what is measured is the longest time between two answers to a client.
More than 30 speakers need more room for neighbours than Linux has by default; it says how much.

Examples:
  cargo xtask bench failover
  cargo xtask bench failover --members 3,10 --crashes 20 --busy 1
  cargo xtask bench failover --bgp --metallb ~/.cache/landfall/metallb/v0.15.2
  cargo xtask bench failover --bgp --drains 25
  cargo xtask bench failover --bgp --only bfd --metallb-mode frr \
      --metallb ~/.cache/landfall/metallb/v0.15.2
  cargo xtask bench failover --members 3 --metallb ~/.cache/landfall/metallb/v0.15.2";

/// `bench failover`
#[derive(Debug, Args)]
pub struct FailoverArgs {
    /// Speakers, for one series of crashes each
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_values_t = [3, 10, 100],
        value_parser = clap::value_parser!(u8).range(2..=200)
    )]
    members: Vec<u8>,
    /// Crashes of owners in each series
    #[arg(long, value_name = "N", default_value_t = 100)]
    crashes: u32,
    /// Minutes with all cores busy, in which no crash happens and none may be found; once, with the
    /// second number of speakers if there are several
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    busy: u64,
    /// How long a router (FRR) keeps the route to a node that is gone, with and without BFD,
    /// instead
    #[arg(long)]
    bgp: bool,
    /// With --bgp: only that speakers are stopped while clients connect, so many times
    #[arg(long, value_name = "N", requires = "bgp")]
    drains: Option<u32>,
    /// With --bgp: only these series
    #[arg(
        long,
        value_delimiter = ',',
        requires = "bgp",
        conflicts_with = "drains"
    )]
    only: Vec<Series>,
    /// A folder with MetalLB's `speaker` and its `manifest.yaml`, to be measured with the first
    /// number of speakers, too
    #[arg(long, value_name = "FOLDER")]
    metallb: Option<PathBuf>,
    /// With --bgp: how MetalLB is measured; with FRR that needs Debian's `frr-pythontools`
    #[arg(
        long,
        value_delimiter = ',',
        requires = "bgp",
        default_value = "native"
    )]
    metallb_mode: Vec<Mode>,
    /// The Landfall to measure, if not the one just built
    #[arg(long, value_name = "PROGRAM")]
    pub landfall: Option<PathBuf>,
}

/// The nodes with BGP; each has an address.
const NODES: u8 = 3;

/// The longest outage that is waited for.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long everything is left alone before a crash, at least.
const REST: Duration = Duration::from_millis(500);

/// How long speakers and the client's neighbour table take until nothing changes any more.
const SETTLED: Duration = Duration::from_secs(8);

/// A gap that a user would notice.
const NOTICED: Duration = Duration::from_millis(100);

impl FailoverArgs {
    /// Returns an error if this machine has no room for what is to be measured.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.bgp {
            return Ok(());
        }
        neighbours::check(self.most())
    }

    /// The most speakers at a time.
    fn most(&self) -> u8 {
        self.members.iter().copied().max().unwrap_or(3)
    }
}

/// Runs `bench failover`.
pub fn run(place: &Place, args: &FailoverArgs) -> anyhow::Result<()> {
    // There is nothing to download them from inside.
    stage::block_on(async { Ok(Programs::find().await.map(drop)?) })?;
    if !link::enter()? {
        bail!("network namespaces can't be made: run this as root");
    }
    if args.bgp {
        return stage::block_on(bgp::measure(place, args));
    }
    stage::block_on(measure(place, args))
}

async fn measure(place: &Place, args: &FailoverArgs) -> anyhow::Result<()> {
    let (landfall, folder) = contestants(place, args)?;
    let mode = Mode::Native;
    let metallb = folder.map(|folder| Contestant::MetalLb { folder, mode });
    let mut bed = Bed::start(place, args.most(), metallb.as_ref(), Announced::Layer2).await?;
    let mut client = Client::start(ADDRESSES)?;
    println!("load {}", machine::load());
    for (series, members) in args.members.iter().enumerate() {
        let also = metallb.as_ref().filter(|_| series == 0);
        for contestant in also.into_iter().chain([&landfall]) {
            crashes(&mut bed, &mut client, contestant, *members, args.crashes).await?;
            if series == 1.min(args.members.len() - 1) && args.busy > 0 {
                busy(&mut bed, &mut client, *members, args.busy).await?;
            }
            bed.stop_all();
        }
    }
    println!("load {}", machine::load());
    Ok(())
}

/// Returns what is measured, and the folder of MetalLB if it is, too.
fn contestants(
    place: &Place,
    args: &FailoverArgs,
) -> anyhow::Result<(Contestant, Option<PathBuf>)> {
    let built = place.target().join("dist/landfall");
    let landfall = Contestant::Landfall {
        program: absolute(args.landfall.as_ref().unwrap_or(&built))?,
    };
    Ok((landfall, args.metallb.as_ref().map(absolute).transpose()?))
}

/// Returns the path as nodes need it, which run in another folder.
pub(super) fn absolute(path: &PathBuf) -> anyhow::Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("{} is not there", path.display()))
}

/// One crash after the other, each of a node that owns an address.
async fn crashes(
    bed: &mut Bed,
    client: &mut Client,
    contestant: &Contestant,
    members: u8,
    count: u32,
) -> anyhow::Result<()> {
    let began = Instant::now();
    bed.start_all(contestant, members).await?;
    client.until_all_answer(DEADLINE).await?;
    // Members are still getting to know each other. And a kernel that has just confirmed a
    // neighbour ignores an announcement: the last of those that are repeated has to be over.
    tokio::time::sleep(SETTLED).await;
    let owners = (0..ADDRESSES)
        .map(Client::owner)
        .collect::<Result<Vec<_>, _>>()?;
    eprintln!(
        "{members} of {contestant} run after {:.1?}",
        began.elapsed()
    );
    let (mut outages, mut returns) = (Vec::new(), Vec::new());
    for crash in 0..count {
        let address = crash as usize % ADDRESSES;
        let owner = owners[address];
        come_back(bed, client, contestant, address, owner).await?;
        // At any moment between two pings of the membership.
        tokio::time::sleep(REST + Duration::from_millis(u64::from(crash) * 37 % 500)).await;
        let since = client.now();
        bed.crash(owner)?;
        let answered = client.until_answered(address, client.now(), DEADLINE);
        answered.await.context("after a crash")?;
        outages.push(client.longest_gap(address, since));
        let since = client.now();
        bed.restart(contestant, owner).await?;
        // The address comes back to the best node.
        come_back(bed, client, contestant, address, owner).await?;
        tokio::time::sleep(REST).await;
        returns.push(client.longest_gap(address, since));
    }
    println!("{contestant}, {members} members, {count} crashes of owners");
    println!("  without an answer           {}", distribution(outages));
    println!("  when the owner comes back   {}", distribution(returns));
    let pids = bed.pids();
    let resident = process::resident(&pids)? / pids.len().max(1) as f64 / 1024.0 / 1024.0;
    let (before, rest) = (process::cpu_seconds(&pids)?, Duration::from_secs(5));
    tokio::time::sleep(rest).await;
    let cpu = (process::cpu_seconds(&pids)? - before) / rest.as_secs_f64();
    let each = cpu / pids.len().max(1) as f64 * 100.0;
    println!("  each at rest                {resident:.1} MiB resident, {each:.2} % of a core");
    Ok(())
}

/// Waits until an address is at its best node again. A speaker that gave up is started again, as a
/// kubelet does.
async fn come_back(
    bed: &mut Bed,
    client: &Client,
    contestant: &Contestant,
    address: usize,
    owner: u8,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while client.until_owned_by(address, owner, REST).await.is_err() {
        if began.elapsed() > DEADLINE {
            eprintln!("node {owner} does not get its address back within {DEADLINE:?}");
            break;
        }
        bed.revive(contestant)?;
    }
    Ok(())
}

/// All cores are busy with other work: is anything taken for a crash?
async fn busy(bed: &mut Bed, client: &mut Client, members: u8, minutes: u64) -> anyhow::Result<()> {
    let before = bed.counters().await?;
    let since = client.now();
    let work = bed::Work::start()?;
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    drop(work);
    let after = bed.counters().await?;
    let noticed: usize = (0..ADDRESSES)
        .map(|address| client.gaps(address, since, NOTICED))
        .sum();
    let longest = (0..ADDRESSES).map(|address| client.longest_gap(address, since));
    let longest = longest.max().context("no address")?;
    println!("{members} members, {minutes} minutes with all cores busy");
    println!("  taken for dead              {}", after.died - before.died);
    println!(
        "  suspected; paused           {}; {}",
        after.suspected - before.suspected,
        after.paused - before.paused
    );
    println!(
        "  gaps over {NOTICED:?} at a client {noticed}; the longest {longest:.1?}, also because \
         of the client's own waiting for a core"
    );
    Ok(())
}
