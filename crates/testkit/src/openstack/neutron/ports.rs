//! Ports: nodes' and VIPs'.

use serde_json::{Value, json};

use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::{envelope, missing, over_quota, revision};

impl World {
    /// Makes a port from its fields; addresses must be taken already.
    pub(in super::super) fn insert_port(&mut self, fields: &Value) -> String {
        let project = fields.get("project_id").and_then(Value::as_str);
        let project = project.unwrap_or(&self.project).to_owned();
        let mac = self.dice.roll().to_be_bytes();
        let mac = format!("fa:16:3e:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2]);
        let (id, mut row) = self.neutron_row(&project, fields.clone());
        let defaults = json!({
            "name": "", "device_id": "", "device_owner": "", "admin_state_up": true,
                "status": "ACTIVE",
            "mac_address": mac, "security_groups": [], "port_security_enabled": true,
                "fixed_ips": [],
            "allowed_address_pairs": [], "binding:vnic_type": "normal",
        });
        if let Value::Object(defaults) = defaults {
            for (key, value) in defaults {
                row.entry(key).or_insert(value);
            }
        }
        let device = text(&row, "device_id").to_owned();
        self.ports.insert(&id, row);
        self.index_device(&id, "", &device);
        id
    }

    /// Notes that a port has passed from one device to another.
    pub(in super::super) fn index_device(&mut self, id: &str, old: &str, new: &str) {
        if let Some(ports) = self.ports_by_device.get_mut(old) {
            ports.retain(|port| port != id);
        }
        let ports = self.ports_by_device.entry(new.to_owned()).or_default();
        ports.push(id.to_owned());
    }

    /// Removes a port: its addresses become free, its floating IPs have no port any more.
    pub(in super::super) fn drop_port(&mut self, id: &str) {
        let Some(port) = self.ports.remove(id) else {
            return;
        };
        if let Some(ports) = self.ports_by_device.get_mut(text(&port, "device_id")) {
            ports.retain(|other| other != id);
        }
        for (subnet, address) in addresses(&port) {
            if let Ok(address) = address.parse() {
                self.taken.remove(&(subnet, address));
            }
        }
        let held: Vec<String> = self
            .floating_ips
            .iter()
            .filter(|(_, row)| text(row, "port_id") == id)
            .map(|(id, _)| id.to_owned())
            .collect();
        for floating in held {
            self.detach(&floating);
        }
    }
}

/// Subnet and address of a port's fixed IPs.
pub(super) fn addresses(port: &Row) -> Vec<(String, String)> {
    let fixed = port.get("fixed_ips").and_then(Value::as_array);
    let fixed = fixed.into_iter().flatten().filter_map(Value::as_object);
    fixed
        .map(|ip| {
            (
                text(ip, "subnet_id").to_owned(),
                text(ip, "ip_address").to_owned(),
            )
        })
        .collect()
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "port")?.clone();
    let network = text(&given, "network_id");
    world.seen("networks", network, &ask.project)?;
    let mut owner = Row::new();
    owner.insert("project_id".to_owned(), json!(ask.project));
    if World::over(world.settings.quota.ports, world.ports.values(), &owner) {
        return Err(over_quota("port"));
    }
    groups_fit(world, ask, None, &given, &given)?;
    let mut places = addresses(&given);
    if places.is_empty() {
        let first = world
            .subnets
            .iter()
            .find(|(_, row)| text(row, "network_id") == network);
        places.extend(first.map(|(id, _)| (id.to_owned(), String::new())));
    }
    let mut fixed = Vec::new();
    for (subnet, address) in places {
        let address = world.take_address(&subnet, address.parse().ok());
        let address =
            address.map_err(|why| Reply::network(409, "IpAddressGenerationFailure", why))?;
        fixed.push(json!({"subnet_id": subnet, "ip_address": address.to_string()}));
    }
    let mut row = given;
    row.insert("fixed_ips".to_owned(), json!(fixed));
    row.insert("project_id".to_owned(), json!(ask.project));
    let id = world.insert_port(&Value::Object(row));
    Ok(Reply::json(201, &json!({"port": world.ports.get(&id)})))
}

/// Whether the security groups of a request can be the port's.
fn groups_fit(
    world: &World,
    ask: &Ask<'_>,
    port: Option<&Row>,
    given: &Row,
    after: &Row,
) -> Result<(), Reply> {
    let Some(groups) = given.get("security_groups").and_then(Value::as_array) else {
        return Ok(());
    };
    let ids: Vec<&str> = groups.iter().filter_map(Value::as_str).collect();
    for (place, id) in ids.iter().enumerate() {
        if ids.iter().take(place).any(|other| other == id) {
            let text = format!(
                "Invalid input for security_groups. Reason: Duplicate items in the list: '{id}'."
            );
            return Err(Reply::network(400, "HTTPBadRequest", text));
        }
        // Groups that Octavia made are in no project of ours, but ports keep them.
        let kept = port.is_some_and(|port| has_group(port, id));
        if !kept {
            world.seen("security-groups", id, &ask.project)?;
        }
    }
    if !ids.is_empty() && after.get("port_security_enabled") == Some(&json!(false)) {
        let text = "Port security must be enabled and port must have an IP address in order to use \
                   security groups.";
        return Err(Reply::network(
            400,
            "PortSecurityAndIPRequiredForSecurityGroups",
            text,
        ));
    }
    Ok(())
}

/// Whether the port has the group.
pub(super) fn has_group(port: &Row, group: &str) -> bool {
    let groups = port.get("security_groups").and_then(Value::as_array);
    groups.is_some_and(|groups| groups.iter().any(|have| have.as_str() == Some(group)))
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let given = envelope(ask, "port")?;
    let port = world.seen("ports", id, &ask.project)?;
    revision(ask, port)?;
    let mut after = port.clone();
    after.extend(given.clone());
    let device = text(&after, "device_id").to_owned();
    let before = text(port, "device_id").to_owned();
    groups_fit(world, ask, Some(port), given, &after)?;
    if let Some(port) = world.ports.get_mut(id) {
        *port = after;
    }
    if before != device {
        world.index_device(id, &before, &device);
    }
    world.bump("ports", id);
    Ok(Reply::json(200, &json!({"port": world.ports.get(id)})))
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let port = world
        .seen("ports", id, &ask.project)
        .map_err(|_| missing("ports", id))?;
    revision(ask, port)?;
    world.drop_port(id);
    Ok(Reply::empty(204))
}
