//! `AdmissionReview` objects, from the request to the answer: pure.

use std::sync::Arc;

use landfall_engine::World;
use landfall_metallb::{ObjectName, Proposal, Verdict};
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{PoolRow, ResourceKind};
use landfall_model::wire;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Review {
    request: Request,
}

/// What is asked, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    kind: Kind,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    object: Value,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// Returns the answer. `world`: what there is; without it everything is admitted.
///
/// # Errors
/// It is no request that can be read.
pub fn answer(body: &[u8], world: Option<&World>, home: &str) -> serde_json::Result<Value> {
    let Review { request } = serde_json::from_slice(body)?;
    let proposal = proposal(&request)?;
    let verdict = match (proposal, world) {
        (Some(proposal), Some(world)) if world.synced() => {
            let pools = world.pools().iter();
            // Pools of the configuration may be those of another instance.
            let pools = pools.filter(|row| row.instance.is_none());
            let pools: Vec<_> = pools.cloned().collect();
            let objects = world.resources(&ResourceKind::ALL);
            let objects = objects.filter(|it| it.kind != ResourceKind::IpAddressPool);
            let objects: Vec<_> = objects.cloned().collect();
            Verdict::of(&proposal, &pools, &objects, home)
        }
        _ => Verdict::default(),
    };
    let texts =
        |reasons: &[Reason]| -> Vec<String> { reasons.iter().map(ToString::to_string).collect() };
    let mut response = json!({"uid": request.uid, "allowed": verdict.is_admitted()});
    if !verdict.is_admitted() {
        let message = texts(&verdict.refused).join("; ");
        response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(texts(&verdict.warnings));
    }
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }))
}

/// Returns what is to change; `None`: nothing that is validated.
fn proposal(request: &Request) -> serde_json::Result<Option<Proposal>> {
    let kind = Value::String(request.kind.kind.clone());
    let Ok(kind) = serde_json::from_value::<ResourceKind>(kind) else {
        return Ok(None);
    };
    if request.operation == "DELETE" {
        let key = ServiceKey::new(&request.namespace, &request.name);
        return Ok(Some(Proposal::Deletion(ObjectName { kind, key })));
    }
    let object = wire::Resource::deserialize(&request.object)?;
    let resource = Arc::new(object.into_admitted_row(kind));
    if kind != ResourceKind::IpAddressPool {
        return Ok(Some(Proposal::Object(resource)));
    }
    let pool = wire::IpAddressPool::deserialize(&request.object)?;
    Ok(Some(Proposal::Pool(Arc::new(PoolRow {
        resource: Some(resource),
        ..pool.into_admitted_row()
    }))))
}

#[cfg(test)]
mod tests {
    use landfall_model::rows::Fact;

    use super::*;

    fn world() -> World {
        let mut world = World::default();
        let pool = json!({"metadata": {"name": "a", "namespace": "metallb-system"},
            "spec": {"addresses": ["192.0.2.0/24"]}});
        let request = request("CREATE", "IPAddressPool", &pool);
        let asked: Review = serde_json::from_slice(&request).unwrap();
        let Some(Proposal::Pool(row)) = proposal(&asked.request).unwrap() else {
            panic!("no pool");
        };
        world.apply(Fact::Pool(row));
        world.apply(Fact::Synced);
        world.settle_pools(None);
        world
    }

    fn request(operation: &str, kind: &str, object: &Value) -> Vec<u8> {
        let metadata = &object["metadata"];
        let request = json!({"uid": "u", "operation": operation, "kind": {"group": "metallb.io",
            "version": "v1beta1", "kind": kind}, "namespace": metadata["namespace"],
            "name": metadata["name"], "object": object});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
            .to_string()
            .into_bytes()
    }

    fn pool(namespace: &str, range: &str) -> Value {
        json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": {"name": "b", "namespace": namespace}, "spec": {"addresses": [range]}})
    }

    fn response(object: &Value, world: Option<&World>) -> Value {
        let asked = request("CREATE", object["kind"].as_str().unwrap(), object);
        let answer = answer(&asked, world, "metallb-system").unwrap();
        assert_eq!(answer["response"]["uid"], "u");
        answer["response"].clone()
    }

    #[test]
    fn an_object_is_admitted_or_refused_with_what_is_wrong() {
        let world = world();
        let fine = response(&pool("metallb-system", "198.51.100.0/24"), Some(&world));
        assert_eq!(fine, json!({"uid": "u", "allowed": true}));
        let overlapping = response(&pool("metallb-system", "192.0.2.8/29"), Some(&world));
        assert_eq!(overlapping["allowed"], false);
        let message = overlapping["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("spec.addresses[0]") && message.contains("pool a"),
            "{message}"
        );
        assert_eq!(
            response(&pool("shop", "198.51.100.0/24"), Some(&world))["allowed"],
            false
        );
    }

    #[test]
    fn while_it_is_not_known_what_there_is_everything_is_admitted() {
        let overlapping = pool("metallb-system", "192.0.2.8/29");
        assert_eq!(response(&overlapping, None)["allowed"], true);
        let unknown = World::default();
        assert_eq!(response(&overlapping, Some(&unknown))["allowed"], true);
    }

    #[test]
    fn another_kind_is_admitted_and_what_is_no_request_is_an_error() {
        let other = json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "y"}});
        assert_eq!(response(&other, Some(&world()))["allowed"], true);
        assert!(answer(b"{}", None, "metallb-system").is_err());
        assert!(answer(b"no json", None, "metallb-system").is_err());
    }

    #[test]
    fn what_is_worth_knowing_is_a_warning() {
        let object = json!({"kind": "L2Advertisement", "metadata": {"name": "x",
            "namespace": "metallb-system"}, "spec": {"ipAddressPools": ["later"]}});
        let answer = response(&object, Some(&world()));
        assert_eq!(answer["allowed"], true);
        assert!(answer["warnings"][0].as_str().unwrap().contains("later"));
    }
}
