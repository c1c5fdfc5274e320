//! What the cloud holds for a Service, and what the Service makes of it: all that planning needs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use landfall_model::dialect::Given;
use landfall_model::listener::ListenerKey;
use landfall_model::{Intent, Reason};

use crate::certificates::CertificateView;
use crate::fares::Trouble;
use crate::features::Features;
use crate::graph::Graph;
use crate::names::Names;
use crate::objects::{
    FloatingIp, Id, Listener, LoadBalancer, PoolAlgorithm, Port, Provisioning, SecurityGroup,
};
use crate::refusal::Refusals;
use crate::requests::PoolRequest;
use crate::target::Target;

/// What is held, and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Observed {
    pub(crate) names: Names,
    pub(crate) features: Features,
    pub(crate) goal: Goal,
    pub(crate) found: Found,
    pub(crate) content: Content,
    pub(crate) addressing: Addressing,
    pub(crate) groups: Option<GroupView>,
    /// The load balancer is taken to be done with the last change, which is not certain.
    pub(crate) assumed: bool,
    /// Bodies above this many bytes are refused.
    pub(crate) body_limit: usize,
    /// The load balancer's provider takes members one by one only.
    pub(crate) serial: bool,
    /// What is true besides, with the names of events.
    pub(crate) notices: Vec<(&'static str, Reason)>,
    /// What the Service names in place of the load balancer that serves it, and that it keeps.
    pub(crate) in_vain: Option<Given<String>>,
    /// Further load balancers of the Service: one for the family that the first one has no address
    /// of, or one that is to go.
    pub(crate) beside: Vec<Secondary>,
    /// That Octavia does not come to an end with the load balancer.
    pub(crate) stuck: Option<Reason>,
    /// Why the load balancer is not asked for at once.
    pub(crate) resting: Option<Reason>,
    /// Why the Service's second family can't be served.
    pub(crate) lacking: Option<Reason>,
    /// The tags of Services that are on their way out.
    pub(crate) leaving: HashSet<String>,
    /// The tags by which others say that they use the load balancer, where something of it may have
    /// to go.
    pub(crate) others: Vec<String>,
    /// That a pool of a load balancer in ERROR reaches members, though another one reaches none.
    pub(crate) serves_in_part: bool,
    /// The listeners, where the load balancer may have to go with everything in it.
    pub(crate) listeners: Vec<Listener>,
    /// The certificates of the Service's Secrets.
    pub(crate) certificates: CertificateView,
    /// Why what the Service has in the load balancer carries no traffic.
    pub(crate) trouble: Option<Trouble>,
    /// What became of earlier attempts.
    pub(crate) attempts: Attempts,
}

/// What is known of earlier attempts, as far as it concerns what is planned now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// Writes that the cloud has refused.
    pub(crate) refusals: Refusals,
    /// The algorithms that Octavia refused to pools of the load balancer, with its messages.
    pub(crate) refused_algorithms: BTreeMap<Id, (PoolAlgorithm, String)>,
    /// Whether a failover is of any use.
    pub(crate) failover: Failover,
    /// A load balancer may come of a request whose answer was lost.
    pub(crate) create_is_unanswered: bool,
}

/// Whether a load balancer that Octavia reports in ERROR is failed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Failover {
    /// Nothing speaks against it.
    #[default]
    Possible,
    /// The cloud takes none, or none has repaired the load balancer.
    Useless {
        /// It is time to try once more.
        due: bool,
    },
}

/// A load balancer for the Service's other family.
#[derive(Clone, Debug)]
pub(crate) struct Secondary {
    /// What the Service wants of it, as if it were all that the Service wants.
    pub(crate) intent: Intent,
    /// What is held of it.
    pub(crate) have: Observed,
}

/// What shall be.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// The load balancer, so.
    Exists(Box<Target>),
    /// Nothing of it.
    Gone {
        /// The floating IP stays.
        keep_floating_ip: bool,
    },
}

/// Which load balancer is the Service's.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// None.
    Nothing,
    /// This one.
    One {
        balancer: Box<LoadBalancer>,
        /// It was made for this Service, rather than being one that others use, too.
        owner: bool,
        /// It was made by a Service controller, so that the last Service to leave deletes it.
        made: bool,
        /// Others that were made for this Service: an answer was lost, and the request repeated.
        surplus: Vec<Id>,
    },
    /// Which one can't be said, or it is not ours to use.
    Refused(Reason),
}

/// What is in the load balancer.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// It was not read: it is busy, or does not exist.
    Unread,
    /// What is wanted. It was seen earlier, and the load balancer has not been touched since.
    AsWanted,
    /// This.
    Graph(Arc<Graph>),
}

/// Floating IPs that concern the Service, and where a new one would come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addressing {
    /// It leads to the load balancer.
    pub(crate) attached: Option<FloatingIp>,
    /// It has the address that is asked for.
    pub(crate) requested: Option<FloatingIp>,
    /// Why that one is not led here for now.
    pub(crate) refused: Option<String>,
    /// It was made for this Service, or has the address that it published, and leads nowhere; or
    /// here, beside the one that is asked for.
    pub(crate) spare: Option<FloatingIp>,
    /// The spare one was kept for an earlier Service of the same name: it may be used, but not be
    /// given back.
    pub(crate) spare_is_kept: bool,
    /// The load balancer to which the Service's own, or the one that is asked for, leads until it
    /// is deleted.
    pub(crate) held_by: Option<Id>,
    /// The network of a new one; `None`: it gets none.
    pub(crate) network: Option<Id>,
    /// Subnets to try for a new one; empty: any.
    pub(crate) subnets: Vec<Id>,
    /// Why there can't be one.
    pub(crate) problem: Option<Reason>,
}

/// Security groups that concern the Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupView {
    /// The group is the Service's alone.
    pub(crate) own: bool,
    /// The name of the group.
    pub(crate) name: String,
    /// The description of the group.
    pub(crate) description: String,
    /// The group that is there.
    pub(crate) group: Option<SecurityGroup>,
    /// The group that the cluster's nodes share, where the Service shall have no rules in it.
    pub(crate) shared: Option<SecurityGroup>,
    /// The prefixes from which load balancers reach the members of every listener.
    pub(crate) sources: Vec<String>,
    /// Those from which clients do, where they reach members themselves.
    pub(crate) clients: BTreeMap<ListenerKey, BTreeSet<String>>,
    /// The prefixes from which monitors ask.
    pub(crate) health_sources: Vec<String>,
    /// The ports of the nodes that shall have the group.
    pub(crate) node_ports: Vec<Port>,
    /// Ports that have the group and shall not.
    pub(crate) leaving: Vec<Port>,
    /// Groups that the nodes shared when the cluster had another name.
    pub(crate) former: Vec<FormerGroup>,
    /// The Service's address is published before nodes get the group.
    pub(crate) publishes_first: bool,
    /// What opens the Service's NodePorts to clients that it does not let in.
    pub(crate) exposed: Option<Reason>,
    /// Whether the Service has rules in groups at all.
    pub(crate) managed: bool,
    /// Nothing of it changes: pods are to be members, and nodes still are.
    pub(crate) frozen: bool,
}

/// A group that the nodes of the cluster shared under another name of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct FormerGroup {
    pub(crate) group: SecurityGroup,
    /// The ports of our nodes that have it.
    pub(crate) ports: Vec<Port>,
    /// Whether other ports have it, too: another cluster of that name may rely on it.
    pub(crate) on_others: bool,
}

// === impl Attempts ===

impl Attempts {
    /// Whether a change is of an algorithm that Octavia refused to the pool already.
    pub(crate) fn is_refused_algorithm(&self, pool: &Id, changes: &PoolRequest) -> bool {
        let refused = self.refused_algorithms.get(pool);
        refused.is_some_and(|(algorithm, _)| changes.lb_algorithm.as_ref() == Some(algorithm))
    }
}

// === impl Found ===

impl Found {
    /// The load balancer.
    pub(crate) fn balancer(&self) -> Option<&LoadBalancer> {
        match self {
            Self::One { balancer, .. } => Some(balancer),
            Self::Nothing | Self::Refused(_) => None,
        }
    }

    /// Takes an active load balancer for busy where what is in it could not be read for that.
    pub(crate) fn settle(&mut self, content: &Content) {
        if let (Self::One { balancer, .. }, Content::Unread) = (self, content)
            && balancer.provisioning_status == Provisioning::Active
        {
            balancer.provisioning_status = Provisioning::PendingUpdate;
        }
    }
}
