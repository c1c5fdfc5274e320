//! Requests and answers against the published description of the API (`OpenAPI` 3.0).

use std::sync::LazyLock;

use boon::{Compiler, Draft, Format, Schemas};
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../openapi.json")).unwrap());

/// Checks a request with its successful answer, and panics with what is wrong.
pub fn check(method: &str, path: &str, query: &str, request: &[u8], answer: &[u8]) {
    let path = path.strip_prefix("/v2").expect("the prefix of the API");
    let operation = operation(method, path);
    check_query(operation, query);
    let sent = &operation["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(
        sent.is_null(),
        request.is_empty(),
        "{method} {path}: a body"
    );
    if !sent.is_null() {
        let body = serde_json::from_slice(request).unwrap();
        let errors = errors(sent, &body);
        assert_eq!(errors, Vec::<String>::new(), "{method} {path} {body}");
        let unknown = unknown(sent, &body, "");
        assert_eq!(unknown, Vec::<String>::new(), "{method} {path} {body}");
    }
    let answered = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let body = without_null_health(serde_json::from_slice(answer).unwrap());
    let errors = errors(answered, &body);
    assert_eq!(
        errors,
        Vec::<String>::new(),
        "answer of {method} {path} {body}"
    );
}

/// Finds the operation of a path; ids must be UUIDs.
fn operation(method: &str, path: &str) -> &'static Value {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let parts: Vec<_> = path.split('/').collect();
    let fits = |template: &str, operation: &Value| {
        let names: Vec<_> = template.split('/').collect();
        names.len() == parts.len()
            && names.iter().zip(&parts).all(|(name, part)| {
                let Some(name) = name.strip_prefix('{').and_then(|it| it.strip_suffix('}')) else {
                    return name == part;
                };
                let parameters = operation["parameters"].as_array().unwrap();
                let parameter = parameters.iter().find(|it| it["name"] == name).unwrap();
                errors(&parameter["schema"], &json!(part)).is_empty()
            })
    };
    let mut found = paths.iter().filter_map(|(template, operations)| {
        let operation = operations.get(method.to_ascii_lowercase())?;
        fits(template, operation).then_some(operation)
    });
    let operation = found.next();
    operation.unwrap_or_else(|| panic!("{method} {path} is not in the description"))
}

fn check_query(operation: &Value, query: &str) {
    let none = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&none);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, _) = pair.split_once('=').unwrap();
        let known = parameters
            .iter()
            .any(|it| it["in"] == "query" && it["name"] == name);
        assert!(known, "{name} is not a parameter");
    }
}

/// Returns what is wrong with a value.
pub fn errors(schema: &Value, value: &Value) -> Vec<String> {
    // Booleans with `minimum` are those of draft 4.
    let schema = json!({"components": DOCUMENT["components"], "allOf": [schema]});
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V4);
    compiler.enable_format_assertions();
    let func = is_uuid;
    compiler.register_format(Format { name: "uuid", func });
    let at = "mem:///schema.json";
    compiler.add_resource(at, schema).unwrap();
    let mut schemas = Schemas::new();
    let schema = compiler.compile(at, &mut schemas).unwrap();
    let result = schemas.validate(value, schema);
    result.err().iter().map(ToString::to_string).collect()
}

fn is_uuid(value: &Value) -> Result<(), Box<dyn std::error::Error>> {
    match value.as_str().map(landfall_exoscale::objects::Id::parse) {
        Some(None) => Err("not a UUID".into()),
        _ => Ok(()),
    }
}

/// Returns the fields that the schema does not name: JSON schema permits them.
fn unknown(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(&reference[1..]).unwrap(),
        None => schema,
    };
    let (Some(known), Some(fields)) = (schema["properties"].as_object(), value.as_object()) else {
        return Vec::new();
    };
    let check = |(name, value): (&String, &Value)| match known.get(name) {
        Some(schema) => unknown(schema, value, &format!("{at}/{name}")),
        None => vec![format!("{at}/{name}")],
    };
    fields.iter().flat_map(check).collect()
}

/// Removes the nulls that the real servers answer, against their own description.
fn without_null_health(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "healthcheck-status" || !value.is_null());
            fields
                .values_mut()
                .for_each(|it| *it = without_null_health(it.take()));
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|it| *it = without_null_health(it.take())),
        _ => {}
    }
    value
}

#[test]
fn the_description_refuses_what_it_should() {
    let add = "/v2/load-balancer/11111111-2222-4333-8444-555555555555/service";
    let operation = operation("POST", add.strip_prefix("/v2").unwrap());
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let good = json!({
        "name": "a", "protocol": "tcp", "strategy": "round-robin", "port": 80, "target-port": 1,
        "instance-pool": {"id": "11111111-2222-4333-8444-555555555555"}, "healthcheck": {"port": 1},
    });
    assert_eq!(errors(schema, &good), Vec::<String>::new());
    assert_eq!(unknown(schema, &good, ""), Vec::<String>::new());
    for (field, value) in [
        ("name", json!("")),
        ("protocol", json!("sctp")),
        ("target-port", json!(0)),
        ("port", json!(65_536)),
        ("healthcheck", json!({"interval": 4})),
        ("instance-pool", json!({"id": "web"})),
        ("instance-pool", json!({"size": 0})),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert_eq!(errors(schema, &bad).len(), 1, "{bad}");
    }
    let mut bad = good;
    bad["healthcheck"]["speed"] = json!(1);
    assert_eq!(unknown(schema, &bad, ""), ["/healthcheck/speed"]);
}
