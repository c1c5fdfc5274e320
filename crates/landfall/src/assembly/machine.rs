//! The addresses of this machine, followed as they come and go: where the admin endpoint answers at
//! all of them, none may be a member at its port.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use landfall_model::rows::Fact;
use landfall_sys::routes;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// From one look to the next, at least.
const PAUSE: Duration = Duration::from_secs(5);

/// The pause after a change before the next one is reported: each has every Service resolved again,
/// and others on this machine may add and remove addresses without end.
const REST: Duration = Duration::from_mins(1);

/// A look takes no more than this part of the time: of a million routes all are read.
const PART: u32 = 50;

/// Networks whose traffic arrives here.
type Networks = Arc<[IpNet]>;

/// Sends the addresses of the machine, and returns them.
pub(super) async fn report(facts: &mpsc::Sender<Fact>) -> Networks {
    let networks = look(routes::local).await.unwrap_or_default();
    // The engine has ended.
    let _ = facts.send(Fact::Machine(networks.clone())).await;
    networks
}

/// Sends the addresses whenever they have changed, until the engine ends.
pub(super) async fn follow(facts: mpsc::WeakSender<Fact>, known: Networks) {
    follow_as(facts, known, routes::local).await;
}

async fn follow_as(
    facts: mpsc::WeakSender<Fact>,
    mut known: Networks,
    read: impl Fn() -> io::Result<Vec<(IpAddr, u8)>> + Clone + Send + 'static,
) {
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        // The sources keep the engine at work, not this.
        let Some(facts) = facts.upgrade() else {
            return;
        };
        let begun = Instant::now();
        let found = look(read.clone()).await;
        pause = PAUSE.max(begun.elapsed() * PART);
        let Some(found) = found.filter(|found| *found != known) else {
            continue;
        };
        known = found.clone();
        if facts.send(Fact::Machine(found)).await.is_err() {
            return;
        }
        pause = pause.max(REST);
    }
}

/// Reads them; `None`: they can't be read, and what was known stays.
async fn look(
    read: impl FnOnce() -> io::Result<Vec<(IpAddr, u8)>> + Send + 'static,
) -> Option<Networks> {
    let read = tokio::task::spawn_blocking(read).await;
    match read.map_err(io::Error::other).flatten() {
        Ok(found) => {
            let networks = found
                .into_iter()
                .filter_map(|(address, length)| IpNet::new(address, length).ok());
            Some(networks.collect())
        }
        Err(error) => {
            tracing::warn!(%error, "the addresses of this machine can't be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn addresses_that_the_machine_gets_or_loses_are_reported_and_nothing_else_is() {
        let [one, other] = [7, 8].map(|last| (IpAddr::from([10, 0, 0, last]), 32));
        let broken = || Err(io::ErrorKind::PermissionDenied.into());
        let looks = [
            Ok(vec![one]),
            Ok(vec![one, other]),
            broken(),
            Ok(vec![one, other]),
            Ok(vec![other]),
        ];
        let looks = Arc::new(Mutex::new(looks.into_iter()));
        let read = move || looks.lock().unwrap().next().unwrap_or(Ok(vec![other]));
        let known = look(move || Ok(vec![one])).await.unwrap();
        let (facts, mut reported) = mpsc::channel(8);
        let following = tokio::spawn(follow_as(facts.downgrade(), known, read));
        let mut next = async || match reported.recv().await {
            Some(Fact::Machine(networks)) => {
                let networks = networks.iter().map(ToString::to_string);
                networks.collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await, ["10.0.0.7/32", "10.0.0.8/32"]);
        assert_eq!(next().await, ["10.0.0.8/32"]);
        drop((facts, reported));
        following.await.unwrap();
    }
}
