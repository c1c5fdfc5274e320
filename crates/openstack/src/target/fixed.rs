//! What is chosen when a load balancer is made, and can't be changed afterwards. Pure.

use landfall_model::dialect::Given;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};

use crate::objects::LoadBalancer;
use crate::target::choice::Choice;

/// Octavia's older name of its own driver.
const ALIAS: (&str, &str) = ("octavia", "amphora");

/// What a Service asks for of its load balancer that it would have to be made anew for.
pub(crate) fn fixed(
    intent: &Intent,
    spec: &LoadBalancerSpec,
    choice: &Choice,
    balancer: &LoadBalancer,
) -> Vec<Reason> {
    let cloud = &intent.extensions.openstack;
    let text = |id: &Option<crate::objects::Id>| {
        let id = id.as_ref();
        id.map(|it| it.as_str().to_owned()).unwrap_or_default()
    };
    let provider = |name: &str| if name == ALIAS.0 { ALIAS.1 } else { name }.to_owned();
    let asked = |given: &Option<Given<String>>, there: String| {
        let given = given.as_ref()?;
        (!given.value.is_empty() && given.value != there).then(|| {
            let there = if there.is_empty() { "none" } else { &there };
            reason(&balancer.id, there)
                .at_annotation(&given.annotation)
                .value(given.value.as_str())
        })
    };
    let named_provider = cloud.provider.as_ref().map(|given| Given {
        value: provider(&given.value),
        annotation: given.annotation.clone(),
    });
    // A class may overrule what is annotated, and a port what both say.
    let decides = |given: &Option<Given<String>>, chosen: &Option<crate::objects::Id>| {
        let chosen = chosen.as_ref().filter(|_| choice.port.is_none());
        let given = given.as_ref();
        given
            .filter(|it| chosen.is_some_and(|id| id.as_str() == it.value))
            .cloned()
    };
    let zone = balancer.availability_zone.clone().unwrap_or_default();
    let mut reasons: Vec<Reason> = [
        asked(&named_provider, provider(&balancer.provider)),
        asked(&cloud.flavor, text(&balancer.flavor_id)),
        asked(&cloud.availability_zone, zone),
        asked(
            &decides(&cloud.subnet, &choice.vip_subnet),
            text(&balancer.vip_subnet_id),
        ),
        asked(
            &decides(&cloud.network, &choice.vip_network),
            text(&balancer.vip_network_id),
        ),
        asked(&cloud.port, text(&balancer.vip_port_id)),
    ]
    .into_iter()
    .flatten()
    .collect();
    // To the outside, an IPv4 address that is asked for is that of the floating IP.
    let of_vip = choice.internal || choice.address.is_some_and(|it| it.is_ipv6());
    if let (Some(asked), Some(there), true) = (choice.address, balancer.vip_address, of_vip)
        && asked != there
        && asked.is_ipv4() == there.is_ipv4()
    {
        let reason = reason(&balancer.id, &there.to_string());
        reasons.push(
            reason
                .at(&*spec.address.requested_by)
                .value(asked.to_string()),
        );
    }
    reasons
}

fn reason(id: &crate::objects::Id, there: &str) -> Reason {
    Reason::warning(
        Code::OptionNotApplicable,
        format!("load balancer {id} was created with {there}, which Octavia can't change"),
    )
    .remedy("revert the change, or delete and recreate the Service")
}
