//! The VIP of a new load balancer: which network, subnet and address, and the port that holds it.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::wire::{Reply, Row, text};
use super::super::world::World;
use super::refuse;

/// Where a load balancer will be reached.
pub(super) struct Vip {
    pub network: String,
    /// Subnet and wanted address; the first is the VIP, the others are additional.
    pub places: Vec<(String, Option<IpAddr>)>,
    /// A port that the user made.
    pub port: Option<String>,
}

fn no_subnet(id: &str) -> Reply {
    Reply::balancer(400, format!("Subnet {id} not found."))
}

impl World {
    /// Validates the VIP fields of a POST.
    pub(super) fn vip_of(&self, row: &Row) -> Result<Vip, Reply> {
        let address = text(row, "vip_address").parse::<IpAddr>().ok();
        let (port, network) = (text(row, "vip_port_id"), text(row, "vip_network_id"));
        let subnet = text(row, "vip_subnet_id");
        let mut vip = if !port.is_empty() {
            self.vip_on_port(port, subnet, address)?
        } else if !network.is_empty() {
            self.vip_on_network(network, subnet, address)?
        } else if !subnet.is_empty() {
            let found = self.subnets.get(subnet).ok_or_else(|| no_subnet(subnet))?;
            Vip {
                network: text(found, "network_id").to_owned(),
                places: vec![(subnet.to_owned(), address)],
                port: None,
            }
        } else {
            return Err(refuse(
                "VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.",
            ));
        };
        let more = row.get("additional_vips").and_then(Value::as_array);
        for one in more.into_iter().flatten() {
            let subnet = one
                .get("subnet_id")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let found = self.subnets.get(subnet);
            let found = found.ok_or_else(|| refuse(&format!("Subnet {subnet} not found")))?;
            if vip.places.iter().any(|(used, _)| used == subnet) {
                return Err(refuse(
                    "Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.",
                ));
            }
            if text(found, "network_id") != vip.network {
                return Err(refuse("All VIP subnets must belong to the same network."));
            }
            let address = one.get("ip_address").and_then(Value::as_str);
            let address = address.and_then(|address| address.parse().ok());
            vip.places.push((subnet.to_owned(), address));
        }
        Ok(vip)
    }

    fn vip_on_port(&self, id: &str, subnet: &str, address: Option<IpAddr>) -> Result<Vip, Reply> {
        let port = self.ports.get(id);
        let port = port.ok_or_else(|| Reply::balancer(400, format!("Port {id} not found.")))?;
        if !text(port, "device_id").is_empty() {
            let text = format!(
                "Port {id} is already used by device {}.",
                text(port, "device_id")
            );
            return Err(refuse(&text));
        }
        let fixed = port.get("fixed_ips").and_then(Value::as_array);
        let fixed = fixed.into_iter().flatten().filter_map(Value::as_object);
        let fixed: Vec<(&str, IpAddr)> = fixed
            .filter_map(|ip| Some((text(ip, "subnet_id"), text(ip, "ip_address").parse().ok()?)))
            .collect();
        let found = if !subnet.is_empty() {
            fixed.iter().find(|(of, _)| *of == subnet)
        } else if let Some(address) = address {
            fixed.iter().find(|(_, have)| *have == address)
        } else if fixed.len() == 1 {
            fixed.first()
        } else {
            None
        };
        let (subnet, address) = found.ok_or_else(|| {
            refuse(
                "VIP port's subnet could not be determined. Please specify either a VIP subnet \
                   or address.",
            )
        })?;
        Ok(Vip {
            network: text(port, "network_id").to_owned(),
            places: vec![((*subnet).to_owned(), Some(*address))],
            port: Some(id.to_owned()),
        })
    }

    fn vip_on_network(
        &self,
        id: &str,
        subnet: &str,
        address: Option<IpAddr>,
    ) -> Result<Vip, Reply> {
        if !self.networks.contains(id) {
            return Err(Reply::balancer(400, format!("Network {id} not found.")));
        }
        let subnets = || {
            let all = self.subnets.iter();
            all.filter(|(_, row)| text(row, "network_id") == id)
        };
        let chosen = if !subnet.is_empty() {
            subnets().find(|(own, _)| *own == subnet)
        } else if let Some(address) = address {
            subnets().find(|(_, row)| {
                let cidr = text(row, "cidr").parse::<ipnet::IpNet>();
                cidr.is_ok_and(|cidr| cidr.contains(&address))
            })
        } else {
            let four = subnets().find(|(_, row)| row.get("ip_version") == Some(&json!(4)));
            four.or_else(|| subnets().next())
        };
        let (subnet, _) = chosen.ok_or_else(|| {
            refuse(if address.is_some() {
                "Supplied network does not contain a subnet for VIP address specified."
            } else {
                "Supplied network does not contain a subnet."
            })
        })?;
        Ok(Vip {
            network: id.to_owned(),
            places: vec![(subnet.to_owned(), address)],
            port: None,
        })
    }

    /// Makes the VIP port (or takes the user's) and writes the addresses into the row. Whether the
    /// port is Octavia's own.
    pub(super) fn bind_vip(&mut self, id: &str, vip: &Vip, row: &mut Row) -> Result<bool, Reply> {
        let conflict = |why: &str| {
            Reply::balancer(409, format!("The VIP IP address is already in use: {why}"))
        };
        let mut addresses = Vec::new();
        for (subnet, wanted) in &vip.places {
            let taken = vip.port.is_some() && addresses.is_empty();
            let address = match wanted {
                Some(address) if taken => *address,
                _ => self
                    .take_address(subnet, *wanted)
                    .map_err(|why| conflict(&why))?,
            };
            addresses.push((subnet.clone(), address));
        }
        if vip.port.is_none() && Self::over(self.settings.quota.ports, self.ports.values(), row) {
            for (subnet, address) in &addresses {
                self.taken.remove(&(subnet.clone(), *address));
            }
            return Err(conflict("Quota exceeded for resources: ['port']."));
        }
        let shown = |(subnet, address): &(String, IpAddr)| {
            json!({"subnet_id": subnet,
            "ip_address": address.to_string()})
        };
        let fixed: Vec<Value> = addresses.iter().map(shown).collect();
        let device = format!("lb-{id}");
        let port = if let Some(port) = &vip.port {
            if let Some(found) = self.ports.get_mut(port) {
                found.insert("device_id".to_owned(), json!(device));
                found.insert("device_owner".to_owned(), json!("Octavia"));
                found.insert("fixed_ips".to_owned(), json!(fixed));
            }
            port.clone()
        } else {
            let project = row.get("project_id").cloned().unwrap_or_default();
            let group = self.dice.uuid();
            self.insert_port(&json!({
                "name": format!("octavia-lb-{id}"), "network_id": vip.network,
                    "project_id": project,
                "device_id": device, "device_owner": "Octavia", "fixed_ips": fixed,
                "security_groups": [group],
            }))
        };
        let mut rest = addresses.into_iter();
        if let Some((subnet, address)) = rest.next() {
            row.insert("vip_address".to_owned(), json!(address.to_string()));
            row.insert("vip_subnet_id".to_owned(), json!(subnet));
        }
        row.insert("vip_network_id".to_owned(), json!(vip.network));
        row.insert("vip_port_id".to_owned(), json!(port));
        let more: Vec<Value> = rest.map(|place| shown(&place)).collect();
        row.insert("additional_vips".to_owned(), json!(more));
        Ok(vip.port.is_none())
    }
}
