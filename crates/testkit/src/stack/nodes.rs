//! Nodes of a cluster, as Neutron sees them: ports of servers. There are no servers.

use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Project, Service, StackError, id_of};

/// A node's port, as Nova would have bound it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node, and of its port.
    pub name: String,
    /// Its address on the project's subnet.
    pub address: IpAddr,
    /// Id of the server that isn't there: `device_id` of the port.
    pub server_id: String,
    /// Id of the port.
    pub port_id: String,
    /// `spec.providerID` of the node, as cloud-provider-openstack writes it.
    pub provider_id: String,
}

/// How many ports one request makes: enough to be quick, few enough to be answered in seconds.
const AT_ONCE: usize = 100;

impl Project {
    /// One node with a port at this address of the project's subnet.
    pub async fn node(&self, name: &str, address: IpAddr) -> Result<Node, StackError> {
        let mut nodes = self.nodes(&[(name.to_owned(), address)]).await?;
        let node = nodes.pop();
        node.ok_or_else(|| StackError::Answer("no port was made".to_owned()))
    }

    /// Many nodes, by Neutron's bulk requests. In the order given. Each costs Neutron 0.3 s of CPU
    /// time, and [`Project::delete`] another 0.2 s, so a thousand take minutes.
    pub async fn nodes(&self, nodes: &[(String, IpAddr)]) -> Result<Vec<Node>, StackError> {
        let mut made = Vec::with_capacity(nodes.len());
        for some in nodes.chunks(AT_ONCE) {
            let mut ports = Vec::with_capacity(some.len());
            for (name, address) in some {
                ports.push(self.port_of_a_server(name, *address)?);
            }
            let body = json!({"ports": ports});
            let answer = self.post(Service::Network, "/v2.0/ports", body).await?;
            for ((name, address), asked) in some.iter().zip(&ports) {
                // Not by position: nothing promises the order of the answer.
                let answers = answer["ports"].as_array();
                let port = answers
                    .into_iter()
                    .flatten()
                    .find(|port| port["device_id"] == asked["device_id"])
                    .ok_or_else(|| StackError::Answer(format!("no port for {name}")))?;
                let server_id = asked["device_id"].as_str().unwrap_or_default();
                made.push(Node {
                    name: name.clone(),
                    address: *address,
                    server_id: server_id.to_owned(),
                    port_id: id_of(port)?,
                    provider_id: format!("openstack:///{server_id}"),
                });
            }
        }
        Ok(made)
    }

    fn port_of_a_server(&self, name: &str, address: IpAddr) -> Result<Value, StackError> {
        // Neutron knows which subnet of the network it is in.
        Ok(json!({
            "name": name,
            "network_id": self.network_id,
            "fixed_ips": [{"ip_address": address.to_string()}],
            "device_id": random_uuid()?,
            "device_owner": "compute:nova",
        }))
    }
}

/// From the kernel, which has a file for it.
fn random_uuid() -> Result<String, StackError> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid");
    let uuid = uuid.map_err(|source| StackError::Io {
        what: "no random id".to_owned(),
        source,
    })?;
    Ok(uuid.trim().to_owned())
}
