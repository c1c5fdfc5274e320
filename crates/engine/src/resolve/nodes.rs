//! Members for providers that send traffic to NodePorts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use landfall_model::rows::{Family, NodeRow, ServicePort};
use landfall_model::{Code, Member, Reason};

use super::Scene;
use super::members::Crew;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// What Go's `strconv.ParseBool` takes for false; every other value of the label excludes.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// Every eligible node with the port's NodePort. Whether a node is `Ready` plays no role: monitors
/// tell, and Kubernetes' own rule is the same.
pub(super) fn members(
    scene: &Scene<'_>,
    port: &ServicePort,
    crew: &mut Crew,
) -> BTreeMap<SocketAddr, Member> {
    let mut members = BTreeMap::new();
    let Some(node_port) = port.node_port else {
        let reason = Reason::warning(Code::EndpointIgnored, "the port has no NodePort")
            .remedy("set spec.allocateLoadBalancerNodePorts to true");
        crew.leave_out(
            format!("port {}/{}", port.port, port.protocol),
            None,
            reason,
        );
        return members;
    };
    for node in scene.world.nodes() {
        match address(node, &scene.service.families) {
            Ok(address) => {
                let address = SocketAddr::new(address, node_port.get());
                let member = Member {
                    node: Some(node.name.clone()),
                    name: Some(node.name.clone()),
                    ..Member::new(address)
                };
                members.insert(address, member);
            }
            Err(why) => {
                let reason = Reason::info(Code::EndpointIgnored, why);
                crew.leave_out(format!("node {}", node.name), Some(&node.name), reason);
            }
        }
    }
    members
}

/// The address of a node that may be a member: of the Service's first family that it has.
fn address(node: &NodeRow, families: &[Family]) -> Result<IpAddr, &'static str> {
    if node.deleting {
        return Err("the node is being deleted");
    }
    if node.leaving {
        return Err("the cluster autoscaler is about to remove the node");
    }
    if let Some(value) = node.labels.get(EXCLUDED)
        && !FALSE.contains(&value.as_str())
    {
        return Err("its label excludes it from load balancers");
    }
    let of = |family: &Family| {
        let mut addresses = node.addresses.iter();
        addresses.find(|address| Family::of(**address) == *family)
    };
    families
        .iter()
        .find_map(of)
        .copied()
        .ok_or("the node has no address of the Service's families")
}
