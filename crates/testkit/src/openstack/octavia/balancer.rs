//! Writes on load balancers themselves.

use serde_json::{Value, json};

use super::super::load_balancers::{
    ACTIVE, Balancer, ERROR, Fate, PENDING_CREATE, PENDING_DELETE, PENDING_UPDATE,
};
use super::super::wire::{Ask, Handled, Reply, text};
use super::super::world::World;
use super::schema::{self, BALANCER};
use super::show::{balancer_row, full, own};
use super::{envelope, forbidden, graph, missing, over_quota, ovn, refuse};

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = envelope(ask, "loadbalancer")?;
    let minor = world.settings.api_minor;
    let mut row = schema::create(BALANCER, given, minor)?;
    row.insert("project_id".to_owned(), json!(ask.project));
    row.insert("tenant_id".to_owned(), json!(ask.project));
    let vip = world.vip_of(&row)?;
    groups_exist(world, row.get("vip_sg_ids"))?;
    let provider = provider_of(world, text(&row, "provider"), text(&row, "flavor_id"))?;
    let zone = text(&row, "availability_zone");
    if !zone.is_empty() && !world.settings.availability_zones.iter().any(|z| z == zone) {
        return Err(refuse("Invalid availability zone."));
    }
    ovn::balancer(&provider, &row)?;
    let mine = world
        .balancers
        .values()
        .filter(|b| text(&b.row, "project_id") == ask.project);
    if world
        .settings
        .quota
        .load_balancers
        .is_some_and(|most| mine.count() >= most)
    {
        return Err(over_quota("Load Balancer"));
    }
    row.insert("provider".to_owned(), json!(provider));
    let plan = graph::plan(world, given, &row, &vip)?;
    let id = world.dice.uuid();
    let owns_port = world.bind_vip(&id, &vip, &mut row)?;
    row.insert("id".to_owned(), json!(id));
    row.insert("vip_vnic_type".to_owned(), json!("normal"));
    row.insert("created_at".to_owned(), json!(world.clock.plain()));
    row.insert("updated_at".to_owned(), Value::Null);
    row.insert("operating_status".to_owned(), json!("OFFLINE"));
    let balancer = Balancer {
        row,
        listeners: Vec::new(),
        pools: Vec::new(),
        owns_port,
        pending: None,
    };
    world.balancers.insert(&id, balancer);
    let doomed = plan.doomed;
    let touched = graph::build(world, &id, &ask.project, plan);
    world.lock(&id, "create", PENDING_CREATE, touched);
    let pending = world.balancers.get_mut(&id);
    if let Some(pending) = pending
        .and_then(|it| it.pending.as_mut())
        .filter(|_| doomed)
    {
        pending.fate = Fate::BalancerError;
    }
    let made = world.balancers.get(&id);
    let made = made.ok_or_else(|| missing("Load Balancer", &id))?;
    Ok(Reply::json(
        201,
        &json!({"loadbalancer": full(world, made)}),
    ))
}

/// The provider, by name, by flavor, or the default.
fn provider_of(world: &World, name: &str, flavor: &str) -> Result<String, Reply> {
    let settings = &world.settings;
    let by_flavor = if flavor.is_empty() {
        None
    } else {
        let found = settings.flavors.iter().find(|(id, _)| id == flavor);
        Some(
            found
                .ok_or_else(|| refuse("Invalid flavor_id."))?
                .1
                .as_str(),
        )
    };
    if !name.is_empty() && !settings.providers.iter().any(|have| have == name) {
        let text = format!("Provider '{name}' is not enabled.");
        return Err(Reply::balancer(400, text));
    }
    match by_flavor {
        Some(provider) if !name.is_empty() && provider != name => {
            let text = format!("Flavor '{flavor}' is not compatible with provider '{name}'");
            Err(Reply::balancer(400, text))
        }
        Some(provider) => Ok(provider.to_owned()),
        None if name.is_empty() => Ok(settings.providers.first().cloned().unwrap_or_default()),
        None => Ok(name.to_owned()),
    }
}

fn groups_exist(world: &World, ids: Option<&Value>) -> Result<(), Reply> {
    for id in ids.and_then(Value::as_array).into_iter().flatten() {
        let id = id.as_str().unwrap_or_default();
        if !world.groups.contains(id) {
            return Err(Reply::balancer(
                400,
                format!("Security Group {id} not found."),
            ));
        }
    }
    Ok(())
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    own(world.own_balancer(id, &ask.project)?, ask)?;
    let given = envelope(ask, "loadbalancer")?;
    let changes = schema::update(BALANCER, given, world.settings.api_minor)?;
    groups_exist(world, changes.get("vip_sg_ids"))?;
    world.balancer_writable(id, &[ACTIVE])?;
    if let Some(balancer) = world.balancers.get_mut(id) {
        balancer.row.extend(changes);
    }
    world.lock(id, "update", PENDING_UPDATE, Vec::new());
    let balancer = world.balancers.get(id);
    let balancer = balancer.ok_or_else(|| missing("Load Balancer", id))?;
    Ok(Reply::json(
        200,
        &json!({"loadbalancer": balancer_row(balancer)}),
    ))
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    world.own_balancer(id, &ask.project)?;
    let cascade = ask.param("cascade").is_some_and(|flag| {
        ["1", "t", "true", "on", "y", "yes"].contains(&flag.to_lowercase().as_str())
    });
    let balancer = world.balancers.get(id);
    let children = balancer.is_some_and(|b| !b.listeners.is_empty() || !b.pools.is_empty());
    if children && !cascade {
        return Err(refuse(&format!(
            "Cannot delete Load Balancer {id} - it has children"
        )));
    }
    world.balancer_writable(id, &[ACTIVE, ERROR])?;
    world.lock(id, "delete", PENDING_DELETE, Vec::new());
    Ok(Reply::empty(204))
}

pub(super) fn failover(world: &mut World, ask: &Ask<'_>, id: &str) -> Handled {
    let row = world.own_balancer(id, &ask.project)?;
    ovn::failover(text(row, "provider"))?;
    if !world.settings.failover_allowed {
        return Err(forbidden());
    }
    world.balancer_writable(id, &[ACTIVE, ERROR])?;
    world.lock(id, "failover", PENDING_UPDATE, Vec::new());
    Ok(Reply::empty(202))
}
