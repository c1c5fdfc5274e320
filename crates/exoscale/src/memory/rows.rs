//! All NLBs, as they were read last, and what our own changes have made of them since.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::objects::{Id, LoadBalancer, LoadBalancerService, LoadBalancerState, ServiceState};
use crate::step::Change;

/// All NLBs of the zone.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// When all were asked for; `None`: they have to be.
    pub listed_at: Option<Instant>,
    known: BTreeMap<Id, Row>,
    /// NLBs that we deleted, and when that was done.
    gone: BTreeMap<Id, Instant>,
}

/// An NLB.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub load_balancer: LoadBalancer,
    /// When it was asked for, or changed by us.
    pub at: Instant,
    pub certainty: Certainty,
}

/// How well an NLB is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// It was read.
    Read,
    /// It was read, and changed by us since. What the cloud chooses is missing.
    Assumed,
    /// It may be different.
    Unknown,
}

// === impl Rows ===

impl Rows {
    pub fn all(&self) -> impl Iterator<Item = &Row> {
        self.known.values()
    }

    pub fn get(&self, id: &Id) -> Option<&Row> {
        self.known.get(id)
    }

    /// Takes a list that was asked for at this time. What we changed since is newer.
    pub fn replace(&mut self, list: Vec<LoadBalancer>, at: Instant) {
        let before = std::mem::take(&mut self.known);
        let newer = before.into_iter().filter(|(_, row)| row.at > at);
        self.known = newer.collect();
        self.gone.retain(|_, gone_at| *gone_at > at);
        for load_balancer in list {
            let id = load_balancer.id.clone();
            if !self.gone.contains_key(&id) {
                self.known.entry(id).or_insert(Row {
                    load_balancer,
                    at,
                    certainty: Certainty::Read,
                });
            }
        }
        self.listed_at = Some(at);
    }

    /// Takes an NLB that was asked for at this time; `None`: it does not exist. Only the list
    /// proves that, because a Service is released for good when its NLB is gone.
    pub fn put(&mut self, id: &Id, found: Option<LoadBalancer>, at: Instant) {
        let newer = self.known.get(id).is_some_and(|row| row.at > at);
        if newer {
            return;
        }
        if let Some(load_balancer) = found {
            let row = Row {
                load_balancer,
                at,
                certainty: Certainty::Read,
            };
            self.known.insert(id.clone(), row);
        } else {
            self.known.remove(id);
            self.listed_at = None;
        }
    }

    /// Notes that an NLB may be different from what is known.
    pub fn invalidate(&mut self, id: &Id) {
        match self.known.get_mut(id) {
            Some(row) => row.certainty = Certainty::Unknown,
            None => self.listed_at = None,
        }
    }

    /// Does here what a change has done in the cloud.
    pub fn apply(&mut self, change: &Change, id: Option<Id>, now: Instant) {
        if let Change::CreateLoadBalancer { body } = change {
            let Some(id) = id else {
                self.listed_at = None;
                return;
            };
            let load_balancer = LoadBalancer {
                id: id.clone(),
                name: body.name.clone(),
                description: body.description.clone().unwrap_or_default(),
                state: LoadBalancerState::Running,
                labels: body.labels.clone(),
                ..LoadBalancer::default()
            };
            let row = Row {
                load_balancer,
                at: now,
                certainty: Certainty::Assumed,
            };
            self.known.insert(id, row);
            return;
        }
        let Some(id) = change.load_balancer() else {
            return;
        };
        if matches!(change, Change::DeleteLoadBalancer { .. }) {
            self.known.remove(id);
            self.gone.insert(id.clone(), now);
            return;
        }
        let Some(row) = self.known.get_mut(id) else {
            self.listed_at = None;
            return;
        };
        row.at = now;
        if row.certainty == Certainty::Read {
            row.certainty = Certainty::Assumed;
        }
        changed(&mut row.load_balancer, change);
    }
}

/// Does to an NLB what a change does.
fn changed(load_balancer: &mut LoadBalancer, change: &Change) {
    let services = &mut load_balancer.services;
    match change {
        Change::CreateLoadBalancer { .. } | Change::DeleteLoadBalancer { .. } => {}
        Change::UpdateLoadBalancer { body, .. } => {
            set(&mut load_balancer.name, body.name.as_ref());
            set(&mut load_balancer.description, body.description.as_ref());
            set(&mut load_balancer.labels, body.labels.as_ref());
        }
        Change::ResetDescription { .. } => load_balancer.description.clear(),
        Change::CreateService { body, .. } => services.push(LoadBalancerService {
            // The cloud names it when it is read.
            id: Id::default(),
            name: body.name.clone(),
            description: body.description.clone().unwrap_or_default(),
            state: ServiceState::Running,
            protocol: body.protocol.clone(),
            port: body.port,
            target_port: body.target_port,
            strategy: body.strategy.clone(),
            instance_pool: Some(body.instance_pool.clone()),
            healthcheck: body.healthcheck.clone(),
            healthcheck_status: Vec::new(),
        }),
        Change::UpdateService { id, body, .. } => {
            if let Some(it) = services.iter_mut().find(|it| it.id == *id) {
                set(&mut it.name, body.name.as_ref());
                set(&mut it.description, body.description.as_ref());
                set(&mut it.strategy, body.strategy.as_ref());
                set(&mut it.target_port, body.target_port.as_ref());
                set(&mut it.healthcheck, body.healthcheck.as_ref());
            }
        }
        Change::ResetServiceDescription { id, .. } => {
            if let Some(it) = services.iter_mut().find(|it| it.id == *id) {
                it.description.clear();
            }
        }
        Change::DeleteService { id, .. } => services.retain(|it| it.id != *id),
    }
}

fn set<T: Clone>(field: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}
