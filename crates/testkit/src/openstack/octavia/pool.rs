//! Writes on pools, and what a pool may be.

use serde_json::{Value, json};

use super::super::load_balancers::{PENDING_DELETE, PENDING_UPDATE, Pool, Touched};
use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::lock::set_status;
use super::schema::{self, POOL};
use super::show::{own, pool_row};
use super::{child, envelope, listener, missing, over_quota, ovn, refuse};

/// Whether such a pool may exist.
pub(super) fn validate_pool(world: &World, provider: &str, row: &Row) -> Result<(), Reply> {
    let protocol = text(row, "protocol");
    let datagrams = ["UDP", "SCTP"].contains(&protocol);
    if let Some(persistence) = row.get("session_persistence").and_then(Value::as_object) {
        let kind = text(persistence, "type");
        if !["SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE"].contains(&kind) {
            let text = format!(
                "Invalid input for field/attribute type. Value: '{kind}'. Value should be one of: \
                APP_COOKIE, HTTP_COOKIE, SOURCE_IP"
            );
            return Err(Reply::balancer(400, text));
        }
        let has = |key: &str| persistence.get(key).is_some_and(|value| !value.is_null());
        let cookie = has("cookie_name");
        if cookie && kind != "APP_COOKIE" {
            return Err(refuse(
                "Field \"cookie_name\" can only be specified with session persistence of type \
                \"APP_COOKIE\".",
            ));
        }
        if kind == "APP_COOKIE" && !cookie {
            return Err(refuse(
                "Field \"cookie_name\" must be specified when using the \"APP_COOKIE\" session \
                persistence type.",
            ));
        }
        if datagrams && kind != "SOURCE_IP" {
            return Err(refuse(&format!(
                "Session persistence of type {kind} is not supported for UDP/SCTP protocol pools."
            )));
        }
        if !datagrams && (has("persistence_timeout") || has("persistence_granularity")) {
            return Err(refuse(
                "persistence_timeout and persistence_granularity is only for UDP and SCTP protocol \
                pools.",
            ));
        }
    }
    ovn::pool(world, provider, row)
}

/// Session persistence as it is shown: all its fields.
fn complete(row: &mut Row) {
    if let Some(Value::Object(persistence)) = row.get_mut("session_persistence") {
        for key in [
            "cookie_name",
            "persistence_timeout",
            "persistence_granularity",
        ] {
            persistence.entry(key).or_insert(Value::Null);
        }
    }
}

impl World {
    /// Puts a pool below a load balancer.
    pub(super) fn insert_pool(&mut self, parent: &str, project: &str, mut row: Row) -> String {
        let id = self.dice.uuid();
        child::common(self, &id, project, &mut row);
        complete(&mut row);
        row.insert("loadbalancers".to_owned(), json!([{"id": parent}]));
        row.insert("listeners".to_owned(), json!([]));
        let pool = Pool {
            row,
            balancer: parent.to_owned(),
            members: Vec::new(),
        };
        self.pools.insert(&id, pool);
        if let Some(parent) = self.balancers.get_mut(parent) {
            parent.pools.push(id.clone());
        }
        id
    }

    pub(super) fn count_pools(&self, project: &str) -> usize {
        let all = self.pools.values();
        all.filter(|pool| text(&pool.row, "project_id") == project)
            .count()
    }

    /// Listeners that use the pool: they are locked with it.
    pub(super) fn touch_users(&mut self, pool: &str) -> Vec<Touched> {
        let users = self
            .pools
            .get(pool)
            .and_then(|pool| pool.row.get("listeners"));
        let users = users.and_then(Value::as_array).into_iter().flatten();
        let users: Vec<String> = users
            .filter_map(|user| Some(user.get("id")?.as_str()?.to_owned()))
            .collect();
        for user in &users {
            if let Some(listener) = self.listeners.get_mut(user) {
                set_status(&mut listener.row, PENDING_UPDATE);
            }
        }
        users.into_iter().map(Touched::Listener).collect()
    }
}

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "pool")?;
    let row = schema::create(POOL, given, world.settings.api_minor)?;
    let user = text(given, "listener_id").to_owned();
    let mut parent = text(given, "loadbalancer_id").to_owned();
    if parent.is_empty() && user.is_empty() {
        return Err(refuse(
            "Must provide at least one of: loadbalancer_id, listener_id",
        ));
    }
    if !user.is_empty() {
        let found = world.listeners.get(&user);
        let found = found.ok_or_else(|| missing("Listener", &user))?;
        if parent.is_empty() {
            parent.clone_from(&found.balancer);
        }
        world.own_balancer(&parent, &ask.project)?;
        listener::matrix(&found.row, &row)?;
        if !text(&found.row, "default_pool_id").is_empty() {
            return Err(Reply::balancer(
                409,
                "This listener already has a default pool",
            ));
        }
    }
    let provider = text(world.own_balancer(&parent, &ask.project)?, "provider").to_owned();
    let most = world.settings.quota.pools;
    if most.is_some_and(|most| world.count_pools(&ask.project) >= most) {
        return Err(over_quota("Pool"));
    }
    world.child_writable(&parent)?;
    validate_pool(world, &provider, &row)?;
    let id = world.insert_pool(&parent, &ask.project, row);
    if !user.is_empty() {
        world.attach(&user, Some(&id));
    }
    let mut touched = world.touch_users(&id);
    touched.push(Touched::Pool(id.clone()));
    world.lock(&parent, "pool", PENDING_UPDATE, touched);
    shown(world, 201, &id)
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world.pools.get(id).ok_or_else(|| missing("Pool", id))?;
    own(&found.row, ask)?;
    let parent = found.balancer.clone();
    let given = envelope(ask, "pool")?;
    let mut changes = schema::update(POOL, given, world.settings.api_minor)?;
    complete(&mut changes);
    let mut after = found.row.clone();
    after.extend(changes.clone());
    let provider = text(world.own_balancer(&parent, &ask.project)?, "provider").to_owned();
    validate_pool(world, &provider, &after)?;
    world.child_writable(&parent)?;
    if let Some(found) = world.pools.get_mut(id) {
        found.row.extend(changes);
        set_status(&mut found.row, PENDING_UPDATE);
    }
    let mut touched = world.touch_users(id);
    touched.push(Touched::Pool(id.to_owned()));
    world.lock(&parent, "pool", PENDING_UPDATE, touched);
    shown(world, 200, id)
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world.pools.get(id).ok_or_else(|| missing("Pool", id))?;
    own(&found.row, ask)?;
    let parent = found.balancer.clone();
    world.child_writable(&parent)?;
    if let Some(found) = world.pools.get_mut(id) {
        set_status(&mut found.row, PENDING_DELETE);
    }
    let mut touched = world.touch_users(id);
    touched.push(Touched::Pool(id.to_owned()));
    world.lock(&parent, "pool", PENDING_UPDATE, touched);
    Ok(Reply::empty(204))
}

fn shown(world: &World, status: u16, id: &str) -> Handled {
    let found = world.pools.get(id).ok_or_else(|| missing("Pool", id))?;
    Ok(Reply::json(status, &json!({"pool": pool_row(found)})))
}
