//! Rules of security groups, one or many at once.

use serde_json::{Value, json};

use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::{missing, over_quota};

/// What makes two rules the same.
const IDENTITY: [&str; 9] = [
    "security_group_id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
    "remote_address_group_id",
];

impl World {
    /// Puts a rule into its group.
    pub(super) fn insert_rule(&mut self, project: &str, mut row: Row) -> String {
        for key in IDENTITY {
            row.entry(key).or_insert(Value::Null);
        }
        let (id, mut row) = self.neutron_row(project, Value::Object(row));
        row.insert(
            "normalized_cidr".to_owned(),
            row.get("remote_ip_prefix").cloned().unwrap_or_default(),
        );
        row.insert("belongs_to_default_sg".to_owned(), json!(false));
        let group = text(&row, "security_group_id").to_owned();
        self.rules.insert(&id, row);
        self.rules_by_group
            .entry(group.clone())
            .or_default()
            .push(id.clone());
        self.bump("security-groups", &group);
        id
    }

    /// Removes a rule.
    pub(in super::super) fn drop_rule(&mut self, id: &str) {
        let Some(row) = self.rules.remove(id) else {
            return;
        };
        let group = text(&row, "security_group_id");
        if let Some(rules) = self.rules_by_group.get_mut(group) {
            rules.retain(|other| other != id);
        }
        self.bump("security-groups", group);
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    if let Some(many) = ask
        .body
        .get("security_group_rules")
        .and_then(Value::as_array)
    {
        let rows: Result<Vec<Row>, Reply> =
            many.iter().map(|one| validate(world, ask, one)).collect();
        let rows = rows?;
        for (place, row) in rows.iter().enumerate() {
            if rows.iter().take(place).any(|other| same(other, row)) {
                let text = "Duplicate Security Group Rule in POST.";
                return Err(Reply::network(
                    409,
                    "DuplicateSecurityGroupRuleInPost",
                    text,
                ));
            }
        }
        quota(world, ask, rows.len())?;
        let mut made = Vec::new();
        for row in rows {
            let id = world.insert_rule(&ask.project, row);
            made.push(json!(world.rules.get(&id)));
        }
        return Ok(Reply::json(201, &json!({"security_group_rules": made})));
    }
    let one = ask.body.get("security_group_rule").ok_or_else(|| {
        let text = "Bad security_group_rule request: Unable to find 'security_group_rule' in \
                   request body.";
        Reply::network(400, "HTTPBadRequest", text)
    })?;
    let row = validate(world, ask, one)?;
    quota(world, ask, 1)?;
    let id = world.insert_rule(&ask.project, row);
    Ok(Reply::json(
        201,
        &json!({"security_group_rule": world.rules.get(&id)}),
    ))
}

fn quota(world: &World, ask: &Ask<'_>, more: usize) -> Result<(), Reply> {
    let Some(most) = world.settings.quota.security_group_rules else {
        return Ok(());
    };
    let mine = world
        .rules
        .values()
        .filter(|row| text(row, "project_id") == ask.project);
    if mine.count() + more > most {
        return Err(over_quota("security_group_rule"));
    }
    Ok(())
}

fn same(one: &Row, other: &Row) -> bool {
    IDENTITY.iter().all(|key| {
        let value = |row| Row::get(row, *key).filter(|value| !value.is_null());
        value(one) == value(other)
    })
}

fn validate(world: &World, ask: &Ask<'_>, given: &Value) -> Result<Row, Reply> {
    let bad = |text: String| Err(Reply::network(400, "HTTPBadRequest", text));
    let Some(given) = given.as_object() else {
        return bad("Invalid security_group_rule.".to_owned());
    };
    let mut row: Row = given
        .iter()
        .filter(|(key, _)| IDENTITY.contains(&key.as_str()) || *key == "description")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(unknown) = given
        .keys()
        .find(|key| !row.contains_key(*key) && !["project_id", "tenant_id"].contains(&key.as_str()))
    {
        return bad(format!("Attribute '{unknown}' not allowed in POST"));
    }
    let group = text(&row, "security_group_id").to_owned();
    world.seen("security-groups", &group, &ask.project)?;
    let direction = text(&row, "direction");
    if !["ingress", "egress"].contains(&direction) {
        return bad(format!(
            "Invalid input for direction. Reason: '{direction}' is not in ['ingress', 'egress']."
        ));
    }
    let family = text(&row, "ethertype").to_owned();
    let family = if family.is_empty() {
        "IPv4".to_owned()
    } else {
        family
    };
    let prefix = text(&row, "remote_ip_prefix").to_owned();
    if !prefix.is_empty() && (prefix.contains(':') != (family == "IPv6")) {
        let text = format!("Conflicting value ethertype {family} for CIDR {prefix}");
        return Err(Reply::network(
            400,
            "SecurityGroupRuleParameterConflict",
            text,
        ));
    }
    if let Some(protocol) = row.get("protocol").and_then(Value::as_str) {
        row.insert("protocol".to_owned(), json!(protocol.to_lowercase()));
    }
    row.insert("ethertype".to_owned(), json!(family));
    for key in IDENTITY {
        row.entry(key).or_insert(Value::Null);
    }
    let rules = world.rules_by_group.get(&group).into_iter().flatten();
    let rows = rules.filter_map(|id| Some((id, world.rules.get(id)?)));
    let mut duplicates = rows.filter(|(_, have)| same(have, &row));
    if let Some((id, _)) = duplicates.next() {
        let text = format!("Security group rule already exists. Rule id is {id}.");
        return Err(Reply::network(409, "SecurityGroupRuleExists", text));
    }
    Ok(row)
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let seen = world.seen("security-group-rules", id, &ask.project);
    seen.map_err(|_| missing("security-group-rules", id))?;
    world.drop_rule(id);
    Ok(Reply::empty(204))
}
