//! The permissions in `deploy/`, against the table of watched kinds. The chart renders the same
//! objects, which another test verifies.

use std::collections::BTreeSet;

use landfall_model::kinds::{ObjectKind, Watched};
use serde_json::Value;

use super::deployed;

/// Group, resource and verb.
type Permission = (String, String, String);

/// The permissions of a `ClusterRole` on whole kinds to read them.
fn granted(part: &str, role: &str) -> BTreeSet<Permission> {
    let objects = deployed(part);
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule[field].as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let rules = objects.one("ClusterRole", role)["rules"]
        .as_array()
        .unwrap();
    let mut granted = BTreeSet::new();
    for rule in rules.iter().filter(|rule| rule["resourceNames"].is_null()) {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    granted.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    granted.retain(|(_, _, verb)| ["get", "list", "watch"].contains(&verb.as_str()));
    granted
}

fn needed(named: bool) -> BTreeSet<Permission> {
    let rows = ObjectKind::ALL.into_iter().map(ObjectKind::row);
    let rows = rows.filter(|row| (row.watched == Watched::Named) == named);
    rows.flat_map(|row| {
        let verbs = row.verbs.iter();
        verbs.map(move |verb| (row.group.into(), row.resource.into(), (*verb).into()))
    })
    .collect()
}

#[test]
fn the_role_reads_the_kinds_of_the_table_and_no_others() {
    assert_eq!(granted("rbac", "landfall"), needed(false));
}

#[test]
fn the_role_for_certificates_reads_the_objects_that_services_name() {
    let role = granted("rbac-certificates", "landfall-certificates");
    assert_eq!(role, needed(true));
}
