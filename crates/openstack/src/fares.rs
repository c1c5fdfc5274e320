//! How listeners and pools of load balancers fare, by the Service that they serve: a load balancer
//! that Services share says how it fares as a whole only. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::names::{SERVICE_PREFIX, TRIED_PREFIX};
use crate::objects::{Id, Listener, OperatingStatus, Pool};

/// Why what a Service has in a load balancer carries no traffic, as Octavia reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// This listener, or its pool, is switched off.
    SwitchedOff(Id),
    /// No pool reaches a member.
    NoMember,
    /// Some pools reach members, others none, and the Service carries traffic.
    InPart,
}

/// The troubles in one load balancer, by the tag of the Service; the empty tag is that of the
/// Service for which the load balancer was made.
pub(crate) type Troubles = BTreeMap<String, Trouble>;

/// Finds the troubles in each load balancer that has some.
pub(crate) fn troubles(listeners: &[Listener], pools: &[Pool]) -> HashMap<Id, Troubles> {
    let mut found: HashMap<Id, BTreeMap<String, Tally>> = HashMap::new();
    let serves = |it: &&Listener| !it.name.starts_with(TRIED_PREFIX);
    for listener in listeners.iter().filter(serves) {
        let Some(balancer) = listener.loadbalancers.first() else {
            continue;
        };
        let mut tags = listener.tags.iter();
        let tag = tags.find(|tag| tag.starts_with(SERVICE_PREFIX));
        let of = found.entry(balancer.id.clone()).or_default();
        let tally = of.entry(tag.cloned().unwrap_or_default()).or_default();
        tally.count(listener, pool_of(listener, pools));
    }
    let troubles = found.into_iter().map(|(balancer, tallies)| {
        let troubles = tallies.into_iter();
        let troubles = troubles.filter_map(|(tag, tally)| Some((tag, tally.trouble()?)));
        (balancer, troubles.collect::<Troubles>())
    });
    troubles
        .filter(|(_, troubles)| !troubles.is_empty())
        .collect()
}

/// Returns the trouble of a Service among those in the load balancer that it uses. `tags` are those
/// that can stand for it.
pub(crate) fn trouble_of<'a>(troubles: &'a Troubles, tags: &[&str]) -> Option<&'a Trouble> {
    tags.iter().find_map(|tag| troubles.get(*tag))
}

/// Returns whether pools reach members while others reach none: Octavia reports a load balancer as
/// ERROR for one such pool, however the others fare.
pub(crate) fn reaches_in_part(pools: &[Pool]) -> bool {
    let is = |status: OperatingStatus| move |pool: &Pool| pool.operating_status == status;
    let reaches = |pool: &Pool| {
        !matches!(
            pool.operating_status,
            OperatingStatus::Error | OperatingStatus::Offline
        )
    };
    pools.iter().any(is(OperatingStatus::Error)) && pools.iter().any(reaches)
}

fn pool_of<'a>(listener: &Listener, pools: &'a [Pool]) -> Option<&'a Pool> {
    pools.iter().find(|pool| {
        listener.default_pool_id.as_ref() == Some(&pool.id)
            || pool.listeners.iter().any(|it| it.id == listener.id)
    })
}

/// What is known of the listeners of one Service.
#[derive(Default)]
struct Tally {
    switched_off: Option<Id>,
    reached: bool,
    unreached: bool,
}

// === impl Tally ===

impl Tally {
    fn count(&mut self, listener: &Listener, pool: Option<&Pool>) {
        let off = |up: Option<bool>| up == Some(false);
        if off(listener.admin_state_up) || pool.is_some_and(|pool| off(pool.admin_state_up)) {
            self.switched_off.get_or_insert_with(|| listener.id.clone());
        }
        match pool {
            Some(pool) if pool.operating_status == OperatingStatus::Error => self.unreached = true,
            _ => self.reached = true,
        }
    }

    fn trouble(self) -> Option<Trouble> {
        let off = self.switched_off.map(Trouble::SwitchedOff);
        let trouble = if self.reached {
            Trouble::InPart
        } else {
            Trouble::NoMember
        };
        off.or(self.unreached.then_some(trouble))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Listeners with their pools: a tag, whether it is in use, and the status of the pool.
    fn troubles_of(rows: &[(&str, bool, &str)]) -> Troubles {
        let (mut listeners, mut pools) = (Vec::new(), Vec::new());
        for (number, (tag, up, status)) in rows.iter().enumerate() {
            let of = json!([{"id": "lb"}]);
            listeners.push(
                json!({"id": format!("l{number}"), "tags": [tag], "admin_state_up": up,
                "default_pool_id": format!("p{number}"), "loadbalancers": of}),
            );
            pools.push(json!({"id": format!("p{number}"), "operating_status": status}));
        }
        let listeners: Vec<Listener> = serde_json::from_value(json!(listeners)).unwrap();
        let pools: Vec<Pool> = serde_json::from_value(json!(pools)).unwrap();
        troubles(&listeners, &pools)
            .remove(&Id::new("lb"))
            .unwrap_or_default()
    }

    #[test]
    fn a_service_has_trouble_when_none_of_its_pools_reaches_a_member() {
        let (one, other) = ("kube_service_c_d_one", "kube_service_c_d_other");
        assert_eq!(
            troubles_of(&[(one, true, "ONLINE"), (other, true, "DEGRADED")]),
            [].into()
        );
        let found = troubles_of(&[(one, true, "ERROR"), (other, true, "ONLINE")]);
        assert_eq!(found, [(one.to_owned(), Trouble::NoMember)].into());
        assert_eq!(
            troubles_of(&[(one, true, "ERROR"), (one, true, "ONLINE")]),
            [(one.to_owned(), Trouble::InPart)].into()
        );
        // What has no tag of a Service is the owner's.
        let found = troubles_of(&[("mine", true, "ERROR")]);
        assert_eq!(
            trouble_of(&found, &["kube_service_c_d_one", ""]),
            Some(&Trouble::NoMember)
        );
    }

    #[test]
    fn a_listener_that_is_switched_off_is_trouble_whatever_else_serves() {
        let one = "kube_service_c_d_one";
        let found = troubles_of(&[(one, true, "ONLINE"), (one, false, "OFFLINE")]);
        let off = Trouble::SwitchedOff(Id::new("l1"));
        assert_eq!(trouble_of(&found, &[one]), Some(&off));
        assert_eq!(trouble_of(&found, &[""]), None);
    }
}
