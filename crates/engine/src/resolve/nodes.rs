//! Which nodes are members, for providers that send traffic to NodePorts.

use std::net::IpAddr;

use landfall_model::dialect::NodeSelector;
use landfall_model::intent::NodeTarget;
use landfall_model::provider::Target;
use landfall_model::rows::{Family, NodeRow};
use landfall_model::{Code, Reason};

use super::ResolveContext;
use super::findings::Findings;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// What Go's `strconv.ParseBool` takes for false; every other value of the label excludes.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// The nodes that are members, with the address that these have; where members are pods instead,
/// those that show which networks the cluster is in.
///
/// A World without any Node is more likely a source that has lost them than a cluster that runs on
/// none: that is an error, so that what was made is left as it is.
pub(super) fn targets(scene: &ResolveContext<'_>, findings: &mut Findings<'_>) -> Vec<NodeTarget> {
    if scene.target != Target::Node && !scene.chose_pods() {
        return Vec::new();
    }
    if let Some(given) = &scene.options.node_selector {
        findings.mark_used(&given.annotation);
        if scene.chose_pods() {
            let reason = Reason::warning(
                Code::OptionNotApplicable,
                "members are pods here, whichever node they are on",
            );
            let reason = reason.remedy("remove it, or set landfall.dev/target-type to node");
            findings.push(findings.at(reason, &given.annotation));
        }
    }
    if scene.target == Target::Node && scene.world.never_had_nodes() {
        findings.push(
            Reason::error(
                Code::NoEligibleNodes,
                "no Node is known, so no traffic can be forwarded",
            )
            .remedy("check whether this process may list nodes"),
        );
    }
    let nodes = validated(scene).filter_map(|(node, address)| {
        let address = address.ok()?;
        Some(NodeTarget {
            name: node.name.clone(),
            address,
            provider_id: node.provider_id.clone(),
            others: others(node, address, &scene.service.families),
        })
    });
    nodes.collect()
}

/// Returns every node with its address, or why it is no member.
pub(super) fn validated<'a>(
    scene: &'a ResolveContext<'_>,
) -> impl Iterator<Item = (&'a NodeRow, Result<IpAddr, &'static str>)> {
    let selector = selector(scene);
    let nodes = scene.world.nodes();
    nodes.map(move |node| (&**node, validate(node, scene, selector)))
}

/// Whether there is a node at all that traffic may be sent to, whichever the Service selects, or
/// none is needed.
pub(super) fn any(scene: &ResolveContext<'_>) -> bool {
    scene.target != Target::Node || scene.world.nodes().any(|node| may_serve(node).is_ok())
}

/// The node's addresses beside this one, of the Service's families.
fn others(node: &NodeRow, address: IpAddr, families: &[Family]) -> Vec<IpAddr> {
    let of_service = |it: &IpAddr| {
        let family = Family::of(*it);
        family == Family::of(address) || families.contains(&family)
    };
    let others = node.addresses.iter().copied();
    others
        .filter(|it| *it != address && of_service(it))
        .collect()
}

/// The Service's own selector, else that of the configuration.
fn selector<'a>(scene: &ResolveContext<'a>) -> Option<&'a NodeSelector> {
    let own = scene.options.node_selector.as_ref();
    own.map(|given| &given.value)
        .or(scene.profile.node_selector.as_ref())
}

/// The address of a node that may be a member: of the Service's first family.
fn validate(
    node: &NodeRow,
    scene: &ResolveContext<'_>,
    selector: Option<&NodeSelector>,
) -> Result<IpAddr, &'static str> {
    may_serve(node)?;
    if let Some(selector) = selector
        && !selector.matches(|key| node.labels.get(key).map(String::as_str))
    {
        return Err("its labels do not match the node selector");
    }
    let family = scene.service.families.first();
    let mut addresses = node.addresses.iter();
    addresses
        .find(|address| family.is_none_or(|family| Family::of(**address) == *family))
        .copied()
        .ok_or("the node has no address of the Service's first family")
}

/// Whether traffic may be sent to a node at all.
fn may_serve(node: &NodeRow) -> Result<(), &'static str> {
    if node.deleting {
        return Err("the node is being deleted");
    }
    if node.leaving {
        return Err("the cluster autoscaler is about to remove the node");
    }
    match node.labels.get(EXCLUDED) {
        Some(value) if !FALSE.contains(&value.as_str()) => {
            Err("its label excludes it from load balancers")
        }
        _ => Ok(()),
    }
}
