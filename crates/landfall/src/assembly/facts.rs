//! The way of facts from the source to the engine.

use std::sync::Arc;

use landfall_model::rows::{Fact, PoolRow};
use tokio::sync::mpsc;

use super::machine;
use crate::lifetime::Lifetime;
use crate::routers;

/// Facts on their way from the source to the engine.
const FACTS: usize = 1024;

/// Starts the source. What it sends follows the pools of configuration and command line, and, if
/// `follows_machine`, the addresses of this machine. What concerns routers is copied to `routers`.
pub async fn start(
    lifetime: &Lifetime,
    pools: Vec<PoolRow>,
    follows_machine: bool,
    routers: Option<mpsc::Sender<Fact>>,
    source: impl FnOnce(mpsc::Sender<Fact>, &Lifetime),
) -> mpsc::Receiver<Fact> {
    let Lifetime { tasks, cancel } = lifetime;
    let (read, from_source) = mpsc::channel(FACTS);
    let (facts, received) = mpsc::channel(FACTS);
    source(read, lifetime);
    if follows_machine {
        // Before the first Service is sent, so that none has a member there.
        let known = machine::report(&facts).await;
        let (facts, cancel) = (facts.downgrade(), cancel.clone());
        let following = machine::follow(facts, known);
        tasks.spawn(async move { cancel.run_until_cancelled(following).await });
    }
    tasks.spawn(with_pools(from_source, facts, pools, routers));
    received
}

/// Passes facts on after the pools of configuration and command line.
async fn with_pools(
    mut from_source: mpsc::Receiver<Fact>,
    facts: mpsc::Sender<Fact>,
    pools: Vec<PoolRow>,
    routers: Option<mpsc::Sender<Fact>>,
) {
    for pool in pools {
        let fact = Fact::Pool(Arc::new(pool));
        copy(&fact, routers.as_ref()).await;
        if facts.send(fact).await.is_err() {
            return;
        }
    }
    while let Some(fact) = from_source.recv().await {
        copy(&fact, routers.as_ref()).await;
        if facts.send(fact).await.is_err() {
            return;
        }
    }
}

async fn copy(fact: &Fact, routers: Option<&mpsc::Sender<Fact>>) {
    if let Some(routers) = routers.filter(|_| routers::concerns(fact)) {
        // They may have ended before the rest.
        let _ = routers.send(fact.clone()).await;
    }
}
