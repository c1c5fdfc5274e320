//! Where a scenario plays: on the simulator, or in a project of a real OpenStack (`real.rs`).
//!
//! A row that asks for what only the simulator can do (faults, a look behind the API) ends on the real side
//! with [`ONLY_SIMULATED`], which the run on the real side counts as not run.

use std::ops::Deref;

use http::Method;
use landfall_testkit::openstack::{Refusal, Service, Sim};
use serde_json::Value;

/// What a row says that needs the simulator.
#[cfg(feature = "stack")]
pub const ONLY_SIMULATED: &str = "this row needs the simulator";

/// The cloud of a scenario.
pub enum Stage {
    Simulated(Sim),
    #[cfg(feature = "stack")]
    Real(super::real::Real),
}

// === impl Stage ===

impl Stage {
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

    /// Removes a load balancer, a part of one or a floating IP behind the controller's back. Whether there was one.
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
