//! What is shipped, against what it has to agree with. The real helm and the real API server
//! validate; where helm is missing, a test fails and says how to get it.

mod chart;
mod cluster;
mod crds;
mod objects;
mod replicas;
mod rights;
mod speaker;
mod webhook;

use std::path::{Path, PathBuf};

use landfall_config::file;
use serde_json::{Value, json};

use super::*;
use objects::Objects;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn deployed(part: &str) -> Objects {
    Objects::parse(&read(&root(), &format!("deploy/{part}.yaml")).unwrap())
}

#[test]
fn what_is_generated_is_up_to_date() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        generate(&root()).unwrap();
    }
    for (path, text) in generated(&root()).unwrap() {
        assert!(
            read(&root(), path).unwrap() == text,
            "{path} is behind: cargo xtask generate"
        );
    }
}

#[test]
fn the_whole_has_every_object_of_its_parts_once() {
    let mut parts = Objects::default();
    for part in PARTS {
        parts.add(deployed(part));
    }
    assert_eq!(deployed("landfall"), parts);
}

#[test]
fn a_chart_schema_without_its_generated_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [(CHART_SCHEMA, "{}"), (FILE_SCHEMA, "{\"$defs\": {}}")] {
        fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
        fs::write(folder.path().join(path), text).unwrap();
    }
    let error = chart_schema(folder.path()).unwrap_err().to_string();
    assert_eq!(error, "charts/landfall/values.schema.json has no $defs");
}

#[test]
fn the_configuration_that_is_deployed_is_one_that_the_controller_takes() {
    let objects = deployed("configmap");
    let map = objects.one("ConfigMap", "landfall");
    let text = map["data"]["landfall.yaml"].as_str().unwrap();
    let config = file::parse("landfall.yaml", text).unwrap();
    assert_eq!(config.names(), (vec!["edge".to_owned()], Some("edge")));
    // The pool that waits in a comment is a valid one.
    let text = text
        .replace("# -", "-")
        .replace("#   addresses", "  addresses");
    let text = text.replace("pools: []", "pools:");
    let config = file::parse("landfall.yaml", &text).unwrap();
    assert_eq!(config.pools().len(), 1);
}

#[test]
fn versions_are_the_workspaces() {
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("{}:{version}", crate::image::REPOSITORY);
    let deployment = deployed("deployment");
    let pod = &deployment.one("Deployment", "landfall")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], image);
    let chart = read(&root(), "charts/landfall/Chart.yaml").unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    assert_eq!(chart["version"], version);
    assert_eq!(chart["appVersion"], version);
}

#[test]
fn every_namespaced_object_is_in_our_namespace() {
    let objects = deployed("landfall");
    let outside: Vec<&str> = objects
        .all()
        .filter(|object| object["metadata"]["namespace"] != json!("landfall-system"))
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(outside, ["ClusterRole", "ClusterRoleBinding", "Namespace"]);
}
