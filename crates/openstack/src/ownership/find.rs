//! Which load balancer is a Service's. Pure.
//!
//! By the id that the Service names, else by its name; never one that another cluster has marked.

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::{Code, Intent, Reason};

use crate::names::{BALANCER_MARK, Names, SERVICE_PREFIX, UID_PREFIX, renamed};
use crate::objects::{Id, LoadBalancer, Provisioning};
use crate::observed::Found;
use crate::ownership::proof::{is_marked, was_served_elsewhere};
use crate::record::{Record, was_noted};

/// A Service for which a load balancer is searched.
#[derive(Clone, Copy)]
pub(crate) struct SearchedService<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) names: &'a Names,
    /// The name of the cluster.
    pub(crate) cluster: &'a str,
    /// The load balancer whose address the Service publishes, where its name leaves that open.
    pub(crate) publishing: Option<&'a Id>,
    /// What is made for it carries marks.
    pub(crate) marks: bool,
}

/// The load balancer of a Service among those that there are. `named` is what the cloud says of the
/// id that the Service names, if it names one; `traces` whether something else of the Service's is
/// in the cloud.
pub(crate) fn find(
    seeker: SearchedService<'_>,
    named: Option<(&Id, Option<&LoadBalancer>)>,
    traces: bool,
    all: &[LoadBalancer],
) -> Found {
    let SearchedService { intent, names, .. } = seeker;
    let same_name = named.and_then(|(_, row)| row);
    let same_name = same_name.filter(|it| is_same_name_other_cluster(names, it));
    if let Some(balancer) = same_name
        && intent.load_balancer.is_some()
    {
        return Found::Refused(name_collision(balancer));
    }
    if let Some((_, Some(balancer))) = named
        && same_name.is_none()
        && !balancer.provisioning_status.is_going()
    {
        let mut found = one(seeker, balancer, Vec::new());
        if let Found::One {
            owner: true,
            surplus,
            ..
        } = &mut found
        {
            *surplus = repeated(seeker, &balancer.id, all);
        }
        return found;
    }
    let by_name = by_name(seeker, all);
    if matches!(by_name, Found::Nothing)
        && intent.load_balancer.is_none()
        && let Some(balancer) = leaving(seeker, all)
    {
        return one(seeker, balancer, Vec::new());
    }
    let (Found::Nothing, Some((id, _))) = (&by_name, named) else {
        return by_name;
    };
    let ours = traces || intent.marks.contains_key(LOAD_BALANCER_ID) || was_served(intent);
    if ours || intent.load_balancer.is_none() {
        return Found::Nothing;
    }
    Found::Refused(
        Reason::error(
            Code::CloudObjectNotFound,
            "the project has no load balancer of this id",
        )
        .at_annotation(LOAD_BALANCER_ID)
        .value(id.as_str())
        .remedy("name an existing one, or remove the annotation to get a new one"),
    )
}

/// Whether a Service was served before by a load balancer that it names: the id is from a
/// controller then, which has published an address or noted it. Only our own record shows that the
/// user had named it first.
fn was_served(intent: &Intent) -> bool {
    let given = Record::of(intent).is_some_and(|record| record.given);
    let spec = intent.load_balancer.as_ref();
    let held = spec.is_some_and(|spec| !spec.address.held.is_empty());
    !given && (held || was_noted(intent))
}

/// Whether a Service names another load balancer than this one, which by the record is the one that
/// serves it.
pub(crate) fn names_another(intent: &Intent, serving: &Id) -> bool {
    let given = intent.extensions.openstack.load_balancer.as_ref();
    let another = given.is_some_and(|given| given.value != serving.as_str());
    another && Record::of(intent).is_some_and(|it| it.balancer == serving.as_str())
}

/// Whether a Service that named this load balancer, and is served by it, names none any more.
fn named_before(intent: &Intent, serving: &Id) -> bool {
    let record = Record::of(intent);
    intent.extensions.openstack.load_balancer.is_none()
        && record.is_some_and(|it| it.given && it.balancer == serving.as_str())
}

/// The load balancer that by the record serves a Service, where it names another one by now, or
/// none.
pub(crate) fn serving_all_the_same<'a>(
    seeker: SearchedService<'_>,
    all: &'a [LoadBalancer],
) -> Option<&'a LoadBalancer> {
    let SearchedService { intent, .. } = seeker;
    let stays = |id: &Id| names_another(intent, id) || named_before(intent, id);
    all.iter()
        .find(|it| stays(&it.id) && !it.provisioning_status.is_going() && uses(seeker, it))
}

/// Whether marks, or its name, say that a Service has a load balancer or shares it.
fn uses(seeker: SearchedService<'_>, balancer: &LoadBalancer) -> bool {
    let names = seeker.names;
    let mut of_service = [&names.uid_tag, &names.load_balancer].into_iter();
    of_service.any(|tag| balancer.tags.contains(tag)) || is_owner(seeker, balancer)
}

/// A load balancer that may serve a Service although it names another one, or none.
pub(crate) struct Marked<'a> {
    pub(crate) balancer: &'a LoadBalancer,
    /// It was made for the Service.
    pub(crate) owner: bool,
    /// No address is needed to know that it serves this very Service.
    pub(crate) certain: bool,
}

/// The load balancers that say by marks that a Service uses them, where there is no record of the
/// one that serves it, and the one that is named, if any, says no such thing. `remembered` is the
/// one that this process saw last.
pub(crate) fn marked<'a>(
    seeker: SearchedService<'_>,
    remembered: Option<&Id>,
    all: &'a [LoadBalancer],
) -> Vec<Marked<'a>> {
    let SearchedService { intent, names, .. } = seeker;
    if Record::of(intent).is_some() {
        return Vec::new();
    }
    let given = intent.extensions.openstack.load_balancer.as_ref();
    let named = |it: &LoadBalancer| given.is_some_and(|given| given.value == it.id.as_str());
    let found_anyway = |it: &LoadBalancer| {
        let by_id = named(it) && uses(seeker, it);
        let by_name = given.is_none() && is_owner(seeker, it);
        by_id || by_name
    };
    let there = || all.iter().filter(|it| !it.provisioning_status.is_going());
    if there().any(found_anyway) {
        return Vec::new();
    }
    let marked = there()
        .filter(|it| !named(it) && uses(seeker, it) && !is_same_name_other_cluster(names, it));
    let mut marked: Vec<Marked<'a>> = marked
        .map(|balancer| Marked {
            balancer,
            owner: is_owner(seeker, balancer),
            certain: balancer.tags.contains(&names.uid_tag)
                || (remembered == Some(&balancer.id)
                    && balancer.tags.contains(&names.load_balancer)),
        })
        .collect();
    marked.sort_by_key(|it| (!it.certain, &it.balancer.created_at, &it.balancer.id));
    marked
}

/// The Service's own that Octavia is deleting: the Service goes after it, for the deletion may fail
/// yet.
fn leaving<'a>(seeker: SearchedService<'_>, all: &'a [LoadBalancer]) -> Option<&'a LoadBalancer> {
    let names = seeker.names;
    all.iter().find(|it| {
        let mut of_services = it.tags.iter().filter(|tag| tag.starts_with(UID_PREFIX));
        it.provisioning_status == Provisioning::PendingDelete
            && of_services.all(|tag| *tag == names.uid_tag)
            && is_owner(seeker, it)
            && !is_for_another(names, it)
            && !is_known_other(seeker, it)
    })
}

fn by_name(seeker: SearchedService<'_>, all: &[LoadBalancer]) -> Found {
    let names = seeker.names;
    let mine = |it: &&LoadBalancer| it.tags.contains(&names.uid_tag);
    let called = |name: &str| {
        all.iter()
            .filter(|it| it.name == name || (mine(it) && is_owner(seeker, it)))
            .filter(|it| !it.provisioning_status.is_going())
            .filter(|it| !names.of_another_cluster(&it.tags) && !is_for_another(names, it))
            .filter(|it| !is_known_other(seeker, it))
            .collect::<Vec<_>>()
    };
    let mut candidates = called(&names.load_balancer);
    if candidates.is_empty() {
        candidates = called(&names.legacy);
    }
    if candidates.len() > 1 {
        let mut certain: Vec<&LoadBalancer> =
            candidates.iter().copied().filter(|it| mine(it)).collect();
        certain
            .sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
        if let Some((first, others)) = certain.split_first() {
            let others = others.iter().copied().filter(|it| may_go(names, it));
            let surplus = others.map(|it| it.id.clone()).collect();
            return self::one(seeker, first, surplus);
        }
        let ids: Vec<&str> = candidates.iter().map(|it| it.id.as_str()).collect();
        return Found::Refused(
            Reason::error(
                Code::NotOurs,
                format!(
                    "{} load balancers are named {}: {}",
                    ids.len(),
                    names.load_balancer,
                    ids.join(", ")
                ),
            )
            .remedy(
                "delete or rename those that are not the Service's, or set \
                loadbalancer.openstack.org/load-balancer-id",
            ),
        );
    }
    match candidates.first() {
        Some(balancer) => one(seeker, balancer, Vec::new()),
        None => Found::Nothing,
    }
}

/// Others that were made for the very same Service: a request was repeated whose answer was lost.
fn repeated(seeker: SearchedService<'_>, chosen: &Id, all: &[LoadBalancer]) -> Vec<Id> {
    let others = all.iter().filter(|it| it.id != *chosen);
    let ours = others
        .filter(|it| it.tags.contains(&seeker.names.uid_tag) && is_owner(seeker, it))
        .filter(|it| may_go(seeker.names, it));
    ours.map(|it| it.id.clone()).collect()
}

/// What Octavia is busy with can't be deleted yet: the next audit finds it again. What others use
/// stays.
fn may_go(names: &Names, balancer: &LoadBalancer) -> bool {
    let mut others = names.of_others(&balancer.name, &balancer.tags);
    others.next().is_none()
        && !balancer.provisioning_status.is_pending()
        && !balancer.provisioning_status.is_going()
}

/// Names are cut, so that two Services may have one: the description distinguishes them.
fn is_for_another(names: &Names, balancer: &LoadBalancer) -> bool {
    let service = |text: &str| {
        let rest = text.strip_prefix(BALANCER_MARK)?.strip_prefix(' ')?;
        rest.split_once(' ').map(|(service, _)| service.to_owned())
    };
    match (service(&balancer.description), service(&names.description)) {
        (Some(its), Some(ours)) => its != ours,
        _ => false,
    }
}

/// Whether one without our marks is known not to be the Service's, which notes another one.
fn is_known_other(seeker: SearchedService<'_>, balancer: &LoadBalancer) -> bool {
    seeker.marks
        && !is_marked(seeker.names, balancer)
        && was_served_elsewhere(seeker.intent, balancer)
}

fn is_owner(seeker: SearchedService<'_>, balancer: &LoadBalancer) -> bool {
    let names = seeker.names;
    let now = balancer.name == names.load_balancer || balancer.name == names.legacy;
    (now || is_renamed(seeker, balancer)) && !names.of_another_cluster(&balancer.tags)
}

/// Whether it is the Service's from when the cluster had another name, rather than that of a
/// Service of the same name in another cluster.
fn is_renamed(seeker: SearchedService<'_>, balancer: &LoadBalancer) -> bool {
    let SearchedService {
        intent,
        names,
        cluster,
        publishing,
        ..
    } = seeker;
    if !would_be_ours(names, cluster, balancer) {
        return false;
    }
    let tagged = |tag: &String| balancer.tags.contains(tag);
    if tagged(&names.uid_tag) || names.cluster_tag.as_ref().is_some_and(tagged) {
        return true;
    }
    // One that we have joined under our present name is another's.
    if tagged(&names.load_balancer) {
        return false;
    }
    let recorded = intent.marks.get(LOAD_BALANCER_ID);
    recorded.is_some_and(|id| id == balancer.id.as_str()) || publishing == Some(&balancer.id)
}

/// Whether it was made for a Service of the same name in another cluster of the same name: what is
/// whose in it is not known.
fn is_same_name_other_cluster(names: &Names, balancer: &LoadBalancer) -> bool {
    let named_so = balancer.name == names.load_balancer || balancer.name == names.legacy;
    named_so && names.of_another_cluster(&balancer.tags) && !balancer.tags.contains(&names.uid_tag)
}

fn name_collision(balancer: &LoadBalancer) -> Reason {
    Reason::error(
        Code::NotOurs,
        format!(
            "load balancer {} belongs to a Service of the same name in another cluster, which has \
            this cluster's name",
            balancer.id
        ),
    )
    .at_annotation(LOAD_BALANCER_ID)
    .value(balancer.id.as_str())
    .remedy(
        "remove the annotation to get a load balancer of its own; give each cluster its own \
            --cluster-name",
    )
}

/// Whether it would have the Service's name if it were this cluster's.
pub(crate) fn would_be_ours(names: &Names, cluster: &str, balancer: &LoadBalancer) -> bool {
    renamed(&balancer.name, "", cluster).is_some_and(|name| name == names.load_balancer)
}

fn one(seeker: SearchedService<'_>, balancer: &LoadBalancer, surplus: Vec<Id>) -> Found {
    let owner = is_owner(seeker, balancer);
    Found::One {
        balancer: Box::new(balancer.clone()),
        owner,
        made: owner || balancer.name.starts_with(SERVICE_PREFIX),
        surplus,
    }
}
