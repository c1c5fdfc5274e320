//! Security groups that let load balancers through to the nodes. Pure.
//!
//! Either one group on all nodes in which each Service has rules, marked with its UID, or, as
//! cloud-provider-openstack has it, one group per Service on the nodes that are its members. A
//! Service that has the latter keeps it.

use ipnet::IpNet;
use landfall_model::Intent;
use landfall_model::plan::Plan;

use crate::names::rule_owner;
use crate::objects::{Id, MonitorType, Port, Rule, SecurityGroup};
use crate::observed::{FormerGroup, Goal, GroupView, Observed};
use crate::requests::RuleRequest;
use crate::step::{PortGroups, Step};

/// So many ports are changed by one step.
const MOST_PORTS: usize = 64;

/// A rule that shall be there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedRule {
    protocol: String,
    port: u16,
    source: String,
}

/// Appends what makes nodes reachable on the Service's NodePorts. Where the Service publishes
/// nothing yet, its address goes first, so that many nodes don't delay it.
pub(crate) fn plan(intent: &Intent, have: &Observed, plan: &mut Plan<Step>) {
    open(intent, have, plan);
    let Some(view) = have.groups.as_ref().filter(|view| view.managed) else {
        return;
    };
    let Some(group) = &view.group else { return };
    if !view.publishes_first {
        join_ports(view, group, plan);
    }
    leave_ports(view, plan);
    leave_shared(have, view, plan);
    let complete = plan.is_empty() && !is_to_join(view, group);
    if complete {
        leave_former(have, view, plan);
    }
}

/// Whether nodes are still to be made reachable.
pub(crate) fn opens(have: &Observed, plan: &Plan<Step>) -> bool {
    let opens = |step: &Step| match step {
        Step::CreateGroup { .. } | Step::CreateRules { .. } => true,
        Step::SetPortGroups { joins, .. } => *joins,
        _ => false,
    };
    plan.steps.iter().any(|planned| opens(&planned.step)) || waits_for_address(have)
}

/// Whether ports are still to get the group that wait for the Service's address to be published.
pub(crate) fn waits_for_address(have: &Observed) -> bool {
    let view = have.groups.as_ref().filter(|view| view.publishes_first);
    let group = view.and_then(|view| Some((view, view.group.as_ref()?)));
    group.is_some_and(|(view, group)| is_to_join(view, group))
}

fn is_to_join(view: &GroupView, group: &SecurityGroup) -> bool {
    let mut ports = view.node_ports.iter();
    ports.any(|port| !port.security_groups.contains(&group.id))
}

/// Appends the group with the Service's rules.
pub(crate) fn open(intent: &Intent, have: &Observed, plan: &mut Plan<Step>) {
    let Some(view) = &have.groups else { return };
    if view.frozen {
        return;
    }
    if !view.managed {
        return leave(have, plan);
    }
    let mark = (!view.own).then(|| have.names.rule());
    let wanted = wanted(intent, have, view);
    let Some(group) = &view.group else {
        let rules = wanted.iter().map(|rule| rule.body(None, mark.as_deref()));
        let step = Step::CreateGroup {
            name: view.name.clone(),
            description: view.description.clone(),
            rules: rules.collect(),
        };
        plan.push(step, "nodes accept no traffic without it");
        return;
    };
    let there: Vec<&Rule> = group
        .rules
        .iter()
        .filter(|rule| rule.direction == "ingress")
        .filter(|rule| view.own || have.names.is_of_rule(&rule.description))
        .collect();
    let wanted: Vec<WantedRule> = wanted
        .into_iter()
        .flat_map(|rule| rule.beside(group, have))
        .collect();
    let missing: Vec<RuleRequest> = wanted
        .iter()
        // Neutron keeps no two equal rules in a group: that of another Service will do.
        .filter(|rule| {
            !group
                .rules
                .iter()
                .any(|it| it.direction == "ingress" && rule.is(it))
        })
        .map(|rule| rule.body(Some(&group.id), mark.as_deref()))
        .collect();
    if !missing.is_empty() {
        let step = Step::CreateRules {
            group: group.id.clone(),
            rules: missing,
        };
        plan.push(step, "the Service has NodePorts that are closed");
    }
    for rule in there {
        if !wanted.iter().any(|it| it.is(rule)) {
            plan.push(delete_rule(rule), "no NodePort of the Service needs it");
        }
    }
}

/// Appends what lets load balancers through to nodes that come, where nothing else may change.
pub(crate) fn follow(have: &Observed, plan: &mut Plan<Step>) {
    let Some(view) = have.groups.as_ref().filter(|view| view.managed) else {
        return;
    };
    let Some(group) = &view.group else { return };
    join_ports(view, group, plan);
    leave_ports(view, plan);
}

/// Appends the removal of what the Service has.
pub(crate) fn leave(have: &Observed, plan: &mut Plan<Step>) {
    let Some(view) = &have.groups else { return };
    leave_ports(view, plan);
    if let Some(group) = view.group.as_ref().filter(|_| view.own) {
        let step = Step::DeleteGroup {
            group: group.id.clone(),
            name: group.name.clone(),
        };
        plan.push(step, "no Service needs it");
    }
    leave_shared(have, view, plan);
    leave_former(have, view, plan);
}

/// The Service's rules go from the group that the nodes share.
fn leave_shared(have: &Observed, view: &GroupView, plan: &mut Plan<Step>) {
    let rules = view.shared.iter().flat_map(|group| &group.rules);
    for rule in rules.filter(|rule| have.names.is_of_rule(&rule.description)) {
        plan.push(delete_rule(rule), "the Service does not need it any more");
    }
}

/// The Service's rules go from groups that the nodes shared when the cluster had another name; with
/// the last rule, the group goes from our nodes' ports, and is deleted. Where other ports have it,
/// or another cluster has rules in it, it stays.
fn leave_former(have: &Observed, view: &GroupView, plan: &mut Plan<Step>) {
    let because = "the cluster's name is another one now";
    for FormerGroup {
        group,
        ports,
        on_others,
    } in &view.former
    {
        let ingress = || group.rules.iter().filter(|it| it.direction == "ingress");
        if ingress().any(|rule| !have.names.is_of_rule(&rule.description)) {
            let of_others = |rule: &Rule| of_another_cluster(rule, have);
            let is_own = |rule: &Rule| have.names.is_of_rule(&rule.description);
            // By our rules the group is known as ours: they go last.
            if ingress().all(|rule| is_own(rule) || of_others(rule)) && !ports.is_empty() {
                push_ports(ports, group, false, because, plan);
                continue;
            }
            for rule in ingress().filter(|rule| is_own(rule)) {
                plan.push(delete_rule(rule), because);
            }
            continue;
        }
        push_ports(ports, group, false, because, plan);
        if *on_others {
            continue;
        }
        let step = Step::DeleteGroup {
            group: group.id.clone(),
            name: group.name.clone(),
        };
        plan.push(step, because);
    }
}

fn join_ports(view: &GroupView, group: &SecurityGroup, plan: &mut Plan<Step>) {
    push_ports(&view.node_ports, group, true, "the node is a member", plan);
}

fn leave_ports(view: &GroupView, plan: &mut Plan<Step>) {
    if let Some(group) = &view.group {
        push_ports(&view.leaving, group, false, "the node is no member", plan);
    }
}

/// Appends the change of those ports that don't have the group, or still have it: some at a time,
/// so that between them other changes get their turn.
fn push_ports(
    ports: &[Port],
    group: &SecurityGroup,
    joins: bool,
    because: &str,
    plan: &mut Plan<Step>,
) {
    let differ = ports
        .iter()
        .filter(|port| port.security_groups.contains(&group.id) != joins);
    let ports: Vec<PortGroups> = differ
        .take(MOST_PORTS)
        .map(|port| {
            let mut groups = port.security_groups.clone();
            groups.retain(|it| *it != group.id);
            groups.extend(joins.then(|| group.id.clone()));
            PortGroups {
                port: port.id.clone(),
                groups,
                revision: port.revision_number,
            }
        })
        .collect();
    if !ports.is_empty() {
        plan.push(Step::SetPortGroups { ports, joins }, because);
    }
}

fn delete_rule(rule: &Rule) -> Step {
    Step::DeleteRule {
        rule: rule.id.clone(),
        allows: format!(
            "{} {} from {}",
            rule.protocol.as_deref().unwrap_or("any"),
            rule.port_range_min.unwrap_or_default(),
            rule.remote_ip_prefix.as_deref().unwrap_or("anywhere")
        ),
    }
}

fn wanted(intent: &Intent, have: &Observed, view: &GroupView) -> Vec<WantedRule> {
    let Goal::Exists(target) = &have.goal else {
        return Vec::new();
    };
    let mut rules = Vec::new();
    let mut allow = |protocol: &str, port: u16, source: &String| {
        rules.push(WantedRule {
            protocol: protocol.to_owned(),
            port,
            source: source.clone(),
        });
    };
    let health = intent
        .load_balancer
        .as_ref()
        .and_then(|spec| spec.health_check_port);
    if let Some(port) = health {
        for source in &view.health_sources {
            allow("tcp", port.get(), source);
        }
    }
    for listener in &target.listeners {
        let Some(member) = listener.pool.members.values().next() else {
            continue;
        };
        let clients = view.clients.iter().filter(|(key, _)| {
            (key.protocol, key.port.get()) == (listener.transport, listener.port)
        });
        let transport = listener.transport.as_str().to_lowercase();
        let clients = clients.flat_map(|(_, sources)| sources);
        let sources: Vec<&String> = view.sources.iter().chain(clients).collect();
        // Where clients reach members themselves, monitors do, too, from elsewhere.
        if let Some(monitor) = &listener.pool.monitor {
            let port = member.monitor_port.unwrap_or(member.port);
            let protocol = match monitor.kind {
                MonitorType::UdpConnect => "udp",
                MonitorType::Sctp => "sctp",
                _ => "tcp",
            };
            let is_open = |from: &String| {
                (protocol, port) == (transport.as_str(), member.port)
                    && sources.iter().any(|source| contains(source, from))
            };
            for source in view.health_sources.iter().filter(|it| !is_open(it)) {
                allow(protocol, port, source);
            }
        }
        for source in sources {
            allow(&transport, member.port, source);
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

/// Whether all of a prefix is in another one.
fn contains(wide: &str, narrow: &str) -> bool {
    let both = wide.parse::<IpNet>().ok().zip(narrow.parse().ok());
    both.is_some_and(|(wide, narrow): (IpNet, IpNet)| wide.contains(&narrow))
}

/// Whether a rule names another cluster than ours, as far as ours is known.
fn of_another_cluster(rule: &Rule, have: &Observed) -> bool {
    let owner = rule_owner(&rule.description).and_then(|(_, of)| of);
    let cluster = have.names.cluster_id();
    owner.is_some_and(|of| cluster.is_some_and(|ours| of != ours))
}

/// The two prefixes that are as much as this one.
fn halves(prefix: &str) -> Option<Vec<String>> {
    let prefix: IpNet = prefix.parse().ok()?;
    let halves = prefix.subnets(prefix.prefix_len() + 1).ok()?;
    Some(halves.map(|it| it.to_string()).collect())
}

// === impl WantedRule ===

impl WantedRule {
    fn ethertype(&self) -> &'static str {
        if self.source.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        }
    }

    fn is(&self, rule: &Rule) -> bool {
        let protocol = rule.protocol.as_deref().unwrap_or_default();
        protocol.eq_ignore_ascii_case(&self.protocol)
            && rule.ethertype == self.ethertype()
            && rule.port_range_min == Some(self.port)
            && rule.port_range_max == Some(self.port)
            && rule.remote_ip_prefix.as_deref() == Some(self.source.as_str())
    }

    /// Returns the rule, or its halves where another cluster of this name has an equal one: Neutron
    /// keeps no two equal rules in a group, and theirs goes when they don't need it. Halves let in
    /// the same, and show that cluster that the group is not its own alone.
    fn beside(self, group: &SecurityGroup, have: &Observed) -> Vec<Self> {
        let is_theirs = |it: &Rule| it.direction == "ingress" && of_another_cluster(it, have);
        let mut rules = group.rules.iter();
        if !rules.any(|it| self.is(it) && is_theirs(it)) {
            return vec![self];
        }
        // A single address has no halves: theirs will do.
        let Some(halves) = halves(&self.source) else {
            return vec![self];
        };
        let halves = halves.into_iter().map(|source| Self {
            source,
            ..self.clone()
        });
        halves.flat_map(|it| it.beside(group, have)).collect()
    }

    fn body(&self, group: Option<&Id>, mark: Option<&str>) -> RuleRequest {
        RuleRequest {
            security_group_id: group.cloned(),
            direction: Some("ingress"),
            ethertype: Some(self.ethertype()),
            protocol: Some(self.protocol.clone()),
            port_range_min: Some(self.port),
            port_range_max: Some(self.port),
            remote_ip_prefix: Some(self.source.clone()),
            description: mark.map(str::to_owned),
        }
    }
}
