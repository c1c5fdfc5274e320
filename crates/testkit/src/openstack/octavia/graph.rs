//! The fully populated create: everything is validated before anything is made.

use std::collections::HashSet;

use serde_json::Value;

use super::super::load_balancers::{Member, Touched};
use super::super::wire::{Reply, Row, text};
use super::super::world::World;
use super::listener::{Around, layer4, matrix, validate_listener};
use super::member::{read_members, unknown_subnet};
use super::monitor::validate_monitor;
use super::pool::validate_pool;
use super::schema::{self, LISTENER, MONITOR, POOL};
use super::vip::Vip;
use super::{over_quota, refuse};

/// A graph that may be made.
#[derive(Default)]
pub(super) struct Graph {
    pools: Vec<(Row, Vec<Row>, Option<Row>)>,
    /// A listener and the place of its pool in `pools`.
    listeners: Vec<(Row, Option<usize>)>,
    /// Members name a subnet that does not exist. Only a write of members looks; here it is found
    /// out at work.
    pub(super) doomed: bool,
}

fn objects<'a>(row: &'a Row, key: &str) -> Vec<&'a Row> {
    let items = row.get(key).and_then(Value::as_array);
    let items = items.into_iter().flatten();
    items.filter_map(Value::as_object).collect()
}

/// Validates listeners, pools, members and monitors of a POST.
pub(super) fn plan(world: &World, given: &Row, row: &Row, vip: &Vip) -> Result<Graph, Reply> {
    let mut specs = objects(given, "pools");
    let mut wanted = Vec::new();
    for listener in objects(given, "listeners") {
        let pool = listener.get("default_pool").and_then(Value::as_object);
        if let Some(pool) = pool {
            if text(pool, "name").is_empty() {
                return Err(refuse(
                    "Pools must be named when creating a fully populated loadbalancer.",
                ));
            }
            // A name alone refers to a pool that stands elsewhere.
            let more = pool
                .keys()
                .any(|key| !["name", "admin_state_up", "tls_enabled"].contains(&key.as_str()));
            if more {
                specs.push(pool);
            }
        }
        wanted.push(pool.map(|pool| text(pool, "name")));
    }
    let names: Vec<&str> = specs.iter().map(|pool| text(pool, "name")).collect();
    if names.iter().collect::<HashSet<_>>().len() != names.len() {
        return Err(refuse(
            "Pool names must be unique when creating a fully populated loadbalancer.",
        ));
    }
    for name in wanted.iter().flatten() {
        if !names.contains(name) {
            return Err(refuse(&format!(
                "Pool '{name}' was referenced but no full definition was found."
            )));
        }
    }
    let around = Around::new(world, row, vip);
    let mut graph = Graph::default();
    plan_pools(world, &around, &specs, &mut graph)?;
    plan_listeners(world, &around, given, &wanted, &names, &mut graph)?;
    let project = text(row, "project_id");
    let quota = &world.settings.quota;
    let members = graph.pools.iter().map(|(_, members, _)| members.len());
    let count = |most: Option<usize>, have: &dyn Fn() -> usize, more: usize, what: &str| {
        if more > 0 && most.is_some_and(|most| have() + more > most) {
            return Err(over_quota(what));
        }
        Ok(())
    };
    let (pools, listeners) = (graph.pools.len(), graph.listeners.len());
    count(quota.pools, &|| world.count_pools(project), pools, "Pool")?;
    count(
        quota.listeners,
        &|| world.count_listeners(project),
        listeners,
        "Listener",
    )?;
    count(
        quota.members,
        &|| world.count_of_members(project),
        members.sum(),
        "Member",
    )?;
    Ok(graph)
}

fn plan_pools(
    world: &World,
    around: &Around,
    specs: &[&Row],
    graph: &mut Graph,
) -> Result<(), Reply> {
    let minor = world.settings.api_minor;
    for spec in specs {
        for attribute in ["protocol", "lb_algorithm"] {
            if !spec.contains_key(attribute) {
                return Err(refuse(&format!(
                    "Pool definition for '{}' missing required attribute: {attribute}",
                    text(spec, "name")
                )));
            }
        }
        let pool = schema::create(POOL, spec, minor)?;
        validate_pool(world, &around.provider, &pool)?;
        let members = objects(spec, "members");
        let members = read_members(world, &around.provider, &members)?;
        graph.doomed |= unknown_subnet(world, &members).is_some();
        let mut keys = HashSet::new();
        for member in &members {
            let port = member.get("protocol_port").and_then(Value::as_u64);
            if !keys.insert((text(member, "address"), port)) {
                return Err(super::member::duplicate(member));
            }
        }
        let monitor = match spec.get("healthmonitor").and_then(Value::as_object) {
            None => None,
            Some(given) => {
                let monitor = schema::create(MONITOR, given, minor)?;
                validate_monitor(world, &around.provider, &pool, &monitor)?;
                Some(monitor)
            }
        };
        graph.pools.push((pool, members, monitor));
    }
    Ok(())
}

fn plan_listeners(
    world: &World,
    around: &Around,
    given: &Row,
    wanted: &[Option<&str>],
    names: &[&str],
    graph: &mut Graph,
) -> Result<(), Reply> {
    let mut fronts = HashSet::new();
    for (given, pool) in objects(given, "listeners").into_iter().zip(wanted) {
        let listener = schema::create(LISTENER, given, world.settings.api_minor)?;
        validate_listener(world, around, &listener)?;
        let port = listener.get("protocol_port").and_then(Value::as_u64);
        let protocol = text(&listener, "protocol");
        if !fronts.insert((layer4(protocol).to_owned(), port)) {
            return Err(super::listener::duplicate(protocol, port.unwrap_or(0)));
        }
        let place = pool.and_then(|name| names.iter().position(|other| *other == name));
        if let Some((pool, _, _)) = place.and_then(|place| graph.pools.get(place)) {
            matrix(&listener, pool)?;
        }
        graph.listeners.push((listener, place));
    }
    Ok(())
}

/// Makes all of it below a new load balancer.
pub(super) fn build(world: &mut World, id: &str, project: &str, graph: Graph) -> Vec<Touched> {
    let mut touched = Vec::new();
    let mut ids = Vec::new();
    for (row, members, monitor) in graph.pools {
        let pool = world.insert_pool(id, project, row);
        let seconds = world.clock.seconds();
        let made: Vec<Member> = members
            .iter()
            .map(|member| Member::of(member, world.dice.uuid(), seconds))
            .collect();
        world.count_members(project, made.len(), 0);
        if let Some(found) = world.pools.get_mut(&pool) {
            found.members = made;
        }
        touched.push(Touched::Pool(pool.clone()));
        touched.push(Touched::Members(pool.clone()));
        if let Some(monitor) = monitor {
            touched.push(Touched::Monitor(
                world.insert_monitor(&pool, project, monitor),
            ));
        }
        ids.push(pool);
    }
    for (row, place) in graph.listeners {
        let listener = world.insert_listener(id, project, row);
        world.attach(
            &listener,
            place.and_then(|place| ids.get(place)).map(String::as_str),
        );
        touched.push(Touched::Listener(listener));
    }
    touched
}
