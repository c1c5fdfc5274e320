//! Writes to Neutron: floating IPs, security groups and ports. What is answered is put into the
//! lists.

use landfall_model::provider::Applied;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{ApiError, ErrorKind};
use crate::memory::afterwards;
use crate::objects::{FloatingIp, Id, Port, SecurityGroup};
use crate::provider::OpenStack;
use crate::read::floating_ips::{FRESH, ago};
use crate::step::Step;

impl OpenStack {
    /// A write to Neutron. What the answer tells is put into the lists; without one they are stale.
    pub(super) async fn write_network(&self, step: &Step) -> Result<Applied, ApiError> {
        let outcome = self.send_network(step).await;
        if outcome.is_err() {
            let mut memory = self.memory();
            match step {
                Step::CreateFloatingIp { .. }
                | Step::AttachFloatingIp { .. }
                | Step::DetachFloatingIp { .. }
                | Step::DeleteFloatingIp { .. } => memory.floating_written = Some(afterwards()),
                _ => memory.groups_written = Some(afterwards()),
            }
        }
        outcome.map(|()| Applied::Done)
    }

    async fn send_network(&self, step: &Step) -> Result<(), ApiError> {
        match step {
            Step::CreateFloatingIp { bodies } => {
                let created = self.create_floating_ip(bodies).await?;
                self.lists.floating_ips.amend(|all| all.push(created)).await;
                Ok(())
            }
            Step::AttachFloatingIp {
                floating_ip,
                port,
                instead_of,
                ..
            } => {
                let here = json!({"port_id": port});
                let led = self.lead(floating_ip, &here).await;
                if let Err(error) = &led
                    && !error.is_transient()
                {
                    let now = Instant::now();
                    let mut memory = self.memory();
                    memory.is_unattachable(floating_ip, port, &error.without_id(), now);
                }
                if let (Err(error), Some(before)) = (&led, instead_of)
                    && !error.may_be_done()
                    && let Err(error) = self.lead(before, &here).await
                {
                    tracing::warn!(floating_ip = %before, %error, "the previous floating IP could \
                        not be attached again");
                }
                led
            }
            Step::DetachFloatingIp { floating_ip, .. } => {
                self.lead(floating_ip, &json!({"port_id": null})).await
            }
            Step::DeleteFloatingIp { floating_ip, .. } => {
                self.cloud.delete_floating_ip(floating_ip).await?;
                let floating_ips = &self.lists.floating_ips;
                floating_ips
                    .amend(|all| all.retain(|it| it.id != *floating_ip))
                    .await;
                Ok(())
            }
            _ => self.send_group(step).await,
        }
    }

    /// A write to security groups or ports.
    async fn send_group(&self, step: &Step) -> Result<(), ApiError> {
        match step {
            Step::CreateGroup {
                name,
                description,
                rules,
            } => {
                let id = self.make_group(name, description).await?;
                let rules: Vec<Value> = rules.iter().map(|rule| with_group(rule, &id)).collect();
                self.create_rules(&id, &rules).await
            }
            Step::CreateRules { group, rules } => self.create_rules(group, rules).await,
            Step::DeleteRule { rule, .. } => {
                self.cloud.delete_rule(rule).await?;
                let remove = |all: &mut Vec<SecurityGroup>| {
                    for group in all {
                        group.rules.retain(|it| it.id != *rule);
                    }
                };
                self.lists.groups.amend(remove).await;
                Ok(())
            }
            Step::SetPortGroups {
                port,
                groups,
                revision,
                ..
            } => {
                let body = json!({"security_groups": groups});
                let updated = self.cloud.update_port(port, &body, *revision).await?;
                let replace = |all: &mut Vec<Port>| {
                    all.retain(|it| it.id != *port);
                    all.push(updated);
                };
                self.lists.ports.amend(replace).await;
                Ok(())
            }
            Step::DeleteGroup { group, .. } => {
                self.cloud.delete_security_group(group).await?;
                self.lists
                    .groups
                    .amend(|all| all.retain(|it| it.id != *group))
                    .await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes a group, unless a pass of another Service has just made it.
    async fn make_group(&self, name: &str, description: &str) -> Result<Id, ApiError> {
        let _one_at_a_time = self.group_making.lock().await;
        let known = self.all_groups(ago(FRESH)).await?;
        if let Some(there) = known.iter().find(|it| it.name == name) {
            return Ok(there.id.clone());
        }
        let body = json!({"name": name, "description": description});
        let made = self.cloud.create_security_group(&body).await;
        let group = made.inspect_err(|_| self.memory().groups_written = Some(afterwards()))?;
        let id = group.id.clone();
        self.lists.groups.amend(|all| all.push(group)).await;
        Ok(id)
    }

    async fn lead(&self, floating_ip: &Id, body: &Value) -> Result<(), ApiError> {
        let updated = self.cloud.update_floating_ip(floating_ip, body).await?;
        let replace = |all: &mut Vec<FloatingIp>| {
            all.retain(|it| it.id != *floating_ip);
            all.push(updated);
        };
        self.lists.floating_ips.amend(replace).await;
        Ok(())
    }

    async fn create_rules(&self, group: &Id, rules: &[Value]) -> Result<(), ApiError> {
        if rules.is_empty() {
            return Ok(());
        }
        match self.cloud.create_rules(rules).await {
            Ok(created) => {
                let add = |all: &mut Vec<SecurityGroup>| {
                    if let Some(group) = all.iter_mut().find(|it| it.id == *group) {
                        group.rules.extend(created);
                    }
                };
                self.lists.groups.amend(add).await;
                Ok(())
            }
            // One of them is there already: of a batch none was made then.
            Err(error) if error.kind == ErrorKind::Conflict => {
                self.memory().groups_written = Some(afterwards());
                for rule in rules {
                    match self.cloud.create_rules(std::slice::from_ref(rule)).await {
                        Ok(_) => {}
                        Err(error) if error.kind == ErrorKind::Conflict => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The first request that succeeds counts. One that may have succeeded is not followed by
    /// another.
    async fn create_floating_ip(&self, bodies: &[Value]) -> Result<FloatingIp, ApiError> {
        let mut last = None;
        for body in bodies {
            match self.cloud.create_floating_ip(body).await {
                Err(error) if !error.is_transient() && bodies.len() > 1 => last = Some(error),
                outcome => return outcome,
            }
        }
        match last {
            Some(error) => Err(error),
            None => self.cloud.create_floating_ip(&json!({})).await,
        }
    }
}

fn with_group(rule: &Value, group: &Id) -> Value {
    let mut rule = rule.clone();
    rule["security_group_id"] = json!(group);
    rule
}
