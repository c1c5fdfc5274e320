//! MetalLB's own programs and manifest: found, or built once.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ClusterError;
use super::programs::{built_once, cache, go_build, version_of};

/// MetalLB, to be taken over from.
#[derive(Clone, Debug)]
pub struct MetalLb {
    /// The program that assigns addresses.
    pub controller: PathBuf,
    /// The program that announces them.
    pub speaker: PathBuf,
    /// What `kubectl apply` installs: its kinds, roles, workloads and webhooks.
    pub manifest: PathBuf,
}

/// The module and its version, with the checksums beside it.
const MODULES: &str = include_str!("../../../../testbed/metallb/go.mod");
const MODULES_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/metallb");
const MODULE: &str = "go.universe.tf/metallb";
const MANIFEST: &str = "config/manifests/metallb-native.yaml";

// === impl MetalLb ===

impl MetalLb {
    /// Finds it in the cache; else builds it into the cache, which takes minutes once and needs Go
    /// and a module proxy.
    pub async fn find() -> Result<Self, ClusterError> {
        let found = tokio::task::spawn_blocking(Self::find_or_build).await;
        found.map_err(|error| ClusterError::Io {
            what: "looking for the programs of MetalLB was interrupted".to_owned(),
            source: io::Error::other(error),
        })?
    }

    fn find_or_build() -> Result<Self, ClusterError> {
        let folder = folder()?;
        let of = format!("of MetalLB {}", version_of(MODULES, MODULE));
        let modules = Path::new(MODULES_FOLDER);
        let program = |name: &'static str| {
            built_once(name, &folder, &of, |to| {
                let package = format!("{MODULE}/{name}");
                go_build(OsStr::new("go"), modules, "-s -w", &package, to)
            })
        };
        Ok(Self {
            controller: program("controller")?,
            speaker: program("speaker")?,
            manifest: built_once("manifest.yaml", &folder, &of, |to| {
                let from = module_folder(modules)?.join(MANIFEST);
                let text = fs::read(&from);
                let text = text.map_err(|error| format!("{}: {error}", from.display()))?;
                fs::write(to, text).map_err(|error| error.to_string())
            })?,
        })
    }

    /// Whether it has to be built first.
    pub fn is_missing() -> Result<bool, ClusterError> {
        let folder = folder()?;
        let mut parts = ["controller", "speaker", "manifest.yaml"].into_iter();
        Ok(parts.any(|part| !folder.join(part).is_file()))
    }
}

fn folder() -> Result<PathBuf, ClusterError> {
    Ok(cache()?.join("metallb").join(version_of(MODULES, MODULE)))
}

/// Where Go keeps the files of the module.
fn module_folder(modules: &Path) -> Result<PathBuf, String> {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", MODULE])
        .current_dir(modules)
        .output()
        .map_err(|error| format!("go can't be run: {error}"))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !path.is_empty() {
        Ok(path.into())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_modules_which_name_both_programs() {
        let version = version_of(MODULES, MODULE);
        assert!(version.starts_with("v0."), "{version}");
        for program in ["controller", "speaker"] {
            assert!(
                MODULES.contains(&format!("\t{MODULE}/{program}\n")),
                "{program}"
            );
        }
    }
}
