//! Kubernetes objects as values, so that what means the same is the same.

use std::collections::BTreeMap;

use serde_json::Value;

/// Objects by kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects(BTreeMap<(String, String, String), Value>);

// === impl Objects ===

impl Objects {
    /// The documents of a manifest.
    pub fn parse(text: &str) -> Self {
        let mut objects = Self::default();
        for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
            objects.insert(object);
        }
        objects
    }

    /// Adds others, all of them new.
    pub fn add(&mut self, others: Self) {
        others
            .0
            .into_values()
            .for_each(|object| self.insert(object));
    }

    fn insert(&mut self, object: Value) {
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let key = (
            of(&object["kind"]),
            of(&metadata["namespace"]),
            of(&metadata["name"]),
        );
        assert!(!key.0.is_empty() && !key.2.is_empty(), "{object}");
        let twice = self.0.insert(key.clone(), object);
        assert_eq!(twice, None, "{key:?}");
    }

    /// The object of this kind and name.
    pub fn one(&self, kind: &str, name: &str) -> &Value {
        let mut found = self
            .0
            .iter()
            .filter(|((its_kind, _, its_name), _)| its_kind == kind && its_name == name);
        match (found.next(), found.next()) {
            (Some((_, object)), None) => object,
            _ => panic!("not one {kind} {name} in {:?}", self.0.keys()),
        }
    }

    /// Every object, by kind.
    pub fn all(&self) -> impl Iterator<Item = &Value> {
        self.0.values()
    }

    /// Without those of a kind.
    pub fn without(mut self, kind: &str) -> Self {
        self.0.retain(|(its_kind, ..), _| its_kind != kind);
        self
    }

    /// What remains when everything is left out that only Helm cares about, and when configuration
    /// is what it says and not how it is written.
    pub fn in_meaning(mut self) -> Self {
        for object in self.0.values_mut() {
            if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                labels.remove("helm.sh/chart");
                labels.remove("app.kubernetes.io/managed-by");
            }
            if let Some(metadata) = object
                .pointer_mut("/spec/template/metadata")
                .and_then(Value::as_object_mut)
            {
                let annotations = metadata.get_mut("annotations");
                if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                    annotations.remove("checksum/config");
                    if annotations.is_empty() {
                        metadata.remove("annotations");
                    }
                }
            }
            if let Some(file) = object.pointer_mut("/data/landfall.yaml") {
                *file = serde_saphyr::from_str(file.as_str().unwrap()).unwrap();
            }
        }
        self
    }
}
