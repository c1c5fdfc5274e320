//! Reading once: for checks and plans.

use std::fs;

use landfall_files::load;
use landfall_model::rows::Fact;
use proptest::prelude::*;

use crate::stage::{Stage, namespace, service};

fn words(facts: &[Fact]) -> Vec<String> {
    facts
        .iter()
        .map(|fact| match fact {
            Fact::Service(row) => format!("Service {} {}", row.key, row.uid),
            Fact::Namespace(row) => format!("Namespace {}", row.name),
            Fact::Slice(row) => format!("Slice {}", row.key),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn what_others_depend_on_comes_first() {
    let stage = Stage::new();
    let slice = "---\n\
                apiVersion: discovery.k8s.io/v1\n\
                kind: EndpointSlice\n\
                metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n\
                addressType: IPv4\n";
    stage.put("a.yaml", &(service("web", 80) + slice + &namespace("shop")));
    let loaded = load(&[stage.folder()], false);
    assert_eq!(loaded.reasons, []);
    assert_eq!(
        words(&loaded.facts),
        [
            "Namespace shop",
            "Slice default/web-1",
            "Service default/web 23d73f96-5fc8-8269-bd12-b62230550a0b"
        ]
    );
}

#[test]
fn everything_wrong_is_reported_in_the_order_of_files_and_lines() {
    let stage = Stage::new();
    stage.put("b.yaml", &(service("web", 0) + &service("dns", 70_000)));
    stage.put("a.yaml", "apiVersion: v1\nkind: [\n");
    let loaded = load(&[stage.folder(), stage.path("missing.yaml")], false);
    assert_eq!(loaded.facts.len(), 0);
    let places: Vec<String> = loaded
        .reasons
        .iter()
        .map(|reason| {
            let origin = reason.origin.as_ref().unwrap();
            let file = origin.file.rsplit('/').next().unwrap();
            format!("{file}:{}", origin.line)
        })
        .collect();
    assert_eq!(
        places,
        ["a.yaml:2", "b.yaml:9", "b.yaml:18", "missing.yaml:1"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_bytes_make_loading_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), &bytes).unwrap();
        fs::write(folder.path().join("b.json"), &bytes).unwrap();
        load(&[folder.path().to_owned()], false);
    }
}
