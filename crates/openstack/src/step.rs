//! One write to the cloud.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::Uid;
use landfall_model::listener::Certificate;
use serde::Serialize;
use serde_json::{Map, json};

use crate::client::Tagged;
use crate::objects::{Id, Member};
use crate::requests::{
    FloatingIpRequest, ListenerRequest, LoadBalancerRequest, MemberRequest, MonitorRequest,
    PoolRequest, RuleRequest,
};
use crate::target::{WantedListener, WantedMonitor, WantedPool};

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "step",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Step {
    /// Make the load balancer.
    CreateLoadBalancer {
        /// Its Service.
        service: Uid,
        /// Its name.
        name: String,
        /// The request.
        body: Box<LoadBalancerRequest>,
        /// What is in it afterwards.
        #[serde(skip)]
        holds: Vec<WantedListener>,
    },
    /// Set name or tags of the load balancer.
    UpdateLoadBalancer {
        /// Which.
        load_balancer: Id,
        /// What.
        changes: LoadBalancerRequest,
        /// The tags from which the new ones were made.
        #[serde(skip)]
        seen: Vec<String>,
    },
    /// Let Octavia rebuild it behind the same VIP.
    FailOver {
        /// Which.
        load_balancer: Id,
    },
    /// Delete the load balancer with everything in it, or alone.
    DeleteLoadBalancer {
        /// Which.
        load_balancer: Id,
        /// With everything in it.
        cascade: bool,
    },
    /// Make a listener that is out of use, at a port that is free: whether the cloud takes it is
    /// known before another one makes room for it.
    TryListener {
        /// On which load balancer.
        load_balancer: Id,
        /// What.
        listener: WantedListener,
    },
    /// Make a listener.
    CreateListener {
        /// On which load balancer.
        load_balancer: Id,
        /// What.
        listener: WantedListener,
        /// A pool that is there already and shall serve it.
        pool: Option<Id>,
    },
    /// Change a listener.
    UpdateListener {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        listener: Id,
        /// What.
        changes: Box<ListenerRequest>,
    },
    /// Delete a listener.
    DeleteListener {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        listener: Id,
    },
    /// Make a pool.
    CreatePool {
        /// On which load balancer.
        load_balancer: Id,
        /// For which listener; `None`: for none yet.
        listener: Option<Id>,
        /// What.
        pool: WantedPool,
    },
    /// Change a pool.
    UpdatePool {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        pool: Id,
        /// What.
        changes: Box<PoolRequest>,
        /// A refusal is reported, and everything else goes on.
        lenient: bool,
    },
    /// Delete a pool with its members and its monitor.
    DeletePool {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        pool: Id,
    },
    /// Set the members of a pool, or add some.
    SetMembers {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        pool: Id,
        /// The request.
        members: Vec<MemberRequest>,
        /// Those that are there stay.
        additive: bool,
        /// The members afterwards.
        #[serde(skip)]
        leaves: Vec<Member>,
        /// Whether it waits for a while after the last one.
        #[serde(skip)]
        paced: bool,
    },
    /// Add one member to a pool.
    AddMember {
        /// On which load balancer.
        load_balancer: Id,
        /// To which pool.
        pool: Id,
        /// The request.
        member: MemberRequest,
    },
    /// Change one member of a pool.
    UpdateMember {
        /// On which load balancer.
        load_balancer: Id,
        /// Of which pool.
        pool: Id,
        /// Its address.
        address: IpAddr,
        /// Its port.
        port: u16,
        /// What.
        changes: MemberRequest,
    },
    /// Take one member out of a pool.
    DeleteMember {
        /// On which load balancer.
        load_balancer: Id,
        /// Of which pool.
        pool: Id,
        /// Its address.
        address: IpAddr,
        /// Its port.
        port: u16,
    },
    /// Make a monitor.
    CreateMonitor {
        /// On which load balancer.
        load_balancer: Id,
        /// For which pool.
        pool: Id,
        /// What.
        monitor: WantedMonitor,
    },
    /// Change a monitor.
    UpdateMonitor {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        monitor: Id,
        /// What.
        changes: MonitorRequest,
    },
    /// Delete a monitor.
    DeleteMonitor {
        /// On which load balancer.
        load_balancer: Id,
        /// Which.
        monitor: Id,
    },
    /// Make a floating IP. Of several requests the first that succeeds counts.
    CreateFloatingIp {
        /// The requests.
        bodies: Vec<FloatingIpRequest>,
    },
    /// Lead a floating IP to the load balancer.
    AttachFloatingIp {
        /// Which.
        floating_ip: Id,
        /// Its address.
        address: IpAddr,
        /// Where it led when that was decided.
        was_at: Option<Id>,
        /// The port of the VIP.
        port: Id,
        /// The one that led there until now, and does so again where this one can't.
        instead_of: Option<Id>,
    },
    /// Lead a floating IP nowhere.
    DetachFloatingIp {
        /// Which.
        floating_ip: Id,
        /// Its address.
        address: IpAddr,
        /// Where it led when that was decided.
        was_at: Option<Id>,
    },
    /// Give a floating IP back.
    DeleteFloatingIp {
        /// Which.
        floating_ip: Id,
        /// Its address.
        address: IpAddr,
        /// Where it led when that was decided.
        was_at: Option<Id>,
    },
    /// Make a security group with rules.
    CreateGroup {
        /// Its name.
        name: String,
        /// Its description.
        description: String,
        /// Its rules.
        rules: Vec<RuleRequest>,
    },
    /// Add rules to a security group.
    CreateRules {
        /// Which.
        group: Id,
        /// The rules.
        rules: Vec<RuleRequest>,
    },
    /// Take a rule out of a security group.
    DeleteRule {
        /// Which.
        rule: Id,
        /// What it allows.
        allows: String,
    },
    /// Set the security groups of nodes' ports.
    SetPortGroups {
        /// Which.
        ports: Vec<PortGroups>,
        /// Whether a group comes to them, or leaves them.
        joins: bool,
    },
    /// Set the tags of a floating IP or of a security group.
    SetTags {
        /// Of which kind of object.
        #[serde(skip)]
        of: Tagged,
        /// Which.
        id: Id,
        /// Its address or name.
        name: String,
        /// All its tags afterwards.
        tags: Vec<String>,
    },
    /// Put the certificate of a Secret into Barbican.
    CreateCertificate {
        /// The name of the container, and of the secrets in it.
        name: String,
        /// The Secret.
        source: String,
        /// The certificate.
        #[serde(skip)]
        certificate: Arc<Certificate>,
    },
    /// Delete a certificate in Barbican.
    DeleteCertificate {
        /// The container.
        container: Id,
        /// Its name.
        name: String,
        /// The secrets in it.
        secrets: Vec<Id>,
    },
    /// Delete a security group.
    DeleteGroup {
        /// Which.
        group: Id,
        /// Its name.
        name: String,
    },
}

/// The security groups of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortGroups {
    /// Which port.
    pub port: Id,
    /// All its groups afterwards.
    pub groups: Vec<Id>,
    /// What it was read at.
    pub revision: Option<u64>,
}

// === impl Step ===

impl Step {
    /// The load balancer that is busy afterwards.
    pub fn locks(&self) -> Option<&Id> {
        match self {
            Self::UpdateLoadBalancer { load_balancer, .. }
            | Self::FailOver { load_balancer }
            | Self::DeleteLoadBalancer { load_balancer, .. }
            | Self::TryListener { load_balancer, .. }
            | Self::CreateListener { load_balancer, .. }
            | Self::UpdateListener { load_balancer, .. }
            | Self::DeleteListener { load_balancer, .. }
            | Self::CreatePool { load_balancer, .. }
            | Self::UpdatePool { load_balancer, .. }
            | Self::DeletePool { load_balancer, .. }
            | Self::SetMembers { load_balancer, .. }
            | Self::AddMember { load_balancer, .. }
            | Self::UpdateMember { load_balancer, .. }
            | Self::DeleteMember { load_balancer, .. }
            | Self::CreateMonitor { load_balancer, .. }
            | Self::UpdateMonitor { load_balancer, .. }
            | Self::DeleteMonitor { load_balancer, .. } => Some(load_balancer),
            _ => None,
        }
    }

    /// Whether the steps after it do not rest on it.
    pub(crate) fn stands_alone(&self) -> bool {
        matches!(
            self,
            Self::CreateFloatingIp { .. }
                | Self::AttachFloatingIp { .. }
                | Self::CreateGroup { .. }
                | Self::CreateRules { .. }
                | Self::DeleteRule { .. }
                | Self::SetPortGroups { .. }
                | Self::DeleteGroup { .. }
                | Self::SetTags { .. }
                | Self::CreateCertificate { .. }
                | Self::DeleteCertificate { .. }
        )
    }

    fn fmt_members(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetMembers {
                pool,
                members,
                additive: true,
                ..
            } => {
                write!(f, "add {} members to pool {pool}", members.len())
            }
            Self::SetMembers { pool, members, .. } => {
                write!(f, "set {} members of pool {pool}", members.len())
            }
            Self::AddMember { pool, member, .. } => {
                let address = member.address.map(|it| it.to_string());
                let address = address.unwrap_or_default();
                write!(f, "add member \"{address}\" to pool {pool}")
            }
            Self::UpdateMember {
                pool,
                address,
                port,
                changes,
                ..
            } => {
                let keys = keys(changes);
                write!(
                    f,
                    "update member {address} port {port} of pool {pool}: {keys}"
                )
            }
            Self::DeleteMember {
                pool,
                address,
                port,
                ..
            } => {
                write!(f, "delete member {address} port {port} of pool {pool}")
            }
            _ => self.fmt_network(f),
        }
    }

    fn fmt_network(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateFloatingIp { .. } => f.write_str("create floating IP"),
            Self::AttachFloatingIp { address, .. } => write!(f, "attach floating IP {address}"),
            Self::DetachFloatingIp { address, .. } => write!(f, "detach floating IP {address}"),
            Self::DeleteFloatingIp { address, .. } => write!(f, "delete floating IP {address}"),
            Self::CreateGroup { name, rules, .. } => {
                write!(f, "create security group {name} with {} rules", rules.len())
            }
            Self::CreateRules { rules, .. } => {
                write!(f, "create {} security group rules", rules.len())
            }
            Self::DeleteRule { allows, .. } => write!(f, "delete security group rule {allows}"),
            Self::SetPortGroups { ports, joins } => {
                let verb = if *joins {
                    "attach the security group to"
                } else {
                    "detach the security group from"
                };
                match ports.as_slice() {
                    [one] => write!(f, "{verb} port {}", one.port),
                    ports => write!(f, "{verb} {} ports", ports.len()),
                }
            }
            Self::DeleteGroup { name, .. } => write!(f, "delete security group {name}"),
            Self::SetTags { name, tags, .. } => {
                write!(f, "set tags of {name}: {}", tags.join(", "))
            }
            Self::CreateCertificate { source, .. } => {
                write!(f, "create certificate of Secret {source}")
            }
            Self::DeleteCertificate { name, .. } => write!(f, "delete certificate {name}"),
            _ => Ok(()),
        }
    }
}

/// The names of the fields that a request sets.
fn keys(changes: &impl Serialize) -> String {
    let fields = json!(changes);
    let keys = fields.as_object().into_iter().flat_map(Map::keys);
    let keys: Vec<&str> = keys.map(String::as_str).collect();
    keys.join(", ")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateLoadBalancer { name, holds, .. } => {
                let count = holds.len();
                write!(f, "create load balancer {name} with {count} listeners")
            }
            Self::UpdateLoadBalancer {
                load_balancer: id,
                changes,
                ..
            } => {
                write!(f, "update load balancer {id}: {}", keys(changes))
            }
            Self::FailOver { load_balancer } => {
                write!(f, "fail over load balancer {load_balancer}")
            }
            Self::DeleteLoadBalancer { load_balancer, .. } => {
                write!(f, "delete load balancer {load_balancer}")
            }
            Self::TryListener { listener, .. } => {
                write!(f, "try listener {}, disabled", listener.protocol)
            }
            Self::CreateListener { listener, .. } => {
                write!(f, "create listener {}/{}", listener.port, listener.protocol)
            }
            Self::UpdateListener {
                listener, changes, ..
            } => {
                write!(f, "update listener {listener}: {}", keys(changes))
            }
            Self::DeleteListener { listener, .. } => write!(f, "delete listener {listener}"),
            Self::CreatePool { pool, .. } => {
                write!(f, "create pool {} ({})", pool.name, pool.protocol)
            }
            Self::UpdatePool { pool, changes, .. } => {
                write!(f, "update pool {pool}: {}", keys(changes))
            }
            Self::DeletePool { pool, .. } => write!(f, "delete pool {pool}"),
            Self::CreateMonitor { monitor, pool, .. } => {
                write!(f, "create monitor {} for pool {pool}", monitor.kind)
            }
            Self::UpdateMonitor {
                monitor, changes, ..
            } => {
                write!(f, "update monitor {monitor}: {}", keys(changes))
            }
            Self::DeleteMonitor { monitor, .. } => write!(f, "delete monitor {monitor}"),
            _ => self.fmt_members(f),
        }
    }
}
