//! Writes to Neutron: floating IPs, security groups and ports. Answers are put into the lists.

use futures_util::stream::{self, StreamExt as _};
use landfall_model::provider::Applied;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{ApiError, ErrorKind, Tagged};
use crate::memory::afterwards;
use crate::objects::{FloatingIp, Id, Port, Rule, SecurityGroup};
use crate::provider::OpenStack;
use crate::read::floating_ips::{FRESH, ago};
use crate::requests::{FloatingIpRequest, OrNull, RuleRequest};
use crate::step::{PortGroups, Step};

/// So many ports are changed at the same time.
const AT_ONCE: usize = 8;

impl OpenStack {
    /// A write to Neutron. The answer is put into the lists; without one they are stale.
    pub(super) async fn write_network(&self, step: &Step) -> Result<Applied, ApiError> {
        let outcome = self.send_network(step).await;
        if outcome.is_err() {
            let mut memory = self.memory();
            match step {
                Step::CreateFloatingIp { .. }
                | Step::AttachFloatingIp { .. }
                | Step::DetachFloatingIp { .. }
                | Step::DeleteFloatingIp { .. }
                | Step::SetTags {
                    of: Tagged::FloatingIp,
                    ..
                } => memory.floating_written = Some(afterwards()),
                _ => memory.groups_written = Some(afterwards()),
            }
        }
        outcome.map(|()| Applied::Done)
    }

    async fn send_network(&self, step: &Step) -> Result<(), ApiError> {
        match step {
            Step::CreateFloatingIp { bodies } => {
                let created = self.create_floating_ip(bodies).await?;
                self.lists.floating_ips.put(created, |it| &it.id).await;
                Ok(())
            }
            Step::AttachFloatingIp {
                floating_ip,
                was_at,
                port,
                instead_of,
                ..
            } => {
                let here = OrNull::Set(port.clone());
                let led = self.lead(floating_ip, was_at.as_ref(), &here).await;
                if let Err(error) = &led
                    && !error.is_transient()
                {
                    let now = Instant::now();
                    let mut memory = self.memory();
                    memory
                        .attempts
                        .refuse_floating_ip(floating_ip, port, &error.without_id(), now);
                }
                if let (Err(error), Some(before)) = (&led, instead_of)
                    && !error.may_be_done()
                    && let Err(error) = self.lead(before, None, &here).await
                {
                    tracing::warn!(floating_ip = %before, %error, "the previous floating IP could \
                        not be attached again");
                }
                led
            }
            Step::DetachFloatingIp {
                floating_ip,
                was_at,
                ..
            } => self.lead(floating_ip, was_at.as_ref(), &OrNull::Null).await,
            Step::DeleteFloatingIp {
                floating_ip,
                was_at,
                ..
            } => {
                self.write_floating_ip(floating_ip, was_at.as_ref(), None)
                    .await
            }
            Step::SetTags { of, id, tags, .. } => self.set_tags(*of, id, tags).await,
            _ => self.send_group(step).await,
        }
    }

    async fn set_tags(&self, of: Tagged, id: &Id, tags: &[String]) -> Result<(), ApiError> {
        self.cloud.put_tags(of, id, tags).await?;
        let floating_ips = |all: &mut Vec<FloatingIp>| {
            for it in all.iter_mut().filter(|it| it.id == *id) {
                it.tags = tags.to_vec();
            }
        };
        self.lists.floating_ips.amend(floating_ips).await;
        let groups = |all: &mut Vec<SecurityGroup>| {
            for it in all.iter_mut().filter(|it| it.id == *id) {
                it.tags = tags.to_vec();
            }
        };
        self.lists.groups.amend(groups).await;
        Ok(())
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
                let rules = rules.iter().map(|rule| RuleRequest {
                    security_group_id: Some(id.clone()),
                    ..rule.clone()
                });
                let rules: Vec<RuleRequest> = rules.collect();
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
            Step::SetPortGroups { ports, .. } => self.set_port_groups(ports).await,
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

    /// Sets the groups of ports, some at a time. One that is refused keeps no other from its
    /// groups.
    ///
    /// # Errors
    /// The first refusal.
    async fn set_port_groups(&self, ports: &[PortGroups]) -> Result<(), ApiError> {
        let set = |it: &PortGroups| {
            let (cloud, it) = (self.cloud.clone(), it.clone());
            async move {
                let body = json!({"security_groups": it.groups});
                cloud.update_port(&it.port, &body, it.revision).await
            }
        };
        let outcomes: Vec<Result<Port, ApiError>> = stream::iter(ports.iter().map(set))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let (mut updated, mut refused) = (Vec::new(), None);
        for outcome in outcomes {
            match outcome {
                Ok(port) => updated.push(port),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let replace = |all: &mut Vec<Port>| {
            all.retain(|it| !updated.iter().any(|port| port.id == it.id));
            all.extend(updated);
        };
        self.lists.ports.amend(replace).await;
        refused.map_or(Ok(()), Err)
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
        self.lists.groups.put(group, |it| &it.id).await;
        Ok(id)
    }

    /// Leads a floating IP to a port, or nowhere.
    async fn lead(
        &self,
        floating_ip: &Id,
        was_at: Option<&Id>,
        port: &OrNull<Id>,
    ) -> Result<(), ApiError> {
        let body = json!(FloatingIpRequest {
            port_id: Some(port.clone()),
            ..FloatingIpRequest::default()
        });
        self.write_floating_ip(floating_ip, was_at, Some(&body))
            .await
    }

    /// Changes a floating IP, or gives it back, if it still leads where it did when that was
    /// decided: what was read of it may be a minute old, one that was moved since serves elsewhere,
    /// and Neutron takes it from there without a word.
    ///
    /// # Errors
    /// `Stale`: it leads elsewhere.
    async fn write_floating_ip(
        &self,
        id: &Id,
        was_at: Option<&Id>,
        body: Option<&Value>,
    ) -> Result<(), ApiError> {
        let unmoved = |it: &FloatingIp| it.port_id.as_ref() == was_at;
        let known = self.lists.floating_ips.at_hand().await;
        let known = known.and_then(|(_, all)| all.iter().find(|it| it.id == *id).cloned());
        let known = known.filter(unmoved).and_then(|it| it.revision_number);
        let mut outcome = None;
        if known.is_some() {
            // A change of its status is another revision, too.
            let sent = self.send_floating_ip(id, body, known).await;
            let is_stale = |error: &ApiError| error.kind == ErrorKind::Stale;
            outcome = Some(sent).filter(|it| !it.as_ref().is_err_and(is_stale));
        }
        let written = match outcome {
            Some(outcome) => outcome?,
            None => match self.cloud.floating_ip(id).await? {
                Some(it) if !unmoved(&it) => {
                    return Err(ApiError::ours(
                        ErrorKind::Stale,
                        &format!("GET /v2.0/floatingips/{id}"),
                        "the floating IP was moved meanwhile",
                    ));
                }
                found => {
                    let revision = found.and_then(|it| it.revision_number);
                    self.send_floating_ip(id, body, revision).await?
                }
            },
        };
        let replace = |all: &mut Vec<FloatingIp>| {
            all.retain(|it| it.id != *id);
            all.extend(written);
        };
        self.lists.floating_ips.amend(replace).await;
        Ok(())
    }

    /// Sends a change of a floating IP; without a body it is deleted.
    async fn send_floating_ip(
        &self,
        id: &Id,
        body: Option<&Value>,
        revision: Option<u64>,
    ) -> Result<Option<FloatingIp>, ApiError> {
        if let Some(body) = body {
            let updated = self.cloud.update_floating_ip(id, body, revision);
            updated.await.map(Some)
        } else {
            let deleted = self.cloud.delete_floating_ip(id, revision);
            deleted.await.map(|()| None)
        }
    }

    async fn create_rules(&self, group: &Id, rules: &[RuleRequest]) -> Result<(), ApiError> {
        if rules.is_empty() {
            return Ok(());
        }
        let rules: Vec<Value> = rules.iter().map(|it| json!(it)).collect();
        match self.cloud.create_rules(&rules).await {
            Ok(created) => {
                let add = |all: &mut Vec<SecurityGroup>| {
                    if let Some(group) = all.iter_mut().find(|it| it.id == *group) {
                        let known = |it: &Rule| created.iter().any(|rule| rule.id == it.id);
                        group.rules.retain(|it| !known(it));
                        group.rules.extend(created);
                    }
                };
                self.lists.groups.amend(add).await;
                Ok(())
            }
            // One of them is there already: of a batch none was made then.
            Err(error) if error.kind == ErrorKind::Conflict => {
                self.memory().groups_written = Some(afterwards());
                for rule in &rules {
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
    async fn create_floating_ip(
        &self,
        bodies: &[FloatingIpRequest],
    ) -> Result<FloatingIp, ApiError> {
        let mut last = None;
        for body in bodies {
            match self.cloud.create_floating_ip(&json!(body)).await {
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
