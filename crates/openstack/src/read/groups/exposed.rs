//! Rules beside ours that let in clients that a Service keeps out: security groups add up. Pure.

use landfall_model::{Code, LoadBalancerSpec, Protocol, Reason};

use crate::names::Names;
use crate::objects::{Rule, SecurityGroup};
use crate::observed::GroupView;
use crate::read::guarded::is_restricted;
use crate::target::Target;

/// Returns a warning where a group on a node's port opens a NodePort with source ranges to all
/// clients, by a rule that is not this Service's.
pub(super) fn exposed(
    spec: &LoadBalancerSpec,
    target: &Target,
    view: &GroupView,
    groups: &[SecurityGroup],
    names: &Names,
) -> Option<Reason> {
    let restricted = spec.listeners.iter().filter(|it| is_restricted(it));
    let ports: Vec<(Protocol, u16)> = restricted
        .filter_map(|listener| {
            let key = listener.key;
            let mut wanted = target.listeners.iter();
            let it = wanted.find(|it| (it.transport, it.port) == (key.protocol, key.port.get()))?;
            Some((key.protocol, it.pool.members.values().next()?.port))
        })
        .collect();
    // Whatever is in a group of the Service's own is replaced by what it wants.
    let own = view.group.as_ref().filter(|_| view.own).map(|it| &it.id);
    let on_nodes = |group: &&SecurityGroup| {
        let mut ports = view.node_ports.iter();
        Some(&group.id) != own && ports.any(|port| port.security_groups.contains(&group.id))
    };
    let (group, port) = groups.iter().filter(on_nodes).find_map(|group| {
        let open = |(protocol, port): &&(Protocol, u16)| {
            let mut rules = group.rules.iter();
            rules.any(|it| !names.is_of_rule(&it.description) && opens(it, *protocol, *port))
        };
        Some((group, ports.iter().find(open)?))
    })?;
    let (protocol, port) = port;
    let reason = Reason::warning(
        Code::SourceRangesNotEnforced,
        format!(
            "the security group {} ({}) on ports of nodes opens NodePort {port}/{protocol} to all \
            clients, whatever the source ranges are: groups add up",
            group.name, group.id
        ),
    );
    Some(
        reason
            .at("spec.loadBalancerSourceRanges")
            .remedy("take the rule out of that group, or the group from the nodes"),
    )
}

/// Whether a rule lets all clients in, or a half of them: the other half has a rule, too.
fn opens(rule: &Rule, protocol: Protocol, port: u16) -> bool {
    let number = match protocol {
        Protocol::Tcp => "6",
        Protocol::Udp => "17",
        Protocol::Sctp => "132",
    };
    let of_protocol = rule
        .protocol
        .as_deref()
        .is_none_or(|it| it.eq_ignore_ascii_case(protocol.as_str()) || it == number || it == "any");
    let from = rule.port_range_min.unwrap_or(0);
    let to = rule.port_range_max.unwrap_or(u16::MAX);
    let everywhere = rule.remote_group_id.is_none()
        && rule
            .remote_ip_prefix
            .as_deref()
            .is_none_or(|it| it.ends_with("/0") || it.ends_with("/1"));
    rule.direction == "ingress" && everywhere && of_protocol && (from..=to).contains(&port)
}
