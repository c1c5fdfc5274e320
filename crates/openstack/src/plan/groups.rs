//! Security groups that let load balancers through to the nodes. Pure.
//!
//! Either one group on all nodes in which each Service has rules, marked with its UID, or, as
//! cloud-provider-openstack has it, one group per Service on the nodes that are its members. A
//! Service that has the latter keeps it.

use landfall_model::Intent;
use landfall_model::plan::Plan;
use serde_json::{Value, json};

use crate::objects::{Id, Port, Rule, SecurityGroup};
use crate::observed::{Goal, GroupView, Observed};
use crate::step::Step;

/// A rule that shall be there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedRule {
    protocol: String,
    port: u16,
    source: String,
}

/// Appends what makes nodes reachable on the Service's NodePorts.
pub(crate) fn plan(intent: &Intent, have: &Observed, plan: &mut Plan<Step>) {
    let Some(view) = &have.groups else { return };
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
    let missing: Vec<Value> = wanted
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
    join_ports(view, group, plan);
    leave_ports(view, plan);
    leave_shared(have, view, plan);
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
}

/// The Service's rules go from the group that the nodes share.
fn leave_shared(have: &Observed, view: &GroupView, plan: &mut Plan<Step>) {
    let rules = view.shared.iter().flat_map(|group| &group.rules);
    for rule in rules.filter(|rule| have.names.is_of_rule(&rule.description)) {
        plan.push(delete_rule(rule), "the Service does not need it any more");
    }
}

fn join_ports(view: &GroupView, group: &SecurityGroup, plan: &mut Plan<Step>) {
    for port in &view.node_ports {
        if !port.security_groups.contains(&group.id) {
            plan.push(join(port, &group.id), "the node is a member");
        }
    }
}

fn leave_ports(view: &GroupView, plan: &mut Plan<Step>) {
    let Some(group) = view.group.as_ref().filter(|_| view.own) else {
        return;
    };
    for port in &view.leaving {
        if port.security_groups.contains(&group.id) {
            plan.push(part(port, &group.id), "the node is no member");
        }
    }
}

fn join(port: &Port, group: &Id) -> Step {
    let mut groups = port.security_groups.clone();
    groups.push(group.clone());
    Step::SetPortGroups {
        port: port.id.clone(),
        groups,
        revision: port.revision_number,
        joins: true,
    }
}

fn part(port: &Port, group: &Id) -> Step {
    let mut groups = port.security_groups.clone();
    groups.retain(|it| it != group);
    Step::SetPortGroups {
        port: port.id.clone(),
        groups,
        revision: port.revision_number,
        joins: false,
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
        for source in view
            .sources
            .iter()
            .chain(clients.flat_map(|(_, sources)| sources))
        {
            allow(
                &listener.transport.as_str().to_lowercase(),
                member.port,
                source,
            );
        }
    }
    rules.sort();
    rules.dedup();
    rules
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

    fn body(&self, group: Option<&Id>, mark: Option<&str>) -> Value {
        let mut body = json!({
            "direction": "ingress",
            "ethertype": self.ethertype(),
            "protocol": self.protocol,
            "port_range_min": self.port,
            "port_range_max": self.port,
            "remote_ip_prefix": self.source,
        });
        if let Some(group) = group {
            body["security_group_id"] = json!(group);
        }
        if let Some(mark) = mark {
            body["description"] = mark.into();
        }
        body
    }
}
