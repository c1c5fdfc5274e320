//! The group that the nodes of a cluster share: which ports need it no more, and what is left of
//! those from when the cluster had another name.

use std::collections::HashSet;
use std::sync::Arc;

use landfall_model::LoadBalancerSpec;

use crate::client::ApiError;
use crate::names::{GROUP_PREFIX, Names, SHARED_GROUP_PREFIX, rule_owner, shared_group};
use crate::objects::{Id, Port, Provisioning, Rule, SecurityGroup};
use crate::observed::{FormerGroup, Found, GroupView, Observed};
use crate::provider::OpenStack;
use crate::read::floating_ips::{FRESH, ago};

/// So many observations of a load balancer that is done may pass until its address is published;
/// then its nodes get their group all the same.
const LOOKS: u8 = 3;

impl OpenStack {
    /// The groups, where none are managed. Once a list has none of a Service controller, none
    /// comes.
    pub(super) async fn left_groups(&self) -> Result<Arc<Vec<SecurityGroup>>, ApiError> {
        let is_made = |it: &SecurityGroup| {
            it.name.starts_with(GROUP_PREFIX) || it.name.starts_with(SHARED_GROUP_PREFIX)
        };
        match self.lists.groups.at_hand().await {
            Some((_, groups)) if !groups.iter().any(is_made) => Ok(groups),
            _ => self.all_groups(ago(FRESH)).await,
        }
    }

    /// The ports that have the group which the nodes share, and are no node's that a Service needs.
    /// None are known to be until every Service was checked that has rules in the group.
    pub(super) async fn unneeded_ports(
        &self,
        names: &Names,
        view: &GroupView,
    ) -> Result<Vec<Port>, ApiError> {
        let ports = view.node_ports.iter().map(|port| port.id.clone());
        let needed: HashSet<Id> = {
            let mut memory = self.memory();
            let guarded = &mut memory.guarded;
            guarded.insert(names.rule_uid().to_owned(), ports.collect());
            let is_known = |rule: &Rule| match rule_owner(&rule.description) {
                Some((uid, of)) => of == names.cluster_id() && guarded.contains_key(uid),
                None => rule.direction != "ingress",
            };
            if !view.group.iter().flat_map(|it| &it.rules).all(is_known) {
                return Ok(Vec::new());
            }
            guarded.values().flatten().cloned().collect()
        };
        let Some(group) = &view.group else {
            return Ok(Vec::new());
        };
        let ports = self.all_ports(ago(FRESH)).await?;
        let unneeded = ports
            .iter()
            .filter(|it| it.security_groups.contains(&group.id) && !needed.contains(&it.id));
        Ok(unneeded.cloned().collect())
    }

    /// The groups that the nodes shared under another name of the cluster. Another cluster may have
    /// that name still: only ports of these nodes, and of those of other Services, are ours.
    pub(super) async fn former_groups(
        &self,
        names: &Names,
        groups: &[SecurityGroup],
        nodes: &[Port],
    ) -> Result<Vec<FormerGroup>, ApiError> {
        let Some(cluster) = names.cluster_id() else {
            return Ok(Vec::new());
        };
        let current = shared_group(&self.settings.cluster);
        let of_us = |rule: &Rule| {
            let owner = rule_owner(&rule.description);
            owner.is_some_and(|(_, of)| of == Some(cluster))
        };
        let former: Vec<&SecurityGroup> = {
            // Without its last rule, nothing else shows whose it was.
            let known = &mut self.memory().former_groups;
            let groups = groups.iter();
            let former = groups
                .filter(|it| it.name.starts_with(SHARED_GROUP_PREFIX) && it.name != current)
                .filter(|it| known.contains(&it.id) || it.rules.iter().any(of_us));
            let former: Vec<&SecurityGroup> = former.collect();
            known.extend(former.iter().map(|it| it.id.clone()));
            former
        };
        if former.is_empty() {
            return Ok(Vec::new());
        }
        let ports = self.all_ports(ago(FRESH)).await?;
        let memory = self.memory();
        let nodes = nodes.iter().map(|port| &port.id);
        let ours: HashSet<&Id> = nodes.chain(memory.guarded.values().flatten()).collect();
        let with_ports = former.into_iter().map(|group| {
            let having = ports
                .iter()
                .filter(|port| port.security_groups.contains(&group.id));
            let (having, others): (Vec<&Port>, Vec<&Port>) =
                having.partition(|port| ours.contains(&port.id));
            FormerGroup {
                group: group.clone(),
                ports: having.into_iter().cloned().collect(),
                on_others: !others.is_empty(),
            }
        });
        Ok(with_ports.collect())
    }

    /// Whether the address of a Service that publishes none yet is about to be published, and nodes
    /// are to get their group after that.
    pub(super) fn publishes_first(
        &self,
        spec: &LoadBalancerSpec,
        have: &Observed,
        view: &GroupView,
    ) -> bool {
        let is_done = match &have.found {
            Found::One { balancer, .. } => balancer.provisioning_status == Provisioning::Active,
            Found::Nothing | Found::Refused(_) => false,
        };
        let Some(group) = &view.group else {
            return false;
        };
        let lacks = |port: &Port| !port.security_groups.contains(&group.id);
        if !is_done || !spec.address.held.is_empty() || !view.node_ports.iter().any(lacks) {
            return false;
        }
        let mut memory = self.memory();
        let looks = memory
            .looks_before_groups
            .entry(have.names.rule_uid().to_owned())
            .or_default();
        *looks = looks.saturating_add(1);
        *looks <= LOOKS
    }
}
