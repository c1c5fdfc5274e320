//! Rules over our own manifests: banned crates, versions in one place, licence and lints.

use std::fs;

use anyhow::Context as _;

use super::{Findings, Metadata};
use crate::place::Place;

/// Not for our own crates, with what to use. Others in the graph may have them.
const NOT_OURS: &[(&str, &str)] = &[
    ("chrono", "jiff"),
    ("once_cell", "std::sync::OnceLock or LazyLock"),
    ("lazy_static", "std::sync::LazyLock"),
    (
        "async-trait",
        "async fn in traits; providers are an enum, not dyn",
    ),
];

/// Nowhere in the graph: one TLS, one crypto provider, maintained parsers.
const NOWHERE: &[&str] = &[
    "ring",
    "native-tls",
    "openssl",
    "openssl-sys",
    "serde_yaml",
    "serde_yml",
    "backoff",
];

/// Validates every manifest of the workspace, and the graph: a line `name version` per crate, which
/// may be repeated.
pub fn validate(place: &Place, metadata: &Metadata, graph: &str) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    validate_graph(graph, &mut findings.errors);
    for package in metadata.ours() {
        for dependency in &package.dependencies {
            if let Some((name, instead)) =
                NOT_OURS.iter().find(|(name, _)| *name == dependency.name)
            {
                let user = &package.name;
                findings
                    .errors
                    .push(format!("{user} uses {name}; use {instead}"));
            }
        }
        if package.license.as_deref() != Some("Apache-2.0") {
            findings
                .errors
                .push(format!("{} is not licensed Apache-2.0", package.name));
        }
        let path = manifest_path(&package.name);
        let text = fs::read_to_string(place.root.join(&path))
            .with_context(|| format!("{path} can't be read"))?;
        validate_text(&path, &text, &mut findings.errors);
    }
    Ok(findings)
}

fn validate_graph(graph: &str, errors: &mut Vec<String>) {
    for name in NOWHERE {
        let used = |line: &str| line.split(' ').next() == Some(name);
        if graph.lines().any(used) {
            errors.push(format!(
                "{name} is in the dependency graph; see cargo tree --workspace \
                --all-features --target all -i {name}"
            ));
        }
    }
}

fn manifest_path(name: &str) -> String {
    match name.strip_prefix("landfall-") {
        Some(room) => format!("crates/{room}/Cargo.toml"),
        None if name == "landfall" => "crates/landfall/Cargo.toml".into(),
        None => format!("{name}/Cargo.toml"),
    }
}

/// What only the text shows: versions and lints are taken from the workspace.
fn validate_text(path: &str, text: &str, errors: &mut Vec<String>) {
    let mut section = "";
    let mut lints = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let dependencies = section
            .rsplit('.')
            .next()
            .is_some_and(|last| last.ends_with("dependencies"));
        if dependencies && !line.contains("workspace = true") {
            errors.push(format!(
                "{path}:{}: `{line}`: a version lives in [workspace.dependencies], with its \
                reason; here say `workspace = true`",
                index + 1
            ));
        }
        lints |= section == "lints" && line == "workspace = true";
    }
    if !lints {
        errors.push(format!("{path}: add `[lints]` with `workspace = true`"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_version_of_its_own_is_right() {
        let mut errors = Vec::new();
        let text = "[lints]\nworkspace = true\n[dependencies]\n# why\ntokio.workspace = true\n\
                    serde = { workspace = true, features = [\"rc\"] }\n[features]\nx = []\n";
        validate_text("crates/web/Cargo.toml", text, &mut errors);
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn a_version_outside_the_workspace_and_missing_lints_are_errors() {
        let mut errors = Vec::new();
        validate_text(
            "a/Cargo.toml",
            "[dev-dependencies]\ntokio = \"1\"\n",
            &mut errors,
        );
        assert_eq!(
            errors,
            [
                "a/Cargo.toml:2: `tokio = \"1\"`: a version lives in [workspace.dependencies], \
                with its reason; here say `workspace = true`",
                "a/Cargo.toml: add `[lints]` with `workspace = true`",
            ]
        );
    }

    #[test]
    fn a_crate_that_has_no_place_in_the_graph_is_named() {
        let mut errors = Vec::new();
        validate_graph(
            "landfall v0.1.0 (/x)\nrustls v0.23.1\nstring v1.0.0\n",
            &mut errors,
        );
        assert_eq!(errors, Vec::<String>::new());
        validate_graph(
            "rustls v0.23.1\nring v0.17.14\nring v0.17.14\n",
            &mut errors,
        );
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("ring is in the dependency graph"),
            "{errors:?}"
        );
    }

    #[test]
    fn a_crate_lies_where_its_name_says() {
        assert_eq!(manifest_path("landfall-ipam"), "crates/ipam/Cargo.toml");
        assert_eq!(manifest_path("landfall"), "crates/landfall/Cargo.toml");
        assert_eq!(manifest_path("xtask"), "xtask/Cargo.toml");
    }
}
