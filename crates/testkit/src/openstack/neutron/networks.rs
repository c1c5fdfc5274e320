//! Networks, subnets, and which of their addresses are taken.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::super::wire::text;
use super::super::world::{Start, World};

impl World {
    /// Adds the external network and the tenant's, each with its subnet.
    pub(in super::super) fn add_first_networks(&mut self, start: &Start) {
        self.external_network = self.add_network("ext", true);
        self.external_subnet =
            self.add_subnet(&self.external_network.clone(), "ext4", start.external, &[]);
        self.network = self.add_network("net1", false);
        self.subnet = self.add_subnet(&self.network.clone(), "sub4", start.tenant, &[]);
    }

    pub(in super::super) fn add_network(&mut self, name: &str, external: bool) -> String {
        let project = self.project.clone();
        let owner = if external { "admin-project" } else { &project };
        let (id, row) = self.neutron_row(
            owner,
            json!({"name": name, "subnets": [], "router:external": external, "shared": external,
                "admin_state_up": true, "status": "ACTIVE", "port_security_enabled": true,
                    "mtu": 1500}),
        );
        self.networks.insert(&id, row);
        id
    }

    pub(in super::super) fn add_subnet(
        &mut self,
        network: &str,
        name: &str,
        cidr: IpNet,
        tags: &[&str],
    ) -> String {
        let owner = self.networks.get(network);
        let owner = owner.map_or_else(String::new, |row| text(row, "project_id").to_owned());
        let shared = self
            .networks
            .get(network)
            .and_then(|row| row.get("shared").cloned());
        let version = if cidr.addr().is_ipv4() { 4 } else { 6 };
        let gateway = cidr.hosts().next().map(|address| address.to_string());
        let (id, row) = self.neutron_row(
            &owner,
            json!({"name": name, "network_id": network, "cidr": cidr.to_string(),
                "ip_version": version,
                "gateway_ip": gateway, "enable_dhcp": true, "tags": tags, "shared": shared}),
        );
        self.subnets.insert(&id, row);
        if let Some(Value::Array(subnets)) = self
            .networks
            .get_mut(network)
            .and_then(|row| row.get_mut("subnets"))
        {
            subnets.push(json!(id));
        }
        id
    }

    /// Takes a free address of a subnet, or that one. The error says what follows a colon in real
    /// answers.
    pub(in super::super) fn take_address(
        &mut self,
        subnet: &str,
        wanted: Option<IpAddr>,
    ) -> Result<IpAddr, String> {
        let row = self.subnets.get(subnet).ok_or("no such subnet")?;
        let cidr: IpNet = text(row, "cidr").parse().map_err(|_| "bad subnet")?;
        let network = text(row, "network_id").to_owned();
        let free = |address: &IpAddr| !self.taken.contains(&(subnet.to_owned(), *address));
        let address = match wanted {
            Some(address) if !cidr.contains(&address) => {
                return Err(format!(
                    "IP address {address} is not a valid IP for the specified subnet."
                ));
            }
            Some(address) if free(&address) => address,
            Some(address) => {
                return Err(format!(
                    "IP address {address} already allocated in subnet {subnet}"
                ));
            }
            None => {
                // Low addresses are left to explicit requests.
                let wide = cidr.max_prefix_len() - cidr.prefix_len() >= 8;
                let found = if wide {
                    self.next_address(subnet, cidr)
                } else {
                    cidr.hosts().skip(1).find(free)
                };
                found.ok_or_else(|| {
                    format!("No more IP addresses available on network {network}.")
                })?
            }
        };
        self.taken.insert((subnet.to_owned(), address));
        Ok(address)
    }

    /// The next free one from the hundredth on, without reading those that are surely taken.
    fn next_address(&self, subnet: &str, cidr: IpNet) -> Option<IpAddr> {
        let used = self.taken.len();
        let hosts =
            1_usize.checked_shl(u32::from(cidr.max_prefix_len() - cidr.prefix_len()).min(40));
        let hosts = hosts.unwrap_or(usize::MAX).saturating_sub(1);
        (100..hosts.min(100 + used + 100)).find_map(|offset| {
            let address = plus(cidr.network(), offset as u128)?;
            (!self.taken.contains(&(subnet.to_owned(), address))).then_some(address)
        })
    }
}

fn plus(address: IpAddr, offset: u128) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(four) => IpAddr::from(
            four.to_bits()
                .checked_add(u32::try_from(offset).ok()?)?
                .to_be_bytes(),
        ),
        IpAddr::V6(six) => IpAddr::from(six.to_bits().checked_add(offset)?.to_be_bytes()),
    })
}
