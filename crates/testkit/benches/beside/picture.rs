//! What a project has of load balancers at one moment, and whether that is what is wanted.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

use super::cloud::{Cloud, Service};

/// Load balancers, listeners, pools and floating IPs.
#[derive(Debug)]
pub struct Picture {
    balancers: Vec<Value>,
    listeners: Vec<Value>,
    pools: Vec<Value>,
    floating_ips: Vec<Value>,
}

/// How load balancers are called: the cluster's name, the namespace and the Service's.
const PREFIX: &str = "kube_service_beside_default_";

// === impl Picture ===

impl Picture {
    pub async fn of(cloud: &Cloud) -> anyhow::Result<Self> {
        let list = async |service, base: &str, kind: &str| {
            let path = format!("{base}/{kind}");
            let answer = cloud.ask(Method::GET, service, &path, Value::Null);
            let found = answer.await?[kind].take();
            anyhow::Ok(found.as_array().cloned().unwrap_or_default())
        };
        let octavia = "/v2/lbaas";
        Ok(Self {
            balancers: list(Service::Octavia, octavia, "loadbalancers").await?,
            listeners: list(Service::Octavia, octavia, "listeners").await?,
            pools: list(Service::Octavia, octavia, "pools").await?,
            floating_ips: list(Service::Neutron, "/v2.0", "floatingips").await?,
        })
    }

    /// The load balancer of a Service.
    pub fn balancer(&self, service: &str) -> Option<&Value> {
        let is = |it: &&Value| it["name"].as_str() == Some(&format!("{PREFIX}{service}"));
        self.balancers.iter().find(is)
    }

    /// Its listener of a port.
    pub fn listener(&self, service: &str, port: u16) -> Option<&Value> {
        let balancer = self.balancer(service)?;
        let mut all = self.listeners_of(balancer);
        all.find(|it| it["protocol_port"] == port)
    }

    fn listeners_of<'a>(&'a self, balancer: &'a Value) -> impl Iterator<Item = &'a Value> {
        let of = |it: &&Value| {
            let mut balancers = it["loadbalancers"].as_array().into_iter().flatten();
            balancers.any(|of| of["id"] == balancer["id"])
        };
        self.listeners.iter().filter(of)
    }

    /// The floating IP that leads to it.
    pub fn floating_ip(&self, service: &str) -> Option<&Value> {
        let port = &self.balancer(service)?["vip_port_id"];
        self.floating_ips.iter().find(|it| it["port_id"] == *port)
    }

    /// Whether the Service is served at exactly these ports, by so many members at each, at a
    /// floating IP, with nothing under way.
    pub fn serves(&self, service: &str, ports: &[u16], members: usize) -> bool {
        let Some(balancer) = self.balancer(service) else {
            return false;
        };
        let pool = |id: &Value| self.pools.iter().find(|it| it["id"] == *id);
        let full = |listener: &Value| {
            let pool = pool(&listener["default_pool_id"]);
            let count = pool
                .and_then(|pool| pool["members"].as_array())
                .map(Vec::len);
            count == Some(members)
        };
        let listeners: Vec<&Value> = self.listeners_of(balancer).collect();
        let found: BTreeSet<_> = listeners
            .iter()
            .map(|it| it["protocol_port"].as_u64())
            .collect();
        let wanted = ports.iter().map(|port| Some(u64::from(*port))).collect();
        balancer["provisioning_status"] == "ACTIVE"
            && found == wanted
            && self.floating_ip(service).is_some()
            && listeners.into_iter().all(full)
    }
}
