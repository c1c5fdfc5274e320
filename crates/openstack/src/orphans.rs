//! What controllers made in the project and no Service owns any more.
//!
//! Only what names this cluster counts: by the tag with its id, else by the cluster's name in
//! names and descriptions. What another cluster has marked, or what holds anything of another
//! Service than that for which it was made, is never an orphan of this one.

#![expect(
    clippy::similar_names,
    reason = "names of a Service, and what a Service names, are the words here"
)]

mod certificates;

use std::collections::BTreeSet;
use std::fmt;

use landfall_model::rows::Family;
use landfall_model::{ServiceKey, Uid};
use serde::Serialize;

use crate::client::{ApiError, Cloud};
use crate::names::{
    CLUSTER_PREFIX, Names, SERVICE_PREFIX, SHARED_GROUP_PREFIX, SHARER_PREFIX, UID_PREFIX,
    child_prefix, cluster_of, cut, renamed, rule_owner,
};
use crate::objects::{Container, FloatingIp, Id, Listener, LoadBalancer, Pool, Ref, SecurityGroup};
use crate::ownership::is_made;
use crate::settings::Settings;

/// An object that no Service owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    /// What it is.
    pub kind: OrphanKind,
    /// Its id.
    pub id: Id,
    /// Its name or address.
    pub name: String,
    /// Whose it was: a clause.
    pub whose: String,
    /// Whether only its name says that it was this cluster's, and it may serve another one of the
    /// same name.
    pub unproven: bool,
}

/// Kinds of objects, in the order in which they can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OrphanKind {
    /// A floating IP.
    FloatingIp,
    /// A load balancer with everything in it.
    LoadBalancer,
    /// A rule in the group that the nodes share.
    SecurityGroupRule,
    /// A security group.
    SecurityGroup,
    /// A certificate of a Secret in Barbican.
    Certificate,
}

/// A Service that may own something: one of type `LoadBalancer`, or one that is being cleared away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace and name.
    pub service: ServiceKey,
    /// Identity.
    pub uid: Uid,
    /// The load balancer that it names.
    pub load_balancer: Option<String>,
}

/// What is in the project.
#[derive(Clone, Debug, Default)]
struct Project {
    balancers: Vec<LoadBalancer>,
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
    floating_ips: Vec<FloatingIp>,
    groups: Vec<SecurityGroup>,
    containers: Vec<Container>,
}

/// What a read of the project has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What no Service owns.
    pub orphans: Vec<Orphan>,
    /// How many load balancers were read.
    pub load_balancers: usize,
    /// How many floating IPs were read.
    pub floating_ips: usize,
    /// How many security groups were read.
    pub security_groups: usize,
}

/// Finds orphans. Reads only.
///
/// # Errors
/// The cloud can't be asked.
pub async fn find(cloud: &Cloud, settings: &Settings, owners: &[Owner]) -> Result<Found, ApiError> {
    let project = cloud.project_id().await?;
    let query = project.as_ref().map(|id| ("project_id", id.as_str()));
    let project = Project {
        balancers: cloud.load_balancers().await?,
        listeners: cloud.listeners(None).await?,
        pools: cloud.pools(None).await?,
        floating_ips: cloud.floating_ips(query.as_slice()).await?,
        groups: cloud.security_groups(&[]).await?,
        containers: certificates::read(cloud).await?,
    };
    Ok(Found {
        orphans: unowned(&project, settings, owners),
        load_balancers: project.balancers.len(),
        floating_ips: project.floating_ips.len(),
        security_groups: project.groups.len(),
    })
}

/// Checks whether an orphan still is one. Reads only.
async fn is_still(
    cloud: &Cloud,
    settings: &Settings,
    owners: &[Owner],
    orphan: &Orphan,
) -> Result<bool, ApiError> {
    let orphans = if orphan.kind == OrphanKind::LoadBalancer {
        let Some(balancer) = cloud.load_balancer(&orphan.id).await? else {
            return Ok(true);
        };
        let floating_ips = match &balancer.vip_port_id {
            Some(port) => cloud.floating_ips(&[("port_id", port.as_str())]).await?,
            None => Vec::new(),
        };
        let project = Project {
            balancers: vec![balancer],
            listeners: cloud.listeners(Some(&orphan.id)).await?,
            pools: cloud.pools(Some(&orphan.id)).await?,
            floating_ips,
            ..Project::default()
        };
        unowned(&project, settings, owners)
    } else {
        find(cloud, settings, owners).await?.orphans
    };
    let same = |it: &Orphan| it.kind == orphan.kind && it.id == orphan.id;
    let as_sure = |it: &Orphan| orphan.unproven || !it.unproven;
    Ok(orphans.iter().any(|it| same(it) && as_sure(it)))
}

/// Deletes an orphan, after a last check whether it still is one; returns whether it was. One that
/// is gone already is a success.
///
/// # Errors
/// The cloud can't be asked, or refuses.
pub async fn delete(
    cloud: &Cloud,
    settings: &Settings,
    owners: &[Owner],
    orphan: &Orphan,
) -> Result<bool, ApiError> {
    if !is_still(cloud, settings, owners, orphan).await? {
        return Ok(false);
    }
    remove(cloud, orphan).await?;
    Ok(true)
}

async fn remove(cloud: &Cloud, orphan: &Orphan) -> Result<(), ApiError> {
    match orphan.kind {
        OrphanKind::FloatingIp => cloud.delete_floating_ip(&orphan.id, None).await,
        OrphanKind::LoadBalancer => cloud.delete_load_balancer(&orphan.id, true).await,
        OrphanKind::SecurityGroupRule => cloud.delete_rule(&orphan.id).await,
        OrphanKind::Certificate => certificates::remove(cloud, &orphan.id).await,
        OrphanKind::SecurityGroup => {
            let group = orphan.id.as_str();
            for port in cloud.ports(&[("security_groups", group)]).await? {
                let mut groups = port.security_groups.clone();
                groups.retain(|it| *it != orphan.id);
                let body = serde_json::json!({"security_groups": groups});
                cloud
                    .update_port(&port.id, &body, port.revision_number)
                    .await?;
            }
            cloud.delete_security_group(&orphan.id).await
        }
    }
}

/// What no Service owns of what is in a project.
fn unowned(project: &Project, settings: &Settings, owners: &[Owner]) -> Vec<Orphan> {
    let survey = Survey::new(project, settings, owners);
    let mut orphans = survey.load_balancers();
    let ids = |it: &mut dyn Iterator<Item = &Orphan>| it.map(|it| it.id.clone()).collect();
    let going: BTreeSet<Id> = ids(&mut orphans.iter());
    let proven: BTreeSet<Id> = ids(&mut orphans.iter().filter(|it| !it.unproven));
    let beside = |going: &BTreeSet<Id>| {
        let mut beside = survey.floating_ips(going);
        beside.extend(survey.groups(going));
        beside.extend(certificates::unowned(project, settings, owners, going));
        beside
    };
    // What goes with a load balancer is no surer than it is.
    let sure = beside(&proven);
    orphans.extend(beside(&going).into_iter().map(|it| Orphan {
        unproven: !sure.contains(&it),
        ..it
    }));
    orphans.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    orphans
}

/// A project, and the names of what Services own in it.
struct Survey<'a> {
    project: &'a Project,
    settings: &'a Settings,
    owners: &'a [Owner],
    owned: Vec<Names>,
}

// === impl Survey ===

impl<'a> Survey<'a> {
    fn new(project: &'a Project, settings: &'a Settings, owners: &'a [Owner]) -> Self {
        let names = |owner: &Owner| {
            let id = settings.cluster_id.as_deref();
            Names::new(&settings.cluster, id, &owner.service, &owner.uid)
        };
        Self {
            project,
            settings,
            owners,
            owned: owners.iter().map(names).collect(),
        }
    }

    /// Whether a text ends with the name of the cluster.
    fn in_cluster(&self, text: &str, before: &str) -> bool {
        text.ends_with(&format!("{before}{}", self.settings.cluster))
    }

    fn load_balancers(&self) -> Vec<Orphan> {
        // A Service may have a second load balancer, of either family.
        let beside = self.owned.iter();
        let beside =
            beside.flat_map(|names| [Family::V4, Family::V6].map(|family| names.beside(family)));
        let names: Vec<Names> = self.owned.iter().cloned().chain(beside).collect();
        let named = self.owners.iter();
        let named: BTreeSet<&str> = named.filter_map(|it| it.load_balancer.as_deref()).collect();
        let is_owned = |balancer: &LoadBalancer| {
            named.contains(balancer.id.as_str())
                || names.iter().any(|names| {
                    balancer.name == names.load_balancer
                        || balancer.name == names.legacy
                        || balancer.tags.contains(&names.load_balancer)
                        || balancer.tags.contains(&names.uid_tag)
                })
        };
        let balancers = self.project.balancers.iter();
        let orphans = balancers.filter(|it| {
            !is_owned(it)
                && is_of_cluster(it, self.settings)
                && !it.provisioning_status.is_going()
                && is_ours_alone(it, self.project, self.settings)
        });
        let orphans = orphans.map(|it| Orphan {
            kind: OrphanKind::LoadBalancer,
            id: it.id.clone(),
            name: it.name.clone(),
            whose: whose(&it.description),
            unproven: self.may_serve_another(it),
        });
        orphans.collect()
    }

    /// Whether a load balancer may serve another cluster of this name, as only its name says that
    /// it was this one's.
    fn may_serve_another(&self, balancer: &LoadBalancer) -> bool {
        // Of these, the id is ours.
        if balancer
            .tags
            .iter()
            .any(|it| it.starts_with(CLUSTER_PREFIX))
        {
            return false;
        }
        let mut listeners = self.project.listeners.iter();
        let mut floating_ips = self.project.floating_ips.iter();
        let in_it = |it: &Listener| it.loadbalancers.iter().any(|it| it.id == balancer.id);
        let port = balancer.vip_port_id.as_ref();
        balancer.provisioning_status.is_pending()
            || listeners.any(in_it)
            || floating_ips.any(|it| port.is_some() && it.port_id.as_ref() == port)
    }

    /// Whether a load balancer that stays serves the Service of a description. A Service of this
    /// name may be another cluster's of the same name, and what serves it shows that.
    fn is_served(&self, description: &str, going: &BTreeSet<Id>) -> bool {
        let Some(service) = service_in(description) else {
            return false;
        };
        let names = Names::new(&self.settings.cluster, None, &service, &Uid::new(""));
        let of_it = |text: &str| {
            text.strip_prefix(&*names.load_balancer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let balancers = self.project.balancers.iter();
        let mut stay =
            balancers.filter(|it| !going.contains(&it.id) && !it.provisioning_status.is_going());
        stay.any(|it| of_it(&it.name) || it.tags.iter().any(|tag| of_it(tag)))
    }

    fn floating_ips(&self, going: &BTreeSet<Id>) -> Vec<Orphan> {
        // One that is attached is in use, whatever its description says, unless what it is attached
        // to goes, too.
        let is_used = |floating_ip: &FloatingIp| {
            floating_ip.port_id.as_ref().is_some_and(|port| {
                let mut balancers = self.project.balancers.iter();
                !balancers.any(|it| going.contains(&it.id) && it.vip_port_id.as_ref() == Some(port))
            })
        };
        let all = self.project.floating_ips.iter();
        let orphans = all.filter(|it| {
            let text = &it.description;
            is_made(it)
                && self.in_cluster(text, " from cluster ")
                && !self.owned.iter().any(|names| names.floating_ip == *text)
                && !is_used(it)
                && !self.is_served(text, going)
        });
        let orphans = orphans.map(|it| Orphan {
            kind: OrphanKind::FloatingIp,
            id: it.id.clone(),
            name: it.floating_ip_address.to_string(),
            whose: whose(&it.description),
            unproven: false,
        });
        orphans.collect()
    }

    fn groups(&self, going: &BTreeSet<Id>) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        for group in &self.project.groups {
            let of_service = group.name.starts_with("lb-sg-")
                && self.in_cluster(&group.description, " in cluster ");
            let known = self.owned.iter().any(|names| names.group == group.name);
            if of_service && !known && !self.is_served(&group.description, going) {
                orphans.push(Orphan {
                    kind: OrphanKind::SecurityGroup,
                    id: group.id.clone(),
                    name: group.name.clone(),
                    whose: whose(&group.description),
                    unproven: false,
                });
            }
            // Also where the cluster had another name: rules name it by its id.
            if group.name.starts_with(SHARED_GROUP_PREFIX) {
                orphans.extend(self.rules(group));
            }
        }
        orphans
    }

    /// Rules in the group that the nodes share. Another cluster of this name has rules in it, too.
    fn rules(&self, group: &SecurityGroup) -> Vec<Orphan> {
        let uids: BTreeSet<&str> = self.owners.iter().map(|it| it.uid.as_str()).collect();
        // Without our own id, a rule without one may be another cluster's.
        let Some(cluster) = self.settings.cluster_id.as_deref() else {
            return Vec::new();
        };
        let orphans = group.rules.iter().filter_map(|rule| {
            let (uid, of) = rule_owner(&rule.description)?;
            (of == Some(cluster) && !uids.contains(uid)).then(|| Orphan {
                kind: OrphanKind::SecurityGroupRule,
                id: rule.id.clone(),
                name: format!("port {}", rule.port_range_min.unwrap_or_default()),
                whose: format!("of the Service with the UID {uid}"),
                unproven: false,
            })
        });
        orphans.collect()
    }
}

/// Whether a Service controller of this cluster created it, as far as marks show; of those without,
/// by its name.
fn is_of_cluster(balancer: &LoadBalancer, settings: &Settings) -> bool {
    let made = balancer.name.starts_with(SERVICE_PREFIX)
        || balancer.tags.iter().any(|it| it.starts_with(UID_PREFIX));
    if !made {
        return false;
    }
    let mut marks = balancer
        .tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(CLUSTER_PREFIX))
        .peekable();
    if marks.peek().is_some() {
        return marks.all(|mark| Some(mark) == settings.cluster_id.as_deref());
    }
    cluster_of(&balancer.name) == Some(settings.cluster.as_str())
}

/// Names, one of which is that of the Service for which a load balancer was made.
fn own_names(balancer: &LoadBalancer, settings: &Settings) -> Vec<String> {
    let mut own = vec![balancer.name.clone()];
    // The name may be from when the cluster had another one.
    own.extend(renamed(&balancer.name, "", &settings.cluster));
    if !balancer.name.starts_with(SERVICE_PREFIX) {
        let service = service_in(&balancer.description);
        let names = |it| Names::new(&settings.cluster, None, &it, &Uid::new(""));
        own.extend(service.map(|it| names(it).load_balancer));
    }
    own
}

/// Whether all that is in a load balancer is provably of the Service for which it was made. A tag,
/// listener or pool of any other may be that of another cluster, which may have the name of this
/// one.
fn is_ours_alone(balancer: &LoadBalancer, project: &Project, settings: &Settings) -> bool {
    let own = own_names(balancer, settings);
    let foreign = |tag: &String| {
        let sharer = tag.strip_prefix(SHARER_PREFIX);
        (tag.starts_with(SERVICE_PREFIX) && !own.contains(tag))
            || sharer.is_some_and(|id| Some(id) != settings.cluster_id.as_deref())
    };
    let named = |kind: &str, name: &str| {
        let mut own = own.iter();
        child_prefix(kind, name)
            .is_some_and(|before| own.any(|it| cut(format!("{before}{it}")) == name))
    };
    let in_it = |parents: &[Ref]| parents.iter().any(|it| it.id == balancer.id);
    let made = |tags: &[String], kind: &str, name: &str| {
        let tagged = tags.iter().any(|tag| tag.starts_with(SERVICE_PREFIX));
        !tags.iter().any(foreign) && (tagged || named(kind, name))
    };
    let listeners = || {
        let listeners = project.listeners.iter();
        listeners.filter(|it| in_it(&it.loadbalancers))
    };
    let serves = |pool: &Pool| {
        listeners().any(|it| {
            it.default_pool_id.as_ref() == Some(&pool.id)
                || pool.listeners.iter().any(|of| of.id == it.id)
        })
    };
    let mut pools = project.pools.iter().filter(|it| in_it(&it.loadbalancers));
    !balancer.tags.iter().any(foreign)
        && listeners().all(|it| made(&it.tags, "listener", &it.name))
        && pools.all(|it| !it.tags.iter().any(foreign) && (serves(it) || named("pool", &it.name)))
}

/// The Service that a description names.
fn service_in(description: &str) -> Option<ServiceKey> {
    let mut words = description.split(' ');
    let (namespace, name) = words.find_map(|word| word.split_once('/'))?;
    Some(ServiceKey::new(namespace, name))
}

/// `of default/web`, from a description.
fn whose(description: &str) -> String {
    service_in(description).map_or_else(
        || "of an unknown Service".to_owned(),
        |service| format!("of {service}"),
    )
}

impl fmt::Display for OrphanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FloatingIp => "floating IP",
            Self::LoadBalancer => "load balancer",
            Self::SecurityGroupRule => "security group rule",
            Self::SecurityGroup => "security group",
            Self::Certificate => "certificate",
        })
    }
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({}), {}",
            self.kind, self.name, self.id, self.whose
        )
    }
}

#[cfg(test)]
mod tests {
    use landfall_config::cloud_conf;

    use super::*;
    use crate::objects::Rule;

    pub(super) fn settings() -> Settings {
        let conf = "[Global]\nauth-url=http://127.0.0.1\nusername=u\npassword=p\n\
                    tenant-id=t\ndomain-id=d\n";
        let conf = cloud_conf::parse("cloud.conf", conf).unwrap();
        let mut settings = Settings::new(&conf, "c1");
        settings.cluster_id = Some("ks".to_owned());
        settings
    }

    pub(super) fn web() -> Owner {
        Owner {
            service: ServiceKey::new("default", "web"),
            uid: Uid::new("u1"),
            load_balancer: None,
        }
    }

    fn balancer(name: &str, tags: &[&str]) -> LoadBalancer {
        LoadBalancer {
            id: Id::new(name),
            name: name.to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..LoadBalancer::default()
        }
    }

    fn orphans(project: &Project) -> Vec<String> {
        let found = unowned(project, &settings(), &[web()]);
        found
            .iter()
            .map(|it| format!("{} {}", it.kind, it.name))
            .collect()
    }

    #[test]
    fn a_load_balancer_is_an_orphan_when_no_service_of_its_cluster_has_it() {
        let project = Project {
            balancers: vec![
                balancer("kube_service_c1_default_web", &[]),
                balancer("kube_service_c1_default_web.ipv6", &[]),
                balancer(
                    "kube_service_old_default_web.ipv4",
                    &["landfall_service_u1.ipv4"],
                ),
                balancer("kube_service_c1_default_gone", &[]),
                balancer("kube_service_c1_default_gone.ipv6", &["kube_cluster_id_ks"]),
                balancer("kube_service_c2_default_gone", &[]),
                balancer("kube_service_c1_default_theirs", &["kube_cluster_id_other"]),
                balancer("kube_service_old_default_gone", &["kube_cluster_id_ks"]),
                balancer(
                    "kube_service_c1_default_shared",
                    &["kube_service_c1_default_web"],
                ),
                balancer("by-hand", &["kube_service_c1_default_gone"]),
            ],
            ..Project::default()
        };
        assert_eq!(
            orphans(&project),
            [
                "load balancer kube_service_c1_default_gone",
                "load balancer kube_service_c1_default_gone.ipv6",
                "load balancer kube_service_old_default_gone"
            ]
        );
    }

    #[test]
    fn what_another_cluster_uses_of_a_load_balancer_keeps_it() {
        const GONE: &str = "kube_service_c1_default_gone";
        for (tags, is_orphan) in [
            (&["kube_cluster_id_ks", GONE][..], true),
            (&["kube_cluster_id_ks", "landfall_service_u7", "mine"], true),
            (&["landfall_shared_by_ks"], true),
            (&["kube_cluster_id_ks", "kube_service_c2_shop_guest"], false),
            // It may be of another cluster that has this name and leaves no mark.
            (&["kube_cluster_id_ks", "kube_service_c1_shop_guest"], false),
            (&["kube_cluster_id_ks", "kube_cluster_id_other"], false),
            (&["kube_cluster_id_ks", "landfall_shared_by_other"], false),
            // Of a cluster of the same name, which says so itself.
            (
                &["kube_service_c1_shop_guest", "landfall_shared_by_other"],
                false,
            ),
        ] {
            let project = Project {
                balancers: vec![balancer(GONE, tags)],
                ..Project::default()
            };
            assert_eq!(orphans(&project).len(), usize::from(is_orphan), "{tags:?}");
        }
    }

    #[test]
    fn an_old_name_is_that_of_the_service_in_the_description_or_of_before_the_cluster_was_renamed()
    {
        for (name, tag, is_orphan) in [
            ("au7", "kube_service_c1_default_gone", true),
            ("au7", "kube_service_c1_shop_guest", false),
            (
                "kube_service_old_default_gone",
                "kube_service_c1_default_gone",
                true,
            ),
            (
                "kube_service_old_default_gone",
                "kube_service_c1_shop_guest",
                false,
            ),
        ] {
            let description = "Kubernetes external service default/gone from cluster c1";
            let project = Project {
                balancers: vec![LoadBalancer {
                    description: description.to_owned(),
                    ..balancer(name, &["kube_cluster_id_ks", "landfall_service_u7", tag])
                }],
                ..Project::default()
            };
            let found = orphans(&project).len();
            assert_eq!(found, usize::from(is_orphan), "{name} {tag}");
        }
    }

    #[test]
    fn a_listener_or_pool_that_is_not_of_this_cluster_keeps_its_load_balancer() {
        const GONE: &str = "kube_service_c1_default_gone";
        let within = || vec![Ref { id: Id::new(GONE) }];
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        let listener = |name: &str, of: &[&str]| Listener {
            id: Id::new(name),
            name: name.to_owned(),
            tags: tags(of),
            loadbalancers: within(),
            ..Listener::default()
        };
        let pool = |name: &str, serves: Option<&str>| Pool {
            id: Id::new(name),
            name: name.to_owned(),
            listeners: serves
                .map(|id| Ref { id: Id::new(id) })
                .into_iter()
                .collect(),
            loadbalancers: within(),
            ..Pool::default()
        };
        let ours = "listener_0_kube_service_c1_default_gone";
        for (listeners, pools, is_orphan) in [
            (vec![listener(ours, &[])], vec![pool("a", Some(ours))], true),
            (vec![listener("a", &[GONE, "mine"])], vec![], true),
            (
                vec![],
                vec![pool("pool_0_kube_service_c1_default_gone", None)],
                true,
            ),
            (vec![listener("ssh", &[])], vec![], false),
            (
                vec![listener(ours, &["kube_service_c2_shop_guest"])],
                vec![],
                false,
            ),
            (
                vec![listener(ours, &["kube_service_c1_shop_guest"])],
                vec![],
                false,
            ),
            (
                vec![listener("listener_0_kube_service_c2_shop_guest", &[])],
                vec![],
                false,
            ),
            (
                vec![listener("listener_0_kube_service_c1_shop_guest", &[])],
                vec![],
                false,
            ),
            (vec![listener(ours, &[])], vec![pool("mine", None)], false),
            (
                vec![],
                vec![pool("pool_0_kube_service_c2_shop_guest", None)],
                false,
            ),
        ] {
            let project = Project {
                balancers: vec![balancer(GONE, &["kube_cluster_id_ks"])],
                listeners,
                pools,
                ..Project::default()
            };
            assert_eq!(
                orphans(&project).len(),
                usize::from(is_orphan),
                "{project:?}"
            );
        }
    }

    #[test]
    fn what_serves_and_carries_no_mark_is_not_proven_to_be_of_this_cluster() {
        const NAME: &str = "kube_service_c1_default_gone";
        let listener = Listener {
            id: Id::new("l"),
            name: format!("listener_0_{NAME}"),
            loadbalancers: vec![Ref { id: Id::new(NAME) }],
            ..Listener::default()
        };
        let spare = FloatingIp {
            id: Id::new("f"),
            floating_ip_address: "192.0.2.1".parse().unwrap(),
            floating_network_id: Id::new("x"),
            port_id: None,
            description: "Floating IP for Kubernetes external service default/gone from cluster c1"
                .to_owned(),
            tags: Vec::new(),
            created_at: None,
            revision_number: None,
        };
        for (listeners, tags, unproven) in [
            (vec![], &[][..], false),
            (vec![listener.clone()], &["kube_cluster_id_ks"], false),
            // Another cluster of the name may not know its id.
            (vec![listener.clone()], &["landfall_service_u7"], true),
            (vec![listener.clone()], &[NAME], true),
            (vec![listener], &[], true),
        ] {
            let project = Project {
                balancers: vec![balancer(NAME, tags)],
                listeners,
                floating_ips: vec![spare.clone()],
                ..Project::default()
            };
            let found = unowned(&project, &settings(), &[web()]);
            let found: Vec<bool> = found.iter().map(|it| it.unproven).collect();
            assert_eq!(found, [unproven; 2], "{project:?}");
        }
    }

    #[test]
    fn what_may_serve_a_cluster_of_the_same_name_is_no_orphan() {
        let elsewhere = LoadBalancer {
            vip_port_id: Some(Id::new("port-1")),
            ..balancer(
                "kube_service_c1_default_elsewhere",
                &["kube_cluster_id_other"],
            )
        };
        let gone = LoadBalancer {
            vip_port_id: Some(Id::new("port-2")),
            ..balancer("kube_service_c1_default_gone", &[])
        };
        let floating_ip = |address: &str, service: &str, port: Option<&str>| FloatingIp {
            id: Id::new(address),
            floating_ip_address: address.parse().unwrap(),
            floating_network_id: Id::new("x"),
            port_id: port.map(Id::new),
            description: format!(
                "Floating IP for Kubernetes external service default/{service} from cluster c1"
            ),
            tags: Vec::new(),
            created_at: None,
            revision_number: None,
        };
        let group = |service: &str| SecurityGroup {
            id: Id::new(service),
            name: format!("lb-sg-u9-default-{service}"),
            description: format!(
                "Security Group for default/{service} Service LoadBalancer in cluster c1"
            ),
            rules: Vec::new(),
            tags: Vec::new(),
        };
        let project = Project {
            balancers: vec![elsewhere, gone],
            floating_ips: vec![
                floating_ip("192.0.2.1", "elsewhere", Some("port-1")),
                floating_ip("192.0.2.2", "elsewhere", None),
                floating_ip("192.0.2.3", "gone", Some("port-2")),
                floating_ip("192.0.2.4", "gone", None),
                floating_ip("192.0.2.5", "gone", Some("of-a-server")),
            ],
            groups: vec![group("elsewhere"), group("gone")],
            ..Project::default()
        };
        assert_eq!(
            orphans(&project),
            [
                "floating IP 192.0.2.3",
                "floating IP 192.0.2.4",
                "load balancer kube_service_c1_default_gone",
                "security group lb-sg-u9-default-gone"
            ]
        );
    }

    #[test]
    fn floating_ips_and_groups_are_recognized_by_their_descriptions() {
        let floating_ip = |address: &str, description: &str| FloatingIp {
            id: Id::new(address),
            floating_ip_address: address.parse().unwrap(),
            floating_network_id: Id::new("x"),
            port_id: None,
            description: description.to_owned(),
            tags: Vec::new(),
            created_at: None,
            revision_number: None,
        };
        let form = "Floating IP for Kubernetes external service";
        let group = |name: &str, description: &str, rules| SecurityGroup {
            id: Id::new(name),
            name: name.to_owned(),
            description: description.to_owned(),
            rules,
            tags: Vec::new(),
        };
        let rule = |mark: &str| Rule {
            id: Id::new(mark),
            port_range_min: Some(30080),
            description: mark.to_owned(),
            ..Rule::default()
        };
        let of = "Security Group for default/gone Service LoadBalancer in cluster";
        let project = Project {
            floating_ips: vec![
                floating_ip("192.0.2.1", &format!("{form} default/web from cluster c1")),
                floating_ip("192.0.2.2", &format!("{form} default/gone from cluster c1")),
                floating_ip("192.0.2.3", &format!("{form} default/gone from cluster c2")),
                floating_ip("192.0.2.4", "mine"),
            ],
            groups: vec![
                group("lb-sg-u1-default-web", &format!("{of} c1"), Vec::new()),
                group("lb-sg-u2-default-gone", &format!("{of} c1"), Vec::new()),
                group("lb-sg-u2-default-theirs", &format!("{of} c2"), Vec::new()),
                group(
                    "landfall-nodes-c1",
                    "",
                    vec![
                        rule("landfall u1 of ks"),
                        rule("landfall u2 of ks"),
                        rule("landfall u3 of another-cluster-of-this-name"),
                        rule("ssh"),
                    ],
                ),
            ],
            ..Project::default()
        };
        assert_eq!(
            orphans(&project),
            [
                "floating IP 192.0.2.2",
                "security group rule port 30080",
                "security group lb-sg-u2-default-gone"
            ]
        );
    }
}
