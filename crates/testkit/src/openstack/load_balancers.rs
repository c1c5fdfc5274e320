//! Load balancers and their children as they are kept.

use std::time::Duration;

use serde_json::{Value, json};

use super::clock::plain;
use super::wire::Row;

pub(super) const ACTIVE: &str = "ACTIVE";
pub(super) const ERROR: &str = "ERROR";
pub(super) const PENDING_CREATE: &str = "PENDING_CREATE";
pub(super) const PENDING_UPDATE: &str = "PENDING_UPDATE";
pub(super) const PENDING_DELETE: &str = "PENDING_DELETE";

/// How a load balancer comes out of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// As it should.
    #[default]
    Active,
    /// The load balancer and what was written are in ERROR.
    BalancerError,
    /// What was written is in ERROR, the load balancer is ACTIVE again. A write on the load
    /// balancer itself has no such child: then it is the load balancer.
    ChildError,
    /// It stays locked until `Sim::release`.
    Stuck,
    /// All is well, after this time.
    Late(Duration),
}

/// A load balancer.
#[derive(Debug)]
pub(super) struct Balancer {
    pub row: Row,
    pub listeners: Vec<String>,
    pub pools: Vec<String>,
    /// The VIP port goes with the load balancer.
    pub owns_port: bool,
    pub pending: Option<Pending>,
}

/// Work that is being done on a locked load balancer.
#[derive(Debug)]
pub(super) struct Pending {
    /// The number under which it is due.
    pub ticket: u64,
    pub touched: Vec<Touched>,
    pub fate: Fate,
}

/// A child whose status changes when the lock ends.
#[derive(Debug, Clone)]
pub(super) enum Touched {
    Listener(String),
    Pool(String),
    /// All members of the pool that are pending.
    Members(String),
    Monitor(String),
}

/// A listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub row: Row,
    pub balancer: String,
}

/// A pool with its members.
#[derive(Debug)]
pub(super) struct Pool {
    pub row: Row,
    pub balancer: String,
    pub members: Vec<Member>,
}

/// A monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    pub row: Row,
    pub pool: String,
}

/// A member; not a row, because there may be hundreds of thousands.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub id: String,
    pub name: String,
    pub address: String,
    pub port: u16,
    pub subnet: Option<String>,
    pub weight: u16,
    pub backup: bool,
    pub admin: bool,
    pub monitor_port: Option<u16>,
    pub monitor_address: Option<String>,
    pub tags: Vec<String>,
    pub status: &'static str,
    pub operating: &'static str,
    pub created: i64,
    pub updated: Option<i64>,
}

impl Member {
    /// From attributes that were validated by the schema, with all defaults there.
    pub fn of(row: &Row, id: String, now: i64) -> Self {
        let mut member = Self {
            id,
            name: String::new(),
            address: String::new(),
            port: 0,
            subnet: None,
            weight: 1,
            backup: false,
            admin: true,
            monitor_port: None,
            monitor_address: None,
            tags: Vec::new(),
            status: PENDING_CREATE,
            operating: "NO_MONITOR",
            created: now,
            updated: None,
        };
        member.take(row);
        member
    }

    /// Takes over the attributes that are there.
    pub fn take(&mut self, row: &Row) {
        let owned = |value: &Value| value.as_str().map(str::to_owned);
        let number = |value: &Value| value.as_u64().and_then(|n| u16::try_from(n).ok());
        for (key, value) in row {
            match key.as_str() {
                "name" => self.name = owned(value).unwrap_or_default(),
                "address" => self.address = owned(value).unwrap_or_default(),
                "protocol_port" => self.port = number(value).unwrap_or(0),
                "subnet_id" => self.subnet = owned(value),
                "weight" => self.weight = number(value).unwrap_or(1),
                "backup" => self.backup = value.as_bool().unwrap_or(false),
                "admin_state_up" => self.admin = value.as_bool().unwrap_or(false),
                "monitor_port" => self.monitor_port = number(value),
                "monitor_address" => self.monitor_address = owned(value),
                "tags" => {
                    let tags = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    self.tags = tags.iter().filter_map(owned).collect();
                }
                _ => {}
            }
        }
    }

    /// As the API shows it.
    pub fn show(&self, project: &Value) -> Row {
        let value = json!({
            "id": self.id, "name": self.name, "address": self.address, "protocol_port": self.port,
            "subnet_id": self.subnet, "weight": self.weight, "backup": self.backup,
            "admin_state_up": self.admin, "monitor_port": self.monitor_port,
            "monitor_address": self.monitor_address, "tags": self.tags, "project_id": project,
                "tenant_id": project, "vnic_type": "normal",
            "provisioning_status": self.status, "operating_status": self.operating,
            "created_at": plain(self.created), "updated_at": self.updated.map(plain),
        });
        match value {
            Value::Object(row) => row,
            _ => Row::new(),
        }
    }
}

/// A list of objects by id.
pub(super) fn refs<'a>(ids: impl IntoIterator<Item = &'a String>) -> Value {
    ids.into_iter().map(|id| json!({"id": id})).collect()
}
