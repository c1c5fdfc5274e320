//! `deploy/` and `charts/landfall`: what is generated in them, and the tests that hold them to each
//! other, to the real helm and to a real API server.
//!
//! ```text
//!  deploy/{namespace,rbac,configmap,deployment}.yaml ──> deploy/landfall.yaml
//!  xtask/src/packaging/crds.yaml ──> deploy/crds.yaml, charts/landfall/crds/crds.yaml
//!  docs/landfall.schema.json ──> the end of charts/landfall/values.schema.json
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

mod crds;
#[cfg(test)]
mod tests;

use crds::{CHART_CRDS, CRDS};

/// The files that make up the whole, in the order in which they are applied.
const PARTS: [&str; 4] = ["namespace", "rbac", "configmap", "deployment"];

/// What `kubectl apply -f` takes.
const WHOLE: &str = "deploy/landfall.yaml";

const WHOLE_SAYS: &str = "\
# All that Landfall needs in a cluster, but certificates: rbac-certificates.yaml. Written from the
# other files here by `cargo xtask generate`; docs/installing.md explains it.
";

const CHART_SCHEMA: &str = "charts/landfall/values.schema.json";
const FILE_SCHEMA: &str = "docs/landfall.schema.json";

/// Where the generated end of the chart's schema begins.
const DEFINITIONS: &str = "\n  \"$defs\": ";

/// Writes again what is generated.
pub fn generate(root: &Path) -> anyhow::Result<()> {
    for (path, text) in generated(root)? {
        fs::write(root.join(path), text).with_context(|| format!("{path} can't be written"))?;
    }
    Ok(())
}

/// What is generated, by its path.
fn generated(root: &Path) -> anyhow::Result<[(&'static str, String); 4]> {
    Ok([
        (WHOLE, whole(root)?),
        (CHART_SCHEMA, chart_schema(root)?),
        (CRDS, crds::crds()?),
        (CHART_CRDS, crds::crds()?),
    ])
}

/// All parts in one file.
fn whole(root: &Path) -> anyhow::Result<String> {
    let mut whole = WHOLE_SAYS.to_owned();
    for part in PARTS {
        whole.push_str("---\n");
        whole.push_str(&read(root, &format!("deploy/{part}.yaml"))?);
    }
    Ok(whole)
}

/// The chart's schema with the end replaced: what may stand in `landfall.yaml` may stand in
/// `config`.
fn chart_schema(root: &Path) -> anyhow::Result<String> {
    let text = read(root, CHART_SCHEMA)?;
    let Some((written, _)) = text.split_once(DEFINITIONS) else {
        bail!("{CHART_SCHEMA} has no $defs");
    };
    let mut file: Map<String, Value> = serde_json::from_str(&read(root, FILE_SCHEMA)?)?;
    let Some(Value::Object(mut definitions)) = file.remove("$defs") else {
        bail!("{FILE_SCHEMA} has no $defs");
    };
    file.retain(|key, _| key != "$schema" && key != "title");
    definitions.insert("Config".to_owned(), Value::Object(file));
    let definitions = serde_json::to_string_pretty(&definitions)?.replace('\n', "\n  ");
    Ok(format!("{written}{DEFINITIONS}{definitions}\n}}\n"))
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("{path} can't be read"))
}
