//! Which floating IPs concern a Service. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;

use super::{is_before, is_made};
use crate::names::Names;
use crate::objects::{FloatingIp, Id};
use crate::observed::Addressing;

/// The floating IPs that are looked for.
#[derive(Default)]
pub(crate) struct FloatingIpQuery<'a> {
    /// What the Service's own are described as.
    pub(crate) description: &'a str,
    /// What those of the Service are described as of which it is the last to leave the load
    /// balancer.
    pub(crate) of_owner: Option<&'a str>,
    /// The VIP's port.
    pub(crate) port: Option<&'a Id>,
    /// The address that the Service asks for.
    pub(crate) requested: Option<IpAddr>,
    /// What the Service publishes.
    pub(crate) held: &'a [IpAddr],
    /// When the Service was made.
    pub(crate) since: Option<Timestamp>,
    /// Another load balancer published what the Service publishes.
    pub(crate) replaced: bool,
}

// === impl FloatingIpQuery ===

impl<'a> FloatingIpQuery<'a> {
    pub(crate) fn of(names: &'a Names) -> Self {
        Self {
            description: &names.floating_ip,
            ..Self::default()
        }
    }

    fn is_here(&self, it: &FloatingIp) -> bool {
        self.port.is_some() && it.port_id.as_ref() == self.port
    }

    /// Whether the right one leads here.
    pub(crate) fn is_settled(&self, all: &[FloatingIp]) -> bool {
        let asked = |it: &FloatingIp| {
            self.requested
                .is_none_or(|asked| asked == it.floating_ip_address)
        };
        all.iter().any(|it| self.is_here(it) && asked(it))
    }

    /// Those of them that there are. `going`: the load balancers that are being deleted, by their
    /// VIPs' ports.
    pub(crate) fn among(&self, all: &[FloatingIp], going: &HashMap<Id, Id>) -> Addressing {
        let mut view = Addressing::default();
        let mut here: Vec<&FloatingIp> = all.iter().filter(|it| self.is_here(it)).collect();
        here.sort_by_key(|it| self.requested != Some(it.floating_ip_address));
        view.attached = here.first().copied().cloned();
        // Another one that is attached here has another owner, unless it is the Service's.
        // Pages of a list that changes meanwhile may have one twice.
        let same = |it: &FloatingIp| view.attached.as_ref().is_some_and(|at| at.id == it.id);
        let beside = here.into_iter().filter(|it| !same(it));
        let published = |it: &FloatingIp| self.held.contains(&it.floating_ip_address);
        let mut spare: Vec<&FloatingIp> = beside
            .filter(|it| self.is_ours(it) || published(it))
            .collect();
        for it in all {
            let requested = self.requested == Some(it.floating_ip_address);
            if requested {
                view.requested = Some(it.clone());
            }
            if it.port_id.is_none() && self.is_ours(it) {
                spare.push(it);
            }
            if requested || self.is_ours(it) {
                let holder = it.port_id.as_ref().and_then(|port| going.get(port));
                view.held_by = view.held_by.or_else(|| holder.cloned());
            }
        }
        spare.sort_by_key(|it| {
            (
                !self.held.contains(&it.floating_ip_address),
                self.is_kept(it),
            )
        });
        let spare = spare.first().copied();
        view.spare_is_kept = spare.is_some_and(|it| self.is_kept(it));
        view.spare = spare.cloned();
        view
    }

    fn is_ours(&self, it: &FloatingIp) -> bool {
        let described = it.description == self.description
            || self.of_owner.is_some_and(|owner| it.description == owner);
        let published = self.held.contains(&it.floating_ip_address);
        // What was attached by hand is not taken back when it is detached by hand.
        described || (published && (is_made(it) || self.replaced))
    }

    /// Whether it was there before the Service, whose name an earlier one had that kept it.
    fn is_kept(&self, it: &FloatingIp) -> bool {
        let described = it.description == self.description;
        let before = is_before(it.created_at.as_deref(), self.since);
        described && before && !self.held.contains(&it.floating_ip_address)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_a_list_has_twice_is_not_spare_beside_itself() {
        let row = json!({"id": "f", "floating_ip_address": "192.0.2.7", "port_id": "p",
            "floating_network_id": "x", "description": "ours"});
        let floating_ip: FloatingIp = serde_json::from_value(row).unwrap();
        let port = Id::new("p");
        let query = FloatingIpQuery {
            description: "ours",
            port: Some(&port),
            requested: Some(floating_ip.floating_ip_address),
            ..FloatingIpQuery::default()
        };
        let all = [floating_ip.clone(), floating_ip];
        let view = query.among(&all, &HashMap::new());
        assert_eq!(view.attached.as_ref(), all.first());
        assert_eq!(view.spare, None);
    }
}
