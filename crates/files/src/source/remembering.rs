//! Keeping what the source reads on the disk, without waiting for one that does not answer.

use std::time::Duration;

use landfall_model::reason::{Code, Reason};
use tokio::time::Instant;

use super::Manifests;

/// How long manifests wait for the disk of the state at most.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it is looked whether the state directory is still the one that is held.
pub(super) const HOLD: Duration = Duration::from_secs(1);

/// The largest number of kept Services that are listed.
const NAMED: usize = 5;

// === impl Manifests ===

impl Manifests {
    /// Looks whether the state directory is still held. Returns whether that is news.
    pub(super) async fn check_hold(&mut self) -> bool {
        self.hold_check = Instant::now() + HOLD;
        if self.store.is_busy() {
            return false;
        }
        let kept = tokio::time::timeout(DISK_TIMEOUT, self.store.keep_hold()).await;
        let before = std::mem::replace(&mut self.not_held, kept.unwrap_or_default());
        self.not_held != before
    }

    /// Makes durable what changed without a waiting caller: Services that came and went.
    /// After a failure only a survey tries again. Returns whether the problem to report
    /// has changed.
    pub(super) async fn remember(&mut self, has_looked: bool) -> bool {
        let mut problems = Vec::new();
        // One that did not answer is not waited for again: what changes is served meanwhile.
        let flushed = if self.is_disk_silent && self.store.is_busy() {
            None
        } else {
            let flush = self.store.flush(has_looked);
            tokio::time::timeout(DISK_TIMEOUT, flush).await.ok()
        };
        self.is_disk_silent = flushed.is_none();
        let failure = match flushed {
            Some(None) => None,
            Some(Some(error)) => Some((error.to_string(), "make room or correct the permissions")),
            None => Some((
                "the disk does not answer".to_owned(),
                "repair it: what serves goes on, and new addresses wait",
            )),
        };
        problems.extend(failure.map(|(why, remedy)| {
            Reason::error(Code::StateNotWritten, why).remedy(format!("{remedy}; it is retried"))
        }));
        problems.extend(self.not_held.as_ref().map(|why| {
            Reason::error(Code::StateNotWritten, why.clone())
                .remedy("traffic continues; it is attempted again every second")
        }));
        let pools = self.unverified_pools.iter();
        let mut unverified: Vec<String> =
            pools.map(|name| format!("IPAddressPool {name}")).collect();
        let count = self.store.with(|registry| {
            let services = registry.unverified();
            let count = services.len() + unverified.len();
            unverified.extend(services.take(NAMED).map(ToString::to_string));
            count
        });
        if count > 0 {
            unverified.truncate(NAMED);
            problems.push(incomplete(unverified, count));
        }
        let is_news = problems != self.state_problems;
        self.state_problems = problems;
        is_news
    }
}

fn incomplete(mut named: Vec<String>, count: usize) -> Reason {
    if count > named.len() {
        named.push(format!("{} more", count - named.len()));
    }
    Reason::warning(
        Code::ServingPreviousVersion,
        format!(
            "in no readable file, and kept as recorded: {}",
            named.join(", ")
        ),
    )
    .remedy(
        "fix the files that can't be read and delete empty ones; then these objects are served or \
        removed",
    )
}
