//! Names the Services of which the state of the data plane changed, so that conditions follow the
//! traffic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_model::Uid;
use landfall_proxy::changes::Changes;
use landfall_proxy::counters::Refusal;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::live::{self, Members};
use crate::provider::Local;
use crate::shortage::INTERVAL;

/// Sends the Service whenever its members are not as its last reconcile saw them: one turned
/// healthy or unhealthy. Until cancelled.
pub async fn watch_health(
    local: Arc<Local>,
    changes: Changes,
    wakes: mpsc::Sender<Uid>,
    cancel: CancellationToken,
) {
    let mut version = changes.version();
    // What changed before this task ran.
    version.mark_changed();
    while let Some(Ok(())) = cancel.run_until_cancelled(version.changed()).await {
        for service in changes.take() {
            let members = live::members(&local.listeners, &service);
            if has_turned(&mut local.seen(), &service, members)
                && wakes.send(service).await.is_err()
            {
                return;
            }
        }
    }
}

/// Sends the Service whenever its clients begin to be refused for its share, and when they have not
/// been for a while. Until cancelled.
pub async fn watch_shares(local: Arc<Local>, wakes: mpsc::Sender<Uid>, cancel: CancellationToken) {
    loop {
        let all = local.proxy().map_or(0, |proxy| proxy.pressure().shortages);
        if local.shortages().is_due(all) {
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

/// Counts the clients of each Service that were ever refused.
fn refused(local: &Local) -> BTreeMap<Uid, u64> {
    let mut refused = BTreeMap::new();
    for (uid, id, _) in local.listeners.state().all() {
        let listener = local.listeners.find(uid, *id);
        let totals = listener.map(|it| it.counters().totals());
        let count = totals.map_or(0, |it| it.refused(Refusal::Share));
        *refused.entry(uid.clone()).or_default() += count;
    }
    refused
}

/// Whether the members of a Service are not as they were seen last. From now on they are. A Service
/// that a reconcile changes at the moment is seen by the end of it.
fn has_turned(seen: &mut HashMap<Uid, Members>, service: &Uid, members: Members) -> bool {
    if members.is_empty() {
        seen.remove(service);
        return false;
    }
    match seen.get_mut(service) {
        Some(before) if *before != members => {
            *before = members;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::listener::{ListenerKey, Protocol};
    use landfall_proxy::pool::Reach;

    use super::*;

    fn members(healthy: usize) -> Members {
        let key = ListenerKey {
            protocol: Protocol::Tcp,
            port: 80.try_into().unwrap(),
        };
        let counts = Reach {
            serving: healthy,
            total: 3,
            failure: None,
        };
        BTreeMap::from([(key, counts)])
    }

    #[test]
    fn a_service_is_sent_once_when_its_members_turn_and_not_when_a_reconcile_saw_them_so() {
        let web = Uid::new("web");
        let mut seen = HashMap::from([(web.clone(), members(3))]);
        assert!(!has_turned(&mut seen, &web, members(3)));
        assert!(has_turned(&mut seen, &web, members(2)));
        assert!(!has_turned(&mut seen, &web, members(2)));
    }

    #[test]
    fn a_service_that_a_reconcile_changes_at_the_moment_is_not_sent() {
        let web = Uid::new("web");
        let mut seen = HashMap::new();
        assert!(!has_turned(&mut seen, &web, members(2)));
        assert!(seen.is_empty());
    }

    #[test]
    fn a_service_without_listeners_is_forgotten() {
        let web = Uid::new("web");
        let mut seen = HashMap::from([(web.clone(), members(3))]);
        assert!(!has_turned(&mut seen, &web, Members::new()));
        assert!(seen.is_empty());
    }
}
