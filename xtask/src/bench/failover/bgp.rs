//! How long a router keeps the route to an address whose node is gone: each address is announced by
//! the one node with its endpoint, and FRR installs the routes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;

use super::bed::Bed;
use super::contestant::Contestant;
use super::layout::{NAMESPACE, ROUTER};
use super::objects::Announced;
use super::router::{Router, Sessions};
use super::{FailoverArgs, NODES, REST, contestants, drains, restarts};
use crate::bench::distribution::distribution;
use crate::bench::proxy::machine;
use crate::place::Place;

/// For so long a speaker that ends by itself is started again, as a kubelet does.
const REVIVED: Duration = Duration::from_secs(30);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The node is gone.
    Node,
    /// The speaker is killed.
    Speaker,
    /// The speaker is asked to end.
    Planned,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Series {
    /// A node is gone, and BFD watches it
    Bfd,
    /// A node is gone, without BFD
    Hold,
    /// A speaker is killed
    Killed,
    /// A speaker is asked to end
    Stopped,
    /// A speaker restarts, and the router keeps its routes
    Restarted,
    /// A speaker is asked to end while clients connect
    Drained,
}

/// Runs all series, or those that are asked for.
pub async fn measure(place: &Place, args: &FailoverArgs) -> anyhow::Result<()> {
    let (landfall, folder) = contestants(place, args)?;
    let mut all = Vec::new();
    if let Some(folder) = folder {
        all.extend(args.metallb_mode.iter().map(|mode| Contestant::MetalLb {
            folder: folder.clone(),
            mode: *mode,
        }));
    }
    all.push(landfall);
    // MetalLB's own definition of BGPPeer has numbers whose bounds do not fit their format, and API
    // servers refuse each object of it.
    let mut bed = Bed::start(place, NODES, None, Announced::Bgp).await?;
    bed.answer()?;
    println!("load {}", machine::load());
    if let Some(count) = args.drains {
        for contestant in &all {
            Series::Drained.play(&mut bed, contestant, count).await?;
        }
    } else {
        for series in Series::value_variants() {
            if !args.only.is_empty() && !args.only.contains(series) {
                continue;
            }
            for contestant in all.iter().filter(|it| series.is_for(it)) {
                let count = series.count(contestant, args.crashes);
                series.play(&mut bed, contestant, count).await?;
            }
        }
    }
    println!("load {}", machine::load());
    Ok(())
}

// === impl Series ===

impl Series {
    fn is_for(self, contestant: &Contestant) -> bool {
        contestant.is_complete() || !matches!(self, Self::Bfd | Self::Restarted)
    }

    /// How often it is played. A node with FRR takes ten seconds until it announces again, so only
    /// what is compared with a goal is played as often as that of the others.
    fn count(self, contestant: &Contestant, crashes: u32) -> u32 {
        match self {
            Self::Bfd => crashes,
            Self::Killed if !contestant.has_frr() => crashes,
            _ => crashes.div_ceil(10),
        }
    }

    fn sessions(self) -> Sessions {
        let usual = Sessions::default();
        match self {
            Self::Bfd => Sessions { bfd: true, ..usual },
            Self::Hold => Sessions { hold: 3, ..usual },
            Self::Restarted => Sessions {
                graceful_restart: true,
                ..usual
            },
            Self::Killed | Self::Stopped | Self::Drained => usual,
        }
    }

    async fn play(self, bed: &mut Bed, contestant: &Contestant, count: u32) -> anyhow::Result<()> {
        let sessions = self.sessions();
        let router = begin(bed, contestant, sessions).await?;
        let (name, loss) = match self {
            Self::Bfd => ("node gone, BFD 3 x 50 ms", Loss::Node),
            Self::Hold => ("node gone, no BFD, holdTime 3 s", Loss::Node),
            Self::Killed => ("speaker killed, no BFD", Loss::Speaker),
            Self::Stopped => ("speaker stopped, no BFD", Loss::Planned),
            Self::Restarted => {
                restarts::measure(bed, contestant, &router, count).await?;
                bed.stop_all();
                return bed.delete("bgppeer.metallb.io", "keeping").await;
            }
            Self::Drained => {
                drains::measure(bed, contestant, &router, count).await?;
                bed.stop_all();
                return Ok(());
            }
        };
        let what = (loss, sessions.bfd);
        let took = losses(bed, contestant, &router, what, count).await?;
        println!(
            "{contestant}, {name}: until the route is withdrawn  {}",
            distribution(took)
        );
        bed.stop_all();
        Ok(())
    }
}

/// Starts a router and speakers, and waits until all routes are there.
async fn begin(
    bed: &mut Bed,
    contestant: &Contestant,
    sessions: Sessions,
) -> anyhow::Result<Router> {
    let restart = sessions.graceful_restart;
    // Whether a peer keeps routes can't be changed: a name for each.
    let name = if restart { "keeping" } else { "tor" };
    let mut options = format!("holdTime: {}s", sessions.hold);
    if contestant.is_complete() {
        write!(
            options,
            ", connectTime: 1s, enableGracefulRestart: {restart}"
        )?;
    }
    if sessions.bfd {
        options.push_str(", bfdProfile: fast");
        bed.apply(&format!(
            "apiVersion: metallb.io/v1beta1\nkind: BFDProfile\nmetadata: {{name: fast, namespace: \
             {NAMESPACE}}}\nspec: {{transmitInterval: 50, receiveInterval: 50, \
             detectMultiplier: 3}}\n"
        ))
        .await?;
    }
    if restart {
        bed.delete("bgppeer.metallb.io", "tor").await?;
    }
    bed.apply(&format!(
        "apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: {name}, namespace: \
         {NAMESPACE}}}\nspec: {{myASN: 64500, peerASN: 64501, peerAddress: {ROUTER}, {options}}}\n"
    ))
    .await?;
    if !sessions.bfd {
        bed.delete("bfdprofile.metallb.io", "fast").await?;
    }
    let router = Router::start(NODES, sessions)?;
    bed.start_all(contestant, NODES).await?;
    for number in 0..usize::from(NODES) {
        come_back(bed, contestant, &router, number).await?;
    }
    Ok(router)
}

/// One loss after the other, each of another node.
async fn losses(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    (loss, bfd): (Loss, bool),
    count: u32,
) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    for turn in 0..count {
        let number = turn as usize % usize::from(NODES);
        let node = u8::try_from(number + 1)?;
        if bfd {
            router.until_watched(node).await?;
        }
        // BFD has yet to agree on its intervals, and losses come at any moment between two packets.
        let rest = REST * 3 + Duration::from_millis(u64::from(turn) * 37 % 500);
        tokio::time::sleep(rest).await;
        router.forget();
        let began = Instant::now();
        match loss {
            Loss::Node => bed.crash(node)?,
            Loss::Speaker => bed.kill(node)?,
            Loss::Planned => bed.stop(node)?,
        }
        let gone = router.until_lost(number).context("after a loss")?;
        took.push(gone.saturating_duration_since(began));
        bed.restart(contestant, node).await?;
        come_back(bed, contestant, router, number).await?;
    }
    Ok(took)
}

/// Waits until a node announces its address. MetalLB's speaker ends where the way to the API server
/// is not there yet.
async fn come_back(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    number: usize,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while router.ways(number)? != 1 && began.elapsed() < REVIVED {
        bed.revive(contestant)?;
        tokio::time::sleep(REST).await;
    }
    if router.ways(number)? != 1 && contestant.has_frr() {
        let node = u8::try_from(number + 1)?;
        eprintln!(
            "node {node} announces nothing after {REVIVED:?}, and begins again: {}",
            bed.said(node)
        );
        bed.kill(node)?;
        bed.restart(contestant, node).await?;
    }
    router.until_spread(number, 1).await
}
