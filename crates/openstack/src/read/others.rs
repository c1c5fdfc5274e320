//! Others that use a Service's own load balancer: what serves them stays.

use landfall_model::{Code, Intent, Reason};

use super::ObserveError;
use crate::client::ApiError;
use crate::names::{Names, listed};
use crate::objects::{FloatingIp, LoadBalancer, Provisioning};
use crate::observed::{Found, Goal, Observed};
use crate::provider::OpenStack;
use crate::target::is_floating;

impl OpenStack {
    /// Notes which others use the Service's own load balancer, where it may have to be made anew or
    /// its floating IP is not wanted. That one stays while there are others.
    pub(super) async fn heed_others(
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
    let reason = match &intent.extensions.openstack.internal {
        Some(given) => reason
            .at_annotation(&given.annotation)
            .value(given.value.to_string()),
        None => reason.at("[LoadBalancer] internal-lb"),
    };
    reason.remedy(
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
