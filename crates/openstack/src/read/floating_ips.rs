//! Reading Neutron: floating IPs, networks, groups and the ports of nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};
use tokio::time::Instant;

use super::ObserveError;
use crate::client::ApiError;
use crate::objects::{FloatingIp, Id, LoadBalancer, Network, Provisioning, Subnet};
use crate::observed::{Addressing, Found, Goal, Observed};
use crate::ownership::floating_ips::FloatingIpQuery;
use crate::provider::OpenStack;
use crate::record::{Record, owned};
use crate::target::{Target, further_v4, is_floating, requested};

/// Floating IPs, groups and ports may be this old where nothing is to be done.
pub(crate) const FRESH: Duration = Duration::from_secs(60);
/// Networks hardly ever change.
pub(crate) const LASTING: Duration = Duration::from_secs(600);

pub(crate) fn ago(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(time).unwrap_or(now)
}

impl OpenStack {
    pub(crate) async fn subnet(&self, id: &Id) -> Result<Option<Subnet>, ApiError> {
        if !id.is_uuid() {
            return Ok(None);
        }
        let known = || self.memory().caches.subnets.get(id).cloned();
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
            self.memory()
                .caches
                .subnets
                .insert(id.clone(), subnet.clone());
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
    pub(crate) async fn floating_ips(
        &self,
        sought: &FloatingIpQuery<'_>,
    ) -> Result<Addressing, ApiError> {
        let mut all = self.all_floating_ips(ago(FRESH)).await?;
        let mut going = HashMap::new();
        if !sought.is_settled(&all) {
            let roster_at;
            (roster_at, going) = self.going_ports().await;
            // Not older than what is known of load balancers: one that is gone leads no floating IP
            // anywhere.
            let recent = ago(self.poll_interval()).max(roster_at);
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
            .floating_ips(&FloatingIpQuery {
                port,
                requested,
                held: if owned(intent) {
                    &spec.address.held
                } else {
                    &[]
                },
                since: intent.created,
                replaced: is_replaced(intent, balancer),
                ..FloatingIpQuery::of(&have.names)
            })
            .await?;
        if let (Some(asked), Some(port)) = (&view.requested, port) {
            let memory = self.memory();
            let refused = memory
                .attempts
                .why_unattachable(&asked.id, port, Instant::now());
            view.refused = refused.map(str::to_owned);
        }
        self.wake_sharers(intent, balancer, view.attached.as_ref());
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
    fn wake_sharers(
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
        // With an address that is asked for, its subnet is chosen.
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
