//! `CustomResourceDefinition`s: one source, written out for `kubectl` and for the chart.

use std::fmt::Write as _;

use anyhow::Context as _;
use landfall_model::kinds::ObjectKind;
use serde::Deserialize;
use serde_json::{Value, json};

/// What `kubectl apply -f` takes.
pub const CRDS: &str = "deploy/crds.yaml";

/// What Helm installs, unless the cluster has them.
pub const CHART_CRDS: &str = "charts/landfall/crds/crds.yaml";

const SOURCE: &str = include_str!("crds.yaml");

const SAYS: &str = "\
# The custom resources of MetalLB's API group, for instances on bare metal, and the session states
# of speakers. Where MetalLB is installed, its own definitions do; these take their place, and no
# object loses a field. Written by `cargo xtask generate` from xtask/src/packaging/crds.yaml.
#
# What one object alone shows to be wrong is refused by the API server. What depends on other
# objects, and ranges that end before they begin, the controller finds and reports on the object.
";

const GROUP: &str = "metallb.io";

#[derive(Deserialize)]
struct Source {
    definitions: Vec<Definition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    kind: String,
    /// What the table of kinds does not say.
    plural: Option<String>,
    /// Of a kind that is not MetalLB's: it has only the version `whole`.
    group: Option<String>,
    columns: Vec<Vec<String>>,
    /// Columns of `kubectl get -o wide`.
    #[serde(default)]
    wide: Vec<Vec<String>>,
    #[serde(default)]
    required: Vec<String>,
    description: String,
    spec: Value,
    status: Value,
    older: Option<Older>,
    /// A version in which the status is a field like any other: the writer of an object creates
    /// it together with its status.
    whole: Option<String>,
}

/// An older version that is served, too.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Older {
    deprecation_warning: String,
    spec: Value,
}

/// Returns the definitions as one file.
///
/// # Errors
/// The source can't be read.
pub fn crds() -> anyhow::Result<String> {
    let source: Source = serde_saphyr::from_str(SOURCE).context("crds.yaml can't be read")?;
    let mut text = SAYS.to_owned();
    for definition in &source.definitions {
        let object = serde_saphyr::to_string(&definition.object()?)?;
        let _ = write!(text, "---\n{object}");
    }
    Ok(text)
}

// === impl Definition ===

impl Definition {
    fn object(&self) -> anyhow::Result<Value> {
        let row = ObjectKind::ALL.map(ObjectKind::row);
        let row = row
            .into_iter()
            .find(|row| row.group == GROUP && row.name == self.kind);
        let plural = self.plural.as_deref().or(row.map(|row| row.resource));
        let plural = plural.with_context(|| format!("{} has no plural", self.kind))?;
        let group = self.group.as_deref().unwrap_or(GROUP);
        let mut versions = Vec::new();
        if group == GROUP {
            versions.push(self.version(row.map_or("v1beta1", |row| row.version), &self.spec));
        }
        if let Some(older) = &self.older {
            let name = row
                .and_then(|row| row.older)
                .context("no older version is read")?;
            let mut version = self.version(name, &older.spec);
            version["storage"] = json!(false);
            version["deprecated"] = json!(true);
            version["deprecationWarning"] = json!(older.deprecation_warning);
            versions.push(version);
        }
        if let Some(name) = &self.whole {
            let mut version = self.version(name, &self.spec);
            version["storage"] = json!(versions.is_empty());
            if let Some(fields) = version.as_object_mut() {
                fields.remove("subresources");
            }
            versions.push(version);
        }
        Ok(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "labels": {"app.kubernetes.io/name": "landfall"},
            },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": plural,
                    "singular": self.kind.to_lowercase(),
                },
                // A null takes MetalLB's webhook away, which would be asked for nothing.
                "conversion": {"strategy": "None", "webhook": null},
                "versions": versions,
            },
        }))
    }

    fn version(&self, name: &str, spec: &Value) -> Value {
        let column = |column: &Vec<String>, priority: u32| {
            let text = |index: usize| column.get(index).map(String::as_str);
            json!({
                "name": text(0),
                "jsonPath": text(1),
                "type": text(2).unwrap_or("string"),
                "priority": priority,
            })
        };
        let columns = self.columns.iter().map(|it| column(it, 0));
        let columns: Vec<Value> = columns
            .chain(self.wide.iter().map(|it| column(it, 10)))
            .collect();
        let mut schema = json!({
            "description": self.description,
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": spec,
                "status": self.status,
            },
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        json!({
            "name": name,
            "served": true,
            "storage": true,
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": schema},
        })
    }
}
