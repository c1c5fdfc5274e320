//! Subnets that are not named, and those of the second family.

use landfall_model::dialect::Given;
use landfall_model::intent::NodeTarget;
use landfall_model::provider::Target as MemberKind;
use landfall_model::rows::Family;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};

use super::ObserveError;
use crate::client::ApiError;
use crate::objects::{Id, Member, server_of};
use crate::observed::{Content, Found};
use crate::provider::OpenStack;
use crate::target::Target;
use crate::target::choice::Choice;

/// So many nodes are asked for: one may be gone while its Node is still there.
const TRIED: usize = 5;

impl OpenStack {
    /// Fills in the subnets that are not named.
    pub(super) async fn complete(
        &self,
        choice: &mut Choice,
        spec: &LoadBalancerSpec,
        found: &Found,
    ) -> Result<(), ObserveError> {
        let own = match found {
            Found::One {
                balancer, owner, ..
            } => Some(balancer).filter(|_| *owner),
            _ => None,
        };
        if !choice.autodetect {
            return self.settle_families(choice, spec, found).await;
        }
        // The load balancer of another owner may be anywhere; the nodes need not be there.
        let subnet = match own.filter(|_| choice.port.is_none()) {
            Some(balancer) => balancer.vip_subnet_id.clone(),
            None => self.node_subnet(spec).await?,
        };
        if choice.port.is_none() {
            choice.vip_subnet.clone_from(&subnet);
        }
        if choice.member_subnet.is_none() && spec.target == MemberKind::Node {
            choice.member_subnet = subnet;
        }
        Ok(())
    }

    /// What is configured for all Services may be of the other family: then the subnet of the right
    /// one in the same network takes its place.
    async fn settle_families(
        &self,
        choice: &mut Choice,
        spec: &LoadBalancerSpec,
        found: &Found,
    ) -> Result<(), ObserveError> {
        let family = choice.family();
        // Where there are several, the nodes decide which.
        let nodes = spec.nodes.first().map(|node| node.address);
        if family != Family::V6 {
            return Ok(());
        }
        let vip = choice.vip_subnet.clone();
        let is_new = matches!(found, Found::Nothing) && choice.port.is_none();
        if let Some(id) = vip.filter(|_| is_new)
            && let Some(network) = self.network_of_other(&id, family).await?
        {
            let Some(subnet) = self
                .subnet_in(&network, family, choice.address.or(nodes))
                .await?
            else {
                let reason = Reason::error(
                    Code::NoAddressOfFamily,
                    format!(
                        "the Service needs an {family} address, and neither subnet {id} nor \
                        another subnet of its network {network} has one"
                    ),
                );
                return Err(ObserveError::Spec(vec![
                    reason.at("spec.ipFamilies").remedy(
                        "name a subnet of the family in loadbalancer.openstack.org/subnet-id, or \
                        request the other family",
                    ),
                ]));
            };
            choice.vip_subnet = Some(subnet);
        }
        if let Some(id) = choice.member_subnet.clone()
            && let Some(network) = self.network_of_other(&id, family).await?
            && let Some(subnet) = self.subnet_in(&network, family, nodes).await?
        {
            choice.member_subnet = Some(subnet);
        }
        Ok(())
    }

    /// The network of a subnet that is not of this family.
    async fn network_of_other(&self, id: &Id, family: Family) -> Result<Option<Id>, ApiError> {
        let subnet = self.subnet(id).await?;
        let other = subnet.filter(|it| Family::of(it.cidr.addr()) != family);
        Ok(other.map(|it| it.network_id))
    }

    /// The subnet in which the first node of this cloud has its address that has a port there.
    pub(super) async fn node_subnet(
        &self,
        spec: &LoadBalancerSpec,
    ) -> Result<Option<Id>, ObserveError> {
        let of_cloud =
            |node: &&NodeTarget| node.provider_id.as_deref().and_then(server_of).is_some();
        let mut without = None;
        for node in spec.nodes.iter().filter(of_cloud).take(TRIED) {
            match self.subnet_of(node).await? {
                Some(subnet) => return Ok(Some(subnet)),
                None => without = without.or(Some(node)),
            }
        }
        let why = match (without, spec.nodes.first()) {
            (Some(node), _) => format!(
                "no port of the server of node {} has its address {}",
                node.name, node.address
            ),
            (None, None) => return Ok(None),
            (None, Some(node)) => match &node.provider_id {
                None => format!("the node {} has no providerID", node.name),
                Some(id) => format!(
                    "the providerID {id} of node {} is not OpenStack's",
                    node.name
                ),
            },
        };
        Err(ObserveError::Spec(vec![no_subnet(&why)]))
    }

    /// The subnet in which a node has its address.
    async fn subnet_of(&self, node: &NodeTarget) -> Result<Option<Id>, ApiError> {
        let Some(provider_id) = &node.provider_id else {
            return Ok(None);
        };
        let place = (provider_id.clone(), node.address);
        let known = self.memory().caches.node_subnets.get(&place).cloned();
        let (None, Some(server)) = (&known, server_of(provider_id)) else {
            return Ok(known);
        };
        let ports = self.cloud.ports(&[("device_id", server)]).await?;
        let mut fixed = ports.iter().flat_map(|port| &port.fixed_ips);
        let here = fixed.find(|fixed| fixed.ip_address == node.address);
        if let Some(fixed) = here {
            let mut memory = self.memory();
            memory
                .caches
                .node_subnets
                .insert(place, fixed.subnet_id.clone());
        }
        Ok(here.map(|fixed| fixed.subnet_id.clone()))
    }

    /// Members that move to a subnet are taken out before they are put in again: not for one that
    /// is not there.
    pub(super) async fn check_member_subnet(
        &self,
        intent: &Intent,
        target: &mut Target,
        content: &Content,
    ) -> Result<(), ApiError> {
        let (Content::Graph(graph), Some(subnet)) = (content, &target.choice.member_subnet) else {
            return Ok(());
        };
        let elsewhere = |member: &Member| member.subnet_id.as_ref().is_some_and(|it| it != subnet);
        if !graph.members.values().flatten().any(elsewhere) || self.subnet(subnet).await?.is_some()
        {
            return Ok(());
        }
        let reason = self.no_member_subnet(intent, subnet);
        target.reasons.push(reason);
        Ok(())
    }

    /// Octavia takes a new load balancer whose members are in a subnet that is not there, and gives
    /// it up later. What the configuration names is not checked.
    pub(super) async fn check_named_member_subnet(
        &self,
        intent: &Intent,
        target: &mut Target,
    ) -> Result<(), ApiError> {
        let Some(subnet) = &target.choice.member_subnet else {
            return Ok(());
        };
        if self.names_member_subnet(intent, subnet).is_none()
            || self.subnet(subnet).await?.is_some()
        {
            return Ok(());
        }
        let reason = self.no_member_subnet(intent, subnet);
        target.reasons.push(reason);
        Ok(())
    }

    /// The annotation by which a Service names the subnet of its members, itself or through a
    /// class.
    fn names_member_subnet<'a>(
        &self,
        intent: &'a Intent,
        subnet: &Id,
    ) -> Option<&'a Given<String>> {
        let cloud = &intent.extensions.openstack;
        let directly = |given: &&Given<String>| given.value == subnet.as_str();
        let by_class = |given: &&Given<String>| {
            let class = self.settings.classes.get(&given.value);
            class.and_then(|it| it.member_subnet_id.as_deref()) == Some(subnet.as_str())
        };
        let given = cloud.member_subnet.as_ref().filter(directly);
        given.or_else(|| cloud.class.as_ref().filter(by_class))
    }

    fn no_member_subnet(&self, intent: &Intent, subnet: &Id) -> Reason {
        let reason = Reason::error(
            Code::CloudObjectNotFound,
            format!("there is no subnet {subnet} for the members"),
        );
        match self.names_member_subnet(intent, subnet) {
            Some(given) => reason
                .at_annotation(&given.annotation)
                .value(given.value.as_str())
                .remedy("name an existing one, or remove the annotation"),
            None => reason.value(subnet.as_str()).remedy(
                "name an existing one in loadbalancer.openstack.org/member-subnet-id or subnet-id",
            ),
        }
    }

    pub(super) async fn vip_network(&self, choice: &Choice) -> Result<Option<Id>, ApiError> {
        if let Some(network) = &choice.vip_network {
            return Ok(Some(network.clone()));
        }
        let Some(subnet) = &choice.vip_subnet else {
            return Ok(None);
        };
        Ok(self.subnet(subnet).await?.map(|subnet| subnet.network_id))
    }
}

pub(super) fn no_subnet(why: &str) -> Reason {
    Reason::error(
        Code::InvalidCloudOption,
        format!("the subnet can't be derived from the nodes: {why}"),
    )
    .remedy("name it in subnet-id of the configuration, or in loadbalancer.openstack.org/subnet-id")
}
