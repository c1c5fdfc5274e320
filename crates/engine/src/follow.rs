//! Following a World from a source: what every role of a process does, with or without a Lease.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::Fact;
use tokio::sync::mpsc;

use crate::world::{Affected, World};

/// A World that follows a source. Copies that others hold stay as they were.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    world: Arc<World>,
}

/// What facts may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// These Services.
    pub services: BTreeSet<ServiceKey>,
    /// All Services.
    pub all: bool,
    /// The address pools, and with them all Services.
    pub pools: bool,
    /// Custom resources other than address pools.
    pub resources: bool,
}

/// Facts taken in one go before anything is done about them.
const BATCH: usize = 1024;

/// Waits for facts and returns those that are there; `None`: the source has ended. A call that is
/// dropped takes none.
pub async fn receive(facts: &mut mpsc::Receiver<Fact>) -> Option<Vec<Fact>> {
    let mut batch = Vec::new();
    (facts.recv_many(&mut batch, BATCH).await > 0).then_some(batch)
}

// === impl Follower ===

impl Follower {
    /// Applies one fact.
    pub fn apply(&mut self, fact: Fact) -> Affected {
        Arc::make_mut(&mut self.world).apply(fact)
    }

    /// Applies facts and returns what they may have changed.
    pub fn apply_all(&mut self, facts: impl IntoIterator<Item = Fact>) -> Changes {
        let mut changes = Changes::default();
        let (mut named, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for fact in facts {
            match self.apply(fact) {
                Affected::None => {}
                Affected::Services(keys) => changes.services.extend(keys),
                Affected::Naming(addresses) => named.extend(addresses),
                Affected::Secret(secret) => drop(secrets.insert(secret)),
                Affected::All => changes.all = true,
                Affected::Pools => changes.pools = true,
                Affected::Resources => changes.resources = true,
            }
        }
        changes.services.extend(self.world.naming(&named));
        changes.services.extend(self.world.users_of(&secrets));
        changes
    }

    /// Decides which address pools are in force, where no instance serves those that name none.
    /// Returns what is wrong with the others.
    pub fn settle_pools(&mut self) -> Vec<Reason> {
        self.world_mut().settle_pools(None)
    }

    /// Returns the World as it is now, which later facts do not change.
    pub fn snapshot(&self) -> Arc<World> {
        self.world.clone()
    }

    /// Returns the World for a decision that it records itself.
    pub(crate) fn world_mut(&mut self) -> &mut World {
        Arc::make_mut(&mut self.world)
    }
}

impl Deref for Follower {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::slice;

    use super::*;

    #[test]
    fn services_that_name_a_new_cluster_ip_are_among_the_changes() {
        let mut follower = Follower::default();
        let slice = Fact::Slice(slice("web").ready("10.96.0.7").row());
        follower.apply_all([slice, Fact::Synced]);
        let dns = ServiceKey::new("other", "dns");
        let facts =
            [7, 8].map(|last| Fact::ClusterIps(dns.clone(), Box::new([[10, 96, 0, last].into()])));
        let services = BTreeSet::from([ServiceKey::new("default", "web")]);
        let expected = Changes {
            services,
            ..Changes::default()
        };
        assert_eq!(follower.apply_all(facts), expected);
    }
}
