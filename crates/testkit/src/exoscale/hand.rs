//! What is in the zone by other hands than the client's: pools, nodes, clusters, keys, and edits by
//! a person.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::Sim;
use super::world::{Instance, LoadBalancer, Pool};

impl Sim {
    /// Replaces all API keys.
    pub fn set_key(&self, key: &str, secret: &str) {
        self.world(|world| world.keys = [(key.to_owned(), secret.to_owned())].into());
    }

    /// Adds an instance pool, and returns its id.
    pub fn add_pool(&self, name: &str) -> String {
        self.world(|world| {
            let id = world.id();
            let name = name.to_owned();
            let nodepool = None;
            world.pools.insert(id.clone(), Pool { name, nodepool });
            id
        })
    }

    /// Deletes an instance pool with its instances.
    pub fn remove_pool(&self, id: &str) {
        self.world(|world| {
            world.pools.remove(id);
            let others = |it: &Instance| it.pool.as_deref() != Some(id);
            world.instances.retain(|_, it| others(it));
        });
    }

    /// Adds an instance, in a pool or not, and returns its id. It is healthy.
    pub fn add_instance(&self, name: &str, ip: Ipv4Addr, pool: Option<&str>) -> String {
        self.world(|world| {
            let id = world.id();
            let instance = Instance {
                name: name.to_owned(),
                ip,
                pool: pool.map(str::to_owned),
                healthy: true,
            };
            world.instances.insert(id.clone(), instance);
            id
        })
    }

    /// Deletes an instance.
    pub fn remove_instance(&self, id: &str) {
        self.world(|world| world.instances.remove(id));
    }

    /// Lets the health checks of an instance succeed or fail.
    pub fn set_health(&self, instance: &str, healthy: bool) {
        self.world(|world| {
            if let Some(instance) = world.instances.get_mut(instance) {
                instance.healthy = healthy;
            }
        });
    }

    /// Adds a Kubernetes cluster with nodepools by name, each with the pool behind it. Returns the
    /// ids of the nodepools.
    pub fn add_cluster(&self, name: &str, nodepools: &[(&str, &str)]) -> Vec<String> {
        self.world(|world| {
            let mut ids = Vec::new();
            let mut list = Vec::new();
            for (name, pool) in nodepools {
                let id = world.id();
                list.push(json!({"id": id, "name": name, "instance-pool": {"id": pool}}));
                if let Some(pool) = world.pools.get_mut(*pool) {
                    pool.nodepool = Some(id.clone());
                }
                ids.push(id);
            }
            let id = world.id();
            let cluster = json!({"id": id, "name": name, "nodepools": list});
            world.clusters.insert(id, cluster);
            ids
        })
    }

    /// Adds an NLB that works, and returns its id.
    pub fn add_load_balancer(&self, name: &str) -> String {
        self.world(|world| {
            let (id, ip) = (world.id(), world.address());
            let mut load_balancer = LoadBalancer::default();
            let fields = [
                ("id", json!(id)),
                ("name", json!(name)),
                ("ip", json!(ip)),
                ("state", json!("running")),
            ];
            let fields = fields.map(|(key, value)| (key.to_owned(), value));
            load_balancer.fields.extend(fields);
            world.load_balancers.insert(id.clone(), load_balancer);
            id
        })
    }

    /// Adds a TCP service that works to an NLB, and returns its id.
    pub fn add_service(&self, load_balancer: &str, name: &str, port: u16, pool: &str) -> String {
        self.world(|world| {
            let id = world.id();
            let fields = json!({
                "id": id, "name": name, "port": port, "target-port": port, "protocol": "tcp",
                "strategy": "round-robin", "instance-pool": {"id": pool}, "state": "running",
                "healthcheck": {
                    "mode": "tcp", "port": port, "interval": 10, "timeout": 5, "retries": 1,
                },
            });
            let lb = world.load_balancers.get_mut(load_balancer);
            if let (Some(lb), Value::Object(fields)) = (lb, fields) {
                lb.services.insert(id.clone(), fields);
            }
            id
        })
    }

    /// Sets a field of an NLB, such as its `state`.
    pub fn edit_load_balancer(&self, id: &str, field: &str, value: Value) {
        self.world(|world| {
            if let Some(lb) = world.load_balancers.get_mut(id) {
                lb.fields.insert(field.to_owned(), value);
            }
        });
    }

    /// Sets a field of an NLB service.
    pub fn edit_service(&self, load_balancer: &str, id: &str, field: &str, value: Value) {
        self.world(|world| {
            let lb = world.load_balancers.get_mut(load_balancer);
            if let Some(service) = lb.and_then(|lb| lb.services.get_mut(id)) {
                service.insert(field.to_owned(), value);
            }
        });
    }

    /// Deletes an NLB with its services.
    pub fn remove_load_balancer(&self, id: &str) {
        self.world(|world| world.load_balancers.remove(id));
    }

    /// Deletes an NLB service.
    pub fn remove_service(&self, load_balancer: &str, id: &str) {
        self.world(|world| {
            let lb = world.load_balancers.get_mut(load_balancer);
            lb.and_then(|lb| lb.services.remove(id))
        });
    }

    /// Returns all NLBs with their services, as the API answers them.
    pub fn load_balancers(&self) -> Vec<Value> {
        self.world(|world| {
            let ids = world.load_balancers.keys();
            ids.filter_map(|id| world.load_balancer(id)).collect()
        })
    }
}
