//! Barbican: whether a secret or a container exists.

use http::Method;
use serde_json::json;

use super::wire::{Ask, Handled, Reply, Service};
use super::world::World;

pub(super) fn versions(world: &World) -> Reply {
    let href = format!("{}/v1/", world.base(Service::KeyManager));
    let v1 = json!({"id": "v1", "status": "stable", "links": [{"rel": "self", "href": href}]});
    Reply::json(300, &json!({"versions": {"values": [v1]}}))
}

pub(super) fn handle(world: &mut World, ask: &Ask<'_>) -> Handled {
    let missing = |what: &str| {
        let title = format!("Not Found. {what} not found or unable to be accessed");
        Reply::json(
            404,
            &json!({"code": 404, "title": "Not Found", "description": title}),
        )
    };
    let base = world.base(Service::KeyManager);
    match (ask.method, ask.path.as_slice()) {
        (&Method::GET, ["v1", "secrets", id]) if world.secrets.contains(*id) => {
            let body = json!({"secret_ref": format!("{base}/v1/secrets/{id}"),
                "name": "certificate",
                "status": "ACTIVE", "secret_type": "opaque"});
            Ok(Reply::json(200, &body))
        }
        (&Method::GET, ["v1", "containers", id]) if world.containers.contains(*id) => {
            let body = json!({"container_ref": format!("{base}/v1/containers/{id}"),
                "name": "certificate",
                "status": "ACTIVE", "type": "certificate", "secret_refs": []});
            Ok(Reply::json(200, &body))
        }
        (&Method::GET, ["v1", "secrets", _]) => Err(missing("Secret")),
        (&Method::GET, ["v1", "containers", _]) => Err(missing("Container")),
        _ => Err(missing("Resource")),
    }
}

/// Whether Octavia can read the certificate behind a reference.
pub(super) fn readable(world: &World, reference: &str) -> bool {
    let mut parts = reference.rsplit('/');
    let id = parts.next().unwrap_or_default();
    match parts.next() {
        Some("containers") => world.containers.contains(id),
        Some("secrets") => world.secrets.contains(id),
        _ => false,
    }
}
