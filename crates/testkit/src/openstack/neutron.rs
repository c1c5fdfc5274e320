//! Neutron: networks, subnets, ports, floating IPs, security groups and their rules.

mod floating;
mod groups;
mod networks;
mod ports;
mod rules;

use http::Method;
use serde_json::{Value, json};

use super::listing::{Filters, links, prune};
use super::table::Table;
use super::wire::{Ask, Handled, Reply, Row, Service, text};
use super::world::World;

pub(super) fn versions(world: &World) -> Reply {
    let href = format!("{}/v2.0/", world.base(Service::Network));
    let v2 = json!({"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": href}]});
    Reply::json(200, &json!({"versions": [v2]}))
}

pub(super) fn handle(world: &mut World, ask: &Ask<'_>) -> Handled {
    let ["v2.0", path @ ..] = ask.path.as_slice() else {
        return Err(not_a_resource());
    };
    let (get, post) = (Method::GET, Method::POST);
    let (put, delete) = (Method::PUT, Method::DELETE);
    match (ask.method, path) {
        (m, [kind]) if *m == get => list(world, ask, kind),
        (m, [kind, id]) if *m == get => read(world, ask, kind, id),
        (m, [kind, id, "tags"]) if *m == put => replace_tags(world, ask, kind, id),
        (m, [kind, id, "tags"]) if *m == get => read_tags(world, ask, kind, id),
        (m, [kind, id, "tags", tag]) if *m == put => change_tag(world, ask, kind, id, tag, true),
        (m, [kind, id, "tags", tag]) if *m == delete => {
            change_tag(world, ask, kind, id, tag, false)
        }
        (m, ["floatingips"]) if *m == post => floating::create(world, ask),
        (m, ["floatingips", id]) if *m == put => floating::update(world, ask, id),
        (m, ["floatingips", id]) if *m == delete => floating::delete(world, ask, id),
        (m, ["ports"]) if *m == post => ports::create(world, ask),
        (m, ["ports", id]) if *m == put => ports::update(world, ask, id),
        (m, ["ports", id]) if *m == delete => ports::delete(world, ask, id),
        (m, ["security-groups"]) if *m == post => groups::create(world, ask),
        (m, ["security-groups", id]) if *m == put => groups::update(world, ask, id),
        (m, ["security-groups", id]) if *m == delete => groups::delete(world, ask, id),
        (m, ["security-group-rules"]) if *m == post => rules::create(world, ask),
        (m, ["security-group-rules", id]) if *m == delete => rules::delete(world, ask, id),
        _ => Err(not_a_resource()),
    }
}

fn not_a_resource() -> Reply {
    Reply::network(404, "HTTPNotFound", "The resource could not be found.")
}

/// The words that Neutron has for one kind of object.
struct Words {
    /// In 404 answers.
    noun: &'static str,
    /// Type of the 404.
    missing: &'static str,
    /// Envelope of one.
    one: &'static str,
    /// Envelope of many.
    many: &'static str,
}

fn words(kind: &str) -> Result<Words, Reply> {
    let (noun, missing, one, many) = match kind {
        "networks" => ("Network", "NetworkNotFound", "network", "networks"),
        "subnets" => ("Subnet", "SubnetNotFound", "subnet", "subnets"),
        "ports" => ("Port", "PortNotFound", "port", "ports"),
        "floatingips" => (
            "Floating IP",
            "FloatingIPNotFound",
            "floatingip",
            "floatingips",
        ),
        "security-groups" => (
            "Security group",
            "SecurityGroupNotFound",
            "security_group",
            "security_groups",
        ),
        "security-group-rules" => (
            "Security group rule",
            "SecurityGroupRuleNotFound",
            "security_group_rule",
            "security_group_rules",
        ),
        _ => return Err(not_a_resource()),
    };
    Ok(Words {
        noun,
        missing,
        one,
        many,
    })
}

fn missing(kind: &str, id: &str) -> Reply {
    match words(kind) {
        Ok(words) if kind == "security-groups" => Reply::network(
            404,
            words.missing,
            format!("Security group {id} does not exist"),
        ),
        Ok(words) if kind == "security-group-rules" => Reply::network(
            404,
            words.missing,
            format!("Security group rule {id} does not exist"),
        ),
        Ok(words) => {
            let stop = if kind == "floatingips" { "" } else { "." };
            let text = format!("{} {id} could not be found{stop}", words.noun);
            Reply::network(404, words.missing, text)
        }
        Err(reply) => reply,
    }
}

impl World {
    pub(super) fn network_table(&self, kind: &str) -> Option<&Table<Row>> {
        Some(match kind {
            "networks" => &self.networks,
            "subnets" => &self.subnets,
            "ports" => &self.ports,
            "floatingips" => &self.floating_ips,
            "security-groups" => &self.groups,
            "security-group-rules" => &self.rules,
            _ => return None,
        })
    }

    pub(super) fn network_table_mut(&mut self, kind: &str) -> Option<&mut Table<Row>> {
        Some(match kind {
            "networks" => &mut self.networks,
            "subnets" => &mut self.subnets,
            "ports" => &mut self.ports,
            "floatingips" => &mut self.floating_ips,
            "security-groups" => &mut self.groups,
            "security-group-rules" => &mut self.rules,
            _ => return None,
        })
    }

    /// An object that the project may see.
    fn seen(&self, kind: &str, id: &str, project: &str) -> Result<&Row, Reply> {
        let row = self.network_table(kind).and_then(|table| table.get(id));
        let row = row.filter(|row| Self::visible(row, project));
        row.ok_or_else(|| missing(kind, id))
    }

    /// What every object of Neutron has.
    pub(super) fn neutron_row(&mut self, project: &str, more: Value) -> (String, Row) {
        let id = self.dice.uuid();
        let now = self.clock.zulu();
        let mut row = match more {
            Value::Object(row) => row,
            _ => Row::new(),
        };
        let common = [
            ("id", json!(id)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
            ("revision_number", json!(1)),
            ("project_id", json!(project)),
            ("tenant_id", json!(project)),
        ];
        for (key, value) in common {
            row.entry(key).or_insert(value);
        }
        row.entry("description").or_insert(json!(""));
        row.entry("tags").or_insert(json!([]));
        (id, row)
    }

    /// Notes a change of an object: its revision grows.
    pub(super) fn bump(&mut self, kind: &str, id: &str) {
        let now = self.clock.zulu();
        let Some(row) = self
            .network_table_mut(kind)
            .and_then(|table| table.get_mut(id))
        else {
            return;
        };
        let revision = row.get("revision_number").and_then(Value::as_u64);
        row.insert(
            "revision_number".to_owned(),
            json!(revision.unwrap_or(0) + 1),
        );
        row.insert("updated_at".to_owned(), json!(now));
    }

    /// Whether one more object of the row's project would be too many.
    pub(super) fn over<'a>(
        most: Option<usize>,
        rows: impl Iterator<Item = &'a Row>,
        row: &Row,
    ) -> bool {
        let project = text(row, "project_id");
        most.is_some_and(|most| {
            rows.filter(|row| text(row, "project_id") == project)
                .count()
                >= most
        })
    }
}

fn over_quota(what: &str) -> Reply {
    let text = format!("Quota exceeded for resources: ['{what}'].");
    Reply::network(409, "OverQuota", text)
}

/// Checks `If-Match: revision_number=N`.
fn revision(ask: &Ask<'_>, row: &Row) -> Result<(), Reply> {
    let Some(wanted) = ask.if_match else {
        return Ok(());
    };
    let wanted = wanted.trim_matches('"').strip_prefix("revision_number=");
    let wanted = wanted.and_then(|number| number.parse::<u64>().ok());
    if wanted.is_some() && wanted == row.get("revision_number").and_then(Value::as_u64) {
        return Ok(());
    }
    let text = format!(
        "Constrained to {}, but current revision is {}",
        wanted.map_or("?".to_owned(), |number| number.to_string()),
        row.get("revision_number").cloned().unwrap_or_default()
    );
    Err(Reply::network(412, "RevisionNumberConstraintFailed", text))
}

/// The body's object; `tags` has a way of its own.
fn envelope<'a>(ask: &'a Ask<'_>, one: &str) -> Result<&'a Row, Reply> {
    let row = ask.inner(one).ok_or_else(|| {
        let text = format!("Bad {one} request: Unable to find '{one}' in request body.");
        Reply::network(400, "HTTPBadRequest", text)
    })?;
    if row.contains_key("tags") {
        let text = if *ask.method == Method::POST {
            "Attribute 'tags' not allowed in POST"
        } else {
            "Cannot update read-only attribute tags"
        };
        return Err(Reply::network(400, "HTTPBadRequest", text));
    }
    Ok(row)
}

/// What lists can be filtered by, of all kinds.
const FILTERS: [&str; 34] = [
    "id",
    "name",
    "description",
    "project_id",
    "tenant_id",
    "status",
    "network_id",
    "device_id",
    "device_owner",
    "mac_address",
    "fixed_ips",
    "security_groups",
    "admin_state_up",
    "port_id",
    "router_id",
    "floating_network_id",
    "floating_ip_address",
    "fixed_ip_address",
    "security_group_id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
    "router:external",
    "shared",
    "ip_version",
    "cidr",
    "gateway_ip",
    "enable_dhcp",
    "revision_number",
    "stateful",
];

fn known_filters(filters: &Filters<'_>) -> Result<(), Reply> {
    let unknown: Vec<&str> = filters
        .names()
        .filter(|name| !FILTERS.contains(name))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let text = format!("{unknown:?} is invalid attribute for filtering").replace('"', "'");
    Err(Reply::network(400, "HTTPBadRequest", text))
}

fn list(world: &World, ask: &Ask<'_>, kind: &str) -> Handled {
    let words = words(kind)?;
    let table = world.network_table(kind).ok_or_else(not_a_resource)?;
    let device = ask
        .param("device_id")
        .filter(|id| kind == "ports" && !id.is_empty());
    let filters = Filters::of(ask, &[]);
    known_filters(&filters)?;
    let asked = ask
        .param("limit")
        .and_then(|limit| limit.parse::<usize>().ok());
    let asked = asked.filter(|limit| *limit > 0);
    let most = world.settings.network_page_size;
    let limit = match (asked, most) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (asked, most) => asked.or(most),
    };
    let show = |id: &str, row: &Row| {
        let mut row = row.clone();
        if kind == "security-groups" {
            row.insert("security_group_rules".to_owned(), world.rules_of(id));
        }
        prune(ask, &mut row);
        Value::Object(row)
    };
    let wanted = |row: &Row| World::visible(row, &ask.project) && filters.admit(row);
    let mut ids = Vec::new();
    let rows: Vec<Value> = if let Some(device) = device {
        let ports = world.ports_by_device.get(device).into_iter().flatten();
        let rows = ports.filter_map(|id| Some((id, table.get(id)?)));
        rows.filter(|(_, row)| wanted(row))
            .map(|(id, row)| show(id, row))
            .collect()
    } else {
        let rows = table
            .after(ask.param("marker"))
            .ok_or_else(|| missing(kind, ask.param("marker").unwrap_or_default()))?;
        let rows = rows
            .filter(|(_, row)| wanted(row))
            .take(limit.unwrap_or(usize::MAX));
        rows.map(|(id, row)| {
            ids.push(id.to_owned());
            show(id, row)
        })
        .collect()
    };
    let mut body = json!({words.many: rows});
    if let (Some(limit), Some((first, last))) = (limit, ids.first().zip(ids.last()))
        && ids.len() >= limit
    {
        body[format!("{}_links", words.many)] = links(ask, limit, first, last, true);
    }
    Ok(Reply::json(200, &body))
}

fn read(world: &World, ask: &Ask<'_>, kind: &str, id: &str) -> Handled {
    let words = words(kind)?;
    let mut row = world.seen(kind, id, &ask.project)?.clone();
    if kind == "security-groups" {
        row.insert("security_group_rules".to_owned(), world.rules_of(id));
    }
    prune(ask, &mut row);
    Ok(Reply::json(200, &json!({words.one: row})))
}

fn read_tags(world: &World, ask: &Ask<'_>, kind: &str, id: &str) -> Handled {
    let row = world.seen(kind, id, &ask.project)?;
    Ok(Reply::json(200, &json!({"tags": row.get("tags")})))
}

fn replace_tags(world: &mut World, ask: &Ask<'_>, kind: &str, id: &str) -> Handled {
    let row = world.seen(kind, id, &ask.project)?;
    revision(ask, row)?;
    let tags = ask.body.get("tags").and_then(Value::as_array);
    let good = |tag: &Value| tag.as_str().is_some_and(|tag| tag.len() <= 255);
    let Some(tags) = tags.filter(|tags| tags.iter().all(good)) else {
        let text = "Invalid input for operation: Invalid tags.";
        return Err(Reply::network(400, "InvalidInput", text));
    };
    let tags = json!(tags);
    set_tags(world, kind, id, tags.clone());
    Ok(Reply::json(200, &json!({"tags": tags})))
}

fn change_tag(
    world: &mut World,
    ask: &Ask<'_>,
    kind: &str,
    id: &str,
    tag: &str,
    add: bool,
) -> Handled {
    let tag = super::wire::decode(tag);
    let row = world.seen(kind, id, &ask.project)?;
    let tags = row.get("tags").and_then(Value::as_array).cloned();
    let mut tags = tags.unwrap_or_default();
    let place = tags.iter().position(|have| have.as_str() == Some(&tag));
    match (place, add) {
        (None, true) => tags.push(json!(tag)),
        (Some(place), false) => {
            tags.remove(place);
        }
        (Some(_), true) => {}
        (None, false) => {
            let text = format!("Tag {tag} could not be found.");
            return Err(Reply::network(404, "TagNotFound", text));
        }
    }
    set_tags(world, kind, id, json!(tags));
    Ok(Reply::empty(if add { 201 } else { 204 }))
}

fn set_tags(world: &mut World, kind: &str, id: &str, tags: Value) {
    if let Some(row) = world
        .network_table_mut(kind)
        .and_then(|table| table.get_mut(id))
    {
        row.insert("tags".to_owned(), tags);
    }
    world.bump(kind, id);
}
