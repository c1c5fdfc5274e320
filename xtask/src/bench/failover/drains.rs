//! Speakers end as planned while a router spreads connections over all nodes: with the hash of its
//! kernel alone, and with connections that stay with the node that they began with.

use std::time::Instant;

use super::bed::Bed;
use super::connections::{Client, Made};
use super::contestant::Contestant;
use super::layout::{ADDRESSES, address};
use super::processes::Process;
use super::router::Router;
use super::{NODES, REST};

/// The number of the address that all nodes announce.
const SHARED: usize = ADDRESSES - 1;

/// Clients that connect at the same time.
const CLIENTS: usize = 4;

/// What was found.
#[derive(Default)]
struct Found {
    short: Made,
    kept: Made,
    changes: Vec<Instant>,
}

/// Stops speakers so many times, in each of both ways.
pub async fn measure(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    count: u32,
) -> anyhow::Result<()> {
    let clients = Router::clients()?;
    for is_pinned in [false, true] {
        let way = if is_pinned {
            router.pin(NODES)?;
            "connections pinned by the router"
        } else {
            "the kernel's hash"
        };
        let mut all = Found::default();
        for turn in 0..count {
            drain(bed, contestant, router, &clients, turn, &mut all).await?;
        }
        for (kind, made) in [("short", &all.short), ("kept", &all.kept)] {
            println!(
                "{contestant}, stopped {count} times, {NODES} nodes with one address, {way}: {} of \
                 {} {kind} connections failed, {} of them open while the route changed, which it \
                 did {} times",
                made.failures.len(),
                made.connections,
                made.caught(&all.changes),
                all.changes.len()
            );
            for line in made.explain(&all.changes) {
                println!("  {line}");
            }
        }
    }
    Ok(())
}

async fn drain(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    clients: &Process,
    turn: u32,
    all: &mut Found,
) -> anyhow::Result<()> {
    let ways = usize::from(NODES);
    router.until_spread(SHARED, ways).await?;
    let node = u8::try_from(turn as usize % ways + 1)?;
    router.forget();
    let (namespace, to) = (clients.id(), address(SHARED));
    let keeping = Client::keep(namespace, to);
    let short: Vec<_> = (0..CLIENTS)
        .map(|_| Client::connect(namespace, to))
        .collect();
    tokio::time::sleep(REST).await;
    bed.stop(node)?;
    router.until_spread(SHARED, ways - 1).await?;
    tokio::time::sleep(REST).await;
    for client in short {
        all.short.add(client.end()?);
    }
    all.kept.add(keeping.end()?);
    all.changes.extend(router.changes_of(SHARED));
    bed.restart(contestant, node).await
}
