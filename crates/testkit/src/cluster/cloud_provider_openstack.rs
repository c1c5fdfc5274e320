//! The controller of cloud-provider-openstack: found, or built once.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::ClusterError;
use super::programs::{built_once, cache, go_build, version_of};

/// What Landfall takes load balancers over from on OpenStack.
#[derive(Clone, Debug)]
pub struct CloudProviderOpenStack {
    /// The program that serves Services.
    pub controller: PathBuf,
}

/// The module and its version, with the checksums beside it.
const MODULES: &str = include_str!("../../../../testbed/cloud-provider-openstack/go.mod");
const MODULES_FOLDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../testbed/cloud-provider-openstack"
);
const MODULE: &str = "k8s.io/cloud-provider-openstack";
const PROGRAM: &str = "openstack-cloud-controller-manager";

// === impl CloudProviderOpenStack ===

impl CloudProviderOpenStack {
    /// Finds it in the cache; else builds it into the cache, which takes minutes once and needs Go
    /// and a module proxy.
    pub async fn find() -> Result<Self, ClusterError> {
        let found = tokio::task::spawn_blocking(Self::find_or_build).await;
        found.map_err(|error| ClusterError::Io {
            what: "looking for cloud-provider-openstack was interrupted".to_owned(),
            source: io::Error::other(error),
        })?
    }

    fn find_or_build() -> Result<Self, ClusterError> {
        let of = format!("of {MODULE} {}", version_of(MODULES, MODULE));
        let controller = built_once(PROGRAM, &folder()?, &of, |to| {
            let package = format!("{MODULE}/cmd/{PROGRAM}");
            let modules = Path::new(MODULES_FOLDER);
            go_build(OsStr::new("go"), modules, "-s -w", &package, to)
        })?;
        Ok(Self { controller })
    }
}

fn folder() -> Result<PathBuf, ClusterError> {
    let version = version_of(MODULES, MODULE);
    Ok(cache()?.join("cloud-provider-openstack").join(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_modules_which_name_the_program() {
        let version = version_of(MODULES, MODULE);
        assert!(version.starts_with("v1."), "{version}");
        let tool = format!("tool {MODULE}/cmd/{PROGRAM}\n");
        assert!(MODULES.contains(&tool), "{tool}");
    }
}
