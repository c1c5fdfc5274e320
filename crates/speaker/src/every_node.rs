//! What each node of a cluster would do for the addresses of one Service. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::world::named_members;
use landfall_l2::election::Rules;
use landfall_membership::driver::View as Members;
use landfall_membership::machine::Peer as Member;
use landfall_model::ServiceKey;
use landfall_model::reason::Code;
use landfall_model::rows::{Fact, ServiceRow};

use crate::decide::Decider;
use crate::explain::Explained;
use crate::plane::Plane;

/// Returns what each node of a cluster does for a Service, if a live speaker with the usual rules
/// runs on all of them; `None`: there is no such Service. `plane`: what a node serves itself.
pub fn explain(
    facts: &[Fact],
    key: &ServiceKey,
    plane: impl Fn(&str) -> Option<Plane>,
) -> Option<Explained> {
    let facts: Vec<Fact> = concerned(facts, key);
    let names = facts.iter().filter_map(|fact| match fact {
        Fact::Node(row) => Some(Arc::clone(&row.name)),
        _ => None,
    });
    let names: BTreeSet<Arc<str>> = names.collect();
    let member = || Member {
        address: ([0; 4], 0).into(),
        incarnation: 0,
        metadata: Arc::default(),
    };
    let peers: BTreeMap<_, _> = names.iter().map(|it| (Arc::clone(it), member())).collect();
    let members = Arc::new(Members {
        peers,
        ..Members::default()
    });
    let mut all: Option<Explained> = None;
    for name in &names {
        let mut decider = Decider::new(name, 0, Rules::default());
        if let Some(plane) = plane(name) {
            decider = decider.serving(plane);
        }
        decider.take_members(Arc::clone(&members));
        decider.take_facts(facts.clone());
        decider.take_facts(vec![Fact::Synced]);
        let explained = decider.explain(key, None)?;
        match &mut all {
            Some(all) => all.announcements.extend(explained.announcements),
            None => all = Some(explained),
        }
    }
    if let Some(all) = &mut all {
        // What is wrong with the routers of the first node is not so on all of them.
        all.reasons.retain(|it| it.code == Code::NotAnnounced);
    }
    all
}

/// Returns the facts that decide about a Service: without the Services that have none of its
/// addresses, and the cluster IPs that none of it names: there is a decision for each node.
fn concerned(facts: &[Fact], key: &ServiceKey) -> Vec<Fact> {
    let services = facts.iter().filter_map(|fact| match fact {
        Fact::Service(row) => Some(row),
        _ => None,
    });
    let named = services.clone().filter(|row| row.key == *key);
    let addresses: BTreeSet<IpAddr> = named.flat_map(|it| it.status.addresses()).collect();
    let shares = |row: &ServiceRow| row.status.addresses().any(|it| addresses.contains(&it));
    let kept = services.filter(|row| row.key == *key || shares(row));
    let kept: BTreeSet<&ServiceKey> = kept.map(|row| &row.key).collect();
    let mut named = HashSet::new();
    for fact in facts {
        match fact {
            Fact::Slice(row) if kept.contains(&row.service) => {
                named.extend(row.endpoints.iter().map(|it| it.address.to_canonical()));
            }
            Fact::Service(row) if kept.contains(&row.key) => named.extend(named_members(row)),
            _ => {}
        }
    }
    let is_named = |address: &IpAddr| named.contains(address);
    let facts = facts.iter().filter(|fact| match fact {
        Fact::Service(row) => kept.contains(&row.key),
        Fact::Slice(row) => kept.contains(&row.service),
        Fact::ClusterIps(_, addresses) => addresses.iter().any(is_named),
        Fact::Secret(_) => false,
        _ => true,
    });
    facts.cloned().collect()
}

#[cfg(test)]
mod tests {
    use landfall_testkit::{slice, svc};

    use super::*;

    #[test]
    fn of_all_cluster_ips_only_those_count_that_the_service_names() {
        let of = |name: &str, address: &str| {
            let addresses = Box::new([address.parse().unwrap()]);
            Fact::ClusterIps(ServiceKey::new("other", name), addresses)
        };
        let web = svc("web").annotated(
            "landfall.dev/endpoints",
            "10.96.0.1:80, [::ffff:a60:4]:80, [FD00:0::05]:80",
        );
        let facts = [
            Fact::Service(web.row()),
            Fact::Slice(slice("web").ready("10.96.0.2").row()),
            Fact::Slice(slice("else").ready("10.96.0.3").row()),
            of("a", "10.96.0.1"),
            of("b", "10.96.0.2"),
            of("c", "10.96.0.3"),
            of("d", "10.96.0.4"),
            of("e", "fd00::5"),
        ];
        let kept = concerned(&facts, &ServiceKey::new("default", "web"));
        let kept = kept.iter().filter_map(|fact| match fact {
            Fact::ClusterIps(key, _) => Some(key.name()),
            _ => None,
        });
        assert_eq!(kept.collect::<Vec<_>>(), ["a", "b", "d", "e"]);
    }
}
