//! One read of everything: which Services differ from how they were left.

use std::hash::{DefaultHasher, Hash, Hasher};

use landfall_model::Uid;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::fares::troubles;
use crate::names::{UID_PREFIX, service_of};
use crate::objects::Listener;
use crate::objects::LoadBalancer;
use crate::objects::Pool;
use crate::objects::Provisioning;
use crate::provider::OpenStack;
use crate::read::drift;
use crate::status::serves_none;

impl OpenStack {
    /// One check of everything: which Services' objects are not as they were left.
    pub(crate) async fn differences(&self) -> Result<Vec<Uid>, ApiError> {
        let now = Instant::now();
        let (roster, at) = self.roster(now).await?;
        let listeners = self
            .lists
            .listeners
            .since(now, async || self.cloud.listeners(None).await)
            .await?;
        let pools = self
            .lists
            .pools
            .since(now, async || self.cloud.pools(None).await)
            .await?;
        let mut changed = self.octavia_changed((&roster, at), &listeners, &pools, now);
        if self.neutron_changed(now).await? {
            changed = self.memory().of.keys().cloned().collect();
        }
        changed.extend(self.memory().always_audited().cloned());
        // A second load balancer is its Service's.
        for uid in &mut changed {
            *uid = service_of(uid);
        }
        changed.sort();
        changed.dedup();
        Ok(changed)
    }

    /// Returns the Services whose load balancers differ from what is remembered of them.
    fn octavia_changed(
        &self,
        (roster, at): (&[LoadBalancer], Instant),
        listeners: &[Listener],
        pools: &[Pool],
        now: Instant,
    ) -> Vec<Uid> {
        let mut changed = Vec::new();
        let mut memory = self.memory();
        let failed = |status: Provisioning| status == Provisioning::Error;
        let mut broken: Vec<_> = listeners
            .iter()
            .filter(|it| failed(it.provisioning_status))
            .flat_map(|it| &it.loadbalancers)
            .collect();
        let failed = pools.iter().filter(|it| failed(it.provisioning_status));
        broken.extend(failed.flat_map(|it| &it.loadbalancers));
        let mut fares = Vec::new();
        for row in roster {
            let Some(known) = memory.balancers.get(&row.id) else {
                continue;
            };
            if serves_none(&known.row) != serves_none(row) {
                fares.push(row.id.clone());
            }
            memory.seen(row, at);
        }
        let troubles = troubles(listeners, pools);
        for id in memory.balancers.keys() {
            if memory.troubles.get(id) != troubles.get(id) {
                fares.push(id.clone());
            }
        }
        memory.troubles = troubles;
        let mut of: Vec<(Uid, crate::objects::Id)> = memory
            .of
            .iter()
            .map(|(uid, id)| (uid.clone(), id.clone()))
            .collect();
        of.sort();
        for (uid, id) in of {
            let row = roster.iter().find(|it| it.id == id);
            let known = memory.balancers.get(&id);
            let token = known.and_then(|known| known.token.clone());
            let expected = memory.expected.get(&uid);
            let expected_token = expected.and_then(|it| it.token.clone());
            let child_failed = broken.iter().any(|it| it.id == id);
            let same = row.is_some_and(|row| {
                row.provisioning_status == Provisioning::Active
                    && row.updated_at.is_some()
                    && (token == row.updated_at || expected_token == row.updated_at)
            });
            let tag = format!("{UID_PREFIX}{uid}");
            let repeated = roster
                .iter()
                .any(|row| row.id != id && row.tags.contains(&tag));
            // The time of its last change does not cover everything.
            let listed = drift::Listed::of(&id, listeners, pools);
            let other = same
                && known.is_some_and(|known| {
                    let as_expected =
                        expected.is_none_or(|it| listed.matches_wanted(&it.listeners));
                    let as_known = known
                        .graph
                        .as_ref()
                        .is_none_or(|it| listed.matches_cached(it));
                    known.phase.is_settled() && !(as_expected && as_known)
                });
            if child_failed || other {
                memory.invalidate(&id, now);
            }
            let fares_otherwise = fares.contains(&id);
            if !same || child_failed || other || repeated || fares_otherwise {
                changed.push(uid);
            }
        }
        changed
    }

    /// Whether floating IPs, groups or the groups of ports are others than at the last look.
    async fn neutron_changed(&self, now: Instant) -> Result<bool, ApiError> {
        let project = self.cloud.project_id().await?;
        let query = project.as_ref().map(|id| ("project_id", id.as_str()));
        let query = query.as_slice();
        let mut hashes = Vec::new();
        if !self.settings.conf.internal_lb {
            let floating = self
                .lists
                .floating_ips
                .since(now, async || self.cloud.floating_ips(query).await)
                .await?;
            let each = floating.iter();
            let each = each.map(|it| (&it.id, &it.port_id, it.floating_ip_address));
            hashes.push(("floating IPs", digest(each)));
        }
        if self.settings.conf.manage_security_groups {
            let groups = self
                .lists
                .groups
                .since(now, async || self.cloud.security_groups(&[]).await)
                .await?;
            let ports = self
                .lists
                .ports
                .since(now, async || self.cloud.ports(query).await)
                .await?;
            let rules = groups
                .iter()
                .flat_map(|group| group.rules.iter().map(|it| (&group.id, &it.id)));
            hashes.push(("groups", digest(rules)));
            hashes.push((
                "ports",
                digest(ports.iter().map(|it| (&it.id, &it.security_groups))),
            ));
        }
        let mut memory = self.memory();
        let mut changed = false;
        for (kind, hash) in hashes {
            // What happened before the first look is not known either.
            changed |= memory.audited.insert(kind, hash) != Some(hash);
        }
        Ok(changed)
    }
}

/// A number that changes with what is in a list, in whichever order.
fn digest<T: Hash>(items: impl Iterator<Item = T>) -> u64 {
    let one = |item: T| {
        let mut hasher = DefaultHasher::new();
        item.hash(&mut hasher);
        hasher.finish()
    };
    items.map(one).fold(0, u64::wrapping_add)
}
