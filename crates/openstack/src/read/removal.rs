//! Reads what a Service that needs no load balancer has left.

use std::net::IpAddr;

use landfall_model::Intent;

use super::ObserveError;
use crate::client::ApiVersion;
use crate::features::Features;
use crate::names::{Names, SERVICE_PREFIX, floating_ip_beside};
use crate::objects::{LoadBalancer, Provisioning};
use crate::observed::{Content, Found, Goal, Observed};
use crate::ownership::floating_ips::FloatingIpQuery;
use crate::ownership::proof::annotated;
use crate::plan;
use crate::provider::OpenStack;
use crate::record::owned;

/// The event of a load balancer that stays, as nothing but its name makes it the Service's.
const NOT_DELETED: &str = "LoadBalancerNotDeleted";

impl OpenStack {
    pub(super) async fn read_before_removal(
        &self,
        intent: &Intent,
        names: Names,
        version: ApiVersion,
    ) -> Result<Observed, ObserveError> {
        let (mut found, assumed) = self.search(intent, &names).await?;
        let keep = intent
            .extensions
            .openstack
            .keep_floating_ip
            .as_ref()
            .is_some_and(|given| given.value);
        let goal = Goal::Gone {
            keep_floating_ip: keep,
        };
        let features = Features::new(version, "");
        let left = self.leave_unproven(intent, &names, features, &mut found);
        let left = left.await?.map(|it| (NOT_DELETED, it));
        let troubles = self.troubles(&found);
        let leaving = self
            .memory()
            .mark_removing(&intent.uid, &names.load_balancer);
        let mut have = self.observed(intent, names, features, goal, (found, assumed));
        have.notices.extend(troubles);
        have.notices.extend(left);
        have.leaving = leaving;
        if let Found::One {
            balancer, owner, ..
        } = &have.found
        {
            have.features = Features::new(version, &balancer.provider);
            let (balancer, owner) = (balancer.clone(), *owner);
            self.read_inside(intent, &balancer, owner, &mut have)
                .await?;
        }
        // The last to leave the load balancer of a Service that has gone gives back its floating
        // IP, too.
        let (of_owner, port) = match &have.found {
            Found::One { balancer, .. } => (
                floating_ip_beside(&balancer.description),
                balancer.vip_port_id.clone(),
            ),
            _ => (None, None),
        };
        let published = annotated(intent).filter(|_| owned(intent));
        let held: Vec<IpAddr> = published.into_iter().collect();
        let busy = have.found.balancer();
        // Nothing is given back until Octavia is done.
        if !busy.is_some_and(|it| it.provisioning_status.is_pending()) {
            have.addressing = self
                .floating_ips(&FloatingIpQuery {
                    of_owner: of_owner.as_deref(),
                    port: port.as_ref(),
                    held: &held,
                    since: intent.created,
                    ..FloatingIpQuery::of(&have.names)
                })
                .await?;
        }
        if have.notices.iter().any(|(event, _)| *event == NOT_DELETED) {
            // Another cluster may have this very Service, and keep its address.
            let spare = have.addressing.spare.take();
            have.addressing.spare = spare.filter(|it| held.contains(&it.floating_ip_address));
        }
        have.groups = self.groups_before_removal(&have).await?;
        have.certificates = self.read_certificates(intent, None, &have.names).await;
        Ok(have)
    }

    /// Reads what is in a load balancer that a Service leaves, as far as that decides what is to be
    /// deleted.
    async fn read_inside(
        &self,
        intent: &Intent,
        balancer: &LoadBalancer,
        owner: bool,
        have: &mut Observed,
    ) -> Result<(), ObserveError> {
        let active = balancer.provisioning_status == Provisioning::Active;
        let error = balancer.provisioning_status == Provisioning::Error;
        // What is not known to be its own is read of one that was made for another Service.
        let cascade = owner && self.settings.conf.cascade_delete;
        let mut whole = cascade && only_of(&have.names, balancer);
        if error || (active && whole) {
            // What goes with everything in it is read first: tags of the load balancer can
            // be lost.
            have.listeners = self.cloud.listeners(Some(&balancer.id)).await?;
            let mut listeners = have.listeners.iter();
            whole &= !listeners.any(|it| of_others(&have.names, &it.tags));
        }
        if !active || whole {
            return Ok(());
        }
        let mut graph = self.graph(balancer, intent, None).await?;
        have.content = graph.map_or(Content::Unread, Content::Graph);
        // What could not be deleted is seen before the Service is gone, and nothing comes back for
        // it.
        let done = plan::has_left(have, balancer, owner) && !have.assumed;
        if done && self.memory().unread(&balancer.id) {
            graph = self.graph(balancer, intent, None).await?;
            have.content = graph.map_or(Content::Unread, Content::Graph);
        }
        have.found.settle(&have.content);
        Ok(())
    }
}

fn only_of(names: &Names, balancer: &LoadBalancer) -> bool {
    balancer.name.starts_with(SERVICE_PREFIX) && !of_others(names, &balancer.tags)
}

/// Whether one of these tags names another Service.
fn of_others(names: &Names, tags: &[String]) -> bool {
    let mut tags = tags.iter();
    tags.any(|tag| tag.starts_with(SERVICE_PREFIX) && *tag != names.load_balancer)
}
