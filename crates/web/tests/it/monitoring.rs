//! Alert rules and the dashboard: Prometheus takes them, they fire when they should, and each
//! metric that they name is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_web::metrics::{self, Kind};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// Everything in a text that is named as metrics are.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let of_ours = |it: &&str| it.starts_with("landfall_") || it.starts_with("metallb_");
    words.filter(of_ours).map(str::to_owned).collect()
}

/// The expressions of the dashboard.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("bare-metal.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let expressions = targets.flatten().map(|it| it["expr"].as_str().unwrap());
    expressions.map(str::to_owned).collect()
}

/// Runs promtool, which has to agree.
fn promtool(arguments: &[&str]) -> String {
    let command = Command::new("promtool").args(arguments).output();
    let output = command.expect("promtool is missing: `cargo xtask install` installs it");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn rules_and_dashboard_name_no_metric_that_does_not_exist() {
    let samples = metrics::ALL.iter().flat_map(|metric| {
        let name = metric.sample_name();
        match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"]
                .map(|end| name.clone() + end)
                .to_vec(),
            Kind::Counter | Kind::Gauge | Kind::Info => vec![name],
        }
    });
    let samples: BTreeSet<String> = samples.collect();
    let text = [&[read("rules.yaml")], &expressions()[..]]
        .concat()
        .join("\n");
    let unknown: Vec<String> = named(&text).difference(&samples).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn alerts_fire_when_they_should_and_each_has_a_test() {
    let path = |name: &str| folder().join(name).to_str().unwrap().to_owned();
    promtool(&["check", "rules", &path("rules.yaml")]);
    promtool(&["test", "rules", &path("rules.test.yaml")]);
    let after = |text: &str, key: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.split_once(key));
        lines.map(|(_, name)| name.trim().to_owned()).collect()
    };
    let alerts = after(&read("rules.yaml"), "alert:");
    assert_eq!(after(&read("rules.test.yaml"), "alertname:"), alerts);
}

#[test]
fn prometheus_takes_each_expression_of_the_dashboard() {
    let expressions = expressions();
    assert!(expressions.len() > 20, "{expressions:?}");
    let rules = expressions.iter().enumerate().map(|(number, expression)| {
        serde_json::json!({"record": format!("panel:{number}"), "expr": expression})
    });
    let rules: Vec<Value> = rules.collect();
    // JSON is YAML.
    let file = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("panels.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    promtool(&["check", "rules", path.to_str().unwrap()]);
}
