//! Tells the engine whose health turned, so that conditions follow the traffic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_model::Uid;
use landfall_model::listener::ListenerKey;
use landfall_proxy::pool::Reach;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::live;
use crate::provider::Local;

/// The members of a Service, per listener.
pub(crate) type Members = BTreeMap<ListenerKey, Reach>;

/// How many times as long as a look at all Services took is waited until the next: with ten
/// thousand of them it takes a while, and while they are made each one is a change.
const REST: u32 = 9;

/// Sends the Service whenever its members are not as its last pass saw them: one turned healthy or
/// unhealthy. Until cancelled.
pub async fn watch_health(
    local: Arc<Local>,
    mut changes: watch::Receiver<u64>,
    wakes: mpsc::Sender<Uid>,
    cancel: CancellationToken,
) {
    while let Some(Ok(())) = cancel.run_until_cancelled(changes.changed()).await {
        let began = Instant::now();
        let mut services: Vec<Uid> = local.state().all().map(|(uid, _, _)| uid.clone()).collect();
        services.dedup();
        let now = services.into_iter().map(|uid| {
            let members = live::members(&local, &uid);
            (uid, members)
        });
        let turned = turned(&mut local.seen(), now.collect());
        let rest = began.elapsed() * REST;
        for uid in turned {
            if wakes.send(uid).await.is_err() {
                return;
            }
        }
        let resting = tokio::time::sleep(rest);
        if cancel.run_until_cancelled(resting).await.is_none() {
            return;
        }
    }
}

/// The Services whose members are not as they were seen last. From now on they are.
fn turned(seen: &mut HashMap<Uid, Members>, now: BTreeMap<Uid, Members>) -> Vec<Uid> {
    seen.retain(|uid, _| now.contains_key(uid));
    let mut turned = Vec::new();
    for (uid, members) in now {
        if seen.get(&uid) != Some(&members) {
            turned.push(uid.clone());
            seen.insert(uid, members);
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use landfall_model::listener::Protocol;

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

    fn all(list: &[(&str, usize)]) -> BTreeMap<Uid, Members> {
        let one = |(uid, healthy): &(&str, usize)| (Uid::new(uid), members(*healthy));
        list.iter().map(one).collect()
    }

    #[test]
    fn a_service_is_woken_once_when_its_members_turn_and_not_when_a_pass_saw_them_so() {
        let mut seen = HashMap::from([(Uid::new("a"), members(3))]);
        let calm = turned(&mut seen, all(&[("a", 3)]));
        assert_eq!(calm, [], "its pass has seen this");
        let two = all(&[("a", 2), ("b", 3)]);
        let told = turned(&mut seen, two.clone());
        assert_eq!(told, [Uid::new("a"), Uid::new("b")]);
        assert_eq!(turned(&mut seen, two), []);
        assert_eq!(turned(&mut seen, all(&[("b", 3)])), []);
        assert_eq!(seen.len(), 1, "what is gone is forgotten");
    }
}
