//! What controllers made in the project and no Service owns any more.
//!
//! Only what names this cluster is looked at: by the tag with its id, else by the cluster's name in names and
//! descriptions. What another cluster has marked is never an orphan of this one.

#![expect(
    clippy::similar_names,
    reason = "names of a Service, and what a Service names, are the words here"
)]

use std::collections::BTreeSet;
use std::fmt;

use landfall_model::rows::Family;
use landfall_model::{ServiceKey, Uid};
use serde::Serialize;

use crate::address::is_made;
use crate::client::{ApiError, Cloud};
use crate::names::{CLUSTER_PREFIX, Names, SERVICE_PREFIX, UID_PREFIX, cluster_of, rule_owner};
use crate::objects::{FloatingIp, Id, LoadBalancer, SecurityGroup};
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
    floating_ips: Vec<FloatingIp>,
    groups: Vec<SecurityGroup>,
}

/// Looks for orphans. Reads only.
///
/// # Errors
/// The cloud can't be asked.
pub async fn find(
    cloud: &Cloud,
    settings: &Settings,
    owners: &[Owner],
) -> Result<Vec<Orphan>, ApiError> {
    let project = cloud.project_id().await?;
    let query = project.as_ref().map(|id| ("project_id", id.as_str()));
    let project = Project {
        balancers: cloud.load_balancers().await?,
        floating_ips: cloud.floating_ips(query.as_slice()).await?,
        groups: cloud.security_groups(&[]).await?,
    };
    Ok(judge(&project, settings, owners))
}

/// Deletes an orphan. One that is gone already is a success.
///
/// # Errors
/// The cloud refuses.
pub async fn delete(cloud: &Cloud, orphan: &Orphan) -> Result<(), ApiError> {
    match orphan.kind {
        OrphanKind::FloatingIp => cloud.delete_floating_ip(&orphan.id).await,
        OrphanKind::LoadBalancer => cloud.delete_load_balancer(&orphan.id, true).await,
        OrphanKind::SecurityGroupRule => cloud.delete_rule(&orphan.id).await,
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

fn judge(project: &Project, settings: &Settings, owners: &[Owner]) -> Vec<Orphan> {
    let names = |owner: &Owner| {
        let id = settings.cluster_id.as_deref();
        Names::new(&settings.cluster, id, &owner.service, &owner.uid)
    };
    let owned: Vec<Names> = owners.iter().map(names).collect();
    // A Service may have a second load balancer, of either family.
    let beside: Vec<Names> = owned
        .iter()
        .flat_map(|names| [Family::V4, Family::V6].map(|family| names.beside(family)))
        .collect();
    let uids: BTreeSet<&str> = owners.iter().map(|owner| owner.uid.as_str()).collect();
    let named: BTreeSet<&str> = owners
        .iter()
        .filter_map(|it| it.load_balancer.as_deref())
        .collect();
    let mut orphans = Vec::new();
    for balancer in &project.balancers {
        let owned = named.contains(balancer.id.as_str())
            || owned.iter().chain(&beside).any(|names| {
                balancer.name == names.load_balancer
                    || balancer.name == names.legacy
                    || balancer.tags.contains(&names.load_balancer)
                    || balancer.tags.contains(&names.uid_tag)
            });
        if !owned && is_of_cluster(balancer, settings) && !balancer.provisioning_status.is_going() {
            orphans.push(Orphan {
                kind: OrphanKind::LoadBalancer,
                id: balancer.id.clone(),
                name: balancer.name.clone(),
                whose: whose(&balancer.description),
            });
        }
    }
    let in_cluster =
        |text: &str, before: &str| text.ends_with(&format!("{before}{}", settings.cluster));
    for floating_ip in &project.floating_ips {
        let known = owned
            .iter()
            .any(|names| names.floating_ip == floating_ip.description);
        if is_made(floating_ip) && in_cluster(&floating_ip.description, " from cluster ") && !known
        {
            orphans.push(Orphan {
                kind: OrphanKind::FloatingIp,
                id: floating_ip.id.clone(),
                name: floating_ip.floating_ip_address.to_string(),
                whose: whose(&floating_ip.description),
            });
        }
    }
    for group in &project.groups {
        let of_service =
            group.name.starts_with("lb-sg-") && in_cluster(&group.description, " in cluster ");
        if of_service && !owned.iter().any(|names| names.group == group.name) {
            orphans.push(Orphan {
                kind: OrphanKind::SecurityGroup,
                id: group.id.clone(),
                name: group.name.clone(),
                whose: whose(&group.description),
            });
        }
        if group.name != crate::names::cut(format!("landfall-nodes-{}", settings.cluster)) {
            continue;
        }
        for rule in &group.rules {
            // Another cluster of this name has rules in the same group.
            if let Some((uid, cluster)) = rule_owner(&rule.description)
                && cluster == settings.cluster_id.as_deref()
                && !uids.contains(uid)
            {
                orphans.push(Orphan {
                    kind: OrphanKind::SecurityGroupRule,
                    id: rule.id.clone(),
                    name: format!("port {}", rule.port_range_min.unwrap_or_default()),
                    whose: format!("of the Service with the UID {uid}"),
                });
            }
        }
    }
    orphans.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    orphans
}

/// Made by a Service controller of this cluster, as far as marks tell; of those without, by its name.
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
        return marks.any(|mark| Some(mark) == settings.cluster_id.as_deref());
    }
    cluster_of(&balancer.name) == Some(settings.cluster.as_str())
}

/// `of default/web`, from a description.
fn whose(description: &str) -> String {
    let mut words = description.split(' ').filter(|word| word.contains('/'));
    words.next().map_or_else(
        || "of a Service that is not named".to_owned(),
        |word| format!("of {word}"),
    )
}

impl fmt::Display for OrphanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FloatingIp => "floating IP",
            Self::LoadBalancer => "load balancer",
            Self::SecurityGroupRule => "security group rule",
            Self::SecurityGroup => "security group",
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

    fn settings() -> Settings {
        let conf = "[Global]\nauth-url=http://127.0.0.1\nusername=u\npassword=p\ntenant-id=t\ndomain-id=d\n";
        let conf = cloud_conf::parse("cloud.conf", conf).unwrap();
        let mut settings = Settings::new(&conf, "c1");
        settings.cluster_id = Some("ks".to_owned());
        settings
    }

    fn web() -> Owner {
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
        let found = judge(project, &settings(), &[web()]);
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
    fn floating_ips_and_groups_are_told_by_their_descriptions() {
        let floating_ip = |address: &str, description: &str| FloatingIp {
            id: Id::new(address),
            floating_ip_address: address.parse().unwrap(),
            floating_network_id: Id::new("x"),
            port_id: None,
            description: description.to_owned(),
            tags: Vec::new(),
            created_at: None,
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
