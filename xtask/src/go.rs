//! Go, which builds the Kubernetes and the MetalLB of the tests and helm: whether it is here and
//! new enough, asked before minutes are spent.

use std::path::Path;

use anyhow::{Context as _, bail};
use landfall_testkit::cluster::{MetalLb, Programs};
use tokio::process::Command;

use crate::place::Place;

/// What asks for the newest Go: its directive `go` names the version.
const MODULES: &str = include_str!("../../testbed/kubernetes/go.mod");
const MODULES_FOLDER: &str = "testbed/kubernetes";

/// Fails where something has yet to be built by Go, and Go can't. Helm is one of these, unless the
/// program is here.
pub async fn check(place: &Place, helm: &Path) -> anyhow::Result<()> {
    let mut wanted: Vec<&str> = Programs::missing()?
        .into_iter()
        .map(landfall_testkit::cluster::Program::name)
        .collect();
    if MetalLb::is_missing()? {
        wanted.push("MetalLB");
    }
    if !helm.is_file() {
        wanted.push("helm");
    }
    if wanted.is_empty() {
        return Ok(());
    }
    // Asked beside the modules: newer versions of Go get the one that these want by themselves.
    let asked = Command::new("go")
        .arg("version")
        .current_dir(place.root.join(MODULES_FOLDER))
        .output()
        .await;
    let said = match &asked {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        Ok(output) => String::from_utf8_lossy(&output.stderr),
        Err(error) => format!("go can't be run: {error}").into(),
    };
    validate(&wanted, said.trim())
}

fn validate(wanted: &[&str], said: &str) -> anyhow::Result<()> {
    let directive = MODULES.lines().find_map(|line| line.strip_prefix("go "));
    let least = directive.and_then(numbers).context("go.mod names no Go")?;
    let found = said.split(' ').find_map(|word| word.strip_prefix("go1"));
    let found = found.and_then(|rest| numbers(&format!("1{rest}")));
    if found.is_some_and(|found| found >= least) {
        return Ok(());
    }
    let (major, minor) = least;
    bail!(
        "Go {major}.{minor} or later is needed to build {}, once: install it and let it reach a \
         module proxy, or bring the programs (KUBEBUILDER_ASSETS names the folder of those of \
         Kubernetes); here it is: {said}",
        wanted.join(", ")
    )
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().split('.');
    let mut part = || {
        let digits = parts.next()?;
        let end = digits.find(|it: char| !it.is_ascii_digit());
        digits.get(..end.unwrap_or(digits.len()))?.parse().ok()
    };
    Some((part()?, part()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_that_is_new_enough_will_do() {
        for said in [
            "go version go1.26.0 linux/amd64",
            "go version go1.27rc1 linux/amd64",
            "go version go1.126.8 linux/amd64",
        ] {
            assert!(validate(&["helm"], said).is_ok(), "{said}");
        }
    }

    #[test]
    fn a_go_that_is_too_old_or_missing_is_refused_with_what_needs_it() {
        for said in [
            "go version go1.19.8 linux/amd64",
            "go: go.mod requires go >= 1.26.0 (running go 1.22.2; GOTOOLCHAIN=local)",
            "go can't be run: No such file or directory (os error 2)",
        ] {
            let refused = validate(&["etcd", "helm"], said).unwrap_err().to_string();
            assert!(
                refused.starts_with("Go 1.26 or later is needed to build etcd, helm, once: "),
                "{refused}"
            );
            assert!(refused.ends_with(said), "{refused}");
        }
    }
}
