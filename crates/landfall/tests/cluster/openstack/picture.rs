//! What a project of the real OpenStack holds, read as its user.

use std::collections::BTreeSet;

use landfall_testkit::stack::{Project, Service};
use serde_json::Value;

/// Everything that load balancers are made of.
#[derive(Debug)]
pub struct Picture {
    pub balancers: Vec<Value>,
    pub listeners: Vec<Value>,
    pub pools: Vec<Value>,
    pub monitors: Vec<Value>,
    pub floating_ips: Vec<Value>,
    pub groups: Vec<Value>,
    pub ports: Vec<Value>,
}

/// What every project has from the start.
const DEFAULT_GROUP: &str = "default";

/// A text of an object; empty: there is none.
pub fn word<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

// === impl Picture ===

impl Picture {
    /// What is there now. Pools hold their members in place of those's ids.
    pub async fn of(project: &Project) -> Self {
        let balancing = async |name: &str| {
            let path = format!("/v2/lbaas/{name}");
            let list = project.list(Service::LoadBalancer, &path, name).await;
            list.unwrap()
        };
        let network = async |name: &str, key: &str| {
            let path = format!("/v2.0/{name}");
            project.list(Service::Network, &path, key).await.unwrap()
        };
        let mut picture = Self {
            balancers: balancing("loadbalancers").await,
            listeners: balancing("listeners").await,
            pools: balancing("pools").await,
            monitors: balancing("healthmonitors").await,
            floating_ips: network("floatingips", "floatingips").await,
            groups: network("security-groups", "security_groups").await,
            ports: network("ports", "ports").await,
        };
        for pool in &mut picture.pools {
            let path = format!("/v2/lbaas/pools/{}/members", word(pool, "id"));
            // The pool may have gone meanwhile; a caller that waits reads again.
            let members = project.get(Service::LoadBalancer, &path).await;
            pool["members"] = members.map_or(Value::Null, |mut it| it["members"].take());
        }
        picture.groups.retain(|it| it["name"] != DEFAULT_GROUP);
        for group in &mut picture.groups {
            // Neutron lists them in no order.
            if let Some(rules) = group["security_group_rules"].as_array_mut() {
                rules.sort_by_key(|it| word(it, "id").to_owned());
            }
        }
        picture
    }

    /// How many objects were made for load balancers.
    pub fn count(&self) -> usize {
        [
            &self.balancers,
            &self.listeners,
            &self.pools,
            &self.monitors,
            &self.floating_ips,
            &self.groups,
        ]
        .map(Vec::len)
        .iter()
        .sum()
    }

    /// The load balancer of this name.
    pub fn balancer(&self, name: &str) -> &Value {
        let mut found = self.balancers.iter().filter(|it| it["name"] == name);
        let balancer = found.next().unwrap_or(&Value::Null);
        assert!(found.next().is_none(), "two load balancers called {name}");
        balancer
    }

    /// The listeners of a load balancer, by port.
    pub fn listeners_of(&self, balancer: &Value) -> Vec<&Value> {
        let is_of = |object: &&Value| {
            let owners = object["loadbalancers"].as_array().unwrap();
            owners.iter().any(|it| it["id"] == balancer["id"])
        };
        let mut listeners: Vec<&Value> = self.listeners.iter().filter(is_of).collect();
        listeners.sort_by_key(|it| it["protocol_port"].as_u64());
        listeners
    }

    /// The pool of a listener.
    pub fn pool_of(&self, listener: &Value) -> &Value {
        let mut pools = self.pools.iter();
        let pool = pools.find(|it| it["id"] == listener["default_pool_id"]);
        pool.unwrap_or(&Value::Null)
    }

    /// The monitor of a pool.
    pub fn monitor_of(&self, pool: &Value) -> &Value {
        let mut monitors = self.monitors.iter();
        let monitor = monitors.find(|it| it["id"] == pool["healthmonitor_id"]);
        monitor.unwrap_or(&Value::Null)
    }

    /// The floating IP that leads to a load balancer.
    pub fn floating_ip_of(&self, balancer: &Value) -> &Value {
        let mut floating_ips = self.floating_ips.iter();
        let found = floating_ips.find(|it| it["port_id"] == balancer["vip_port_id"]);
        found.unwrap_or(&Value::Null)
    }

    /// The ports that a group lets in.
    pub fn opened(group: &Value) -> BTreeSet<u64> {
        let rules = group["security_group_rules"].as_array().into_iter();
        let ingress = rules.flatten().filter(|it| it["direction"] == "ingress");
        ingress
            .filter_map(|it| it["port_range_min"].as_u64())
            .collect()
    }

    /// How many of the nodes' ports have a group.
    pub fn guarded_by(&self, group: &Value) -> usize {
        let has = |port: &&Value| {
            let groups = port["security_groups"].as_array();
            word(port, "device_owner") == "compute:nova"
                && groups.is_some_and(|it| it.contains(&group["id"]))
        };
        self.ports.iter().filter(has).count()
    }
}
