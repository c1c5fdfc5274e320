//! Reading: single objects, lists with filters and pages, the status tree.

use serde_json::{Value, json};

use super::super::listing::{Filters, links, prune};
use super::super::load_balancers::{Balancer, Pool, refs};
use super::super::wire::{Ask, Handled, Reply, Row, text};
use super::super::world::World;
use super::schema::{BALANCER, Field, LISTENER, MEMBER, MONITOR, POOL};
use super::{forbidden, missing};

/// Filters which are no attributes of a POST.
const EXTRA: [&str; 9] = [
    "id",
    "project_id",
    "tenant_id",
    "loadbalancer_id",
    "pool_id",
    "provisioning_status",
    "operating_status",
    "created_at",
    "updated_at",
];

/// A page of a list, after filters.
struct Page {
    limit: usize,
    rows: Vec<(String, Row)>,
}

impl Page {
    fn answer(self, ask: &Ask<'_>, name: &str) -> Reply {
        let mut rows = self.rows;
        let edges = rows.first().zip(rows.last());
        let links = match edges {
            Some(((first, _), (last, _))) if rows.len() >= self.limit => {
                links(ask, self.limit, first, last, false)
            }
            _ => json!([]),
        };
        for (_, row) in &mut rows {
            prune(ask, row);
        }
        let rows = rows.into_iter().map(|(_, row)| Value::Object(row));
        let rows: Vec<Value> = rows.collect();
        Reply::json(200, &json!({name: rows, format!("{name}_links"): links}))
    }
}

fn limit_of(world: &World, ask: &Ask<'_>) -> Result<usize, Reply> {
    let most = world.settings.page_size.max(1);
    let Some(given) = ask.param("limit") else {
        return Ok(most);
    };
    match given.parse::<i64>() {
        _ if given == "infinite" => Ok(most),
        Ok(number) if number < 1 => Ok(most),
        Ok(number) => Ok(usize::try_from(number).unwrap_or(most).min(most)),
        Err(_) => {
            let text = format!("Supplied pagination limit '{given}' is not valid.");
            Err(early(400, &text))
        }
    }
}

/// A refusal before a controller is found: another shape.
pub(super) fn early(status: u16, text: &str) -> Reply {
    Reply::json(
        status,
        &json!({"code": status, "title": "Bad Request", "description": text}),
    )
}

fn filters<'a>(ask: &'a Ask<'_>, fields: &[Field], skip: &[&str]) -> Result<Filters<'a>, Reply> {
    let filters = Filters::of(ask, skip);
    let known = |name: &str| EXTRA.contains(&name) || fields.iter().any(|f| f.name == name);
    if filters.names().all(known) {
        return Ok(filters);
    }
    let text = "One or more arguments are either duplicate or invalid";
    Err(Reply::balancer(400, text))
}

fn bad_marker(ask: &Ask<'_>) -> Reply {
    let marker = ask.param("marker").unwrap_or_default();
    Reply::balancer(
        400,
        format!("Supplied pagination marker '{marker}' is not valid."),
    )
}

fn one(ask: &Ask<'_>, name: &str, mut row: Row) -> Reply {
    prune(ask, &mut row);
    Reply::json(200, &json!({name: row}))
}

/// A load balancer as lists show it.
pub(super) fn balancer_row(balancer: &Balancer) -> Row {
    let mut row = balancer.row.clone();
    row.insert("listeners".to_owned(), refs(&balancer.listeners));
    row.insert("pools".to_owned(), refs(&balancer.pools));
    row
}

/// A pool as lists show it.
pub(super) fn pool_row(pool: &Pool) -> Row {
    let mut row = pool.row.clone();
    let members = refs(pool.members.iter().map(|member| &member.id));
    row.insert("members".to_owned(), members);
    row
}

/// A load balancer with everything below, as the answer to its creation shows it.
pub(in super::super) fn full(world: &World, balancer: &Balancer) -> Row {
    let mut row = balancer.row.clone();
    let listeners = balancer.listeners.iter();
    let listeners = listeners.filter_map(|id| Some(json!(world.listeners.get(id)?.row)));
    row.insert("listeners".to_owned(), listeners.collect());
    let pools = balancer.pools.iter();
    let pools = pools.filter_map(|id| Some(Value::Object(full_pool(world, world.pools.get(id)?))));
    row.insert("pools".to_owned(), pools.collect());
    row
}

pub(in super::super) fn full_pool(world: &World, pool: &Pool) -> Row {
    let mut row = pool.row.clone();
    let project = row.get("project_id").cloned().unwrap_or_default();
    let members = pool.members.iter();
    let members = members.map(|member| Value::Object(member.show(&project)));
    row.insert("members".to_owned(), members.collect());
    let monitor = world.monitors.get(text(&pool.row, "healthmonitor_id"));
    if let Some(monitor) = monitor {
        row.insert("healthmonitor".to_owned(), json!(monitor.row));
    }
    row
}

pub(super) fn balancers(world: &World, ask: &Ask<'_>) -> Handled {
    let limit = limit_of(world, ask)?;
    let filters = filters(ask, BALANCER, &[])?;
    let rows = world.balancers.after(ask.param("marker"));
    let rows = rows.ok_or_else(|| bad_marker(ask))?;
    let rows = rows
        .filter(|(_, b)| text(&b.row, "project_id") == ask.project && filters.admit(&b.row))
        .map(|(id, balancer)| (id.to_owned(), balancer_row(balancer)));
    let rows = rows.take(limit).collect();
    Ok(Page { limit, rows }.answer(ask, "loadbalancers"))
}

pub(super) fn balancer(world: &World, ask: &Ask<'_>, id: &str) -> Handled {
    world.own_balancer(id, &ask.project)?;
    let found = world.balancers.get(id);
    let found = found.ok_or_else(|| missing("Load Balancer", id))?;
    Ok(one(ask, "loadbalancer", balancer_row(found)))
}

pub(super) fn listeners(world: &World, ask: &Ask<'_>) -> Handled {
    let limit = limit_of(world, ask)?;
    let filters = filters(ask, LISTENER, &["loadbalancer_id"])?;
    let parent = ask.param("loadbalancer_id");
    let rows = world.listeners.after(ask.param("marker"));
    let rows = rows.ok_or_else(|| bad_marker(ask))?;
    let rows = rows
        .filter(|(_, l)| parent.is_none_or(|parent| l.balancer == parent))
        .filter(|(_, l)| text(&l.row, "project_id") == ask.project && filters.admit(&l.row))
        .map(|(id, listener)| (id.to_owned(), listener.row.clone()));
    let rows = rows.take(limit).collect();
    Ok(Page { limit, rows }.answer(ask, "listeners"))
}

pub(super) fn listener(world: &World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world.listeners.get(id);
    let row = &found.ok_or_else(|| missing("Listener", id))?.row;
    own(row, ask)?;
    Ok(one(ask, "listener", row.clone()))
}

pub(super) fn pools(world: &World, ask: &Ask<'_>) -> Handled {
    let limit = limit_of(world, ask)?;
    let filters = filters(ask, POOL, &["loadbalancer_id"])?;
    let parent = ask.param("loadbalancer_id");
    let rows = world.pools.after(ask.param("marker"));
    let rows = rows.ok_or_else(|| bad_marker(ask))?;
    let rows = rows
        .filter(|(_, p)| parent.is_none_or(|parent| p.balancer == parent))
        .filter(|(_, p)| text(&p.row, "project_id") == ask.project && filters.admit(&p.row))
        .map(|(id, pool)| (id.to_owned(), pool_row(pool)));
    let rows = rows.take(limit).collect();
    Ok(Page { limit, rows }.answer(ask, "pools"))
}

pub(super) fn pool(world: &World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world.pools.get(id);
    let found = found.ok_or_else(|| missing("Pool", id))?;
    own(&found.row, ask)?;
    Ok(one(ask, "pool", pool_row(found)))
}

pub(super) fn members(world: &World, ask: &Ask<'_>, pool: &str) -> Handled {
    let limit = limit_of(world, ask)?;
    let filters = filters(ask, MEMBER, &[])?;
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    own(&found.row, ask)?;
    let from = match ask.param("marker") {
        None => 0,
        Some(marker) => {
            let place = found.members.iter().position(|member| member.id == marker);
            place.ok_or_else(|| bad_marker(ask))? + 1
        }
    };
    let project = found.row.get("project_id").cloned().unwrap_or_default();
    let rows = found.members.iter().skip(from);
    let rows = rows
        .map(|member| (member.id.clone(), member.show(&project)))
        .filter(|(_, row)| filters.admit(row));
    let rows = rows.take(limit).collect();
    Ok(Page { limit, rows }.answer(ask, "members"))
}

pub(super) fn member(world: &World, ask: &Ask<'_>, pool: &str, id: &str) -> Handled {
    let found = world.pools.get(pool).ok_or_else(|| missing("Pool", pool))?;
    own(&found.row, ask)?;
    let member = found.members.iter().find(|member| member.id == id);
    let member = member.ok_or_else(|| missing("Member", id))?;
    let project = found.row.get("project_id").cloned().unwrap_or_default();
    Ok(one(ask, "member", member.show(&project)))
}

pub(super) fn monitors(world: &World, ask: &Ask<'_>) -> Handled {
    let limit = limit_of(world, ask)?;
    let filters = filters(ask, MONITOR, &["pool_id"])?;
    let parent = ask.param("pool_id");
    let rows = world.monitors.after(ask.param("marker"));
    let rows = rows.ok_or_else(|| bad_marker(ask))?;
    let rows = rows
        .filter(|(_, m)| parent.is_none_or(|parent| m.pool == parent))
        .filter(|(_, m)| text(&m.row, "project_id") == ask.project && filters.admit(&m.row))
        .map(|(id, monitor)| (id.to_owned(), monitor.row.clone()));
    let rows = rows.take(limit).collect();
    Ok(Page { limit, rows }.answer(ask, "healthmonitors"))
}

pub(super) fn monitor(world: &World, ask: &Ask<'_>, id: &str) -> Handled {
    let found = world.monitors.get(id);
    let row = &found.ok_or_else(|| missing("Health Monitor", id))?.row;
    own(row, ask)?;
    Ok(one(ask, "healthmonitor", row.clone()))
}

/// Whether the object is the caller's.
pub(super) fn own(row: &Row, ask: &Ask<'_>) -> Result<(), Reply> {
    if text(row, "project_id") == ask.project {
        return Ok(());
    }
    Err(forbidden())
}

pub(super) fn status(world: &World, ask: &Ask<'_>, id: &str) -> Handled {
    world.own_balancer(id, &ask.project)?;
    let balancer = world.balancers.get(id);
    let balancer = balancer.ok_or_else(|| missing("Load Balancer", id))?;
    let listeners = balancer.listeners.iter();
    let listeners: Vec<Value> = listeners
        .filter_map(|id| {
            let row = &world.listeners.get(id)?.row;
            let pool = world.pools.get(text(row, "default_pool_id"));
            let pools: Vec<Value> = pool
                .into_iter()
                .map(|pool| brief_pool(world, pool))
                .collect();
            Some(brief(row, &json!({"pools": pools})))
        })
        .collect();
    // Pools without a listener aren't in the tree.
    let tree = brief(&balancer.row, &json!({"listeners": listeners}));
    Ok(Reply::json(
        200,
        &json!({"statuses": {"loadbalancer": tree}}),
    ))
}

fn brief_pool(world: &World, pool: &Pool) -> Value {
    let members = pool.members.iter();
    let members: Vec<Value> = members
        .map(|member| {
            json!({"id": member.id, "name": member.name, "address": member.address,
                "protocol_port": member.port, "provisioning_status": member.status,
                "operating_status": member.operating})
        })
        .collect();
    let mut rest = json!({"members": members});
    if let Some(monitor) = world.monitors.get(text(&pool.row, "healthmonitor_id")) {
        let kind = json!({"type": text(&monitor.row, "type")});
        rest["health_monitor"] = brief(&monitor.row, &kind);
    }
    brief(&pool.row, &rest)
}

/// Id, name and statuses of a row, and more.
fn brief(row: &Row, more: &Value) -> Value {
    let keys = ["id", "name", "provisioning_status", "operating_status"];
    let mut out: Row = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), row.get(*key)?.clone())))
        .collect();
    if let Some(more) = more.as_object() {
        out.extend(more.clone());
    }
    Value::Object(out)
}
