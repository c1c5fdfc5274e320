//! Octavia: load balancers and all below, with the server's rules.

mod balancer;
mod child;
mod graph;
mod listener;
mod lock;
mod member;
mod monitor;
mod ovn;
mod pool;
mod schema;
mod show;
mod vip;

use http::Method;
use serde_json::{Value, json};

use super::wire::{Ask, Handled, Reply, Service};
use super::world::World;

pub(super) use show::{full, full_pool};

/// The versions document: every minor version up to the highest.
pub(super) fn versions(world: &World) -> Reply {
    let href = format!("{}/v2", world.base(Service::LoadBalancer));
    let highest = world.settings.api_minor;
    let all: Vec<Value> = (0..=highest)
        .map(|minor| {
            let status = if minor == highest {
                "CURRENT"
            } else {
                "SUPPORTED"
            };
            json!({"id": format!("v2.{minor}"), "status": status, "updated": "2016-12-11T00:00:00Z",
                "links": [{"href": href, "rel": "self"}]})
        })
        .collect();
    Reply::json(200, &json!({"versions": all}))
}

pub(super) fn handle(world: &mut World, ask: &Ask<'_>) -> Handled {
    let path = match ask.path.as_slice() {
        ["v2" | "v2.0", "lbaas", rest @ ..] | ["v2" | "v2.0", rest @ ..] => rest.to_vec(),
        _ => return Err(Reply::balancer(404, "The resource could not be found.")),
    };
    if let ["pools", id, "members", ..] = path.as_slice()
        && world.pools.get(id).is_none()
    {
        return Err(show::early(404, &format!("Pool {id} not found.")));
    }
    let (get, post) = (Method::GET, Method::POST);
    let (put, delete) = (Method::PUT, Method::DELETE);
    match (ask.method, path.as_slice()) {
        (m, ["loadbalancers"]) if *m == get => show::balancers(world, ask),
        (m, ["loadbalancers"]) if *m == post => balancer::create(world, ask),
        (m, ["loadbalancers", id]) if *m == get => show::balancer(world, ask, id),
        (m, ["loadbalancers", id]) if *m == put => balancer::update(world, ask, id),
        (m, ["loadbalancers", id]) if *m == delete => balancer::delete(world, ask, id),
        (m, ["loadbalancers", id, "status" | "statuses"]) if *m == get => {
            show::status(world, ask, id)
        }
        (m, ["loadbalancers", id, "failover"]) if *m == put => balancer::failover(world, ask, id),
        (m, ["listeners"]) if *m == get => show::listeners(world, ask),
        (m, ["listeners"]) if *m == post => listener::create(world, ask),
        (m, ["listeners", id]) if *m == get => show::listener(world, ask, id),
        (m, ["listeners", id]) if *m == put => listener::update(world, ask, id),
        (m, ["listeners", id]) if *m == delete => listener::delete(world, ask, id),
        (m, ["pools"]) if *m == get => show::pools(world, ask),
        (m, ["pools"]) if *m == post => pool::create(world, ask),
        (m, ["pools", id]) if *m == get => show::pool(world, ask, id),
        (m, ["pools", id]) if *m == put => pool::update(world, ask, id),
        (m, ["pools", id]) if *m == delete => pool::delete(world, ask, id),
        (m, ["pools", id, "members"]) if *m == get => show::members(world, ask, id),
        (m, ["pools", id, "members"]) if *m == post => member::create(world, ask, id),
        (m, ["pools", id, "members"]) if *m == put => member::batch(world, ask, id),
        (m, ["pools", id, "members", of]) if *m == get => show::member(world, ask, id, of),
        (m, ["pools", id, "members", of]) if *m == put => member::update(world, ask, id, of),
        (m, ["pools", id, "members", of]) if *m == delete => member::delete(world, ask, id, of),
        (m, ["healthmonitors"]) if *m == get => show::monitors(world, ask),
        (m, ["healthmonitors"]) if *m == post => monitor::create(world, ask),
        (m, ["healthmonitors", id]) if *m == get => show::monitor(world, ask, id),
        (m, ["healthmonitors", id]) if *m == put => monitor::update(world, ask, id),
        (m, ["healthmonitors", id]) if *m == delete => monitor::delete(world, ask, id),
        (m, ["providers"]) if *m == get => Ok(providers(world)),
        (m, ["flavors"]) if *m == get && world.settings.api_minor >= 6 => Ok(flavors(world)),
        (m, ["availabilityzones"]) if *m == get && world.settings.api_minor >= 14 => {
            Ok(zones(world))
        }
        (m, ["quotas", _]) if *m == get => Ok(quotas(world)),
        _ => Err(Reply::balancer(404, "The resource could not be found.")),
    }
}

fn providers(world: &World) -> Reply {
    let all = world.settings.providers.iter();
    let all: Vec<Value> = all
        .map(|name| json!({"name": name, "description": format!("The {name} driver.")}))
        .collect();
    Reply::json(200, &json!({"providers": all}))
}

fn flavors(world: &World) -> Reply {
    let all = world.settings.flavors.iter();
    let all: Vec<Value> = all
        .map(|(id, provider)| {
            json!({"id": id, "name": format!("flavor of {provider}"), "description": "",
                "enabled": true, "flavor_profile_id": id})
        })
        .collect();
    Reply::json(200, &json!({"flavors": all, "flavors_links": []}))
}

fn zones(world: &World) -> Reply {
    let all = world.settings.availability_zones.iter();
    let all: Vec<Value> = all
        .map(|name| json!({"name": name, "description": "", "enabled": true}))
        .collect();
    Reply::json(
        200,
        &json!({"availability_zones": all, "availability_zones_links": []}),
    )
}

fn quotas(world: &World) -> Reply {
    let quota = &world.settings.quota;
    let limit = |most: Option<usize>| most.map_or(json!(-1), |most| json!(most));
    let body = json!({"quota": {
        "loadbalancer": limit(quota.load_balancers), "load_balancer": limit(quota.load_balancers),
        "listener": limit(quota.listeners), "pool": limit(quota.pools),
            "member": limit(quota.members),
        "healthmonitor": limit(quota.monitors), "health_monitor": limit(quota.monitors),
        "l7policy": -1, "l7rule": -1,
    }});
    Reply::json(200, &body)
}

/// 404 for one of Octavia's objects.
fn missing(what: &str, id: &str) -> Reply {
    Reply::balancer(404, format!("{what} {id} not found."))
}

/// 400 in Octavia's words.
fn refuse(detail: &str) -> Reply {
    Reply::balancer(400, format!("Validation failure: {detail}"))
}

/// 403 for an object of another project.
fn forbidden() -> Reply {
    Reply::balancer(403, "Policy does not allow this request to be performed.")
}

/// 403 for too many.
fn over_quota(what: &str) -> Reply {
    Reply::balancer(403, format!("Quota has been met for resources: {what}"))
}

/// The object inside the body, as it must be there.
fn envelope<'a>(ask: &'a Ask<'_>, name: &str) -> Result<&'a super::wire::Row, Reply> {
    ask.inner(name).ok_or_else(|| {
        let text = format!(
            "Invalid input for field/attribute {name}. Value: 'None'. Mandatory field missing."
        );
        Reply::balancer(400, text)
    })
}
