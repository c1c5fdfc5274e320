//! What can be read of a Service whose JSON has another shape than the API specifies: each field by
//! itself, so that one of them hides no other. Identity, finalizers and deletion come first:
//! whatever else is wrong with an object, it can be let go of.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Service, ServicePortShape, ServiceSpec};
use crate::reason::{Code, Reason};
use crate::rows::ServiceRow;
use crate::wire::{
    ConditionShape, IngressShape, LoadBalancerShape, ObjectMeta, ServiceStatusShape,
};

/// The fields that show the owner of a Service.
const DECISIVE: [&str; 4] = [
    "spec",
    "spec.type",
    "spec.loadBalancerClass",
    "metadata.uid",
];

/// Fields that could not be read.
#[derive(Default)]
struct Losses(Vec<Reason>);

impl Service {
    /// Returns the row of a Service of which some fields have the wrong shape, with a fault for
    /// each.
    ///
    /// # Errors
    /// Every fault, where the fields that show the owner of the Service are among them: what was
    /// known of it goes on to hold. A Service that is being deleted is a row in any case, which
    /// wants no load balancer.
    pub fn salvage(mut object: Value) -> Result<ServiceRow, Vec<Reason>> {
        let mut losses = Losses::default();
        for (field, read) in [
            ("metadata", metadata as fn(&mut Value, &mut Losses)),
            ("spec", spec),
            ("status", status),
        ] {
            if let Some(part) = object.get_mut(field) {
                read(part, &mut losses);
            }
        }
        let mut row = match serde_json::from_value::<Self>(object) {
            Ok(shape) => shape.into_admitted_row(),
            Err(error) => return Err(vec![fault("", &error.to_string())]),
        };
        // Others write into the status: what can't be read there is not the Service's fault.
        losses.0.retain(|loss| !is_within(loss, "status"));
        let is_decisive = |loss: &Reason| {
            let field = loss.field.as_deref().unwrap_or_default();
            DECISIVE.contains(&field)
        };
        if losses.0.iter().any(is_decisive) {
            if !row.deleting {
                return Err(losses.0);
            }
            row.wants_load_balancer = false;
        }
        row.faults.extend(losses.0);
        Ok(row)
    }
}

fn metadata(value: &mut Value, losses: &mut Losses) {
    let Some(map) = map_of("metadata", value, losses) else {
        return;
    };
    if let Some(Value::Array(finalizers)) = map.get_mut("finalizers") {
        finalizers.retain(Value::is_string);
    }
    for field in ["annotations", "labels"] {
        if let Some(Value::Object(texts)) = map.get_mut(field) {
            losses.keep(&format!("metadata.{field}"), texts, |_, text| {
                text.is_string() || text.is_null()
            });
        }
    }
    // When it began does not matter, but that it did.
    let when = map.get("deletionTimestamp").filter(|when| !when.is_null());
    if when.is_some_and(|when| !fits::<ObjectMeta>("deletionTimestamp", when)) {
        map.insert(
            "deletionTimestamp".to_owned(),
            json!("1970-01-01T00:00:00Z"),
        );
    }
    losses.keep("metadata", map, fits::<ObjectMeta>);
}

fn spec(value: &mut Value, losses: &mut Losses) {
    let Some(map) = map_of("spec", value, losses) else {
        return;
    };
    if let Some(Value::Array(ports)) = map.get_mut("ports") {
        losses.keep_each::<ServicePortShape>("spec.ports", ports);
    }
    losses.keep("spec", map, fits::<ServiceSpec>);
}

fn status(value: &mut Value, losses: &mut Losses) {
    let Some(map) = map_of("status", value, losses) else {
        return;
    };
    if let Some(Value::Array(conditions)) = map.get_mut("conditions") {
        losses.keep_each::<ConditionShape>("status.conditions", conditions);
    }
    if let Some(Value::Object(balancer)) = map.get_mut("loadBalancer") {
        if let Some(Value::Array(ingress)) = balancer.get_mut("ingress") {
            losses.keep_each::<IngressShape>("status.loadBalancer.ingress", ingress);
        }
        losses.keep("status.loadBalancer", balancer, fits::<LoadBalancerShape>);
    }
    losses.keep("status", map, fits::<ServiceStatusShape>);
}

/// Returns the fields of a part of an object; empties a part that has none.
fn map_of<'v>(
    field: &str,
    value: &'v mut Value,
    losses: &mut Losses,
) -> Option<&'v mut Map<String, Value>> {
    if !value.is_object() {
        if !value.is_null() {
            losses.0.push(fault(field, "not a map of fields"));
        }
        *value = json!({});
    }
    value.as_object_mut()
}

/// Returns whether a field alone can be read as part of a shape.
fn fits<T: DeserializeOwned>(field: &str, value: &Value) -> bool {
    serde_json::from_value::<T>(json!({field: value})).is_ok()
}

fn fault(field: &str, why: &str) -> Reason {
    Reason::error(Code::InvalidManifest, why).at(field)
}

fn is_within(reason: &Reason, part: &str) -> bool {
    let field = reason.field.as_deref().unwrap_or_default();
    field.split('.').next() == Some(part)
}

impl Losses {
    /// Takes the fields away that do not fit.
    fn keep(
        &mut self,
        field: &str,
        map: &mut Map<String, Value>,
        fits: impl Fn(&str, &Value) -> bool,
    ) {
        map.retain(|key, value| {
            let fits = fits(key, value);
            if !fits {
                let field = format!("{field}.{key}");
                self.0
                    .push(fault(&field, "a value of another type is expected here"));
            }
            fits
        });
    }

    /// Takes the entries away that do not fit.
    fn keep_each<T: DeserializeOwned>(&mut self, field: &str, list: &mut Vec<Value>) {
        let mut index = 0;
        list.retain(|value| {
            let fits = serde_json::from_value::<T>(value.clone()).is_ok();
            if !fits {
                let field = format!("{field}[{index}]");
                self.0
                    .push(fault(&field, "a value of another type is expected here"));
            }
            index += 1;
            fits
        });
    }
}
