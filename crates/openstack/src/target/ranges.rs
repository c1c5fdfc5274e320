//! Source ranges against the families that a load balancer's addresses have.
//!
//! Octavia refuses a range of a family of which it has no address, and takes no range at all for
//! everybody.

use std::collections::BTreeSet;

use landfall_model::rows::Family;
use landfall_model::{Code, Reason};

use super::{Target, WantedListener};
use crate::objects::LoadBalancer;

/// Everybody, of IPv4 and of IPv6.
pub(super) const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// What lets nobody in: no packet comes from there.
const NOBODY: [&str; 2] = ["255.255.255.255/32", "100::/128"];

/// Leaves those ranges out that are of a family of which the load balancer has no address, and says
/// so. Who would let in nobody lets in nobody.
pub(crate) fn keep_of_vips(target: &mut Target, balancer: Option<&LoadBalancer>) -> Vec<Reason> {
    let (mut four, mut six) = match balancer {
        Some(balancer) => {
            let further = balancer.additional_vips.iter();
            let vips = further.filter_map(|vip| vip.ip_address);
            let vips: Vec<_> = vips.chain(balancer.vip_address).collect();
            (
                vips.iter().any(std::net::IpAddr::is_ipv4),
                vips.iter().any(std::net::IpAddr::is_ipv6),
            )
        }
        None => (!target.additional.is_empty(), !target.additional.is_empty()),
    };
    if !four && !six {
        four = target.choice.family() == Family::V4;
        six = !four;
    }
    if four && six {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    for listener in &mut target.listeners {
        let reason = keep(listener, four).filter(|it| !reasons.contains(it));
        reasons.extend(reason);
    }
    reasons
}

fn keep(listener: &mut WantedListener, four: bool) -> Option<Reason> {
    let allowed = listener.allowed.as_mut()?;
    if EVERYBODY.iter().all(|range| allowed.contains(*range)) {
        *allowed = BTreeSet::from([EVERYBODY[usize::from(!four)].to_owned()]);
        return None;
    }
    let (kept, others): (BTreeSet<String>, BTreeSet<String>) = std::mem::take(allowed)
        .into_iter()
        .partition(|range| range.contains(':') != four);
    *allowed = kept;
    if others.is_empty() {
        return None;
    }
    let others: Vec<String> = others.into_iter().collect();
    let (is, of) = if four {
        ("IPv4", "IPv6")
    } else {
        ("IPv6", "IPv4")
    };
    let mut message = format!(
        "the load balancer has only an {is} address, so no client comes from {}",
        others.join(", ")
    );
    if allowed.is_empty() {
        allowed.insert(NOBODY[usize::from(!four)].to_owned());
        message = format!(
            "{message}; no client may connect to port {}/{}",
            listener.port, listener.transport
        );
    }
    Some(
        Reason::warning(Code::AddressFamilyMismatch, message)
            .at("spec.loadBalancerSourceRanges")
            .remedy(format!(
                "write {is} ranges, or give the Service an {of} address"
            )),
    )
}
