//! Members for providers that send traffic to NodePorts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use landfall_model::rows::ServicePort;
use landfall_model::{Code, Member, Reason};

use super::MemberResolver;
use crate::resolve::{ResolveContext, nodes};

impl MemberResolver<'_> {
    /// Returns every eligible node with the port's NodePort. Whether a node is `Ready` plays no
    /// role: monitors find out, and Kubernetes' own rule is the same.
    pub(super) fn node_ports(
        &mut self,
        scene: &ResolveContext<'_>,
        port: &ServicePort,
    ) -> BTreeMap<SocketAddr, Member> {
        let mut members = BTreeMap::new();
        let Some(node_port) = port.node_port else {
            let reason = Reason::warning(Code::EndpointIgnored, "the port has no NodePort")
                .remedy("set spec.allocateLoadBalancerNodePorts to true");
            self.leave_out(
                format!("port {}/{}", port.port, port.protocol),
                None,
                reason,
            );
            return members;
        };
        for (node, address) in nodes::validated(scene) {
            match address {
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
                    self.leave_out(format!("node {}", node.name), Some(&node.name), reason);
                }
            }
        }
        members
    }
}
