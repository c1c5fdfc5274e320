//! Whether every Service has what it asks for, or holds a Reason that is really the case.

use std::collections::{BTreeMap, BTreeSet};

use landfall_model::Code;
use landfall_model::status::ConditionType;
use serde_json::Value;

use crate::image::{self, Detail, text};
use crate::rig::Rig;
use crate::shapes::Shape;

/// How the cloud is, and how it is after an undisturbed run of the same Services, each with a load
/// balancer of its own.
pub struct Verdict<'a> {
    pub rig: &'a Rig,
    pub shapes: &'a BTreeMap<String, Shape>,
    pub is: Value,
    pub shall: Value,
}

/// The tag of a Service.
fn tag(name: &str) -> String {
    format!("kube_service_c1_default_{name}")
}

fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

fn has_tag(of: &Value, tag: &str) -> bool {
    list(of, "tags").any(|it| it == tag)
}

/// Whether so many others use the load balancer that no other Service may.
fn is_full(balancer: &Value, name: &str) -> bool {
    let (most, own) = (2, tag(name));
    let users = list(balancer, "tags").filter_map(Value::as_str);
    let others = users.filter(|it| it.starts_with("kube_service_") && *it != own);
    others.count() >= most
}

// === impl Verdict ===

impl Verdict<'_> {
    /// What is wrong; empty: nothing. And how many Services hold a Reason.
    pub fn pass(&self) -> (Vec<String>, usize) {
        let mut problems = image::wrong_addresses(self.rig);
        let mut reasons = 0;
        let mut content = BTreeSet::new();
        for (name, shape) in self.shapes {
            let Some(row) = self.rig.cluster.service(name) else {
                problems.push(format!("{name} is gone"));
                continue;
            };
            if shape.is_plain() && self.is_held_back(name) {
                reasons += 1;
                continue;
            }
            if shape.is_plain() {
                if row.finalized || !row.status.ingress.is_empty() {
                    problems.push(format!("{name} is plain, and was not let go"));
                }
                content.insert(name.as_str());
                continue;
            }
            let unmet = ConditionType::ALL
                .into_iter()
                .filter_map(|kind| row.status.condition(kind))
                .find(|it| !it.status);
            match unmet {
                None if row.status.conditions.is_empty() => {
                    problems.push(format!("{name} was never reconciled"));
                }
                None => {
                    content.insert(name.as_str());
                }
                Some(unmet) => {
                    reasons += 1;
                    if !self.is_true(name, shape, unmet.reason) {
                        let text = format!("{:?}: {}", unmet.reason, unmet.message);
                        problems.push(format!("{name} has an unfounded reason: {text}"));
                    }
                }
            }
        }
        for name in &content {
            self.validate(name, &mut problems);
        }
        self.validate_rest(&content, &mut problems);
        (problems, reasons)
    }

    /// Whether it can't leave a load balancer, because that takes no change.
    fn is_held_back(&self, name: &str) -> bool {
        let all = self.rig.sim.load_balancers();
        let mut used = all.iter().filter(|it| has_tag(it, &tag(name)));
        used.any(|it| it["provisioning_status"] == "ERROR")
    }

    fn is_true(&self, name: &str, shape: &Shape, reason: Code) -> bool {
        let named = shape.given().map(|id| self.rig.sim.load_balancer(id));
        let port = named.as_ref().map(|it| text(it, "vip_port_id"));
        let floating = self.rig.sim.floating_ips();
        let reached = floating
            .iter()
            .any(|it| port.is_some_and(|port| text(it, "port_id") == port));
        match reason {
            Code::CloudObjectNotFound => named.is_some_and(|it| it.is_null()) || !reached,
            Code::NotOurs => shape.is_internal() || named.is_some_and(|it| is_full(&it, name)),
            Code::ConflictingOptions => {
                let all = self.rig.sim.load_balancers();
                let is_own = |it: &Value| has_tag(it, &tag(name)) || it["name"] == *tag(name);
                let own = all.into_iter().find(is_own);
                let row = self.rig.cluster.service(name);
                let ports: Vec<u64> = row
                    .iter()
                    .flat_map(|row| &row.ports)
                    .map(|it| it.port.get().into())
                    .collect();
                named.or(own).is_some_and(|it| {
                    list(&it, "listeners").any(|it| {
                        let port = it["protocol_port"].as_u64();
                        !has_tag(it, &tag(name)) && port.is_some_and(|port| ports.contains(&port))
                    })
                })
            }
            // Its own is kept, too, as long as it may carry traffic.
            Code::LoadBalancerFailed => {
                let all = self.rig.sim.load_balancers();
                let own = all.into_iter().filter(|it| has_tag(it, &tag(name)));
                own.chain(named)
                    .any(|it| it["provisioning_status"] == "ERROR")
            }
            _ => false,
        }
    }

    /// A Service that says that all is well.
    fn validate(&self, name: &str, problems: &mut Vec<String>) {
        let (is, shall) = (listeners(&self.is, name), listeners(&self.shall, name));
        if is != shall {
            let text = crate::crash::difference(&shall.into(), &is.into());
            problems.push(format!("listeners of {name}:\n{text}"));
        }
        let (is, shall) = (self.rules(&self.is, name), self.rules(&self.shall, name));
        if is != shall {
            problems.push(format!("rules of {name}: {is:#?} instead of {shall:#?}"));
        }
        let using = list(&self.is, "load balancers").filter(|it| has_tag(it, &tag(name)));
        let using = using.count();
        let wanted = usize::from(!self.shapes[name].is_plain());
        if using != wanted {
            problems.push(format!("{name} is on {using} load balancers"));
        }
    }

    fn rules(&self, of: &Value, name: &str) -> Vec<Value> {
        let Some(row) = self.rig.cluster.service(name) else {
            return Vec::new();
        };
        let (own, mark) = (
            format!("lb-sg-{}-", row.uid),
            format!("landfall {}", row.uid),
        );
        let mut rules = Vec::new();
        for group in list(of, "groups") {
            let own = text(group, "name").starts_with(&own);
            let there = list(group, "rules").filter(|it| {
                it[0] == "ingress"
                    && (own || it[6].as_str().is_some_and(|it| it.starts_with(&mark)))
            });
            rules.extend(there.cloned());
            if own {
                let ports = list(of, "node ports");
                let ports = ports.filter(|it| list(it, "groups").any(|it| *it == group["name"]));
                rules.extend(ports.map(|it| it["node"].clone()));
            }
        }
        rules
    }

    /// What belongs to no Service.
    fn validate_rest(&self, content: &BTreeSet<&str>, problems: &mut Vec<String>) {
        let tags: BTreeSet<String> = self.shapes.keys().map(|name| tag(name)).collect();
        let all = self.rig.cluster.services();
        let all: BTreeSet<String> = all.iter().map(|it| tag(it.key.name())).collect();
        for balancer in list(&self.is, "load balancers") {
            // What is in ERROR can't be left.
            let broken = balancer["status"] == "ERROR";
            let tags = if broken { &all } else { &tags };
            let users: Vec<&str> = list(balancer, "tags")
                .filter_map(Value::as_str)
                .filter(|it| it.starts_with("kube_service_"))
                .collect();
            let gone = users.iter().filter(|it| !tags.contains(**it)).count();
            if gone > 0 || users.is_empty() {
                problems.push(format!("{} is of {users:?}", balancer["name"]));
            }
            for listener in list(balancer, "listeners") {
                if !list(listener, "tags").any(|it| tags.contains(it.as_str().unwrap_or_default()))
                {
                    problems.push(format!("stray listener {listener}"));
                }
            }
            let spare: Vec<&Value> = list(balancer, "spare pools").collect();
            if !spare.is_empty() && content.len() == self.shapes.len() {
                problems.push(format!("pools that serve no Service: {spare:?}"));
            }
            let leading = list(&self.is, "floating IPs");
            let leading = leading
                .filter(|it| it["leads to"] == balancer["name"])
                .count();
            let owner = text(balancer, "name").trim_start_matches("kube_service_c1_default_");
            let expected = content.contains(owner).then(|| {
                let shape = &self.shapes[owner];
                (shape.given().is_none() && !shape.is_plain()).then(|| !shape.is_internal())
            });
            if let Some(Some(expected)) = expected
                && leading != usize::from(expected)
            {
                problems.push(format!("{leading} floating IPs lead to {owner}"));
            }
        }
        // That of a load balancer which others go on to share goes with it.
        let is_left = |it: &&Value| {
            let description = text(it, "description").to_owned();
            let mut balancers = list(&self.is, "load balancers");
            let its = balancers.find(|it| {
                let its = text(it, "description");
                !its.is_empty() && description.ends_with(its)
            });
            its.is_none_or(|it| list(it, "tags").any(|tag| *tag == it["name"]))
        };
        let idle = list(&self.is, "floating IPs").filter(|it| it["leads to"].is_null());
        if idle.filter(is_left).count() > 0 && content.len() == self.shapes.len() {
            problems.push("a floating IP leads nowhere".to_owned());
        }
    }
}

fn listeners(of: &Value, name: &str) -> Vec<Value> {
    let all = list(of, "load balancers").flat_map(|it| list(it, "listeners"));
    all.filter(|it| has_tag(it, &tag(name))).cloned().collect()
}

/// The cloud as verdicts compare it.
pub fn picture(rig: &Rig) -> Value {
    image::of_cloud(&rig.sim, Detail::Past)
}
