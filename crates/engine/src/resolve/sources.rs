//! Which clients may connect.

use std::collections::BTreeSet;

use ipnet::IpNet;
use landfall_model::dialect::cidr;
use landfall_model::listener::AllowedSources;
use landfall_model::{Code, Reason};

use super::ResolveContext;
use super::findings::Findings;
use super::layers::Layers;

/// What holds for every port that has no source ranges of its own: the field, else the annotation.
pub(super) fn of_service(
    scene: &ResolveContext<'_>,
    findings: &mut Findings<'_>,
) -> AllowedSources {
    let ranges = &scene.service.source_ranges;
    let annotated = scene.options.common.source_ranges.as_ref();
    if ranges.is_empty() {
        return match annotated {
            Some(given) => {
                findings.mark_used(&given.annotation);
                allowing(&given.value)
            }
            None => AllowedSources::All,
        };
    }
    let mut prefixes = BTreeSet::new();
    for (index, range) in ranges.iter().enumerate() {
        match cidr(range.trim()) {
            Ok(prefix) => {
                prefixes.insert(prefix);
            }
            Err(refusal) => findings.push(refusal.at(
                format!("spec.loadBalancerSourceRanges[{index}]"),
                range.as_str(),
            )),
        }
    }
    if let Some(given) = annotated {
        findings.mark_used(&given.annotation);
        if given.value != prefixes {
            let reason = Reason::warning(
                Code::ConflictingOptions,
                "spec.loadBalancerSourceRanges has another value and takes precedence",
            )
            .remedy("remove one of the two");
            findings.push(findings.at(reason, &given.annotation));
        }
    }
    allowing(&prefixes)
}

/// What holds for one port.
pub(super) fn of_port(
    layers: Layers<'_>,
    of_service: &AllowedSources,
    findings: &mut Findings<'_>,
) -> AllowedSources {
    match &layers.own.source_ranges {
        Some(given) => {
            findings.mark_used(&given.annotation);
            allowing(&given.value)
        }
        None => of_service.clone(),
    }
}

/// All clients, where the prefixes cover both families.
fn allowing(prefixes: &BTreeSet<IpNet>) -> AllowedSources {
    let whole = |v4: bool| {
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| prefix.prefix_len() == 0 && prefix.addr().is_ipv4() == v4)
    };
    if whole(true) && whole(false) {
        AllowedSources::All
    } else {
        AllowedSources::Only(prefixes.clone())
    }
}
