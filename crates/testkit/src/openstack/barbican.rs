//! Barbican: secrets, and containers of secrets. What a secret holds is written and never shown.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::wire::{Ask, Handled, Reply, Row, Service, text};
use super::world::World;

/// Objects on a page of a list, unless fewer are asked for.
const PAGE: usize = 100;

pub(super) fn versions(world: &World) -> Reply {
    let href = format!("{}/v1/", world.base(Service::KeyManager));
    let v1 = json!({"id": "v1", "status": "stable", "links": [{"rel": "self", "href": href}]});
    Reply::json(300, &json!({"versions": {"values": [v1]}}))
}

pub(super) fn handle(world: &mut World, ask: &Ask<'_>) -> Handled {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    match (ask.method, ask.path.as_slice()) {
        (m, ["v1", "secrets"]) if *m == post => create_secret(world, ask),
        (m, ["v1", "containers"]) if *m == post => create_container(world, ask),
        (m, ["v1", "secrets"]) if *m == get => Ok(list(world, ask, "secret")),
        (m, ["v1", "containers"]) if *m == get => Ok(list(world, ask, "container")),
        (m, ["v1", "secrets", id]) if *m == get => show(world, "secret", id),
        (m, ["v1", "containers", id]) if *m == get => show(world, "container", id),
        (m, ["v1", "secrets", id]) if *m == delete => {
            let gone = world.secrets.remove(*id);
            gone.map(|_| Reply::empty(204))
                .ok_or_else(|| missing("Secret"))
        }
        (m, ["v1", "containers", id]) if *m == delete => {
            let gone = world.containers.remove(*id);
            gone.map(|_| Reply::empty(204))
                .ok_or_else(|| missing("Container"))
        }
        (_, ["v1", "secrets", _]) => Err(missing("Secret")),
        (_, ["v1", "containers", _]) => Err(missing("Container")),
        _ => Err(missing("Resource")),
    }
}

/// What stands for an object that a person made.
pub(super) fn by_hand(kind: &str) -> Row {
    let mut row = Row::new();
    row.insert("name".to_owned(), json!("certificate"));
    if kind == "container" {
        row.insert("type".to_owned(), json!("certificate"));
        row.insert("secret_refs".to_owned(), json!([]));
    }
    row
}

/// Whether Octavia can read the certificate behind a reference.
pub(super) fn readable(world: &World, reference: &str) -> bool {
    let mut parts = reference.rsplit('/');
    let id = parts.next().unwrap_or_default();
    match parts.next() {
        Some("containers") => world.containers.get(id).is_some_and(|row| {
            let refs = row.get("secret_refs").and_then(Value::as_array);
            let mut refs = refs.into_iter().flatten();
            refs.all(|part| {
                let secret = part["secret_ref"].as_str().unwrap_or_default();
                let secret = secret.rsplit('/').next().unwrap_or_default();
                world.secrets.contains_key(secret)
            })
        }),
        Some("secrets") => world.secrets.contains_key(id),
        _ => false,
    }
}

fn missing(what: &str) -> Reply {
    refuse(
        404,
        "Not Found",
        &format!("Not Found. {what} not found or unable to be accessed"),
    )
}

fn invalid(why: &str) -> Reply {
    refuse(400, "Bad Request", why)
}

fn refuse(code: u16, title: &str, why: &str) -> Reply {
    Reply::json(
        code,
        &json!({"code": code, "title": title, "description": why}),
    )
}

fn create_secret(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = ask
        .body
        .as_object()
        .ok_or_else(|| invalid("no object in the body"))?;
    let kind = match text(given, "secret_type") {
        "" => "opaque",
        kind => kind,
    };
    let known = [
        "symmetric",
        "public",
        "private",
        "certificate",
        "passphrase",
        "opaque",
    ];
    if !known.contains(&kind) {
        return Err(invalid(&format!("'{kind}' is not one of the secret types")));
    }
    let payload = text(given, "payload");
    if payload.trim().is_empty() {
        return Err(invalid("No payload was provided."));
    }
    if text(given, "payload_content_type") != "text/plain" {
        return Err(invalid("payload_content_type is not one of ['text/plain']"));
    }
    let mut row = Row::new();
    for (key, value) in [
        ("name", text(given, "name")),
        ("secret_type", kind),
        ("payload", payload),
    ] {
        row.insert(key.to_owned(), json!(value));
    }
    let id = world.dice.uuid();
    world.secrets.insert(id.clone(), row);
    let made = format!("{}/v1/secrets/{id}", world.base(Service::KeyManager));
    Ok(Reply::json(201, &json!({"secret_ref": made})))
}

fn create_container(world: &mut World, ask: &Ask<'_>) -> Handled {
    let given = ask
        .body
        .as_object()
        .ok_or_else(|| invalid("no object in the body"))?;
    let refs = given.get("secret_refs").and_then(Value::as_array);
    let refs = refs.cloned().unwrap_or_default();
    let names: Vec<&str> = refs
        .iter()
        .filter_map(|part| part["name"].as_str())
        .collect();
    let known = [
        "certificate",
        "private_key",
        "private_key_passphrase",
        "intermediates",
    ];
    if text(given, "type") == "certificate"
        && !(names.contains(&"certificate") && names.iter().all(|name| known.contains(name)))
    {
        return Err(invalid(
            "type certificate needs at least 'certificate' and takes no other names",
        ));
    }
    for part in &refs {
        let secret = part["secret_ref"].as_str().unwrap_or_default();
        let secret = secret.rsplit('/').next().unwrap_or_default();
        if !world.secrets.contains_key(secret) {
            return Err(missing("Secret provided for"));
        }
    }
    let mut row = Row::new();
    row.insert("name".to_owned(), json!(text(given, "name")));
    row.insert("type".to_owned(), json!(text(given, "type")));
    row.insert("secret_refs".to_owned(), json!(refs));
    let id = world.dice.uuid();
    world.containers.insert(id.clone(), row);
    let made = format!("{}/v1/containers/{id}", world.base(Service::KeyManager));
    Ok(Reply::json(201, &json!({"container_ref": made})))
}

fn shown(world: &World, kind: &str, id: &str, row: &Row) -> Value {
    let base = world.base(Service::KeyManager);
    let mut row = row.clone();
    row.remove("payload");
    row.insert(
        format!("{kind}_ref"),
        json!(format!("{base}/v1/{kind}s/{id}")),
    );
    row.insert("status".to_owned(), json!("ACTIVE"));
    Value::Object(row)
}

fn table<'a>(world: &'a World, kind: &str) -> &'a BTreeMap<String, Row> {
    match kind {
        "secret" => &world.secrets,
        _ => &world.containers,
    }
}

fn show(world: &World, kind: &str, id: &str) -> Handled {
    let what = if kind == "secret" {
        "Secret"
    } else {
        "Container"
    };
    let row = table(world, kind).get(id).ok_or_else(|| missing(what))?;
    Ok(Reply::json(200, &shown(world, kind, id, row)))
}

/// A page, with the address of the next one alone.
fn list(world: &World, ask: &Ask<'_>, kind: &str) -> Reply {
    let number = |key: &str| ask.param(key).and_then(|it| it.parse::<usize>().ok());
    let limit = number("limit").unwrap_or(10).min(PAGE);
    let offset = number("offset").unwrap_or(0);
    let name = ask.param("name");
    let all: Vec<Value> = table(world, kind)
        .iter()
        .filter(|(_, row)| name.is_none_or(|name| text(row, "name") == name))
        .map(|(id, row)| shown(world, kind, id, row))
        .collect();
    let total = all.len();
    let page: Vec<Value> = all.into_iter().skip(offset).take(limit).collect();
    let mut body = json!({"total": total, format!("{kind}s"): page});
    if offset + limit < total {
        let next = format!("{}?limit={limit}&offset={}", ask.url, offset + limit);
        body["next"] = json!(next);
    }
    Reply::json(200, &body)
}
