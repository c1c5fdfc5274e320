//! Addresses of nodes inside the subnet of the members: a node that is known by an address
//! elsewhere may have another one there, by its port in the cloud or, where that can't be seen, by
//! what its Node object has.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use landfall_model::LoadBalancerSpec;
use landfall_model::intent::NodeTarget;
use landfall_model::provider::Target;

use crate::client::ApiError;
use crate::objects::{Id, Port, server_of};
use crate::provider::OpenStack;
use crate::read::floating_ips::{FRESH, ago};
use crate::target::choice::Choice;

/// A server that just came need not be in an older list of ports.
const RECENT: Duration = Duration::from_secs(10);

impl OpenStack {
    /// The spec with the addresses that nodes have in the subnet of the members; `None`: as it is.
    /// Ports are only asked for where some node is known by an address elsewhere. One that has no
    /// port there keeps its address.
    pub(crate) async fn inside_member_subnet(
        &self,
        spec: &LoadBalancerSpec,
        choice: &Choice,
    ) -> Result<Option<LoadBalancerSpec>, ApiError> {
        // Members that are added one by one have always been nodes' own addresses, and name no
        // subnet.
        let Some(id) = choice
            .member_subnet
            .as_ref()
            .filter(|_| !self.settings.conf.provider_requires_serial_api_calls)
        else {
            return Ok(None);
        };
        if spec.nodes.is_empty() || spec.target == Target::Pod {
            return Ok(None);
        }
        let Some(subnet) = self.subnet(id).await? else {
            return Ok(None);
        };
        let elsewhere: Vec<&NodeTarget> = spec
            .nodes
            .iter()
            .filter(|node| is_elsewhere(node, subnet.cidr))
            .collect();
        if elsewhere.is_empty() {
            return Ok(None);
        }
        let ports = self.all_ports(ago(FRESH)).await?;
        let (mut addresses, mut unseen) = inside(&elsewhere, &ports, id);
        if unseen.iter().any(|node| is_server(node)) {
            let ports = self.all_ports(ago(RECENT)).await?;
            (addresses, unseen) = inside(&elsewhere, &ports, id);
        }
        for node in unseen {
            addresses.extend(listed_inside(node, subnet.cidr));
        }
        Ok((!addresses.is_empty()).then(|| moved(spec, &addresses)))
    }
}

/// Of the subnet's family, not in the subnet, and perhaps there by another address: a server of
/// OpenStack, or a node that lists one.
fn is_elsewhere(node: &NodeTarget, cidr: IpNet) -> bool {
    node.address.is_ipv4() == cidr.addr().is_ipv4()
        && !cidr.contains(&node.address)
        && (is_server(node) || listed_inside(node, cidr).is_some())
}

fn is_server(node: &NodeTarget) -> bool {
    node.provider_id.as_deref().and_then(server_of).is_some()
}

/// The address that a node is known by, and the one that its Node object has in the subnet.
fn listed_inside(node: &NodeTarget, cidr: IpNet) -> Option<(IpAddr, IpAddr)> {
    let mut others = node.others.iter();
    let inside = others.find(|it| cidr.contains(*it))?;
    Some((node.address, *inside))
}

/// The addresses of nodes in the subnet, by the addresses that they are known by; and the nodes
/// that have no port at all that could be seen.
fn inside<'a>(
    nodes: &[&'a NodeTarget],
    ports: &[Port],
    subnet: &Id,
) -> (HashMap<IpAddr, IpAddr>, Vec<&'a NodeTarget>) {
    let mut of_server: HashMap<&str, Option<IpAddr>> = HashMap::new();
    for port in ports.iter().filter(|port| !port.device_id.is_empty()) {
        let known = of_server.entry(&port.device_id).or_default();
        let here = port.fixed_ips.iter();
        let here = here.filter(|fixed| fixed.subnet_id == *subnet);
        let here = here.map(|fixed| fixed.ip_address);
        // The same one each time, in whichever order they are listed.
        *known = known.iter().copied().chain(here).min();
    }
    let mut addresses = HashMap::new();
    let mut unseen = Vec::new();
    for node in nodes {
        match node
            .provider_id
            .as_deref()
            .and_then(server_of)
            .and_then(|server| of_server.get(server))
        {
            Some(Some(address)) => {
                addresses.insert(node.address, *address);
            }
            Some(None) => {}
            None => unseen.push(*node),
        }
    }
    (addresses, unseen)
}

fn moved(spec: &LoadBalancerSpec, addresses: &HashMap<IpAddr, IpAddr>) -> LoadBalancerSpec {
    let mut spec = spec.clone();
    for node in &mut spec.nodes {
        if let Some(address) = addresses.get(&node.address) {
            node.address = *address;
        }
    }
    for listener in &mut spec.listeners {
        for member in &mut listener.pool.members {
            if let Some(address) = addresses.get(&member.address.ip()) {
                member.address = SocketAddr::new(*address, member.address.port());
            }
        }
    }
    spec
}
