//! Nodes whose NodePorts a security group keeps closed to other clients: the only members of a
//! listener with source ranges, where the load balancer itself does not filter.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use landfall_model::intent::NodeTarget;
use landfall_model::listener::AllowedSources;
use landfall_model::{Code, Listener, LoadBalancerSpec, Reason};

use crate::client::ApiError;
use crate::objects::{Port, server_of};
use crate::provider::OpenStack;
use crate::read::floating_ips::{FRESH, ago};

/// So many nodes are named.
const NAMED: usize = 20;

impl OpenStack {
    /// The spec without members that nothing guards, and what there is to say of them; `None`: as
    /// it is.
    pub(crate) async fn guarded_only(
        &self,
        spec: &LoadBalancerSpec,
        ovn: bool,
    ) -> Result<Option<(LoadBalancerSpec, Reason)>, ApiError> {
        let strict = self.settings.strict_source_ranges;
        let filters = ovn && strict && self.settings.conf.manage_security_groups;
        if !filters || !spec.listeners.iter().any(is_restricted) {
            return Ok(None);
        }
        let find = |ports: &[Port]| unguarded(&spec.nodes, ports, &mut self.memory().secure_nodes);
        let ports = self.all_ports(ago(FRESH)).await?;
        let mut open = find(&ports);
        if !open.is_empty() {
            let ports = self.all_ports(ago(self.poll_interval())).await?;
            open = find(&ports);
        }
        if open.is_empty() {
            return Ok(None);
        }
        let addresses: BTreeSet<IpAddr> = open.iter().map(|node| node.address).collect();
        let mut names: Vec<&str> = open.iter().map(|node| &*node.name).collect();
        names.truncate(NAMED);
        let reason = Reason::warning(
            Code::SourceRangesNotEnforced,
            format!(
                "{} nodes are no members of ports with source ranges, because no security group \
                protects them: {}",
                open.len(),
                names.join(", ")
            ),
        )
        .at("spec.loadBalancerSourceRanges")
        .remedy(
            "enable port security for their ports, and check that their providerID names a \
                server",
        );
        let mut spec = spec.clone();
        for listener in spec.listeners.iter_mut().filter(|it| is_restricted(it)) {
            let members = &mut listener.pool.members;
            members.retain(|member| !addresses.contains(&member.address.ip()));
        }
        Ok(Some((spec, reason)))
    }
}

/// Whether a listener lets only some clients in.
pub(super) fn is_restricted(listener: &Listener) -> bool {
    match &listener.allowed {
        AllowedSources::Only(prefixes) => prefixes.iter().all(|prefix| prefix.prefix_len() > 0),
        AllowedSources::All => false,
    }
}

/// Nodes that are no servers of the cloud, have no port there, or one without port security. A node
/// whose port was secure stays so while a list shows no port of its server: that says more of the
/// list than of the node.
fn unguarded<'a>(
    nodes: &'a [NodeTarget],
    ports: &[Port],
    known: &mut HashSet<(String, IpAddr)>,
) -> Vec<&'a NodeTarget> {
    let mut servers = HashSet::new();
    let mut secure = HashMap::new();
    for port in ports {
        servers.insert(port.device_id.as_str());
        for fixed in &port.fixed_ips {
            let here = (port.device_id.as_str(), fixed.ip_address);
            secure.insert(here, port.port_security_enabled != Some(false));
        }
    }
    let mut is_guarded = |node: &NodeTarget| {
        let Some(server) = node.provider_id.as_deref().and_then(server_of) else {
            return false;
        };
        let here = (server.to_owned(), node.address);
        if !servers.contains(server) {
            return known.contains(&here);
        }
        let is_secure = secure.get(&(server, node.address)) == Some(&true);
        if is_secure {
            known.insert(here);
        } else {
            known.remove(&here);
        }
        is_secure
    };
    nodes.iter().filter(|node| !is_guarded(node)).collect()
}
