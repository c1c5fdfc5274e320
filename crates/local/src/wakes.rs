//! Names the Services of which the state of the data plane changed, so that conditions follow the
//! traffic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::Uid;
use landfall_proxy::counters::Refusal;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::provider::Local;
use crate::shortage::INTERVAL;

/// The time for which changes are collected. A reconcile that makes them has seen them by then.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// The pause after changes were read, as a multiple of the time that this took.
const REST: u32 = 9;

/// Sends the Service whenever its members are not as its last reconcile saw them: one turned
/// healthy or unhealthy. Until cancelled; returns at once if nothing carries traffic.
pub async fn watch_health(local: Arc<Local>, wakes: mpsc::Sender<Uid>, cancel: CancellationToken) {
    let Some(mut changes) = local.changes() else {
        return;
    };
    let mut pause = DEBOUNCE;
    while let Some(true) = cancel.run_until_cancelled(changes.changed()).await {
        let paused = tokio::time::sleep(pause);
        if cancel.run_until_cancelled(paused).await.is_none() {
            return;
        }
        let began = Instant::now();
        for service in changes.take() {
            if local.look(&service).1 && wakes.send(service).await.is_err() {
                return;
            }
        }
        pause = DEBOUNCE.max(began.elapsed() * REST);
    }
}

/// Sends the Service whenever its clients begin to be refused for its share, and when they have not
/// been for a while. Until cancelled.
pub async fn watch_shares(local: Arc<Local>, wakes: mpsc::Sender<Uid>, cancel: CancellationToken) {
    loop {
        let all = local.proxy().map_or(0, |proxy| proxy.pressure().shortages);
        if local.shortages().is_due(all, Instant::now()) {
            let refused = refused(&local);
            let turned = local.shortages().look(refused, Instant::now());
            for uid in turned {
                if wakes.send(uid).await.is_err() {
                    return;
                }
            }
        }
        let pause = tokio::time::sleep(INTERVAL);
        if cancel.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Counts the clients of each Service that were ever refused. A Service without any is left out
/// unless it is known to refuse some.
fn refused(local: &Local) -> BTreeMap<Uid, u64> {
    // A new listener counts from zero, and the end of a shortage is to be noticed nevertheless.
    let known = local.shortages().refusing();
    let mut refused: BTreeMap<_, _> = known.into_iter().map(|uid| (uid, 0)).collect();
    for (uid, id, _) in local.listeners.state().all() {
        let listener = local.listeners.find(uid, *id);
        let count = listener.map_or(0, |it| it.counters().refused(Refusal::Share));
        if count > 0 {
            *refused.entry(uid.clone()).or_default() += count;
        }
    }
    refused
}
