//! Writes that the cloud has refused permanently: they are not repeated at once, and keep nothing
//! else from being done. Pure.

mod option;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use landfall_model::Reason;
use serde_json::{Value, json};

use crate::client::{ApiError, ErrorKind};
use crate::objects::Id;
use crate::requests::{ListenerRequest, MonitorRequest, PoolRequest};
use crate::step::Step;

pub(crate) use option::option_of;

/// What identifies a write: its target and its body. Members are a part of it only where they are
/// all that is written, so that a node that comes or goes makes no other write of the rest.
pub(crate) type Key = String;

/// The refusals that concern a load balancer, as they stand at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(pub(crate) HashMap<Key, Refusal>);

/// A write that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// What the cloud said.
    pub(crate) reason: Reason,
    /// It is time to try it again.
    pub(crate) due: bool,
}

// === impl Refusals ===

impl Refusals {
    /// What became of this very write when it was last tried, if it was refused.
    pub(crate) fn of(&self, step: &Step) -> Option<&Refusal> {
        // Most are never refused: no key is made for nothing.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key(step)?)
    }
}

/// The key of a write that is remembered when it is refused; `None`: nothing else waits for it, or
/// nothing may go on without it.
pub(crate) fn key(step: &Step) -> Option<Key> {
    if let Some((pool, body)) = of_members(step) {
        let mut hasher = DefaultHasher::new();
        body.to_string().hash(&mut hasher);
        return Some(format!("{MEMBERS}{pool} {:016x}", hasher.finish()));
    }
    let (target, body): (&str, Value) = match step {
        Step::UpdateLoadBalancer {
            load_balancer,
            changes,
            ..
        } => (load_balancer.as_str(), json!(changes)),
        Step::TryListener {
            load_balancer,
            listener,
        } => {
            let body = ListenerRequest {
                // It is tried at whichever port is free.
                protocol_port: None,
                ..ListenerRequest::new(listener)
            };
            (load_balancer.as_str(), json!(body))
        }
        Step::CreateListener {
            load_balancer,
            listener,
            ..
        } => (
            load_balancer.as_str(),
            json!(ListenerRequest::new(listener)),
        ),
        Step::UpdateListener {
            listener, changes, ..
        } => (listener.as_str(), json!(changes)),
        Step::CreatePool {
            load_balancer,
            pool,
            ..
        } => (load_balancer.as_str(), json!(PoolRequest::new(pool))),
        Step::UpdatePool {
            pool,
            changes,
            lenient: false,
            ..
        } => (pool.as_str(), json!(changes)),
        Step::CreateMonitor { pool, monitor, .. } => {
            (pool.as_str(), json!(MonitorRequest::new(monitor)))
        }
        Step::UpdateMonitor {
            monitor, changes, ..
        } => (monitor.as_str(), json!(changes)),
        Step::DeleteListener { listener, .. } => (listener.as_str(), Value::Null),
        Step::DeletePool { pool, .. } => (pool.as_str(), Value::Null),
        Step::DeleteMonitor { monitor, .. } => (monitor.as_str(), Value::Null),
        _ => return None,
    };
    let kind = match step {
        Step::TryListener { .. } => "try",
        _ => "write",
    };
    Some(format!("{kind} {target} {body}"))
}

/// What begins the key of a write of members.
const MEMBERS: &str = "members ";

/// Whether a write is of members: it is tried again soon, however often it was refused.
pub(crate) fn follows_nodes(key: &Key) -> bool {
    key.starts_with(MEMBERS)
}

/// The pool of a write of members, by the write's key.
pub(crate) fn pool_of_members(key: &Key) -> Option<&str> {
    let (pool, _) = key.strip_prefix(MEMBERS)?.split_once(' ')?;
    Some(pool)
}

/// The pool of a write of members, and what is written.
pub(crate) fn of_members(step: &Step) -> Option<(&Id, Value)> {
    match step {
        Step::SetMembers {
            pool,
            members,
            additive,
            ..
        } => Some((pool, json!([members, additive]))),
        Step::AddMember { pool, member, .. } => Some((pool, json!(member))),
        Step::UpdateMember {
            pool,
            address,
            port,
            changes,
            ..
        } => Some((pool, json!([address, port, changes]))),
        Step::DeleteMember {
            pool,
            address,
            port,
            ..
        } => Some((pool, json!([address, port]))),
        _ => None,
    }
}

/// Says whether the same write is refused again until something changes. An object that is missing
/// is none that the plan found: it is one that the write names.
pub(crate) fn is_lasting(error: &ApiError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::Forbidden
            | ErrorKind::Quota
            | ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::NoAddresses
            | ErrorKind::TooLarge
            | ErrorKind::Busy
    )
}
