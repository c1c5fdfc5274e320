//! Reading Neutron: floating IPs, networks, groups and the ports of nodes.

mod guarded;
mod inside;
mod sought;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::{AllowedSources, ListenerKey};
use landfall_model::rows::Family;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};
use tokio::time::Instant;

use crate::address::{further_v4, is_floating, requested};
use crate::client::ApiError;
use crate::objects::{
    FloatingIp, Id, LoadBalancer, Network, Port, Provisioning, SecurityGroup, Subnet,
};
use crate::observe::{ObserveError, is_ovn, owned, server_of};
use crate::observed::{Addressing, Found, Goal, GroupView, Observed, Target};
use crate::provider::OpenStack;
use crate::record::Record;
use crate::settings::Groups;

/// Floating IPs, groups and ports may be this old where nothing is to be done.
pub(crate) const FRESH: Duration = Duration::from_secs(60);
/// Networks hardly ever change.
const LASTING: Duration = Duration::from_secs(600);

pub(crate) fn ago(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(time).unwrap_or(now)
}

pub(crate) use sought::Sought;

impl OpenStack {
    pub(crate) async fn subnet(&self, id: &Id) -> Result<Option<Subnet>, ApiError> {
        if !id.is_uuid() {
            return Ok(None);
        }
        let known = || self.memory().subnets.get(id).cloned();
        if let Some(subnet) = known() {
            return Ok(Some(subnet));
        }
        // After a start all Services ask for the same one at once.
        let _reading = self.subnet_reading.lock().await;
        if let Some(subnet) = known() {
            return Ok(Some(subnet));
        }
        let subnet = self.cloud.subnet(id).await?;
        if let Some(subnet) = &subnet {
            self.memory().subnets.insert(id.clone(), subnet.clone());
        }
        Ok(subnet)
    }

    async fn all_floating_ips(&self, since: Instant) -> Result<Arc<Vec<FloatingIp>>, ApiError> {
        let written = self.memory().floating_written;
        let since = written.map_or(since, |at| since.max(at));
        let project = self.cloud.project_id().await?;
        let query = project.as_ref().map(|id| ("project_id", id.as_str()));
        self.lists
            .floating_ips
            .since(since, async || {
                self.cloud.floating_ips(query.as_slice()).await
            })
            .await
    }

    /// Floating IPs that concern a Service.
    pub(crate) async fn floating_ips(&self, sought: &Sought<'_>) -> Result<Addressing, ApiError> {
        let mut all = self.all_floating_ips(ago(FRESH)).await?;
        let mut going = HashMap::new();
        if !sought.is_settled(&all) {
            let roster_at;
            (roster_at, going) = self.going_ports().await;
            // Not older than what is known of load balancers: one that is gone leads no floating IP
            // anywhere.
            let recent = ago(self.pace()).max(roster_at);
            all = self.all_floating_ips(recent).await?;
        }
        Ok(sought.among(&all, &going))
    }

    /// The VIPs' ports of load balancers that Octavia is deleting, and when that was seen.
    async fn going_ports(&self) -> (Instant, HashMap<Id, Id>) {
        let Some((at, roster)) = self.lists.roster.at_hand().await else {
            return (ago(FRESH), HashMap::new());
        };
        let going = roster.iter().map(|(row, _)| row);
        let going = going
            .filter(|row| row.provisioning_status.is_going())
            .filter_map(|row| Some((row.vip_port_id.clone()?, row.id.clone())));
        (at, going.collect())
    }

    /// Floating IPs of a Service that wants one, and where a new one would come from.
    pub(crate) async fn complete_addressing(
        &self,
        intent: &Intent,
        spec: &LoadBalancerSpec,
        have: &mut Observed,
    ) -> Result<(), ObserveError> {
        let (
            Goal::Exists(target),
            Found::One {
                balancer, owner, ..
            },
        ) = (&have.goal, &have.found)
        else {
            return Ok(());
        };
        if balancer.provisioning_status == Provisioning::PendingCreate {
            return Ok(());
        }
        let floating = is_floating(target, balancer);
        // One that has a further VIP may have had a floating IP.
        if !floating && !target.choice.internal && balancer.additional_vips.is_empty() {
            let address = balancer
                .vip_address
                .map(|it| it.to_string())
                .unwrap_or_default();
            have.notices.push((
                "LoadBalancerFloatingIPSkipped",
                Reason::info(
                    Code::OptionNotApplicable,
                    format!("the VIP {address} is IPv6 and is reached without a floating IP"),
                ),
            ));
            return Ok(());
        }
        let port = balancer.vip_port_id.as_ref();
        let requested = requested(spec).filter(|_| floating);
        let mut view = self
            .floating_ips(&Sought {
                port,
                requested,
                held: if owned(intent) {
                    &spec.address.held
                } else {
                    &[]
                },
                since: intent.created,
                replaced: is_replaced(intent, balancer),
                ..Sought::of(&have.names)
            })
            .await?;
        if let (Some(asked), Some(port)) = (&view.requested, port) {
            let memory = self.memory();
            let refused = memory.why_unattachable(&asked.id, port, Instant::now());
            view.refused = refused.map(str::to_owned);
        }
        self.tell_sharers(intent, balancer, view.attached.as_ref());
        let (mut notices, mut problem) = (Vec::new(), None);
        if floating && view.attached.is_none() && *owner {
            match self
                .floating_source(target, requested.is_some(), &mut view)
                .await?
            {
                // Without the further address, the first one is still reached from outside.
                Ok(()) if view.network.is_none() && further_v4(target, balancer).is_none() => {
                    notices.extend(no_external_network(intent));
                }
                Ok(()) => {}
                Err(reason) => problem = Some(reason),
            }
        }
        if floating && *owner {
            notices.extend(lost_address(spec, &view, balancer));
        }
        view.problem = problem;
        have.notices.extend(notices);
        have.addressing = view;
        Ok(())
    }

    /// Wakes the Services that share a load balancer when another floating IP leads to it than
    /// before: they publish its address.
    fn tell_sharers(
        &self,
        intent: &Intent,
        balancer: &LoadBalancer,
        attached: Option<&FloatingIp>,
    ) {
        let address = attached.map(|it| it.floating_ip_address);
        let sharers = self
            .memory()
            .note_floating(&balancer.id, address, &intent.uid);
        for service in sharers {
            self.wake(service);
        }
    }

    /// Where a new floating IP comes from.
    async fn floating_source(
        &self,
        target: &Target,
        asks_for_one: bool,
        view: &mut Addressing,
    ) -> Result<Result<(), Reason>, ApiError> {
        let chosen = &target.choice.floating;
        view.network = match &chosen.network {
            Some(network) => Some(network.clone()),
            None => self.external_network().await?,
        };
        let Some(network) = &view.network else {
            return Ok(Ok(()));
        };
        if let Some(id) = &chosen.subnet {
            let reason = match self.subnet(id).await? {
                Some(subnet) if subnet.network_id == *network => {
                    view.subnets = vec![id.clone()];
                    return Ok(Ok(()));
                }
                Some(subnet) => format!(
                    "the floating subnet {id} belongs to network {}, not to {network}",
                    subnet.network_id
                ),
                None => format!("there is no subnet {id}"),
            };
            return Ok(Err(Reason::error(Code::InvalidCloudOption, reason).remedy(
                "let floating-subnet-id and floating-network-id belong together",
            )));
        }
        // Who asks for an address has chosen its subnet.
        let any = chosen.pattern.is_none() && chosen.tags.is_none();
        if any || asks_for_one {
            return Ok(Ok(()));
        }
        let mut query = vec![("network_id", network.to_string())];
        if let Some(tags) = &chosen.tags {
            query.extend(tags.query());
        }
        let query: Vec<(&str, &str)> = query
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        let subnets = self.cloud.subnets(&query).await?;
        let fits = |subnet: &&Subnet| {
            chosen
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.matches(&subnet.name))
                && chosen
                    .tags
                    .as_ref()
                    .is_none_or(|tags| tags.matches(&subnet.tags))
        };
        view.subnets = subnets
            .iter()
            .filter(fits)
            .map(|it| it.id.clone())
            .collect();
        if view.subnets.is_empty() {
            return Ok(Err(Reason::error(
                Code::InvalidCloudOption,
                format!("no subnet of network {network} has this name or these tags"),
            )
            .remedy("check floating-subnet and floating-subnet-tags")));
        }
        Ok(Ok(()))
    }

    /// The first external network with an IPv4 subnet, or one that can't be seen.
    async fn external_network(&self) -> Result<Option<Id>, ApiError> {
        let networks = self
            .lists
            .networks
            .since(ago(LASTING), async || self.cloud.networks(&[]).await)
            .await?;
        let external: Vec<&Network> = networks.iter().filter(|it| it.external).collect();
        for network in external {
            let Some(first) = network.subnets.first() else {
                continue;
            };
            let mut ids = std::iter::once(first).chain(network.subnets.iter().skip(1));
            let usable = loop {
                let Some(id) = ids.next() else { break false };
                match self.subnet(id).await? {
                    None => break true,
                    Some(subnet) if subnet.cidr.addr().is_ipv4() => break true,
                    Some(_) => {}
                }
            };
            if usable {
                return Ok(Some(network.id.clone()));
            }
        }
        Ok(None)
    }

    pub(crate) async fn all_groups(
        &self,
        since: Instant,
    ) -> Result<Arc<Vec<SecurityGroup>>, ApiError> {
        let written = self.memory().groups_written;
        let since = written.map_or(since, |at| since.max(at));
        self.lists
            .groups
            .since(since, async || self.cloud.security_groups(&[]).await)
            .await
    }

    pub(crate) async fn all_ports(&self, since: Instant) -> Result<Arc<Vec<Port>>, ApiError> {
        let written = self.memory().groups_written;
        let since = written.map_or(since, |at| since.max(at));
        let project = self.cloud.project_id().await?;
        let query = project.as_ref().map(|id| ("project_id", id.as_str()));
        self.lists
            .ports
            .since(since, async || self.cloud.ports(query.as_slice()).await)
            .await
    }

    /// The name of the group that all nodes of the cluster share.
    fn shared_group(&self) -> String {
        crate::names::cut(format!("landfall-nodes-{}", self.settings.cluster))
    }

    /// Security groups of a Service, and of its nodes' ports.
    pub(crate) async fn group_view(
        &self,
        spec: &LoadBalancerSpec,
        have: &Observed,
    ) -> Result<Option<GroupView>, ObserveError> {
        let Goal::Exists(target) = &have.goal else {
            return Ok(None);
        };
        let managed = self.settings.conf.manage_security_groups;
        let age = if managed { FRESH } else { LASTING };
        let groups = self.all_groups(ago(age)).await?;
        let own_there = groups.iter().find(|it| it.name == have.names.group);
        let shared = self.shared_group();
        if !managed {
            let mut view = GroupView {
                own: true,
                name: have.names.group.clone(),
                group: own_there.cloned(),
                shared: groups.iter().find(|it| it.name == shared).cloned(),
                ..GroupView::default()
            };
            self.find_leaving(&mut view, &[]).await?;
            return Ok((view.group.is_some() || view.shared.is_some()).then_some(view));
        }
        let own = self.settings.groups == Groups::PerService || own_there.is_some();
        let balancer = match &have.found {
            Found::One { balancer, .. } => Some(balancer),
            _ => None,
        };
        let subnet = target.choice.member_subnet.clone();
        let subnet = subnet.or_else(|| balancer.and_then(|it| it.vip_subnet_id.clone()));
        // Only a network is known so far: the load balancer will tell.
        let Some(subnet_id) = subnet else {
            return Ok(None);
        };
        let cidr = self
            .subnet(&subnet_id)
            .await?
            .map(|subnet| subnet.cidr.trunc().to_string());
        let ovn = is_ovn(balancer.map(|it| &**it), &target.choice);
        let name = if own { &have.names.group } else { &shared }.clone();
        let mut view = GroupView {
            own,
            description: if own {
                have.names.group_description.clone()
            } else {
                format!("Nodes of the Kubernetes cluster {}", self.settings.cluster)
            },
            group: groups.iter().find(|it| it.name == name).cloned(),
            name,
            sources: cidr.iter().filter(|_| !ovn).cloned().collect(),
            clients: if ovn { clients(spec) } else { BTreeMap::new() },
            health_sources: cidr.into_iter().collect(),
            shared: groups.iter().find(|it| own && it.name == shared).cloned(),
            managed,
            ..GroupView::default()
        };
        view.node_ports = self
            .node_ports(spec, target.choice.member_subnet.as_ref())
            .await?;
        if own {
            let staying: Vec<Id> = view.node_ports.iter().map(|port| port.id.clone()).collect();
            self.find_leaving(&mut view, &staying).await?;
        }
        Ok(Some(view))
    }

    /// The ports of the nodes, by server and address.
    async fn node_ports(
        &self,
        spec: &LoadBalancerSpec,
        subnet: Option<&Id>,
    ) -> Result<Vec<Port>, ApiError> {
        let find = |ports: &[Port]| {
            let mut by_server: HashMap<&str, Vec<&Port>> = HashMap::new();
            for port in ports.iter().filter(|port| !port.device_id.is_empty()) {
                by_server.entry(&port.device_id).or_default().push(port);
            }
            let mut found = Vec::new();
            let mut missing = false;
            for node in &spec.nodes {
                let Some(server) = node.provider_id.as_deref().and_then(server_of) else {
                    continue;
                };
                let here = |port: &&&Port| {
                    port.fixed_ips.iter().any(|fixed| {
                        fixed.ip_address == node.address
                            && subnet.is_none_or(|subnet| fixed.subnet_id == *subnet)
                    })
                };
                let ports = by_server.get(server).map_or(&[][..], Vec::as_slice);
                match ports.iter().find(here) {
                    Some(port) if port.port_security_enabled != Some(false) => {
                        found.push((*port).clone());
                    }
                    Some(_) => {}
                    None => missing = true,
                }
            }
            (found, missing)
        };
        let ports = self.all_ports(ago(FRESH)).await?;
        let (found, missing) = find(&ports);
        if !missing {
            return Ok(found);
        }
        let ports = self.all_ports(ago(self.pace())).await?;
        Ok(find(&ports).0)
    }

    async fn find_leaving(&self, view: &mut GroupView, staying: &[Id]) -> Result<(), ApiError> {
        let Some(group) = &view.group else {
            return Ok(());
        };
        let ports = self.all_ports(ago(FRESH)).await?;
        let staying: HashSet<&Id> = staying.iter().collect();
        let leaving = ports.iter().filter(|port| {
            port.security_groups.contains(&group.id) && !staying.contains(&&port.id)
        });
        view.leaving = leaving.cloned().collect();
        Ok(())
    }

    pub(crate) async fn groups_before_removal(
        &self,
        have: &Observed,
    ) -> Result<Option<GroupView>, ObserveError> {
        let groups = self.all_groups(ago(self.pace())).await?;
        let find = |name: &str| groups.iter().find(|it| it.name == name).cloned();
        let mut view = GroupView {
            own: true,
            name: have.names.group.clone(),
            group: find(&have.names.group),
            shared: find(&self.shared_group()),
            ..GroupView::default()
        };
        if view.group.is_some() {
            // Ports may have got the group a moment ago.
            self.all_ports(ago(self.pace())).await?;
            self.find_leaving(&mut view, &[]).await?;
        }
        Ok(Some(view))
    }
}

/// OVN keeps the client's address: nodes must let clients in, not the load balancer, each to its
/// NodePort.
fn clients(spec: &LoadBalancerSpec) -> BTreeMap<ListenerKey, BTreeSet<String>> {
    let everybody = match spec.address.families.first() {
        Some(Family::V6) => "::/0",
        _ => "0.0.0.0/0",
    };
    let sources = |allowed: &AllowedSources| match allowed {
        AllowedSources::Only(prefixes) => {
            prefixes.iter().map(|it| it.trunc().to_string()).collect()
        }
        AllowedSources::All => BTreeSet::from([everybody.to_owned()]),
    };
    let listeners = spec.listeners.iter();
    listeners.map(|it| (it.key, sources(&it.allowed))).collect()
}

/// Whether another load balancer published the Service's address.
fn is_replaced(intent: &Intent, balancer: &LoadBalancer) -> bool {
    Record::of(intent).is_some_and(|it| !it.given && it.balancer != balancer.id.as_str())
}

/// The address that clients know leads here no more, and can't be brought back.
fn lost_address(
    spec: &LoadBalancerSpec,
    view: &Addressing,
    balancer: &LoadBalancer,
) -> Option<(&'static str, Reason)> {
    if view.attached.is_some() || view.spare.is_some() || view.network.is_none() {
        return None;
    }
    let vip = balancer.vip_address;
    let mut held = spec.address.held.iter();
    let lost = held.find(|it| it.is_ipv4() && Some(**it) != vip)?;
    Some((
        "LoadBalancerFloatingIPLost",
        Reason::warning(
            Code::AddressMoved,
            format!(
                "the floating IP {lost} is gone, or attached elsewhere; another one replaces it"
            ),
        )
        .remedy("request a fixed address in landfall.dev/addresses, and lock it in the project"),
    ))
}

/// Without an external network there are only internal load balancers.
fn no_external_network(intent: &Intent) -> [(&'static str, Reason); 2] {
    let reason = |message: String| {
        Reason::warning(Code::CloudObjectNotFound, message)
            .remedy("name the network in floating-network-id, or mark the Service as internal")
    };
    [
        (
            "LoadBalancerExternalNetworkSearchFailed",
            reason("no external network with an IPv4 subnet was found".to_owned()),
        ),
        (
            "LoadBalancerForcedInternal",
            reason(format!(
                "the Service {} is made internal, because there is no network for a floating IP",
                intent.service
            )),
        ),
    ]
}
