//! Membership by Leases, where nodes may not send each other datagrams (`--membership=lease`).

use std::sync::Arc;
use std::time::Duration;

use landfall_kube::member_leases::{MemberLease, MemberLeases};
use landfall_kube::{ApiError, Connection};
use landfall_membership::driver::{Feed, Membership, View, Wanted};
use landfall_membership::lease::{Lease, Leases};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lifetime::Lifetime;

/// From one attempt to read the Leases at the start to the next.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The longest time for which a stop waits until the others have taken over.
const LONGEST_LEAVE: Duration = Duration::from_secs(3);

/// Renews and reads.
#[derive(Debug)]
struct Task {
    api: MemberLeases,
    leases: Leases,
    feed: Feed,
    /// When the own Lease is to be renewed.
    renew_at: Instant,
    /// When all of them are to be read.
    read_at: Instant,
    is_away: bool,
}

/// Starts a task that keeps a Lease of this node, once the others can read it and it has read
/// theirs. When the lifetime ends, the others know that this node leaves.
pub async fn join(
    connection: &Connection,
    node: &str,
    duration: Duration,
    wanted: Wanted,
    lifetime: &Lifetime,
) -> Membership {
    let api = MemberLeases::new(connection.clone(), node, duration);
    let mut leases = Leases::new(node, duration);
    // A node that knew no other, or that no other knew, would announce too much.
    let known = loop {
        let renewed = api.renew(&wanted.metadata).await;
        if renewed.is_ok() {
            leases.note_renewal(now().into_std());
        }
        match api.read().await {
            Ok(read) if renewed.is_ok() || read.iter().any(|it| it.node == node) => {
                break leases.take(now().into_std(), read.into_iter().map(lease).collect());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the Leases of speakers can't be read"),
        }
        if let Err(error) = renewed {
            tracing::warn!(%error, "the Lease of this speaker can't be written");
        }
        tokio::time::sleep(ASK_AGAIN).await;
    };
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let (membership, feed) = Membership::fed(wanted, known, nowhere);
    let task = Task {
        api,
        read_at: now() + leases.interval(),
        leases,
        feed,
        renew_at: now(),
        is_away: false,
    };
    lifetime.tasks.spawn(task.run(lifetime.cancel.clone()));
    membership
}

// === impl Task ===

impl Task {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let due = self.renew_at.min(self.read_at);
            tokio::select! {
                () = stop.cancelled() => break,
                changed = self.feed.wanted.changed() => match changed {
                    // What others are to know soon.
                    Ok(()) => self.renew_at = now(),
                    Err(_dropped) => break,
                },
                () = tokio::time::sleep_until(due) => {}
            }
            if self.renew_at <= now() {
                let metadata = Arc::clone(&self.feed.wanted.borrow_and_update().metadata);
                let renewed = self.api.renew(&metadata).await;
                if renewed.is_ok() {
                    self.leases.note_renewal(now().into_std());
                }
                self.note(renewed.err());
                self.renew_at = now() + self.leases.renewal();
            }
            if self.read_at <= now() {
                self.read_at = now() + self.leases.interval();
                match self.api.read().await {
                    Ok(read) => self.take(read).await,
                    Err(error) => self.note(Some(error)),
                }
            }
        }
        if let Err(error) = self.api.leave().await {
            tracing::warn!(%error, "the others find out that this node leaves by its Lease");
            return;
        }
        // Until the others have read that, this node answers.
        tokio::time::sleep(self.leases.interval().min(LONGEST_LEAVE)).await;
    }

    async fn take(&mut self, read: Vec<MemberLease>) {
        let leases = read.into_iter().map(lease).collect();
        let view: View = self.leases.take(now().into_std(), leases);
        self.feed.view.send_if_modified(|known| {
            let is_new = **known != view;
            *known = Arc::new(view);
            is_new
        });
        for lease in self.leases.forgotten(now().into_std()) {
            // Another node may have deleted it; if not, the next read tries again.
            let _ = self.api.forget(&lease.node, &lease.version).await;
        }
    }

    /// Logs once that the API server is away.
    fn note(&mut self, error: Option<ApiError>) {
        let was_away = std::mem::replace(&mut self.is_away, error.is_some());
        if let Some(error) = error.filter(|_| !was_away) {
            tracing::warn!(%error, "Leases can't be renewed or read: members stay as they are");
        }
    }
}

fn lease(read: MemberLease) -> Lease {
    Lease {
        node: read.node.as_str().into(),
        renewed: read.renewed,
        uid: read.uid,
        version: read.version,
        metadata: read.metadata.into(),
    }
}

fn now() -> Instant {
    Instant::now()
}
