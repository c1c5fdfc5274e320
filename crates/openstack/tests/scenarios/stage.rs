//! Where a scenario plays: on the simulator, or in a project of a real OpenStack (`real.rs`).
//!
//! A row that asks for what only the simulator can do (faults, a look behind the API) ends on the
//! real side with [`ONLY_SIMULATED`], which the run on the real side counts as not run.

use std::collections::BTreeMap;
use std::ops::Deref;

use http::Method;
use landfall_testkit::openstack::{Refusal, Service, Sim};
use serde_json::Value;

/// What a row says that needs the simulator.
#[cfg(feature = "stack")]
pub const ONLY_SIMULATED: &str = "this row needs the simulator";

/// How a row says that it leaves out a part of itself on this side.
pub const IN_PART: &str = "this row is played in part";

/// Says that something of the row is left out here.
pub fn in_part(what: &str) {
    println!("{IN_PART}, without {what}");
}

/// The cloud of a scenario.
pub enum Stage {
    Simulated(Sim),
    #[cfg(feature = "stack")]
    Real(super::real::Real),
}

/// A change of the controller, and what it sent.
pub struct Sent {
    /// `PUT /v2/lbaas/pools/...`.
    pub line: String,
    pub body: Vec<u8>,
}

/// Whether rows play on a real stack.
pub fn is_real() -> bool {
    #[cfg(feature = "stack")]
    return super::real::provider().is_some();
    #[cfg(not(feature = "stack"))]
    false
}

// === impl Stage ===

impl Stage {
    /// The default world, without nodes.
    pub fn new() -> Self {
        #[cfg(feature = "stack")]
        if let Some(provider) = super::real::provider() {
            return Self::Real(super::real::Real::new(provider));
        }
        Self::Simulated(Sim::new())
    }

    /// The same cloud and project, for another controller.
    pub fn again(&self) -> Self {
        match self {
            Self::Simulated(sim) => Self::Simulated(sim.clone()),
            #[cfg(feature = "stack")]
            Self::Real(real) => Self::Real(real.again()),
        }
    }

    /// The section `[Global]` of a `cloud.conf` that leads here.
    pub fn global(&self) -> String {
        match self {
            Self::Simulated(sim) => format!(
                "[Global]\nauth-url={}\nusername=u\npassword=p\ntenant-id=t\ndomain-id=d\n",
                sim.auth_url()
            ),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.global(),
        }
    }

    /// What `[LoadBalancer]` needs on this side, whatever else a row writes into it.
    pub fn always(&self) -> &'static str {
        match self {
            Self::Simulated(_) => "",
            #[cfg(feature = "stack")]
            Self::Real(real) => real.always(),
        }
    }

    /// Whether load balancers are those of OVN, which filters nothing and knows one algorithm.
    pub fn is_ovn(&self) -> bool {
        !self.always().is_empty()
    }

    /// The algorithm of pools that are made by hand.
    pub fn algorithm(&self) -> &'static str {
        if self.is_ovn() {
            "SOURCE_IP_PORT"
        } else {
            "ROUND_ROBIN"
        }
    }

    /// The subnet S of the nodes.
    pub fn subnet(&self) -> String {
        match self {
            Self::Simulated(sim) => sim.subnet(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.project().subnet_id.clone(),
        }
    }

    /// The network of the nodes.
    pub fn network(&self) -> String {
        match self {
            Self::Simulated(sim) => sim.network(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.project().network_id.clone(),
        }
    }

    /// The network X of floating IPs.
    pub fn external_network(&self) -> String {
        match self {
            Self::Simulated(sim) => sim.external_network(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.project().external_network_id.clone(),
        }
    }

    /// A server with a port at an address of S. Its id.
    pub fn add_node(&self, name: &str, address: std::net::IpAddr) -> String {
        match self {
            Self::Simulated(sim) => sim.add_node(name, address),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_node(name, address),
        }
    }

    /// A further port of a node's server, with an address of the nodes' network.
    pub fn add_port(&self, name: &str, server: &str, address: std::net::IpAddr) {
        match self {
            Self::Simulated(sim) => {
                sim.add_nic(name, server, address, true);
            }
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_port(name, server, address),
        }
    }

    /// A request of the project's user. Load balancers have settled when it returns.
    pub fn hand(
        &self,
        service: Service,
        method: &Method,
        path: &str,
        body: Value,
    ) -> Result<Value, Refusal> {
        match self {
            Self::Simulated(sim) => sim.hand(service, method, path, body),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.hand(service, method, path, &body),
        }
    }

    /// A subnet beside S, or elsewhere.
    pub fn add_subnet(
        &self,
        network: &str,
        name: &str,
        cidr: ipnet::IpNet,
        tags: &[&str],
    ) -> String {
        match self {
            Self::Simulated(sim) => sim.add_subnet(network, name, cidr, tags),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_subnet(network, name, cidr, tags),
        }
    }

    /// A certificate with its key as a secret of Barbican. Its reference.
    pub fn add_secret(&self) -> String {
        match self {
            Self::Simulated(sim) => sim.add_secret(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_secret(),
        }
    }

    /// A secret that is no certificate, although Barbican has it. Its reference.
    pub fn add_false_certificate(&self) -> String {
        match self {
            Self::Simulated(sim) => {
                let reference = sim.add_secret();
                let refused = reference.clone();
                sim.on_call(move |call| {
                    let body = String::from_utf8_lossy(&call.body);
                    let names = call.is_write() && body.contains(&refused);
                    let why = "The PKCS12 bundle is unreadable.";
                    names
                        .then(|| landfall_testkit::openstack::Fault::status(call.service, 400, why))
                });
                reference
            }
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_false_certificate(),
        }
    }

    /// The same as a container of two secrets.
    pub fn add_container(&self) -> String {
        match self {
            Self::Simulated(sim) => sim.add_container(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.add_container(),
        }
    }

    /// Removes a secret.
    pub fn remove_secret(&self, reference: &str) {
        match self {
            Self::Simulated(sim) => sim.remove_secret(reference),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.remove_secret(reference),
        }
    }

    /// A load balancer as its owner sees it.
    pub fn load_balancer(&self, id: &str) -> Value {
        match self {
            Self::Simulated(sim) => sim.load_balancer(id),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.load_balancer(id),
        }
    }

    /// Ends the life of all tokens.
    pub fn revoke_tokens(&self) {
        match self {
            Self::Simulated(sim) => sim.revoke_tokens(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.revoke_tokens(),
        }
    }

    /// How many load balancers the project may have.
    pub fn limit_load_balancers(&self, limit: Option<usize>) {
        match self {
            Self::Simulated(sim) => sim.configure(|it| it.quota.load_balancers = limit),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.limit(Service::LoadBalancer, "loadbalancer", limit),
        }
    }

    /// How many floating IPs the project may have.
    pub fn limit_floating_ips(&self, limit: Option<usize>) {
        match self {
            Self::Simulated(sim) => sim.configure(|it| it.quota.floating_ips = limit),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.limit(Service::Network, "floatingip", limit),
        }
    }

    /// A change takes as long as this. The real thing takes the time that it takes.
    pub fn settle_in(&self, time: std::time::Duration) {
        match self {
            Self::Simulated(sim) => {
                sim.configure(|it| it.settle = landfall_testkit::openstack::Settle::all(time));
            }
            #[cfg(feature = "stack")]
            Self::Real(_) => {}
        }
    }

    /// Gives a load balancer or a part of one other tags or another name behind the controller's
    /// back.
    pub fn relabel(&self, id: &str, fields: &Value) {
        match self {
            Self::Simulated(sim) => {
                let fields = fields.as_object().unwrap().clone();
                assert!(sim.edit(id, |row| row.extend(fields)));
            }
            #[cfg(feature = "stack")]
            Self::Real(real) => real.relabel(id, fields),
        }
    }

    /// From now on this has another owner, and is in [`Self::snapshot_foreign`].
    pub fn mark_foreign(&self, id: &str) {
        match self {
            Self::Simulated(sim) => sim.mark_foreign(id),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.mark_foreign(id),
        }
    }

    /// Everything that was marked as foreign, by id.
    pub fn snapshot_foreign(&self) -> BTreeMap<String, Value> {
        match self {
            Self::Simulated(sim) => sim.snapshot_foreign(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.snapshot_foreign(),
        }
    }

    /// Every port of the project.
    pub fn ports(&self) -> Vec<Value> {
        match self {
            Self::Simulated(sim) => sim.ports(),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.ports(),
        }
    }

    /// The next load balancer that is made ends in ERROR.
    pub fn fail_next_create(&self) {
        match self {
            Self::Simulated(sim) => sim.next_fate(landfall_testkit::openstack::Fate::BalancerError),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.fail_next_create(),
        }
    }

    /// Removes a load balancer, a part of one or a floating IP behind the controller's back.
    /// Whether there was one.
    pub fn delete(&self, id: &str) -> bool {
        match self {
            Self::Simulated(sim) => sim.delete(id),
            #[cfg(feature = "stack")]
            Self::Real(real) => real.delete(id),
        }
    }
}

impl Deref for Stage {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        match self {
            Self::Simulated(sim) => sim,
            #[cfg(feature = "stack")]
            #[expect(clippy::panic, reason = "a row that can't be played here ends here")]
            Self::Real(_) => panic!("{ONLY_SIMULATED}"),
        }
    }
}
