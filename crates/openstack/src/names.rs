//! Names, descriptions and tags of what is made in the cloud: those of cloud-provider-openstack,
//! byte for byte, and two tags of our own that identify clusters and Services for certain.

use landfall_model::rows::Family;
use landfall_model::{ServiceKey, Uid};

/// Octavia's and Neutron's limit.
const LONGEST: usize = 255;

/// What begins the name of a load balancer, and a tag that names a Service.
pub const SERVICE_PREFIX: &str = "kube_service_";

/// What begins the tag that names the cluster: its `kube-system` namespace's UID follows.
pub const CLUSTER_PREFIX: &str = "kube_cluster_id_";

/// What begins the tag that names the Service for certain: its UID follows.
pub const UID_PREFIX: &str = "landfall_service_";

/// What begins the tag by which a cluster says that Services of it share a load balancer that was
/// made for another cluster, or by a controller that leaves no mark: the UID of its `kube-system`
/// namespace follows.
pub const SHARER_PREFIX: &str = "landfall_shared_by_";

/// What begins the name of a listener that shows whether the cloud takes one like it.
pub(crate) const TRIED_PREFIX: &str = "tried_";

/// The tag of a load balancer whose Service has left it to others and wanted its floating IP kept:
/// the last of them leaves it, too.
pub const KEEPS_FLOATING_IP: &str = "landfall_keeps_floating_ip";

/// What begins the tag by which a Service says that it shares a load balancer and is internal: no
/// floating IP may lead there. Its UID follows.
pub const INTERNAL_PREFIX: &str = "landfall_internal_";

/// What begins the name of a container of Barbican that holds the certificate of a Secret, and that
/// of the secrets in it. The cluster's id, the Service's UID and a hash of the content follow.
pub const CERTIFICATE_PREFIX: &str = "landfall_tls_";

/// What the load balancer of a Service's second family has at the end of its name and of its marks.
/// No name of a Service has a full stop in it.
const ENDS: [(Family, &str); 2] = [(Family::V4, ".ipv4"), (Family::V6, ".ipv6")];

/// What stands in the description of a load balancer that belongs to a Service.
pub const BALANCER_MARK: &str = "Kubernetes external service";

/// What stands in the description of a floating IP that belongs to a Service.
pub const FLOATING_IP_MARK: &str = "Floating IP for Kubernetes external service";

/// The description of the floating IP that goes with a load balancer of this description; `None`:
/// no Service controller wrote it.
pub fn floating_ip_beside(description: &str) -> Option<String> {
    let service = description.strip_prefix(BALANCER_MARK)?;
    Some(cut(format!("{FLOATING_IP_MARK}{service}")))
}

/// The Service and the cluster that a floating IP's description names; `None`: no Service
/// controller wrote it.
pub(crate) fn owner_of_floating_ip(description: &str) -> Option<(&str, &str)> {
    let (_, owner) = description.split_once(FLOATING_IP_MARK)?;
    Some(owner.split_once(" from cluster ").unwrap_or((owner, "")))
}

/// The names of one Service's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The load balancer's name, and the tag of everything that is the Service's.
    pub load_balancer: String,
    /// Its name before cluster names were part of it.
    pub legacy: String,
    /// Its description.
    pub description: String,
    /// The description of its floating IP.
    pub floating_ip: String,
    /// The name of its security group.
    pub group: String,
    /// The description of its security group.
    pub group_description: String,
    /// The tag of the cluster.
    pub cluster_tag: Option<String>,
    /// The tag of the Service.
    pub uid_tag: String,
}

/// What begins the description of a rule that is a Service's: its UID follows, and where it is
/// known the cluster's.
const RULE_MARK: &str = "landfall ";

/// The Service's UID in the description of one of its rules, and that of its cluster.
pub fn rule_owner(description: &str) -> Option<(&str, Option<&str>)> {
    let rest = description.strip_prefix(RULE_MARK)?;
    Some(match rest.split_once(" of ") {
        Some((service, cluster)) => (service, Some(cluster)),
        None => (rest, None),
    })
}

/// What begins the name of a group that all nodes of a cluster share.
pub(crate) const SHARED_GROUP_PREFIX: &str = "landfall-nodes-";

/// What begins the name of a group that is one Service's.
pub(crate) const GROUP_PREFIX: &str = "lb-sg-";

/// The name of the group that all nodes of a cluster share.
pub(crate) fn shared_group(cluster: &str) -> String {
    cut(format!("{SHARED_GROUP_PREFIX}{cluster}"))
}

/// Cuts a name to what the cloud takes.
pub fn cut(mut name: String) -> String {
    if name.len() > LONGEST {
        name.truncate(name.floor_char_boundary(LONGEST));
    }
    name
}

/// The cluster's part of a load balancer's name: what stands between the prefix and the last two
/// words, which are the namespace and the name, for neither may hold an underscore.
pub fn cluster_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(SERVICE_PREFIX)?;
    let mut ends = rest.rmatch_indices('_').map(|(at, _)| at);
    let last = ends.next()?;
    rest.get(..ends.next().unwrap_or(last))
}

/// A name or tag with another cluster in it; `None`: it is not of the form, or already says so.
/// `before` is what stands before the load balancer's name: `listener_0_`.
pub fn renamed(name: &str, before: &str, to: &str) -> Option<String> {
    let own = name.strip_prefix(before)?;
    let cluster = cluster_of(own)?;
    if cluster == to {
        return None;
    }
    let rest = own.get(SERVICE_PREFIX.len() + cluster.len()..)?;
    Some(cut(format!("{before}{SERVICE_PREFIX}{to}{rest}")))
}

/// What stands before the load balancer's name in that of a listener, pool or monitor:
/// `listener_0_`.
pub fn child_prefix<'a>(kind: &str, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(kind)?.strip_prefix('_')?;
    let digits = rest.find(|it: char| !it.is_ascii_digit())?;
    let end = kind.len() + 1 + digits + 1;
    (digits > 0 && rest.as_bytes().get(digits) == Some(&b'_')).then(|| name.get(..end))?
}

/// The end for a family.
fn end_of(family: Family) -> &'static str {
    let mut ends = ENDS.iter();
    ends.find(|(of, _)| *of == family)
        .map_or("", |(_, end)| end)
}

/// Under which name a Service's load balancer of a second family is remembered.
pub fn uid_beside(uid: &Uid, family: Family) -> Uid {
    Uid::new(&format!("{uid}{}", end_of(family)))
}

/// The Service whose load balancer, be it of the first or of a second family, is remembered so.
pub fn service_of(uid: &Uid) -> Uid {
    let mut ends = ENDS.iter();
    let service = ends.find_map(|(_, end)| uid.as_str().strip_suffix(end));
    service.map_or_else(|| uid.clone(), Uid::new)
}

/// So many tags are listed; the rest is counted.
const LISTED: usize = 5;

/// Tags, as a text.
pub(crate) fn listed(tags: &[String]) -> String {
    let mut tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    tags.sort_unstable();
    tags.dedup();
    let more = tags.len().saturating_sub(LISTED);
    tags.truncate(LISTED);
    let list = tags.join(", ");
    if more == 0 {
        return list;
    }
    format!("{list} and {more} more")
}

// === impl Names ===

impl Names {
    /// The names of a Service's objects.
    pub fn new(cluster: &str, cluster_id: Option<&str>, service: &ServiceKey, uid: &Uid) -> Self {
        let (namespace, name) = (service.namespace(), service.name());
        let bare: String = uid.as_str().chars().filter(|it| *it != '-').collect();
        Self {
            load_balancer: cut(format!("{SERVICE_PREFIX}{cluster}_{namespace}_{name}")),
            legacy: format!("a{bare}").chars().take(32).collect(),
            description: cut(format!(
                "{BALANCER_MARK} {namespace}/{name} from cluster {cluster}"
            )),
            floating_ip: cut(format!(
                "{FLOATING_IP_MARK} {namespace}/{name} from cluster {cluster}"
            )),
            group: cut(format!("{GROUP_PREFIX}{uid}-{namespace}-{name}")),
            group_description: cut(format!(
                "Security Group for {namespace}/{name} Service LoadBalancer in cluster {cluster}"
            )),
            cluster_tag: cluster_id.map(|id| format!("{CLUSTER_PREFIX}{id}")),
            uid_tag: format!("{UID_PREFIX}{uid}"),
        }
    }

    /// The names of what a second load balancer for the Service consists of, where one can't have
    /// an address of each family. What is not of one load balancer has no second name.
    #[must_use]
    pub fn beside(&self, family: Family) -> Self {
        let end = end_of(family);
        let mut name = self.load_balancer.clone();
        name.truncate(name.floor_char_boundary(LONGEST - end.len()));
        name.push_str(end);
        Self {
            legacy: name.clone(),
            load_balancer: name,
            uid_tag: format!("{}{end}", self.uid_tag),
            ..self.clone()
        }
    }

    /// The tag by which the Service says that it shares a load balancer and is internal.
    pub fn internal_tag(&self) -> String {
        let service = self.uid_tag.strip_prefix(UID_PREFIX).unwrap_or_default();
        format!("{INTERNAL_PREFIX}{service}")
    }

    /// What begins the names of the certificates of the Service in Barbican. They are of no other
    /// Service: a UID is of one.
    pub fn certificates(&self) -> String {
        let cluster = self.cluster_tag.as_deref().unwrap_or_default();
        let cluster = cluster.strip_prefix(CLUSTER_PREFIX).unwrap_or("-");
        let service = self.uid_tag.strip_prefix(UID_PREFIX).unwrap_or_default();
        format!("{CERTIFICATE_PREFIX}{cluster}_{service}_")
    }

    /// The tag by which the Service's cluster says that it shares a load balancer of another one.
    pub fn sharer_tag(&self) -> Option<String> {
        let id = self.cluster_tag.as_deref()?.strip_prefix(CLUSTER_PREFIX)?;
        Some(format!("{SHARER_PREFIX}{id}"))
    }

    /// Which of the tags on a load balancer of the Service, or in it, say that others use it: those
    /// of other Services, and the marks of other clusters. `name` is what the load balancer is
    /// called.
    pub fn of_others<'a>(
        &self,
        name: &str,
        tags: &'a [String],
    ) -> impl Iterator<Item = &'a String> {
        let sharer = self.sharer_tag();
        tags.iter().filter(move |tag| {
            let service = tag.starts_with(SERVICE_PREFIX);
            let cluster = tag.starts_with(SHARER_PREFIX) && Some(*tag) != sharer.as_ref();
            (service && **tag != self.load_balancer && *tag != name) || cluster
        })
    }

    /// `listener_0_...`, `pool_0_...`, `monitor_0_...`.
    pub fn child(&self, kind: &str, index: usize) -> String {
        cut(format!("{kind}_{index}_{}", self.load_balancer))
    }

    /// The description of a rule that is the Service's in a group of the whole cluster.
    pub fn rule(&self) -> String {
        let service = self.uid_tag.trim_start_matches(UID_PREFIX);
        match self
            .cluster_tag
            .as_deref()
            .and_then(|it| it.strip_prefix(CLUSTER_PREFIX))
        {
            Some(cluster) => format!("{RULE_MARK}{service} of {cluster}"),
            None => format!("{RULE_MARK}{service}"),
        }
    }

    /// The UID of the Service in the descriptions of its rules.
    pub(crate) fn rule_uid(&self) -> &str {
        self.uid_tag.trim_start_matches(UID_PREFIX)
    }

    /// The UID of the cluster's `kube-system`, as far as it is known.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster_tag.as_deref()?.strip_prefix(CLUSTER_PREFIX)
    }

    /// Whether a rule with this description is the Service's.
    pub fn is_of_rule(&self, description: &str) -> bool {
        let service = self.uid_tag.trim_start_matches(UID_PREFIX);
        rule_owner(description).is_some_and(|(owner, _)| owner == service)
    }

    /// Whether tags say that the object belongs to another cluster. Where our own id can't be read,
    /// only the Service's UID shows that a marked one is ours.
    pub fn of_another_cluster(&self, tags: &[String]) -> bool {
        let own = self.cluster_tag.as_ref().unwrap_or(&self.uid_tag);
        let mut clusters = tags.iter().filter(|tag| tag.starts_with(CLUSTER_PREFIX));
        clusters.next().is_some() && !tags.contains(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cluster: &str, namespace: &str, name: &str) -> Names {
        let uid = Uid::new("0f2a-11");
        Names::new(cluster, Some("ks"), &ServiceKey::new(namespace, name), &uid)
    }

    #[test]
    fn without_an_id_of_the_cluster_what_another_one_has_marked_is_still_its_own() {
        let service = ServiceKey::new("default", "web");
        let names = |cluster| Names::new("c1", cluster, &service, &Uid::new("u1"));
        let is_others = |cluster, tags: &[&str]| {
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            names(cluster).of_another_cluster(&tags)
        };
        let of_us = ["kube_cluster_id_ks", "landfall_service_u1"];
        let of_others = ["kube_cluster_id_other", "landfall_service_u2"];
        for cluster in [Some("ks"), None] {
            assert!(!is_others(cluster, &of_us), "{cluster:?}");
            assert!(is_others(cluster, &of_others), "{cluster:?}");
            assert!(!is_others(cluster, &["mine"]), "{cluster:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_controller_that_was_there_before() {
        let names = names("c1", "default", "web");
        assert_eq!(names.load_balancer, "kube_service_c1_default_web");
        assert_eq!(
            names.child("listener", 0),
            "listener_0_kube_service_c1_default_web"
        );
        assert_eq!(
            names.description,
            "Kubernetes external service default/web from cluster c1"
        );
        assert_eq!(
            names.floating_ip,
            "Floating IP for Kubernetes external service default/web from cluster c1"
        );
        assert_eq!(names.group, "lb-sg-0f2a-11-default-web");
        assert_eq!(
            names.group_description,
            "Security Group for default/web Service LoadBalancer in cluster c1"
        );
        assert_eq!(names.legacy, "a0f2a11");
    }

    #[test]
    fn neighbouring_objects_are_distinguished_and_still_the_cluster_s() {
        let names = names("a_b", "default", "web");
        let six = names.beside(Family::V6);
        assert_eq!(six.load_balancer, "kube_service_a_b_default_web.ipv6");
        assert_eq!(six.uid_tag, "landfall_service_0f2a-11.ipv6");
        assert_eq!(six.description, names.description);
        assert_eq!(cluster_of(&six.load_balancer), Some("a_b"));
        assert_ne!(names.beside(Family::V4).load_balancer, six.load_balancer);
        let uid = Uid::new("0f2a-11");
        assert_eq!(service_of(&uid_beside(&uid, Family::V4)), uid);
        assert_eq!(service_of(&uid), uid);
    }

    #[test]
    fn a_long_name_keeps_the_end_that_states_the_family() {
        let long = names("c1", &"n".repeat(200), &"s".repeat(60));
        assert_eq!(long.load_balancer.len(), 255);
        let six = long.beside(Family::V6).load_balancer;
        assert_eq!(six.len(), 255);
        assert!(six.ends_with("s.ipv6"), "{six}");
    }

    #[test]
    fn long_names_lose_their_end_after_the_prefix_is_there() {
        let names = names(&"c".repeat(300), "default", "web");
        assert_eq!(names.load_balancer.len(), 255);
        assert_eq!(names.child("pool", 2).len(), 255);
        assert!(names.child("pool", 2).starts_with("pool_2_kube_service_c"));
    }

    #[test]
    fn a_name_of_several_bytes_per_letter_is_cut_between_letters() {
        let names = names(&"é".repeat(200), "default", "web");
        assert!(names.load_balancer.len() <= 255);
    }

    #[test]
    fn a_cluster_may_have_underscores_in_its_name() {
        assert_eq!(cluster_of("kube_service_a_b_default_web"), Some("a_b"));
        assert_eq!(cluster_of("kube_service_k_default_web"), Some("k"));
        assert_eq!(cluster_of("kube_service_k_default"), Some("k"));
        assert_eq!(cluster_of("mine"), None);
    }

    #[test]
    fn renaming_keeps_the_prefix_whatever_the_cluster_was_called() {
        for old in ["kube", "service", "listener", "0", "k"] {
            let name = format!("listener_0_kube_service_{old}_default_web");
            let before = child_prefix("listener", &name).unwrap();
            assert_eq!(
                renamed(&name, before, "c1").unwrap(),
                "listener_0_kube_service_c1_default_web",
                "{old}"
            );
        }
        assert_eq!(renamed("kube_service_c1_default_web", "", "c1"), None);
        assert_eq!(renamed("by-hand", "", "c1"), None);
    }

    #[test]
    fn only_another_cluster_s_tag_speaks_against_us() {
        let names = names("c1", "default", "web");
        let tags = |tags: &[&str]| tags.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(names.of_another_cluster(&tags(&["kube_cluster_id_other"])));
        assert!(!names.of_another_cluster(&tags(&["kube_cluster_id_other", "kube_cluster_id_ks"])));
        assert!(!names.of_another_cluster(&tags(&["", "kube_service_c1_default_web"])));
    }
}
