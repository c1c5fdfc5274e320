//! The state of the simulated cloud.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::fault::Call;
use super::operation::{Fate, Operation};
use super::settings::Settings;
use super::{KEY, SECRET};

/// All that there is.
pub(super) struct World {
    pub settings: Settings,
    /// Secrets by key.
    pub keys: BTreeMap<String, String>,
    /// The address of the API, with `/v2`.
    pub endpoint: String,
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    pub operations: BTreeMap<String, Operation>,
    /// How the next changes end.
    pub fates: VecDeque<Fate>,
    pub pools: BTreeMap<String, Pool>,
    pub instances: BTreeMap<String, Instance>,
    pub clusters: BTreeMap<String, Value>,
    pub log: Vec<Call>,
    pub forgotten: usize,
    made: u64,
}

/// An NLB.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadBalancer {
    /// Its fields, without services.
    pub fields: Map<String, Value>,
    /// Its services by id.
    pub services: BTreeMap<String, Map<String, Value>>,
}

/// An instance pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub name: String,
    /// The nodepool of SKS that it belongs to.
    pub nodepool: Option<String>,
}

/// An instance.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub name: String,
    pub ip: Ipv4Addr,
    pub pool: Option<String>,
    /// Its health checks succeed.
    pub healthy: bool,
}

// === impl World ===

impl World {
    pub fn new() -> Self {
        Self {
            settings: Settings::default(),
            keys: [(KEY.to_owned(), SECRET.to_owned())].into(),
            endpoint: "http://exoscale.test/v2".to_owned(),
            load_balancers: BTreeMap::new(),
            operations: BTreeMap::new(),
            fates: VecDeque::new(),
            pools: BTreeMap::new(),
            instances: BTreeMap::new(),
            clusters: BTreeMap::new(),
            log: Vec::new(),
            forgotten: 0,
            made: 0,
        }
    }

    /// Returns a new id. Ids sort by age.
    pub fn id(&mut self) -> String {
        self.made += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.made)
    }

    /// Returns a new address for an NLB.
    pub fn address(&mut self) -> Ipv4Addr {
        self.made += 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (self.made & 0xffff) as u32)
    }

    /// Returns an NLB as it is answered.
    pub fn load_balancer(&self, id: &str) -> Option<Value> {
        let lb = self.load_balancers.get(id)?;
        let services = lb.services.values().map(|it| self.service(it)).collect();
        let mut answer = lb.fields.clone();
        answer.insert("services".to_owned(), Value::Array(services));
        Some(Value::Object(answer))
    }

    /// Returns an NLB service as it is answered.
    pub fn service(&self, fields: &Map<String, Value>) -> Value {
        let mut answer = fields.clone();
        let pool = fields.get("instance-pool").and_then(|it| it["id"].as_str());
        let pool = pool.unwrap_or_default();
        let members = self.instances.values();
        let members = members.filter(|it| it.pool.as_deref() == Some(pool));
        let health: Vec<_> = members
            .map(|it| {
                let status = if it.healthy { "success" } else { "failure" };
                json!({"public-ip": it.ip, "status": status})
            })
            .collect();
        let none = health.is_empty() && self.settings.null_health;
        let health = if none { Value::Null } else { health.into() };
        answer.insert("healthcheck-status".to_owned(), health);
        if self.settings.full_pools
            && let Some(it) = self.pools.get(pool)
        {
            let full = json!({"id": pool, "name": it.name, "state": "running", "size": 1});
            answer.insert("instance-pool".to_owned(), full);
        }
        Value::Object(answer)
    }

    /// Returns an instance as it is answered.
    pub fn instance(&self, id: &str) -> Option<Value> {
        let it = self.instances.get(id)?;
        let mut answer = json!({
            "id": id, "name": it.name, "state": "running", "public-ip": it.ip,
        });
        if let Some(pool) = &it.pool {
            answer["manager"] = json!({"id": pool, "type": "instance-pool"});
        }
        Some(answer)
    }

    /// Returns an instance pool as it is answered.
    pub fn pool(&self, id: &str) -> Option<Value> {
        let pool = self.pools.get(id)?;
        let members = self.instances.iter();
        let members = members.filter(|(_, it)| it.pool.as_deref() == Some(id));
        let members: Vec<_> = members.map(|(id, _)| json!({ "id": id })).collect();
        let mut answer = json!({
            "id": id, "name": pool.name, "state": "running", "instances": members,
            "size": members.len().max(1),
        });
        if let Some(nodepool) = &pool.nodepool {
            answer["manager"] = json!({"id": nodepool, "type": "sks-nodepool"});
        }
        Some(answer)
    }
}
