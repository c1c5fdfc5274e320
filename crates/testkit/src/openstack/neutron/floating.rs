//! Floating IPs.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::ports::addresses;
use super::{envelope, missing, over_quota, revision};

impl World {
    /// Takes a floating IP off its port.
    pub(in super::super) fn detach(&mut self, id: &str) {
        self.bind(id, None);
    }

    /// Puts a floating IP on a port's address, or off.
    fn bind(&mut self, id: &str, to: Option<(&str, &str)>) {
        if let Some(row) = self.floating_ips.get_mut(id) {
            row.insert("port_id".to_owned(), json!(to.map(|(port, _)| port)));
            row.insert(
                "fixed_ip_address".to_owned(),
                json!(to.map(|(_, fixed)| fixed)),
            );
            row.insert("router_id".to_owned(), json!(to.map(|_| "router")));
            row.insert(
                "status".to_owned(),
                json!(if to.is_some() { "ACTIVE" } else { "DOWN" }),
            );
        }
        self.bump("floatingips", id);
    }

    /// Where on the port a floating IP goes; or why it can't.
    fn landing(&self, ask: &Ask<'_>, row: &Row, port: &str) -> Result<String, Reply> {
        let found = self.seen("ports", port, &ask.project)?;
        let wanted = text(row, "fixed_ip_address");
        let fixed = addresses(found);
        let fixed = fixed.iter().map(|(_, address)| address.as_str());
        let mut fixed = fixed.filter(|address| address.parse().is_ok_and(|a: IpAddr| a.is_ipv4()));
        let fixed = if wanted.is_empty() {
            fixed.next()
        } else {
            fixed.find(|have| *have == wanted)
        };
        let Some(fixed) = fixed else {
            let text = format!(
                "Bad floatingip request: Cannot add floating IP to port {port} that has no fixed \
                IPv4 addresses."
            );
            return Err(Reply::network(400, "BadRequest", text));
        };
        let own = text(row, "id");
        let network = text(row, "floating_network_id");
        let busy = self.floating_ips.iter().any(|(id, other)| {
            id != own
                && text(other, "port_id") == port
                && text(other, "fixed_ip_address") == fixed
                && text(other, "floating_network_id") == network
        });
        if busy {
            let text = format!(
                "Cannot associate floating IP {} ({own}) with port {port} using fixed IP {fixed}, \
                as that fixed IP already has a floating IP on external network {network}.",
                text(row, "floating_ip_address")
            );
            return Err(Reply::network(409, "FloatingIPPortAlreadyAssociated", text));
        }
        Ok(fixed.to_owned())
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "floatingip")?;
    let network = text(given, "floating_network_id");
    if network.is_empty() {
        let text =
            "Failed to parse request. Required attribute 'floating_network_id' not specified";
        return Err(Reply::network(400, "HTTPBadRequest", text));
    }
    let found = world.seen("networks", network, &ask.project)?;
    if found.get("router:external") != Some(&json!(true)) {
        let text =
            format!("Bad floatingip request: Network {network} is not a valid external network.");
        return Err(Reply::network(400, "BadRequest", text));
    }
    let wanted = text(given, "floating_ip_address");
    if !wanted.is_empty() && !world.settings.floating_address_allowed {
        let text = "rule:create_floatingip and rule:create_floatingip:floating_ip_address";
        return Err(Reply::network(
            403,
            "PolicyNotAuthorized",
            format!("({text}) is disallowed by policy"),
        ));
    }
    let (id, mut row) = world.neutron_row(
        &ask.project,
        json!({"floating_network_id": network, "description": text(given, "description"),
            "port_id": null, "fixed_ip_address": given.get("fixed_ip_address"), "router_id": null,
            "status": "DOWN", "qos_policy_id": null, "port_details": null, "dns_name": "",
                "dns_domain": "",
            "port_forwardings": []}),
    );
    if World::over(
        world.settings.quota.floating_ips,
        world.floating_ips.values(),
        &row,
    ) {
        return Err(over_quota("floatingip"));
    }
    let port = text(given, "port_id");
    let fixed = if port.is_empty() {
        None
    } else {
        Some(world.landing(ask, &row, port)?)
    };
    let (_, address) = floating_address(world, network, text(given, "subnet_id"), wanted)?;
    row.insert("floating_ip_address".to_owned(), json!(address.to_string()));
    row.insert("fixed_ip_address".to_owned(), Value::Null);
    if let Some(fixed) = fixed {
        row.insert("port_id".to_owned(), json!(port));
        row.insert("fixed_ip_address".to_owned(), json!(fixed));
        row.insert("router_id".to_owned(), json!("router"));
        row.insert("status".to_owned(), json!("ACTIVE"));
    }
    world.floating_ips.insert(&id, row);
    Ok(Reply::json(
        201,
        &json!({"floatingip": world.floating_ips.get(&id)}),
    ))
}

/// An address of the network, in that subnet or any.
fn floating_address(
    world: &mut World,
    network: &str,
    subnet: &str,
    wanted: &str,
) -> Result<(String, IpAddr), Reply> {
    let wanted: Option<IpAddr> = wanted.parse().ok();
    let all = world.subnets.iter();
    let four = all.filter(|(_, row)| {
        text(row, "network_id") == network && row.get("ip_version") == Some(&json!(4))
    });
    let mut candidates: Vec<String> = four.map(|(id, _)| id.to_owned()).collect();
    if !subnet.is_empty() {
        if !candidates.iter().any(|id| id == subnet) {
            let text = format!(
                "Invalid input for operation: Failed to create port on network {network}, because \
                fixed_ips included invalid subnet {subnet}."
            );
            return Err(Reply::network(400, "InvalidInput", text));
        }
        candidates = vec![subnet.to_owned()];
    }
    let mut taken = false;
    for id in candidates {
        match world.take_address(&id, wanted) {
            Ok(address) => return Ok((id, address)),
            Err(why) => taken |= why.contains("already allocated"),
        }
    }
    match wanted {
        Some(address) if taken => Err(Reply::network(
            409,
            "IpAddressAlreadyAllocated",
            format!("IP address {address} already allocated in subnet {subnet}"),
        )),
        Some(address) => Err(Reply::network(
            400,
            "InvalidIpForNetwork",
            format!(
                "IP address {address} is not a valid IP for any of the subnets on the specified \
                network."
            ),
        )),
        None => Err(Reply::network(
            409,
            "IpAddressGenerationFailure",
            format!("No more IP addresses available on network {network}."),
        )),
    }
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let given = envelope(ask, "floatingip")?;
    let row = world.seen("floatingips", id, &ask.project)?.clone();
    revision(ask, &row)?;
    if let Some(description) = given.get("description")
        && let Some(row) = world.floating_ips.get_mut(id)
    {
        row.insert("description".to_owned(), description.clone());
    }
    // No port at all means: none. So does a body without anything.
    let port = text(given, "port_id");
    if !port.is_empty() {
        let fixed = world.landing(ask, &row, port)?;
        world.bind(id, Some((port, &fixed)));
    } else if given.contains_key("port_id") || given.is_empty() {
        world.bind(id, None);
    } else {
        world.bump("floatingips", id);
    }
    Ok(Reply::json(
        200,
        &json!({"floatingip": world.floating_ips.get(id)}),
    ))
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let row = world
        .seen("floatingips", id, &ask.project)
        .map_err(|_| missing("floatingips", id))?;
    revision(ask, row)?;
    world.drop_floating(id);
    Ok(Reply::empty(204))
}

impl World {
    /// Removes a floating IP; its address becomes free.
    pub(in super::super) fn drop_floating(&mut self, id: &str) {
        let Some(row) = self.floating_ips.remove(id) else {
            return;
        };
        let address: Option<IpAddr> = text(&row, "floating_ip_address").parse().ok();
        let network = text(&row, "floating_network_id");
        let subnets: Vec<String> = self
            .subnets
            .iter()
            .filter(|(_, row)| text(row, "network_id") == network)
            .map(|(id, _)| id.to_owned())
            .collect();
        if let Some(address) = address {
            for subnet in subnets {
                self.taken.remove(&(subnet, address));
            }
        }
    }
}
