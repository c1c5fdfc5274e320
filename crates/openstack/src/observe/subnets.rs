//! Subnets that nobody named, and those of the second family.

use landfall_model::dialect::Given;
use landfall_model::{Code, Intent, LoadBalancerWish, Reason};

use super::Trouble;
use crate::choice::Choice;
use crate::client::ApiError;
use crate::objects::{Id, LoadBalancer, Member};
use crate::observed::{Content, Target};
use crate::provider::OpenStack;

impl OpenStack {
    /// Fills in the subnets that nobody named.
    pub(super) async fn complete(
        &self,
        choice: &mut Choice,
        wish: &LoadBalancerWish,
        balancer: Option<&LoadBalancer>,
    ) -> Result<(), Trouble> {
        if !choice.autodetect {
            return Ok(());
        }
        let subnet = match balancer.filter(|_| choice.port.is_none()) {
            Some(balancer) => balancer.vip_subnet_id.clone(),
            None => self.node_subnet(wish).await?,
        };
        if choice.port.is_none() {
            choice.vip_subnet.clone_from(&subnet);
        }
        if choice.member_subnet.is_none() {
            choice.member_subnet = subnet;
        }
        Ok(())
    }

    /// The subnet in which the first node has its address.
    pub(super) async fn node_subnet(&self, wish: &LoadBalancerWish) -> Result<Option<Id>, Trouble> {
        let Some(node) = wish.nodes.iter().find(|node| node.provider_id.is_some()) else {
            return match wish.nodes.first() {
                None => Ok(None),
                Some(node) => Err(Trouble::Wish(vec![no_subnet(&format!(
                    "the node {} has no providerID",
                    node.name
                ))])),
            };
        };
        let Some(provider_id) = &node.provider_id else {
            return Ok(None);
        };
        if let Some(subnet) = self.memory().node_subnets.get(provider_id) {
            return Ok(Some(subnet.clone()));
        }
        let Some(server) = server_of(provider_id) else {
            return Err(Trouble::Wish(vec![no_subnet(&format!(
                "the providerID {provider_id} of node {} is not OpenStack's",
                node.name
            ))]));
        };
        let ports = self.cloud.ports(&[("device_id", server)]).await?;
        let fixed = ports.iter().flat_map(|port| &port.fixed_ips);
        let mut here = fixed.filter(|fixed| fixed.ip_address == node.address);
        let Some(fixed) = here.next() else {
            return Err(Trouble::Wish(vec![no_subnet(&format!(
                "no port of the server of node {} has its address {}",
                node.name, node.address
            ))]));
        };
        let subnet = fixed.subnet_id.clone();
        self.memory()
            .node_subnets
            .insert(provider_id.clone(), subnet.clone());
        Ok(Some(subnet))
    }

    /// Members that move to a subnet are taken out before they are put in again: not for one that is not there.
    pub(super) async fn judge_member_subnet(
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

    /// Octavia takes a new load balancer whose members are in a subnet that is not there, and gives it up later. What
    /// the configuration names is not doubted.
    pub(super) async fn judge_named_member_subnet(
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

    /// The annotation by which a Service names the subnet of its members, itself or through a class.
    fn names_member_subnet<'a>(
        &self,
        intent: &'a Intent,
        subnet: &Id,
    ) -> Option<&'a Given<String>> {
        let cloud = &intent.cloud;
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
                .remedy("name one that is there, or remove the annotation"),
            None => reason.value(subnet.as_str()).remedy(
                "name one that is there in loadbalancer.openstack.org/member-subnet-id or subnet-id",
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

/// The server of a node: `openstack:///UUID`, or `openstack://REGION/UUID`.
pub(crate) fn server_of(provider_id: &str) -> Option<&str> {
    let rest = provider_id.strip_prefix("openstack://")?;
    let (_, server) = rest.rsplit_once('/')?;
    (!server.is_empty()).then_some(server)
}

pub(super) fn no_subnet(why: &str) -> Reason {
    Reason::error(
        Code::InvalidCloudOption,
        format!("the subnet can't be taken from the nodes: {why}"),
    )
    .remedy("name it in subnet-id of the configuration, or in loadbalancer.openstack.org/subnet-id")
}
