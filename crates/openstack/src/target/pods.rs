//! Pods as members. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use landfall_model::provider::Target;
use landfall_model::rows::Family;
use landfall_model::{Code, LoadBalancerSpec, Member, Reason};

use super::ListenerBuilder;
use super::secondary::translates;
use crate::features::Features;
use crate::names::cut;

/// So many addresses are named.
const NAMED: usize = 5;

/// The weight of a pod. One that is shutting down gets no new connections, as long as another one,
/// which is ready, gets them.
pub(super) fn weight(pod: &Member, any_ready: bool) -> u16 {
    if pod.draining && any_ready {
        0
    } else {
        pod.weight
    }
}

/// Leaves out members of another family than the VIP's, where the VIP's has any or the load
/// balancer does not translate.
pub(crate) fn keep_family(spec: &mut LoadBalancerSpec, family: Family, features: Features) {
    let fits = |member: &Member| Family::of(member.address.ip()) == family;
    for listener in &mut spec.listeners {
        let any = listener.pool.members.iter().any(fits);
        if any || !translates(listener, features) {
            listener.pool.members.retain(fits);
        }
    }
}

/// Leaves out members at addresses of load balancers, which would send traffic in circles or past
/// the source ranges of another Service. Returns what there is to say of it.
pub(crate) fn leave_out(
    spec: &mut LoadBalancerSpec,
    balancers: &BTreeSet<IpAddr>,
) -> Option<Reason> {
    let mut found = BTreeSet::new();
    for listener in &mut spec.listeners {
        listener.pool.members.retain(|member| {
            let barred = balancers.contains(&member.address.ip());
            if barred {
                found.insert(member.address.ip());
            }
            !barred
        });
    }
    if found.is_empty() {
        return None;
    }
    let named: Vec<String> = found.iter().take(NAMED).map(IpAddr::to_string).collect();
    let message = format!(
        "{} addresses of EndpointSlices are no members, because load balancers have them: {}",
        found.len(),
        named.join(", ")
    );
    let reason = Reason::warning(Code::MemberNotAllowed, message);
    Some(reason.remedy("name the pods behind the load balancer by their own addresses"))
}

// === impl ListenerBuilder ===

impl ListenerBuilder<'_> {
    pub(super) fn has_pods(&self) -> bool {
        self.spec.target == Target::Pod
    }

    /// A node has its own name, a pod one with its namespace: no node's name contains a `/`.
    pub(super) fn member_name(&self, member: &Member) -> String {
        let name = member.name.as_deref();
        if !self.has_pods() {
            return name.unwrap_or_default().to_owned();
        }
        let service = &self.intent.service;
        let name = name.unwrap_or_else(|| service.name());
        cut(format!("{}/{name}", service.namespace()))
    }

    /// What pods as members need.
    pub(super) fn check_pods(&mut self) {
        if !self.has_pods() || !self.features.ovn || self.member_subnet.is_some() {
            return;
        }
        let reason = Reason::error(
            Code::InvalidCloudOption,
            "the provider ovn reaches pods only over a subnet that is named, and none is",
        );
        self.remark(reason.at_annotation(TARGET_TYPE).remedy(
            "name the subnet of the nodes in member-subnet-id of the configuration or in \
            loadbalancer.openstack.org/member-subnet-id, or set landfall.dev/target-type to node",
        ));
    }

    /// Whether the provider can't check pods: OVN's driver looks for a port in Neutron that has the
    /// member's address, and takes one without a port for broken.
    pub(super) fn lacks_monitor_of_pods(&mut self) -> bool {
        let lacks = self.has_pods() && self.features.ovn;
        if lacks {
            self.remark(
                Reason::warning(
                    Code::OptionNotSupported,
                    "the provider ovn checks ports of Neutron only, and pods have none: there is \
                    no monitor, and only their readiness in Kubernetes counts",
                )
                .remedy("give the pods a readinessProbe, and set landfall.dev/monitor to off"),
            );
        }
        lacks
    }
}

const TARGET_TYPE: &str = "landfall.dev/target-type";

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(address: &str, draining: bool) -> Member {
        Member {
            draining,
            ..Member::new(format!("{address}:80").parse().unwrap())
        }
    }

    #[test]
    fn the_last_pods_keep_their_weight_although_they_are_shutting_down() {
        let (draining, ready) = (pod("10.244.0.1", true), pod("10.244.0.2", false));
        assert_eq!(weight(&draining, false), 1);
        assert_eq!((weight(&draining, true), weight(&ready, true)), (0, 1));
    }
}
