//! What shall exist, as one value: the choice, the listeners, and what can't be had. Pure.

use landfall_model::{Code, Intent, LoadBalancerSpec, Reason, Severity};

use super::choice::Choice;
use super::fixed::fixed;
use super::{Notice, Target, listeners};
use crate::certificates::CertificateView;
use crate::features::Features;
use crate::names::Names;
use crate::objects::LoadBalancer;
use crate::settings::Settings;

/// What a target is made from.
pub(crate) struct Basis<'a> {
    pub(crate) intent: &'a Intent,
    /// What the Service asks for, with the members that load balancers reach.
    pub(crate) spec: &'a LoadBalancerSpec,
    pub(crate) names: &'a Names,
    pub(crate) settings: &'a Settings,
    pub(crate) features: Features,
    /// The load balancer that is there.
    pub(crate) balancer: Option<&'a LoadBalancer>,
    /// What was chosen for it when it was made was the Service's choice.
    pub(crate) chosen: bool,
    /// Whether OVN's driver takes the algorithm `SOURCE_IP`; `None`: it is seen when a pool gets
    /// it.
    pub(crate) takes_source_ip: Option<bool>,
    /// The certificates of its Secrets.
    pub(crate) certificates: &'a CertificateView,
}

/// Builds the target of what is chosen, and what there is to say beside it. `exposed` is why the
/// Service can't be internal where it is.
pub(crate) fn build(
    basis: &Basis<'_>,
    choice: Choice,
    exposed: Option<Reason>,
) -> (Target, Vec<Notice>) {
    let Basis {
        intent,
        spec,
        features,
        balancer,
        ..
    } = *basis;
    let (listeners, mut reasons) = listeners(basis, &choice);
    if let Some(balancer) = balancer.filter(|_| basis.chosen) {
        reasons.extend(fixed(intent, spec, &choice, balancer));
    }
    reasons.extend(exposed);
    let mut notices = Vec::new();
    // Users of cloud-provider-openstack know this as an event.
    reasons.retain(|reason| {
        let known =
            reason.code == Code::SourceRangesNotEnforced && reason.severity != Severity::Error;
        if known {
            notices.push(("LoadBalancerSourceRangesIgnored", reason.clone()));
        }
        !known
    });
    notices.extend(intent.remarks.iter().filter_map(unknown_method));
    if choice.zone.is_some() && !features.zones() && balancer.is_none() {
        notices.push((
            "LoadBalancerAvailabilityZonesIgnored",
            Reason::warning(
                Code::OptionNotSupported,
                format!(
                    "Octavia {} or its provider {} has no availability zones",
                    features.version(),
                    choice.provider
                ),
            ),
        ));
    }
    if !spec.has_nodes {
        notices.push(("UnAvailableLoadBalancer", no_nodes_notice()));
    }
    // Where no subnet is named, it takes a node to know which.
    let has_place = !choice.autodetect || choice.vip_subnet.is_some() || choice.port.is_some();
    let target = Target {
        choice,
        listeners,
        reasons,
        additional: Vec::new(),
        has_nodes: spec.has_nodes && has_place,
    };
    (target, notices)
}

/// A word for the algorithm that is not known: users know this event, too.
fn unknown_method(remark: &Reason) -> Option<(&'static str, Reason)> {
    let field = remark.field.as_deref()?;
    let of_value = remark.code == Code::InvalidAnnotation && field.contains("/lb-method");
    of_value.then(|| ("LoadBalancerLbMethodUnknown", remark.clone()))
}

fn no_nodes_notice() -> Reason {
    Reason::warning(
        Code::NoEligibleNodes,
        "There are no available nodes for LoadBalancer",
    )
}
