//! Reads security groups and the ports of nodes.

mod exposed;
mod shared;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use landfall_model::LoadBalancerSpec;
use landfall_model::listener::{AllowedSources, ListenerKey};
use landfall_model::provider::Target as MemberKind;
use landfall_model::rows::Family;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::names::shared_group;
use crate::objects::{Id, Port, SecurityGroup, server_of};
use crate::observed::{Content, Found, Goal, GroupView, Observed};
use crate::plan::diff::has_predecessors;
use crate::provider::OpenStack;
use crate::read::ObserveError;
use crate::read::floating_ips::{FRESH, ago};
use crate::settings::Groups;
use crate::target::Target;
use crate::target::choice::is_ovn;
use exposed::exposed;

impl OpenStack {
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

    /// Security groups of a Service, and of its nodes' ports.
    pub(crate) async fn group_view(
        &self,
        spec: &LoadBalancerSpec,
        have: &Observed,
    ) -> Result<Option<GroupView>, ObserveError> {
        let Goal::Exists(target) = &have.goal else {
            return Ok(None);
        };
        let of_nodes = self.settings.conf.manage_security_groups;
        // What lets load balancers through to pods is the operator's.
        let managed = of_nodes && spec.target == MemberKind::Node;
        let groups = if of_nodes {
            self.all_groups(ago(FRESH)).await?
        } else {
            self.left_groups().await?
        };
        if !managed {
            // What is only taken to be so may have left the nodes in.
            let frozen = of_nodes && (have.assumed || may_have_nodes(target, have));
            return self.unmanaged_view(have, &groups, frozen).await;
        }
        let own_there = groups.iter().any(|it| it.name == have.names.group);
        let shared = shared_group(&self.settings.cluster);
        let own = self.settings.groups == Groups::PerService || own_there;
        let balancer = match &have.found {
            Found::One { balancer, .. } => Some(balancer),
            _ => None,
        };
        let subnet = target.choice.member_subnet.clone();
        let subnet = subnet.or_else(|| balancer.and_then(|it| it.vip_subnet_id.clone()));
        // Only a network is known so far: the load balancer will show it.
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
        } else {
            view.leaving = self.unneeded_ports(&have.names, &view).await?;
        }
        view.former = self
            .former_groups(&have.names, &groups, &view.node_ports)
            .await?;
        view.publishes_first = self.publishes_first(spec, have, &view);
        view.exposed = exposed(spec, target, &view, &groups, &have.names).filter(|_| ovn);
        Ok(Some(view))
    }

    /// What a Service has of groups that shall have nothing in them; `None`: nothing.
    async fn unmanaged_view(
        &self,
        have: &Observed,
        groups: &[SecurityGroup],
        frozen: bool,
    ) -> Result<Option<GroupView>, ObserveError> {
        let shared = shared_group(&self.settings.cluster);
        let find = |name: &str| groups.iter().find(|it| it.name == name).cloned();
        let mut view = GroupView {
            own: true,
            name: have.names.group.clone(),
            group: find(&have.names.group),
            shared: find(&shared),
            former: self.former_groups(&have.names, groups, &[]).await?,
            frozen,
            ..GroupView::default()
        };
        if !frozen && view.former.is_empty() {
            self.memory().guarded.remove(have.names.rule_uid());
        }
        self.find_leaving(&mut view, &[]).await?;
        let some = view.group.is_some() || view.shared.is_some() || !view.former.is_empty();
        Ok(some.then_some(view))
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
        let ports = self.all_ports(ago(self.poll_interval())).await?;
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
        // Nothing of the groups is changed while Octavia is busy.
        let busy = have.found.balancer();
        let busy = busy.is_some_and(|it| it.provisioning_status.is_pending());
        let groups = match (self.settings.conf.manage_security_groups, busy) {
            (true, false) => self.all_groups(ago(self.poll_interval())).await?,
            (true, true) => self.all_groups(ago(FRESH)).await?,
            (false, _) => self.left_groups().await?,
        };
        let find = |name: &str| groups.iter().find(|it| it.name == name).cloned();
        let mut view = GroupView {
            own: true,
            name: have.names.group.clone(),
            group: find(&have.names.group),
            shared: find(&shared_group(&self.settings.cluster)),
            former: self.former_groups(&have.names, &groups, &[]).await?,
            ..GroupView::default()
        };
        // A former group goes from these ports first.
        if view.former.is_empty() {
            self.memory().guarded.remove(have.names.rule_uid());
        }
        if view.group.is_some() {
            // Ports may have got the group a moment ago.
            self.all_ports(ago(self.poll_interval())).await?;
            self.find_leaving(&mut view, &[]).await?;
        }
        Ok(Some(view))
    }
}

/// Whether nodes may still be members of a load balancer whose members shall be pods.
fn may_have_nodes(target: &Target, have: &Observed) -> bool {
    let graph = match &have.content {
        Content::AsWanted => return false,
        Content::Unread => return have.found.balancer().is_some(),
        Content::Graph(graph) => graph,
    };
    has_predecessors(&target.listeners, graph)
}

/// OVN keeps the client's address: nodes must let clients in, not the load balancer, each to its
/// NodePort.
fn clients(spec: &LoadBalancerSpec) -> BTreeMap<ListenerKey, BTreeSet<String>> {
    let everywhere = match spec.address.families.first() {
        Some(Family::V6) => "::/0",
        _ => "0.0.0.0/0",
    };
    let sources = |allowed: &AllowedSources| match allowed {
        AllowedSources::Only(prefixes) => {
            prefixes.iter().map(|it| it.trunc().to_string()).collect()
        }
        AllowedSources::All => BTreeSet::from([everywhere.to_owned()]),
    };
    let listeners = spec.listeners.iter();
    listeners.map(|it| (it.key, sources(&it.allowed))).collect()
}
