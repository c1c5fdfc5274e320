//! Others that use a Service's own load balancer: what serves them stays.

use landfall_model::{Code, Intent, Reason};

use super::Trouble;
use crate::address::is_floating;
use crate::objects::{FloatingIp, LoadBalancer};
use crate::observed::{Found, Goal, Observed};
use crate::provider::OpenStack;

/// So many tags of others are told; the rest is counted.
const TOLD: usize = 5;

impl OpenStack {
    /// Notes which others use the Service's own load balancer, where its floating IP would be taken away, and
    /// refuses that.
    pub(super) async fn heed_others(
        &self,
        intent: &Intent,
        have: &mut Observed,
    ) -> Result<(), Trouble> {
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
        let Some(attached) = have.addressing.attached.as_ref() else {
            return Ok(());
        };
        if is_floating(target, balancer) {
            return Ok(());
        }
        let name = &balancer.name;
        let mut others: Vec<String> = have.names.of_others(name, &balancer.tags).cloned().collect();
        if others.is_empty() {
            // A tag on the load balancer can be lost; those on its listeners are still there.
            for listener in self.cloud.listeners(Some(&balancer.id)).await? {
                others.extend(have.names.of_others(name, &listener.tags).cloned());
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        target.reasons.push(if target.choice.internal {
            stays_open(intent, balancer, attached, &others)
        } else {
            stays_reached(balancer, attached, &others)
        });
        // It is as open as it was, and published so.
        target.choice.internal = false;
        have.others = others;
        Ok(())
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
            "load balancer {} can't become internal while others use it ({}): its floating IP {} leads to their \
             listeners, too, and stays; what is there goes on as it is",
            balancer.id,
            listed(others),
            attached.floating_ip_address
        ),
    );
    let reason = match &intent.cloud.internal {
        Some(given) => reason
            .at_annotation(&given.annotation)
            .value(given.value.to_string()),
        None => reason.at("[LoadBalancer] internal-lb"),
    };
    reason.remedy(
        "take the change back, or have the others leave the load balancer: it becomes internal once no other uses it",
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

/// The tags of others, as a text.
pub(super) fn listed(others: &[String]) -> String {
    let mut others: Vec<&str> = others.iter().map(String::as_str).collect();
    others.sort_unstable();
    others.dedup();
    let more = others.len().saturating_sub(TOLD);
    others.truncate(TOLD);
    let told = others.join(", ");
    if more == 0 {
        return told;
    }
    format!("{told} and {more} more")
}
