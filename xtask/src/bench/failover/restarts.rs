//! Speakers restart while the router keeps their routes, and sends a thousand requests a second to
//! their address.

use std::fmt;
use std::time::Duration;

use super::bed::Bed;
use super::contestant::Contestant;
use super::layout::address;
use super::requests::{Client, Counted};
use super::router::Router;
use super::{NODES, REST};

/// MetalLB's speaker writes FRR's configuration some three seconds after it began, and FRR has it a
/// second later.
const APPLIED: Duration = Duration::from_secs(8);

/// How a speaker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It is asked to, as are the programs beside it.
    Stopped,
    /// It is killed, and the programs beside it.
    Killed,
    /// It is killed, and the programs beside it go on.
    Alone,
}

/// Restarts speakers so many times in each way.
pub async fn measure(
    bed: &mut Bed,
    contestant: &Contestant,
    router: &Router,
    count: u32,
) -> anyhow::Result<()> {
    for ended in [Ended::Stopped, Ended::Killed, Ended::Alone] {
        if ended == Ended::Alone && !contestant.has_frr() {
            continue;
        }
        let mut all = Counted::default();
        let mut changes = 0;
        for turn in 0..count {
            let number = turn as usize % usize::from(NODES);
            let node = u8::try_from(number + 1)?;
            router.forget();
            let asking = Client::ping(router.id(), address(number));
            tokio::time::sleep(REST).await;
            match ended {
                Ended::Stopped => bed.stop(node)?,
                Ended::Killed => bed.kill(node)?,
                Ended::Alone => bed.kill_speaker(node)?,
            }
            tokio::time::sleep(REST).await;
            bed.restart(contestant, node).await?;
            if ended == Ended::Alone {
                tokio::time::sleep(APPLIED).await;
            }
            router.until_renewed(node, number).await?;
            tokio::time::sleep(REST * 3).await;
            all.add(asking.end()?);
            changes += router.changes_of(number).len();
        }
        println!(
            "{contestant}, {ended} and started again {count} times, graceful restart: {} of {} \
             requests without an answer; the route changed {changes} times",
            all.failed, all.asked
        );
    }
    Ok(())
}

// === impl Ended ===

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::Alone => "its speaker alone killed",
        })
    }
}
