//! The cloud of one program: simulated behind HTTP, or a project of the real one.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::anyhow;
use http::Method;
use landfall_testkit::openstack::{Served, Service as Simulated, Settle, Sim, Start};
use landfall_testkit::stack::{Mark as RealMark, Project, Service as Real, Stack};
use serde_json::{Value, json};

use super::counts::Call;

/// Where one program makes load balancers.
pub enum Cloud {
    Simulated { sim: Sim, served: Served },
    Real(Box<Project>),
}

/// A moment; calls are counted from there on.
pub enum Mark {
    Simulated(usize),
    Real(RealMark),
}

/// The services that the scenes' own hands need.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    Neutron,
    Octavia,
}

// === impl Cloud ===

impl Cloud {
    /// An empty simulated cloud whose Octavia takes so long for a change.
    pub async fn simulated(settle: Duration) -> anyhow::Result<Self> {
        let start = Start {
            tenant: Project::SUBNET.parse()?,
            ..Start::default()
        };
        let sim = Sim::with(&start);
        sim.configure(|settings| settings.settle = Settle::all(settle));
        let served = sim.serve().await?;
        Ok(Self::Simulated { sim, served })
    }

    /// A project of the test bed's stack, which is started unless it runs.
    pub async fn real() -> anyhow::Result<Self> {
        // Addresses of nodes are chosen, those of VIPs are not.
        let pools = json!([{"start": "10.0.200.1", "end": "10.0.250.250"}]);
        let subnet = json!({"cidr": Project::SUBNET, "allocation_pools": pools});
        let project = Stack::shared().await.project_in("beside", subnet).await?;
        Ok(Self::Real(Box::new(project)))
    }

    /// A `cloud.conf` that ends with the section of load balancers.
    pub fn conf(&self) -> String {
        match self {
            Self::Simulated { sim, served } => format!(
                "[Global]\nauth-url=\"{}\"\nusername=landfall\npassword=simulated-password\n\
                 domain-name=Default\ntenant-name=demo\nregion=RegionOne\n\n[LoadBalancer]\n\
                 floating-network-id=\"{}\"\nsubnet-id=\"{}\"\n",
                served.auth_url,
                sim.external_network(),
                sim.subnet()
            ),
            Self::Real(project) => project.cloud_conf(),
        }
    }

    /// Ports of servers at these addresses. Their provider ids.
    pub async fn add_nodes(&self, nodes: &[(String, IpAddr)]) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Simulated { sim, .. } => {
                let ids = nodes.iter().map(|(name, ip)| sim.add_node(name, *ip));
                Ok(ids.map(|id| format!("openstack:///{id}")).collect())
            }
            Self::Real(project) => {
                let made = project.nodes(nodes).await?.into_iter();
                Ok(made.map(|node| node.provider_id).collect())
            }
        }
    }

    /// Calls are counted from here on.
    pub async fn mark(&self) -> anyhow::Result<Mark> {
        Ok(match self {
            Self::Simulated { sim, .. } => Mark::Simulated(sim.call_count()),
            Self::Real(_) => Mark::Real(Stack::shared().await.mark().await?),
        })
    }

    /// The calls since then of the program that calls itself so. Those of the real one to Keystone
    /// are not among them: they belong to no project yet.
    pub async fn calls(&self, mark: &Mark, agent: &str) -> anyhow::Result<Vec<Call>> {
        match (self, mark) {
            (Self::Simulated { sim, .. }, Mark::Simulated(begin)) => {
                let calls = sim.calls().into_iter().skip(*begin);
                let calls = calls.filter(|call| call.user_agent.starts_with(agent));
                let login = |of: Option<Simulated>| of == Some(Simulated::Identity);
                Ok(calls
                    .map(|it| Call::new(it.method.as_str(), &it.path, login(it.service)))
                    .collect())
            }
            (Self::Real(project), Mark::Real(mark)) => {
                let calls = project.calls_since(mark, agent).await?;
                Ok(calls
                    .iter()
                    .map(|it| Call::new(&it.method, &it.path, it.service == Real::Identity))
                    .collect())
            }
            _ => Err(anyhow!("the mark is of another cloud")),
        }
    }

    /// How many calls there were since then, whatever they were for.
    pub async fn count(&self, mark: &Mark, agent: &str) -> anyhow::Result<usize> {
        match (self, mark) {
            (Self::Simulated { sim, .. }, Mark::Simulated(begin)) => Ok(sim.call_count() - begin),
            _ => Ok(self.calls(mark, agent).await?.len()),
        }
    }

    /// Asks by hand, outside of all counts. `Null` stands for no body.
    pub async fn ask(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Value,
    ) -> anyhow::Result<Value> {
        match self {
            Self::Simulated { sim, .. } => {
                let service = match service {
                    Service::Neutron => Simulated::Network,
                    Service::Octavia => Simulated::LoadBalancer,
                };
                let answer = sim.hand(service, &method, path, body);
                answer.map_err(|(status, text)| anyhow!("{method} {path}: {status} {text}"))
            }
            Self::Real(project) => {
                let service = match service {
                    Service::Neutron => Real::Network,
                    Service::Octavia => Real::LoadBalancer,
                };
                match method {
                    Method::PUT => Ok(project.put(service, path, body).await?),
                    Method::DELETE => {
                        project.remove(service, path).await?;
                        Ok(Value::Null)
                    }
                    _ => Ok(project.get(service, path).await?),
                }
            }
        }
    }

    /// From one check of it to the next. At the real one every check is work.
    pub const fn look(&self) -> Duration {
        Duration::from_millis(match self {
            Self::Simulated { .. } => 300,
            Self::Real(_) => 2000,
        })
    }

    /// Nothing is left of it.
    pub async fn close(self) -> anyhow::Result<()> {
        if let Self::Real(project) = self {
            project.delete().await?;
        }
        Ok(())
    }
}
