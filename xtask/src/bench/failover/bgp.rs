//! How long a router keeps the route to an address whose node is gone: each address is announced by
//! the one node with its endpoint, and FRR installs the routes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::bed::Bed;
use super::contestant::Contestant;
use super::layout::{NAMESPACE, ROUTER, address};
use super::objects::Announced;
use super::requests::{Client, Counted};
use super::router::{Router, Sessions};
use super::{FailoverArgs, NODES, REST, contestants, drains};
use crate::bench::distribution::distribution;
use crate::bench::proxy::machine;
use crate::place::Place;

/// For so long a speaker that ends by itself is started again, as a kubelet does.
const REVIVED: Duration = Duration::from_secs(20);

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

/// Runs all series.
pub async fn measure(place: &Place, args: &FailoverArgs) -> anyhow::Result<()> {
    let (landfall, metallb) = contestants(place, args)?;
    // MetalLB's own definition of BGPPeer has numbers whose bounds do not fit their format, and API
    // servers refuse each object of it.
    let mut bed = Bed::start(place, NODES, None, Announced::Bgp).await?;
    println!("load {}", machine::load());
    if let Some(count) = args.drains {
        let router = begin(&mut bed, &landfall, Sessions::default()).await?;
        return drains::measure(&mut bed, &landfall, &router, count).await;
    }
    let few = args.crashes.div_ceil(10);
    let usual = Sessions::default();
    let bfd = Sessions { bfd: true, ..usual };
    let shortest = Sessions { hold: 3, ..usual };
    let series = [
        ("node gone, BFD 3 x 50 ms", Loss::Node, bfd, args.crashes),
        ("node gone, no BFD, holdTime 3 s", Loss::Node, shortest, few),
        ("speaker killed, no BFD", Loss::Speaker, usual, args.crashes),
        ("speaker stopped, no BFD", Loss::Planned, usual, few),
    ];
    for (name, loss, sessions, count) in series {
        // MetalLB's own speaker has no BFD.
        let also = metallb.as_ref().filter(|_| !sessions.bfd);
        for contestant in also.into_iter().chain([&landfall]) {
            let router = begin(&mut bed, contestant, sessions).await?;
            let what = (loss, sessions.bfd);
            let took = losses(&mut bed, contestant, &router, what, count).await?;
            println!(
                "{contestant}, {name}: until the route is withdrawn  {}",
                distribution(took)
            );
            bed.stop_all();
        }
    }
    let keeping = Sessions {
        graceful_restart: true,
        ..usual
    };
    let router = begin(&mut bed, &landfall, keeping).await?;
    restarts(&mut bed, &landfall, &router, few).await?;
    bed.stop_all();
    drop(router);
    bed.delete("bgppeer.metallb.io", "keeping").await?;
    let router = begin(&mut bed, &landfall, usual).await?;
    drains::measure(&mut bed, &landfall, &router, few).await?;
    bed.stop_all();
    println!("load {}", machine::load());
    Ok(())
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
    // MetalLB's own speaker refuses everything if one of these is there.
    if contestant.has_admin() {
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
    router.until_spread(number, 1).await
}

/// Speakers restart while the router sends a thousand requests a second to their address.
async fn restarts(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    count: u32,
) -> anyhow::Result<()> {
    let mut all = Counted::default();
    for turn in 0..count {
        let number = turn as usize % usize::from(NODES);
        let node = u8::try_from(number + 1)?;
        let asking = Client::ping(router.id(), address(number));
        tokio::time::sleep(REST).await;
        bed.stop(node)?;
        tokio::time::sleep(REST).await;
        bed.restart(contestant, node).await?;
        tokio::time::sleep(REST * 3).await;
        all.add(asking.end()?);
    }
    println!(
        "speaker restarted {count} times, graceful restart: {} of {} requests without an answer",
        all.failed, all.asked
    );
    Ok(())
}
