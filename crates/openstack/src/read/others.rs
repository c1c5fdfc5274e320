//! Others that use a Service's own load balancer: what serves them stays.

use landfall_model::{Code, Intent, Reason};

use super::ObserveError;
use crate::client::ApiError;
use crate::fares::reaches_in_part;
use crate::names::{INTERNAL_PREFIX, Names, listed};
use crate::objects::{FloatingIp, LoadBalancer, OperatingStatus, Provisioning};
use crate::observed::{Found, Goal, Observed};
use crate::ownership::floating_ips::FloatingIpQuery;
use crate::provider::OpenStack;
use crate::target::{Target, is_floating};

impl OpenStack {
    /// Whether a floating IP leads to a load balancer.
    pub(super) async fn is_reached(
        &self,
        names: &Names,
        balancer: Option<&LoadBalancer>,
    ) -> Result<bool, ApiError> {
        let port = balancer.and_then(|it| it.vip_port_id.as_ref());
        if port.is_none() {
            return Ok(false);
        }
        let sought = FloatingIpQuery {
            port,
            ..FloatingIpQuery::of(names)
        };
        Ok(self.floating_ips(&sought).await?.attached.is_some())
    }

    /// Notes which others use the Service's own load balancer, where it may have to be recreated or
    /// its floating IP is not wanted. That one stays while there are others.
    pub(super) async fn note_others(
        &self,
        intent: &Intent,
        have: &mut Observed,
    ) -> Result<(), ObserveError> {
        let (
            Goal::Exists(target),
            Found::One {
                balancer,
                owner: true,
                ..
            },
        ) = (&mut have.goal, &have.found)
        else {
            return Ok(());
        };
        if is_kept_inside(intent, target, balancer, have.addressing.attached.as_ref()) {
            let reason = stays_internal(intent, balancer);
            target.reasons.push(reason);
            // It is as internal as it was, and published so.
            target.choice.internal = true;
            return Ok(());
        }
        let unwanted = have.addressing.attached.as_ref();
        let unwanted = unwanted.filter(|_| !is_floating(target, balancer));
        let broken = balancer.provisioning_status == Provisioning::Error;
        if unwanted.is_none() && !broken {
            return Ok(());
        }
        have.others = self.others(&have.names, balancer).await?;
        if broken {
            // What is in ERROR can't be left, so that there is nothing to wait for.
            let leaving = self.memory().leaving();
            have.others.retain(|tag| !leaving.contains(tag));
            if balancer.operating_status == OperatingStatus::Error {
                let pools = self.cloud.pools(Some(&balancer.id)).await?;
                have.serves_in_part = reaches_in_part(&pools);
            }
        }
        let Some(attached) = unwanted.filter(|_| !have.others.is_empty()) else {
            return Ok(());
        };
        target.reasons.push(if target.choice.internal {
            stays_open(intent, balancer, attached, &have.others)
        } else {
            stays_reached(balancer, attached, &have.others)
        });
        // It is as open as it was, and published so.
        target.choice.internal = false;
        Ok(())
    }

    /// The tags by which others say that they use a load balancer of a Service.
    async fn others(
        &self,
        names: &Names,
        balancer: &LoadBalancer,
    ) -> Result<Vec<String>, ApiError> {
        let name = &balancer.name;
        let mut others: Vec<String> = names.of_others(name, &balancer.tags).cloned().collect();
        if others.is_empty() {
            // A tag of the load balancer can be lost; those of its listeners are still there.
            for listener in self.cloud.listeners(Some(&balancer.id)).await? {
                others.extend(names.of_others(name, &listener.tags).cloned());
            }
        }
        Ok(others)
    }
}

/// Whether a Service would get a floating IP on a load balancer that internal Services share. One
/// that had one before has it again: they have come since.
fn is_kept_inside(
    intent: &Intent,
    target: &Target,
    balancer: &LoadBalancer,
    attached: Option<&FloatingIp>,
) -> bool {
    let mut tags = balancer.tags.iter();
    let spec = intent.load_balancer.as_ref();
    let held = spec.map_or(&[][..], |spec| &spec.address.held);
    let further = balancer.additional_vips.iter();
    let vips: Vec<_> = further
        .filter_map(|vip| vip.ip_address)
        .chain(balancer.vip_address)
        .collect();
    attached.is_none()
        && is_floating(target, balancer)
        && tags.any(|tag| tag.starts_with(INTERNAL_PREFIX))
        && held.iter().all(|address| vips.contains(address))
}

/// Adds what says that the Service is internal or is not.
fn at_internal(intent: &Intent, reason: Reason) -> Reason {
    match &intent.extensions.openstack.internal {
        Some(given) => reason
            .at_annotation(&given.annotation)
            .value(given.value.to_string()),
        None => reason.at("[LoadBalancer] internal-lb"),
    }
}

/// That a load balancer gets no floating IP while internal Services share it.
fn stays_internal(intent: &Intent, balancer: &LoadBalancer) -> Reason {
    let reason = Reason::error(
        Code::ConflictingOptions,
        format!(
            "load balancer {} gets no floating IP while internal Services share it: it would lead \
            to their listeners, too; what is there goes on as it is",
            balancer.id
        ),
    );
    at_internal(intent, reason).remedy(
        "make the Service internal again, or have the others leave the load balancer: it gets its \
        floating IP once no internal one uses it",
    )
}

/// That a load balancer can't become internal while others use it.
fn stays_open(
    intent: &Intent,
    balancer: &LoadBalancer,
    attached: &FloatingIp,
    others: &[String],
) -> Reason {
    let reason = Reason::error(
        Code::ConflictingOptions,
        format!(
            "load balancer {} can't become internal while others use it ({}): its floating IP {} \
             leads to their listeners, too, and stays; what is there goes on as it is",
            balancer.id,
            listed(others),
            attached.floating_ip_address
        ),
    );
    at_internal(intent, reason).remedy(
        "take the change back, or have the others leave the load balancer: it becomes internal \
         once no other uses it",
    )
}

/// That a floating IP stays that the Service itself has no use for.
fn stays_reached(balancer: &LoadBalancer, attached: &FloatingIp, others: &[String]) -> Reason {
    Reason::warning(
        Code::ConflictingOptions,
        format!(
            "the floating IP {} of load balancer {} stays while others use it ({})",
            attached.floating_ip_address,
            balancer.id,
            listed(others)
        ),
    )
    .at("spec.ipFamilies")
    .remedy("have the others leave the load balancer: the floating IP goes once no other uses it")
}
