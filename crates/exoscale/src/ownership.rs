//! Which objects are a Service's own: shown by labels, by what is on record, or by names that hold
//! the Service's UID, as the reference gives them.

use landfall_model::{ServiceKey, Uid};

use crate::objects::{Id, Labels, LoadBalancer, LoadBalancerService};
use crate::record::Record;

/// The label with the id of the cluster.
pub const CLUSTER: &str = "landfall-cluster";
/// The label with the UID of the Service.
pub const UID: &str = "landfall-service-uid";
/// The label with the namespace of the Service, for people.
pub const NAMESPACE: &str = "landfall-namespace";
/// The label with its name.
pub const NAME: &str = "landfall-service";

/// The length of a UID, in characters.
const UID_LENGTH: usize = 36;

/// A Service as the owner of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The id of its cluster.
    pub cluster: String,
    /// Its UID.
    pub uid: Uid,
    /// Its namespace and name.
    pub service: ServiceKey,
    /// What is on record of its objects.
    pub record: Option<Record>,
}

// === impl Owner ===

impl Owner {
    /// Returns the labels of its NLB.
    pub fn labels(&self) -> Labels {
        [
            (CLUSTER, self.cluster.as_str()),
            (UID, self.uid.as_str()),
            (NAMESPACE, self.service.namespace()),
            (NAME, self.service.name()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Returns the name of its NLB, if the user gives none.
    pub fn load_balancer_name(&self) -> String {
        format!("k8s-{}", self.uid)
    }

    /// Returns whether an NLB was made for it, so that it may be renamed and deleted. Labels decide
    /// where there are any, then the record: what was once used as the NLB of others stays theirs.
    /// `name` is the one that the Service asks for, which the reference gives.
    pub fn owns(&self, load_balancer: &LoadBalancer, name: &str) -> bool {
        let label = |key: &str| load_balancer.labels.get(key).map(String::as_str);
        let labels = (label(CLUSTER), label(UID));
        if labels != (None, None) {
            return labels == (Some(&self.cluster), Some(self.uid.as_str()));
        }
        let record = self.record.as_ref();
        let record = record.filter(|it| it.load_balancer == load_balancer.id);
        // A person can write a record, so that it takes ownership and does not give it.
        if record.is_some_and(|it| !it.own) {
            return false;
        }
        let services = &load_balancer.services;
        let all = services
            .iter()
            .all(|it| self.owns_service(load_balancer, it));
        let all = all && !services.is_empty();
        load_balancer.name == self.load_balancer_name() || (all && load_balancer.name == name)
    }

    /// Returns whether the labels of an NLB name it.
    pub(crate) fn is_labelled(&self, load_balancer: &LoadBalancer) -> bool {
        let label = |key: &str| load_balancer.labels.get(key).map(String::as_str);
        label(CLUSTER) == Some(&self.cluster) && label(UID) == Some(self.uid.as_str())
    }

    /// Returns whether an NLB service was made for it. In an NLB of another cluster names prove
    /// nothing: what was made from one manifest may have the same UID.
    pub fn owns_service(
        &self,
        load_balancer: &LoadBalancer,
        service: &LoadBalancerService,
    ) -> bool {
        let cluster = load_balancer.labels.get(CLUSTER);
        let by_name = service
            .name
            .strip_prefix(self.uid.as_str())
            .is_some_and(|rest| rest.starts_with('-'));
        let by_name = by_name && cluster.is_none_or(|it| *it == self.cluster);
        let record = self.record.as_ref();
        let recorded = record.is_some_and(|it| it.services.contains(&service.id));
        by_name || (recorded && !is_named_after_a_service(&service.name))
    }

    /// Returns whether a service at a wanted port of an NLB may be changed, and counts as its own.
    /// In an NLB of its own, `own`, that is any which is not another Service's: that of the
    /// reference may have any name.
    pub(crate) fn may_change(
        &self,
        load_balancer: &LoadBalancer,
        service: &LoadBalancerService,
        own: bool,
    ) -> bool {
        self.owns_service(load_balancer, service)
            || (own && !is_named_after_a_service(&service.name))
    }
}

/// Returns whether a name begins with a UID, as the names that controllers give do: then it is that
/// Service's, whatever a record says, which a person can write.
fn is_named_after_a_service(name: &str) -> bool {
    let uid = name
        .get(..UID_LENGTH)
        .filter(|uid| Id::parse(uid).is_some());
    uid.is_some()
        && name
            .get(UID_LENGTH..)
            .is_some_and(|rest| rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "6f1b5d1c-8a70-4f5c-9d0e-0b8f9a1c2d3e";

    fn service(n: u8, name: &str) -> LoadBalancerService {
        LoadBalancerService {
            id: Id::from(format!("{n:08x}-0000-4000-8000-000000000000").as_str()),
            name: name.to_owned(),
            ..LoadBalancerService::default()
        }
    }

    /// An owner with a record that claims an NLB of others and all of its services.
    fn forger(load_balancer: &LoadBalancer) -> Owner {
        let record = Record {
            load_balancer: load_balancer.id.clone(),
            own: true,
            inferred: None,
            services: load_balancer
                .services
                .iter()
                .map(|it| it.id.clone())
                .collect(),
            given: false,
        };
        Owner {
            cluster: "c1".to_owned(),
            uid: Uid::new("0d6f7a52-1c1e-4a5e-8f5b-2a7c9d4e6b10"),
            service: ServiceKey::new("shop", "web"),
            record: Some(record),
        }
    }

    #[test]
    fn a_forged_record_gives_neither_a_load_balancer_nor_the_services_of_others() {
        let other = LoadBalancer {
            id: Id::from("lb"),
            name: "k8s-other".to_owned(),
            services: vec![service(1, &format!("{OTHER}-80")), service(2, "by-hand")],
            ..LoadBalancer::default()
        };
        let forger = forger(&other);
        assert!(!forger.owns(&other, "k8s-other"));
        let [named, by_hand] = &other.services[..] else {
            panic!("two services");
        };
        assert!(!forger.owns_service(&other, named));
        // A service with a name of its own, which only the record can show to be ours.
        assert!(forger.owns_service(&other, by_hand));
    }

    #[test]
    fn a_record_of_a_shared_load_balancer_takes_ownership() {
        let mut shared = LoadBalancer {
            id: Id::from("lb"),
            name: "k8s-0d6f7a52-1c1e-4a5e-8f5b-2a7c9d4e6b10".to_owned(),
            ..LoadBalancer::default()
        };
        let mut owner = forger(&shared);
        assert!(owner.owns(&shared, &shared.name));
        owner
            .record
            .iter_mut()
            .for_each(|record| record.own = false);
        assert!(!owner.owns(&shared, &shared.name));
        shared.labels = owner.labels();
        assert!(owner.owns(&shared, &shared.name));
    }
}
