//! Tells the engine whose health turned, so that conditions follow the traffic.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::Uid;
use landfall_model::listener::ListenerKey;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::live;
use crate::plan::Members;
use crate::provider::Local;

/// Sends the Service whenever a member of it turns healthy or unhealthy, until cancelled.
pub async fn watch_health(
    local: Arc<Local>,
    mut changes: watch::Receiver<u64>,
    wakes: mpsc::Sender<Uid>,
    cancel: CancellationToken,
) {
    let mut before: BTreeMap<Uid, BTreeMap<ListenerKey, Members>> = BTreeMap::new();
    while let Some(Ok(())) = cancel.run_until_cancelled(changes.changed()).await {
        let mut services: Vec<Uid> = local.state().all().map(|(uid, _, _)| uid.clone()).collect();
        services.dedup();
        let now: BTreeMap<_, _> = services
            .into_iter()
            .map(|uid| {
                let members = live::members(&local, &uid);
                (uid, members)
            })
            .collect();
        for (uid, members) in &now {
            if before.get(uid) != Some(members) && wakes.send(uid.clone()).await.is_err() {
                return;
            }
        }
        before = now;
    }
}
