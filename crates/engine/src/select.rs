//! Which Services are this process's, and which of its provider instances serves each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_model::rows::{NamespaceRow, OwnershipFields, PoolRow, ServiceRow};
use landfall_model::status::{FINALIZER, INSTANCE};
use landfall_model::{Code, Reason};

use crate::instance::InstanceId;

/// The domain of every class that Landfall may serve.
pub const CLASS_DOMAIN: &str = "landfall.dev/";

/// On a Namespace: the instance that serves its Services without a class.
pub const DEFAULT_CLASS_ANNOTATION: &str = "landfall.dev/default-class";

/// The provider instances of this process, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    names: Vec<String>,
    default: Option<InstanceId>,
    /// Classes outside of Landfall's domain, and the instance that serves each.
    further: BTreeMap<String, InstanceId>,
    /// The instances that are switched off.
    off: BTreeSet<InstanceId>,
}

/// Whose a Service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It wants a load balancer from this instance of ours.
    Ours(InstanceId),
    /// It wants none, or not from us.
    NotOurs,
    /// It asks for a class in Landfall's domain, or has an instance on record, that this process
    /// does not serve.
    UnknownClass,
    /// It is for an instance that is switched off: it is not touched, whatever is on it.
    SwitchedOff,
}

// === impl Classes ===

impl Classes {
    /// One instance that serves its own class and all Services without one.
    pub fn only(name: &str) -> Self {
        Self::new(vec![name.to_owned()], Some(name))
    }

    /// Several instances; `default` names the one that serves Services without a class.
    pub fn new(names: Vec<String>, default: Option<&str>) -> Self {
        let default = default.and_then(|default| find(&names, default));
        Self {
            names,
            default,
            further: BTreeMap::new(),
            off: BTreeSet::new(),
        }
    }

    /// The same, serving further classes, a list for each instance.
    #[must_use]
    pub fn serving(mut self, classes: Vec<Vec<String>>) -> Self {
        let instances: Vec<InstanceId> = InstanceId::all(&self.names).collect();
        for (instance, classes) in instances.into_iter().zip(classes) {
            let classes = classes.into_iter().map(|class| (class, instance));
            self.further.extend(classes);
        }
        self
    }

    /// Switches instances off, with an entry for each: their Services are not touched.
    #[must_use]
    pub fn switched_off(mut self, off: &[bool]) -> Self {
        let off = InstanceId::enumerate(off).filter(|(_, is_off)| **is_off);
        self.off = off.map(|(instance, _)| instance).collect();
        self
    }

    /// The name of an instance.
    pub fn name(&self, instance: InstanceId) -> Option<&str> {
        instance.of(&self.names).map(String::as_str)
    }

    /// The names of the instances.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The instance that serves Services without a class, if any does.
    pub fn default(&self) -> Option<InstanceId> {
        self.default
    }

    /// Whose a Service is, whether or not it is being deleted. `namespace` is the Service's.
    pub fn validate(&self, service: &ServiceRow, namespace: Option<&NamespaceRow>) -> Ownership {
        self.validate_affiliation(service.into(), namespace)
    }

    /// The same by the fields that decide it.
    pub fn validate_affiliation(
        &self,
        service: OwnershipFields<'_>,
        namespace: Option<&NamespaceRow>,
    ) -> Ownership {
        let belongs = self.assign(service, namespace);
        let wants = service.wants_load_balancer;
        match belongs {
            Ownership::Ours(instance) if self.off.contains(&instance) => {
                // Of one that gave up its type only the record shows its owner.
                if wants || service.instance.is_some() {
                    Ownership::SwitchedOff
                } else {
                    Ownership::NotOurs
                }
            }
            _ if !wants => Ownership::NotOurs,
            belongs => belongs,
        }
    }

    /// The instance for a Service, whether or not it wants a load balancer.
    fn assign(&self, service: OwnershipFields<'_>, namespace: Option<&NamespaceRow>) -> Ownership {
        if let Some(class) = service.class {
            let further = || self.further.get(class).copied();
            return match class.strip_prefix(CLASS_DOMAIN) {
                Some(name) => self.named(name),
                None => further().map_or(Ownership::NotOurs, Ownership::Ours),
            };
        }
        // The default is decided once for each Service, as Kubernetes' own defaults are.
        if let Some(instance) = service.instance {
            return self.named(instance);
        }
        let of_namespace =
            namespace.and_then(|namespace| namespace.annotations.get(DEFAULT_CLASS_ANNOTATION));
        match of_namespace {
            Some(class) => self.named(class.strip_prefix(CLASS_DOMAIN).unwrap_or(class)),
            None => self.default.map_or(Ownership::NotOurs, Ownership::Ours),
        }
    }

    /// The instance of ours that holds something of a Service by its record: the one that it is
    /// for, or was as long as it wanted a load balancer.
    pub(crate) fn holder_on_record(
        &self,
        service: &ServiceRow,
        namespace: Option<&NamespaceRow>,
    ) -> Option<InstanceId> {
        let ours = service.finalized && !service.status.conditions.is_empty();
        if !service.wants_load_balancer && !ours {
            return None;
        }
        let as_it_was = OwnershipFields {
            wants_load_balancer: true,
            ..service.into()
        };
        match self.validate_affiliation(as_it_was, namespace) {
            Ownership::Ours(instance) => Some(instance),
            Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
        }
    }

    /// Returns why no instance here serves a Service of an unknown class.
    pub fn unknown(&self, service: &ServiceRow, namespace: Option<&NamespaceRow>) -> Reason {
        let known: Vec<String> = self
            .names
            .iter()
            .map(|name| format!("{CLASS_DOMAIN}{name}"))
            .collect();
        let of_namespace =
            namespace.and_then(|namespace| namespace.annotations.get(DEFAULT_CLASS_ANNOTATION));
        if let Some(reason) = self.unknown_instance(service) {
            return reason;
        }
        let reason = match (service.class.as_deref(), of_namespace) {
            (None, Some(class)) => Reason::error(
                Code::UnknownClass,
                format!(
                    "no provider of this process serves the class {class}, which the Namespace {} \
                    sets for Services without one",
                    service.key.namespace()
                ),
            )
            .at_annotation(DEFAULT_CLASS_ANNOTATION)
            .value(class),
            (class, _) => {
                let class = class.unwrap_or_default();
                Reason::error(
                    Code::UnknownClass,
                    format!("no provider of this process serves the class {class}"),
                )
                .at("spec.loadBalancerClass")
                .value(class)
                .origin(service.origin_of("spec.loadBalancerClass"))
            }
        };
        reason.remedy(format!("this process serves {}", known.join(", ")))
    }

    /// Why a Service is not served whose instance on record is not one of this process.
    fn unknown_instance(&self, service: &ServiceRow) -> Option<Reason> {
        let instance = service.instance()?;
        if service.class.is_some() {
            return None;
        }
        let reason = Reason::error(
            Code::UnknownClass,
            format!(
                "the instance {instance}, which serves this Service, is not configured in this \
                process"
            ),
        );
        let remedy = format!(
            "configure {instance} again; or write one of {} into the annotation, which moves the \
            Service there",
            self.names.join(", ")
        );
        Some(
            reason
                .at_annotation(INSTANCE)
                .value(instance)
                .remedy(remedy),
        )
    }

    /// Whether a Service was ours to serve, and no instance is left that does: its class, or the
    /// default one, was taken from the configuration. Of a Service without a class only our
    /// conditions show it, for other controllers serve these, too.
    pub fn has_lost(&self, service: &ServiceRow, belongs: Ownership) -> bool {
        let recorded = service.instance().is_some();
        let marked = !service.status.conditions.is_empty() || recorded;
        match belongs {
            Ownership::Ours(_) | Ownership::SwitchedOff => false,
            Ownership::UnknownClass => service.class.is_some() || marked,
            Ownership::NotOurs => service.wants_load_balancer && marked,
        }
    }

    /// Why a Service that [was ours](Self::has_lost) is not deleted although it was asked for.
    pub fn blocked_deletion(
        &self,
        service: &ServiceRow,
        namespace: Option<&NamespaceRow>,
    ) -> Reason {
        let of_namespace =
            namespace.and_then(|namespace| namespace.annotations.get(DEFAULT_CLASS_ANNOTATION));
        if let Some(reason) = self.unknown_instance(service) {
            let remedy = format!(
                "{}; or, if nothing of it is left, remove the finalizer {FINALIZER} from the \
                Service",
                reason.remedy
            );
            let message = format!("it can't be deleted: {}", reason.message);
            return Reason { message, ..reason }.remedy(remedy);
        }
        let class = match (service.class.as_deref(), of_namespace) {
            (Some(class), _) => Some(class),
            (None, of_namespace) => of_namespace.map(String::as_str),
        };
        let (whose, missing) = match class {
            Some(class) => (
                format!("the class {class}"),
                format!("the instance of the class {class}"),
            ),
            None => (
                "Services without a class".to_owned(),
                "a default instance".to_owned(),
            ),
        };
        Reason::error(
            Code::UnknownClass,
            format!(
                "it can't be deleted: no provider of this process serves {whose}, so its load \
                balancer stays"
            ),
        )
        .at("spec.loadBalancerClass")
        .value(class.unwrap_or_default())
        .remedy(format!(
            "configure {missing} again; or, if nothing of it is left, remove the finalizer \
            {FINALIZER} from the Service"
        ))
    }

    /// Returns the instance whose pools are those that name no instance, because two allocators
    /// must not assign from one range: the default one, or else the first one, of those that take
    /// pools. `takes` says of each instance whether it does.
    pub fn home_of_pools(&self, takes: &[bool]) -> Option<InstanceId> {
        let takes_pools = |instance: &InstanceId| instance.of(takes) == Some(&true);
        let default = self.default.filter(takes_pools);
        default.or_else(|| InstanceId::all(&self.names).find(takes_pools))
    }

    /// Each instance's pools; `takes` as for [`home_of_pools`](Self::home_of_pools).
    pub fn share_pools(&self, pools: &[Arc<PoolRow>], takes: &[bool]) -> Vec<Vec<Arc<PoolRow>>> {
        let home = self.home_of_pools(takes);
        let share = |(instance, name): (InstanceId, &String)| {
            let own = pools.iter().filter(|pool| match pool.instance.as_ref() {
                None => Some(instance) == home,
                Some(named) => named == name,
            });
            own.cloned().collect()
        };
        InstanceId::enumerate(&self.names).map(share).collect()
    }

    fn named(&self, name: &str) -> Ownership {
        find(&self.names, name).map_or(Ownership::UnknownClass, Ownership::Ours)
    }
}

fn find(names: &[String], name: &str) -> Option<InstanceId> {
    let mut matching = InstanceId::enumerate(names).filter(|(_, known)| *known == name);
    matching.next().map(|(instance, _)| instance)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use landfall_testkit::svc;

    use super::*;

    fn validate(classes: &Classes, class: Option<&str>, of_namespace: Option<&str>) -> Ownership {
        let service = svc("web")
            .port(80)
            .with(|row| row.class = class.map(Into::into))
            .row();
        let namespace = of_namespace.map(|class| NamespaceRow {
            name: "default".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(DEFAULT_CLASS_ANNOTATION.to_owned(), class.to_owned())]),
        });
        classes.validate(&service, namespace.as_ref())
    }

    fn ours(classes: &Classes, position: usize) -> Ownership {
        Ownership::Ours(InstanceId::all(&classes.names).nth(position).unwrap())
    }

    fn two(default: Option<&str>) -> Classes {
        Classes::new(vec!["edge".to_owned(), "inner".to_owned()], default)
    }

    #[test]
    fn a_class_names_the_instance_and_others_are_not_ours() {
        let classes = two(None);
        assert_eq!(
            validate(&classes, Some("landfall.dev/inner"), None),
            ours(&classes, 1)
        );
        assert_eq!(
            validate(&classes, Some("landfall.dev/x"), None),
            Ownership::UnknownClass
        );
        assert_eq!(
            validate(&classes, Some("example.com/inner"), None),
            Ownership::NotOurs
        );
        assert_eq!(validate(&classes, None, None), Ownership::NotOurs);
    }

    #[test]
    fn a_further_class_is_served_by_the_instance_that_lists_it() {
        let further = vec![vec!["metallb".to_owned()], vec!["example.com/x".to_owned()]];
        let classes = two(None).serving(further);
        assert_eq!(validate(&classes, Some("metallb"), None), ours(&classes, 0));
        assert_eq!(
            validate(&classes, Some("example.com/x"), Some("edge")),
            ours(&classes, 1)
        );
        assert_eq!(
            validate(&classes, Some("example.com/y"), None),
            Ownership::NotOurs
        );
    }

    #[test]
    fn without_a_class_the_namespace_decides_before_the_process() {
        let classes = two(Some("edge"));
        assert_eq!(validate(&classes, None, None), ours(&classes, 0));
        assert_eq!(validate(&classes, None, Some("inner")), ours(&classes, 1));
        assert_eq!(
            validate(&classes, None, Some("landfall.dev/inner")),
            ours(&classes, 1)
        );
        assert_eq!(validate(&classes, None, Some("x")), Ownership::UnknownClass);
        assert_eq!(
            validate(&classes, Some("landfall.dev/edge"), Some("inner")),
            ours(&classes, 0)
        );
    }

    #[test]
    fn an_unknown_class_is_reported_with_its_place() {
        let classes = two(None);
        let service = svc("web")
            .port(80)
            .with(|row| row.class = Some("landfall.dev/x".into()))
            .row();
        let reason = classes.unknown(&service, None);
        assert_eq!(reason.field.as_deref(), Some("spec.loadBalancerClass"));
        assert_eq!(reason.value.as_deref(), Some("landfall.dev/x"));
        assert_eq!(
            reason.remedy,
            "this process serves landfall.dev/edge, landfall.dev/inner"
        );
        let service = svc("web").port(80).row();
        let namespace = NamespaceRow {
            name: "default".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(DEFAULT_CLASS_ANNOTATION.to_owned(), "x".to_owned())]),
        };
        let reason = classes.unknown(&service, Some(&namespace));
        assert_eq!(reason.value.as_deref(), Some("x"));
        assert!(reason.message.contains("the Namespace default sets"));
    }

    #[test]
    fn a_service_that_wants_no_load_balancer_has_no_instance() {
        let service = svc("web")
            .port(80)
            .with(|row| row.wants_load_balancer = false)
            .row();
        assert_eq!(
            Classes::only("local").validate(&service, None),
            Ownership::NotOurs
        );
    }

    #[test]
    fn pools_that_name_no_instance_go_to_the_first_that_takes_any() {
        let pool = |instance: Option<&str>| {
            Arc::new(PoolRow {
                instance: instance.map(str::to_owned),
                ..PoolRow::default()
            })
        };
        let counts = |default, pools: &[Arc<PoolRow>], takes: [bool; 2]| -> Vec<usize> {
            let shares = two(default).share_pools(pools, &takes);
            shares.iter().map(Vec::len).collect()
        };
        let unnamed = [pool(None)];
        assert_eq!(counts(Some("edge"), &unnamed, [true, true]), [1, 0]);
        assert_eq!(counts(Some("inner"), &unnamed, [true, true]), [0, 1]);
        // The default one is of a cloud, which takes none.
        assert_eq!(counts(Some("edge"), &unnamed, [false, true]), [0, 1]);
        assert_eq!(counts(None, &unnamed, [false, true]), [0, 1]);
        assert_eq!(counts(Some("edge"), &unnamed, [false, false]), [0, 0]);
        let named = [pool(Some("edge")), pool(Some("inner"))];
        assert_eq!(counts(Some("edge"), &named, [false, true]), [1, 1]);
    }
}
