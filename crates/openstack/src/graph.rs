//! What a load balancer is made of, as it is known to be.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::objects::{Id, Listener, Member, Monitor, Pool};

/// Listeners, pools, members and monitors of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// All of its listeners.
    pub listeners: Vec<Listener>,
    /// All of its pools.
    pub pools: Vec<Pool>,
    /// The members of its pools.
    pub members: BTreeMap<Id, Vec<Member>>,
    /// All monitors.
    pub monitors: Vec<Monitor>,
}

/// What identifies a member of a pool.
pub type MemberKey = (IpAddr, u16);

// === impl Graph ===

impl Graph {
    /// The pool that serves a listener by default.
    pub fn pool_of(&self, listener: &Listener) -> Option<&Pool> {
        if let Some(id) = &listener.default_pool_id {
            return self.pools.iter().find(|pool| pool.id == *id);
        }
        // Old versions say it on the side of the pool only. With L7 policies, several name the
        // listener.
        let mut naming = self
            .pools
            .iter()
            .filter(|pool| pool.listeners.iter().any(|it| it.id == listener.id));
        let first = naming.next()?;
        (listener.l7policies.is_empty() && naming.next().is_none()).then_some(first)
    }

    /// The monitor of a pool.
    pub fn monitor_of(&self, pool: &Pool) -> Option<&Monitor> {
        // Lists of pools may leave the id out.
        let of_pool = |monitor: &&Monitor| {
            pool.healthmonitor_id.as_ref() == Some(&monitor.id)
                || monitor.pools.iter().any(|it| it.id == pool.id)
        };
        self.monitors.iter().find(of_pool)
    }

    /// Whether Octavia is still at work on a listener, pool, monitor or member. Some providers say
    /// so of these only, while the load balancer is ACTIVE already.
    pub fn is_settling(&self) -> bool {
        let listeners = self.listeners.iter().map(|it| it.provisioning_status);
        let pools = self.pools.iter().map(|it| it.provisioning_status);
        let monitors = self.monitors.iter().map(|it| it.provisioning_status);
        let members = self.members.values().flatten();
        let members = members.map(|it| it.provisioning_status);
        let mut all = listeners.chain(pools).chain(monitors).chain(members);
        all.any(|it| it.is_pending() || it.is_going())
    }

    /// The members of a pool.
    pub fn members_of(&self, pool: &Pool) -> &[Member] {
        self.members.get(&pool.id).map_or(&[], Vec::as_slice)
    }

    /// Forgets a pool with everything in it.
    pub fn remove_pool(&mut self, id: &Id) {
        self.pools.retain(|pool| pool.id != *id);
        self.members.remove(id);
        self.monitors
            .retain(|monitor| monitor.pools.iter().all(|pool| pool.id != *id));
        for listener in &mut self.listeners {
            if listener.default_pool_id.as_ref() == Some(id) {
                listener.default_pool_id = None;
            }
        }
    }
}

/// The key of a member, if the cloud says its address.
pub fn key_of(member: &Member) -> Option<MemberKey> {
    Some((member.address?, member.protocol_port))
}
