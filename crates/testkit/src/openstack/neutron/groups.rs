//! Security groups.

use serde_json::{Value, json};

use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::ports::has_group;
use super::{envelope, missing, over_quota, revision};

impl World {
    /// The rules of a group, as groups show them.
    pub(in super::super) fn rules_of(&self, group: &str) -> Value {
        let rules = self.rules_by_group.get(group).into_iter().flatten();
        rules
            .filter_map(|id| Some(json!(self.rules.get(id)?)))
            .collect()
    }

    /// Removes a group with its rules.
    pub(in super::super) fn drop_group(&mut self, id: &str) {
        self.groups.remove(id);
        for rule in self.rules_by_group.remove(id).unwrap_or_default() {
            self.rules.remove(&rule);
        }
        for port in self.ports.values_mut() {
            if let Some(Value::Array(groups)) = port.get_mut("security_groups") {
                groups.retain(|have| have.as_str() != Some(id));
            }
        }
    }

    fn group_shown(&self, id: &str) -> Value {
        let mut row = self.groups.get(id).cloned().unwrap_or_default();
        row.insert("security_group_rules".to_owned(), self.rules_of(id));
        json!({"security_group": row})
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "security_group")?;
    let stateful = given
        .get("stateful")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let (id, row) = world.neutron_row(
        &ask.project,
        json!({"name": text(given, "name"), "description": text(given, "description"),
            "stateful": stateful, "shared": false}),
    );
    if World::over(
        world.settings.quota.security_groups,
        world.groups.values(),
        &row,
    ) {
        return Err(over_quota("security_group"));
    }
    world.groups.insert(&id, row);
    for family in ["IPv4", "IPv6"] {
        let mut rule = Row::new();
        rule.insert("security_group_id".to_owned(), json!(id));
        rule.insert("direction".to_owned(), json!("egress"));
        rule.insert("ethertype".to_owned(), json!(family));
        world.insert_rule(&ask.project, rule);
    }
    Ok(Reply::json(201, &world.group_shown(&id)))
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let given = envelope(ask, "security_group")?;
    revision(ask, world.seen("security-groups", id, &ask.project)?)?;
    if let Some(row) = world.groups.get_mut(id) {
        for key in ["name", "description", "stateful"] {
            if let Some(value) = given.get(key) {
                row.insert(key.to_owned(), value.clone());
            }
        }
    }
    world.bump("security-groups", id);
    Ok(Reply::json(200, &world.group_shown(id)))
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let row = world.seen("security-groups", id, &ask.project);
    revision(ask, row.map_err(|_| missing("security-groups", id))?)?;
    if world.ports.values().any(|port| has_group(port, id)) {
        let text = format!("Security Group {id} in use.");
        return Err(Reply::network(409, "SecurityGroupInUse", text));
    }
    world.drop_group(id);
    Ok(Reply::empty(204))
}
