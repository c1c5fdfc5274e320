//! Keystone: tokens for password, application credential, token and trust; the catalog; revocation.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::wire::{Ask, Handled, Reply, Service};
use super::world::World;

/// The answer to a dead, unknown or missing token, by every service.
pub(super) fn unauthorized() -> Reply {
    let mut reply = Reply::identity(
        401,
        "Unauthorized",
        "The request you have made requires authentication.",
    );
    let challenge = "Keystone uri=\"http://identity.sim/v3\"".to_owned();
    reply.headers.push(("www-authenticate", challenge));
    reply
}

/// The versions document, or that of one version.
pub(super) fn versions(world: &World, version: Option<&str>) -> Reply {
    let base = world.base(Service::Identity);
    let v3 = json!({
        "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{base}/")}],
        "media-types": [{"base": "application/json",
            "type": "application/vnd.openstack.identity-v3+json"}],
    });
    match version {
        None => Reply::json(300, &json!({"versions": {"values": [v3]}})),
        Some("v3") => Reply::json(200, &json!({"version": v3})),
        Some(_) => Reply::identity(404, "Not Found", "Could not find version."),
    }
}

pub(super) fn handle(world: &mut World, ask: &Ask<'_>) -> Handled {
    match (ask.method, ask.path.as_slice()) {
        (&Method::POST, ["v3", "auth", "tokens"]) => issue(world, ask),
        (&Method::DELETE, ["v3", "auth", "tokens"]) => {
            alive(world, ask.token)?;
            world.tokens.remove(subject(ask)?);
            Ok(Reply::empty(204))
        }
        (&Method::GET, ["v3", "auth", "tokens"]) => {
            alive(world, ask.token)?;
            let (until, project) = alive(world, Some(subject(ask)?))?;
            Ok(Reply::json(200, &describe(world, until, &project)))
        }
        _ => Err(Reply::identity(
            404,
            "Not Found",
            "The resource could not be found.",
        )),
    }
}

/// The token that the call is about. Ours are only ever about the caller's own.
fn subject<'a>(ask: &Ask<'a>) -> Result<&'a str, Reply> {
    ask.token.ok_or_else(unauthorized)
}

fn alive(world: &World, token: Option<&str>) -> Result<(Instant, String), Reply> {
    let found = token.and_then(|token| world.tokens.get(token));
    let (until, project) = found.ok_or_else(unauthorized)?;
    if *until <= Instant::now() {
        return Err(unauthorized());
    }
    Ok((*until, project.clone()))
}

fn issue(world: &mut World, ask: &Ask<'_>) -> Handled {
    let malformed = || Reply::identity(400, "Bad Request", "Invalid input for field 'identity'.");
    let auth = ask.inner("auth").ok_or_else(malformed)?;
    let identity = auth.get("identity").ok_or_else(malformed)?;
    let methods = identity.get("methods").and_then(Value::as_array);
    let method = methods
        .and_then(|all| all.first())
        .and_then(Value::as_str)
        .ok_or_else(malformed)?;
    let scope = auth.get("scope");
    let good = match method {
        "password" => password_fits(world, identity) && scope_fits(world, scope),
        "application_credential" => scope.is_none() && credential_fits(world, identity),
        "token" => {
            let old = identity.pointer("/token/id").and_then(Value::as_str);
            alive(world, old).is_ok() && scope_fits(world, scope)
        }
        _ => false,
    };
    if !good {
        return Err(unauthorized());
    }
    let until = Instant::now() + world.settings.token_life;
    let project = world.project.clone();
    let token = format!("gAAAA-{}", world.dice.uuid());
    let mut reply = Reply::json(201, &describe(world, until, &project));
    reply.headers.push(("x-subject-token", token.clone()));
    world.tokens.insert(token, (until, project));
    Ok(reply)
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// Whether `pointer` names a user (or project) by id, or by name and domain.
fn names(value: &Value, pointer: &str, name: &str, id: &str, domain: &str) -> bool {
    if let Some(given) = text(value, &format!("{pointer}/id")) {
        return given == id;
    }
    let domain_id = text(value, &format!("{pointer}/domain/id"));
    let domain_name = text(value, &format!("{pointer}/domain/name"));
    let fits = domain_id.map_or(domain_name == Some(domain), |id| {
        id.eq_ignore_ascii_case(domain)
    });
    fits && text(value, &format!("{pointer}/name")) == Some(name)
}

fn password_fits(world: &World, identity: &Value) -> bool {
    let logins = &world.settings.logins;
    let user = "/password/user";
    names(identity, user, &logins.user, &logins.user, &logins.domain)
        && text(identity, "/password/user/password") == Some(&logins.password)
}

fn credential_fits(world: &World, identity: &Value) -> bool {
    let logins = &world.settings.logins;
    let at = "/application_credential";
    let known = match text(identity, &format!("{at}/id")) {
        Some(id) => id == logins.credential,
        None => {
            text(identity, &format!("{at}/name")) == Some(&logins.credential)
                && names(
                    identity,
                    &format!("{at}/user"),
                    &logins.user,
                    &logins.user,
                    &logins.domain,
                )
        }
    };
    known && text(identity, &format!("{at}/secret")) == Some(&logins.credential_secret)
}

fn scope_fits(world: &World, scope: Option<&Value>) -> bool {
    let logins = &world.settings.logins;
    let Some(scope) = scope else {
        return false;
    };
    if let Some(trust) = text(scope, "/OS-TRUST:trust/id") {
        return trust == logins.trust;
    }
    names(
        scope,
        "/project",
        &logins.project,
        &world.project,
        &logins.domain,
    )
}

fn describe(world: &World, until: Instant, project: &str) -> Value {
    let settings = &world.settings;
    let left = until.saturating_duration_since(Instant::now());
    let catalog: Vec<Value> = settings
        .services
        .iter()
        .map(|service| {
            let endpoint = |interface: &str| {
                json!({
                    "id": format!("{}-{interface}", service.name()), "interface": interface,
                    "region": settings.region, "region_id": settings.region,
                        "url": world.base(*service),
                })
            };
            let endpoints = ["public", "internal", "admin"].map(endpoint);
            json!({
                "type": service.name(), "name": service.name(), "id": service.name(),
                "endpoints": endpoints,
            })
        })
        .collect();
    let domain =
        json!({"id": settings.logins.domain.to_lowercase(), "name": settings.logins.domain});
    json!({"token": {
        "methods": ["password"],
        "user": {"id": settings.logins.user, "name": settings.logins.user, "domain": domain,
            "password_expires_at": null},
        "project": {"id": project, "name": settings.logins.project, "domain": domain},
        "roles": [{"id": "member", "name": "member"}, {"id": "lb", "name": "load-balancer_member"}],
        "is_domain": false,
        "catalog": catalog,
        "audit_ids": ["simulated"],
        "issued_at": world.clock.expiry(std::time::Duration::ZERO),
        "expires_at": world.clock.expiry(left),
    }})
}
