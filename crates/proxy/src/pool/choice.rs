//! Which member a connection gets.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use landfall_model::listener::ClientAffinity;

use super::lease::{AffinityUpdate, Lease};
use super::snapshot::Snapshot;
use super::{PoolState, Remembered, Unavailable, lock};
use crate::pool::spared;

impl PoolState {
    pub(super) fn look(
        &self,
        client: SocketAddr,
        tried: &[SocketAddr],
    ) -> Result<Lease, Unavailable> {
        self.look_with_clock(client, tried, Instant::now)
    }

    pub(super) fn look_with_clock(
        &self,
        client: SocketAddr,
        tried: &[SocketAddr],
        now: impl Fn() -> Instant + Copy,
    ) -> Result<Lease, Unavailable> {
        let snapshot = self.snapshot.load();
        let retry = !tried.is_empty();
        if retry && !self.may_retry(&snapshot) {
            return Err(Unavailable::Retries);
        }
        let mut lease = match snapshot.affinity {
            None => Lease::new(snapshot.enter(client, tried, now)?, None),
            Some(affinity) => self.look_by_affinity(&snapshot, affinity, client, tried, now)?,
        };
        if retry {
            self.shared.retries.fetch_add(1, Ordering::Relaxed);
            lease.retry = true;
        }
        Ok(lease)
    }

    fn look_by_affinity(
        &self,
        snapshot: &Snapshot,
        affinity: ClientAffinity,
        client: SocketAddr,
        tried: &[SocketAddr],
        time: impl Fn() -> Instant + Copy,
    ) -> Result<Lease, Unavailable> {
        let address = client.ip().to_canonical();
        let now = time();
        let mut table = lock(&self.affinity);
        let known = table.touch(address).filter(|known| {
            known.until > now
                && known.member.serves()
                && !known.member.is_left_out(|| now)
                && !tried.contains(&known.member.address())
        });
        let member = if let Some(known) = known {
            known.until = now + affinity.timeout;
            if known.member.enter(snapshot.limit()) {
                known.member.clone()
            } else {
                // It comes back to its own when that has room again.
                snapshot.enter(client, tried, time)?
            }
        } else {
            let member = snapshot.enter(client, tried, time)?;
            let remembered = Remembered {
                member: member.clone(),
                until: now + affinity.timeout,
            };
            table.insert(address, remembered);
            member
        };
        drop(table);
        let table = self.affinity.clone();
        let remembering = AffinityUpdate {
            client: address,
            timeout: affinity.timeout,
            table,
        };
        Ok(Lease::new(member, Some(Box::new(remembering))))
    }

    /// Whether one more may be tried with another member. Workers may ask at the same time: the
    /// bound is exceeded by at most one of each.
    fn may_retry(&self, snapshot: &Snapshot) -> bool {
        let percent = snapshot.protection.retry_budget;
        let retries = self.shared.retries.load(Ordering::Relaxed);
        let mut open = 0;
        retries < spared::retries(percent, open)
            || snapshot.members.iter().any(|entry| {
                open += u64::from(entry.state.open());
                retries < spared::retries(percent, open)
            })
    }
}
