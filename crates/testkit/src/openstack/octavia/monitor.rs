//! Writes on monitors, and what a monitor may be.

use serde_json::{Value, json};

use super::super::load_balancers::{ACTIVE, Monitor, PENDING_DELETE, PENDING_UPDATE, Touched};
use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::lock::set_status;
use super::schema::{self, MONITOR};
use super::show::own;
use super::{child, envelope, missing, over_quota, ovn, refuse};

/// Whether such a monitor suits the pool.
pub(super) fn validate_monitor(
    world: &World,
    provider: &str,
    pool: &Row,
    row: &Row,
) -> Result<(), Reply> {
    let (protocol, kind) = (text(pool, "protocol"), text(row, "type"));
    if ["UDP", "SCTP"].contains(&protocol) {
        let mut good = vec!["UDP-CONNECT", "SCTP"];
        if world.settings.api_minor >= 16 {
            good = vec!["UDP-CONNECT", "SCTP", "TCP", "HTTP"];
        }
        if !good.contains(&kind) {
            return Err(refuse(&format!(
                "The associated pool protocol is {protocol}, so only a {} health monitor is \
                supported.",
                good.join("/")
            )));
        }
    } else if ["UDP-CONNECT", "SCTP"].contains(&kind) {
        return Err(refuse(&format!(
            "The {kind} type is only supported for pools of type UDP/SCTP."
        )));
    }
    let least = world.settings.udp_connect_min_delay;
    let delay = row.get("delay").and_then(Value::as_i64).unwrap_or(0);
    if kind == "UDP-CONNECT" && delay < least {
        return Err(refuse(&format!(
            "The request delay value {delay} should be larger than {least} for {kind} health \
            monitor type."
        )));
    }
    ovn::monitor(provider, row)
}

/// Monitors that speak HTTP have defaults for it.
fn complete(row: &mut Row) {
    if ["HTTP", "HTTPS"].contains(&text(row, "type")) {
        for (key, value) in [
            ("http_method", "GET"),
            ("url_path", "/"),
            ("expected_codes", "200"),
        ] {
            if row.get(key).is_none_or(Value::is_null) {
                row.insert(key.to_owned(), json!(value));
            }
        }
    }
}

impl World {
    /// Gives a pool its monitor.
    pub(super) fn insert_monitor(&mut self, pool: &str, project: &str, mut row: Row) -> String {
        let id = self.dice.uuid();
        child::common(self, &id, project, &mut row);
        complete(&mut row);
        row.insert("pools".to_owned(), json!([{"id": pool}]));
        let monitor = Monitor {
            row,
            pool: pool.to_owned(),
        };
        self.monitors.insert(&id, monitor);
        if let Some(found) = self.pools.get_mut(pool) {
            found.row.insert("healthmonitor_id".to_owned(), json!(id));
            for member in &mut found.members {
                member.operating = "OFFLINE";
            }
        }
        id
    }

    /// Locks for a write on a pool's monitor.
    fn lock_monitor(&mut self, balancer: &str, pool: &str, id: &str) {
        let mut touched = self.touch_users(pool);
        if let Some(found) = self.pools.get_mut(pool) {
            set_status(&mut found.row, PENDING_UPDATE);
        }
        touched.push(Touched::Pool(pool.to_owned()));
        touched.push(Touched::Monitor(id.to_owned()));
        self.lock(balancer, "monitor", PENDING_UPDATE, touched);
    }

    /// Pool and load balancer of a monitor that may be written.
    fn monitor_writable(&self, id: &str, ask: &Ask<'_>) -> Result<(String, String), Reply> {
        let found = self
            .monitors
            .get(id)
            .ok_or_else(|| missing("Health Monitor", id))?;
        own(&found.row, ask)?;
        let pool = self
            .pools
            .get(&found.pool)
            .ok_or_else(|| missing("Pool", &found.pool))?;
        self.pool_writable(&found.pool)?;
        Ok((found.pool.clone(), pool.balancer.clone()))
    }

    fn pool_writable(&self, pool: &str) -> Result<(), Reply> {
        let found = self.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
        if text(&found.row, "provisioning_status") != ACTIVE {
            let text = format!("Pool {pool} is immutable and cannot be updated.");
            return Err(Reply::balancer(409, text));
        }
        self.child_writable(&found.balancer)
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "healthmonitor")?;
    let row = schema::create(MONITOR, given, world.settings.api_minor)?;
    let pool = text(given, "pool_id").to_owned();
    let found = world
        .pools
        .get(&pool)
        .ok_or_else(|| missing("Pool", &pool))?;
    own(&found.row, ask)?;
    let parent = found.balancer.clone();
    let provider = text(world.own_balancer(&parent, &ask.project)?, "provider");
    validate_monitor(world, provider, &found.row, &row)?;
    let mine = world.monitors.values();
    let mine = mine.filter(|monitor| text(&monitor.row, "project_id") == ask.project);
    if world
        .settings
        .quota
        .monitors
        .is_some_and(|most| mine.count() >= most)
    {
        return Err(over_quota("Health Monitor"));
    }
    world.pool_writable(&pool)?;
    if !text(&found.row, "healthmonitor_id").is_empty() {
        return Err(Reply::balancer(
            409,
            "This pool already has a health monitor",
        ));
    }
    let id = world.insert_monitor(&pool, &ask.project, row);
    world.lock_monitor(&parent, &pool, &id);
    shown(world, 201, &id)
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let given = envelope(ask, "healthmonitor")?;
    let changes = schema::update(MONITOR, given, world.settings.api_minor)?;
    let (pool, parent) = world.monitor_writable(id, ask)?;
    if let Some(found) = world.monitors.get_mut(id) {
        found.row.extend(changes);
        set_status(&mut found.row, PENDING_UPDATE);
    }
    world.lock_monitor(&parent, &pool, id);
    shown(world, 200, id)
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let (pool, parent) = world.monitor_writable(id, ask)?;
    if let Some(found) = world.monitors.get_mut(id) {
        set_status(&mut found.row, PENDING_DELETE);
    }
    world.lock_monitor(&parent, &pool, id);
    Ok(Reply::empty(204))
}

fn shown(world: &World, status: u16, id: &str) -> Handled {
    let found = world
        .monitors
        .get(id)
        .ok_or_else(|| missing("Health Monitor", id))?;
    Ok(Reply::json(status, &json!({"healthmonitor": found.row})))
}
