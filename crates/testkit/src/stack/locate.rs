//! Finds the stack, or starts it by its script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, fs};

use serde::Deserialize;
use tokio::process::Command;

use super::StackError;
use super::session::Account;

/// Names the clouds.yaml of a stack that runs; its folder holds `log` and `run`.
const VARIABLE: &str = "LANDFALL_OPENSTACK";

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../testbed/openstack/stack.sh"
);

#[derive(Deserialize)]
struct Clouds {
    clouds: BTreeMap<String, Cloud>,
}

#[derive(Deserialize)]
struct Cloud {
    region_name: String,
    auth: Auth,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of clouds.yaml")]
struct Auth {
    auth_url: String,
    username: String,
    password: String,
    project_name: String,
}

pub(super) async fn clouds_yaml() -> Result<PathBuf, StackError> {
    match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => started().await,
    }
}

/// Starts it; does nothing, quickly, where it runs. What the script says goes to standard error as
/// it comes: a minute of silence looks like a test that hangs.
async fn started() -> Result<PathBuf, StackError> {
    let failed = |why: String| StackError::NotRunning { why };
    let output = Command::new(SCRIPT)
        .arg("up")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|error| failed(format!("{SCRIPT} can't be run: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!(
            "testbed/openstack/stack.sh ended with {}; its words stand above",
            output.status
        )));
    }
    let path = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(path.trim()))
}

/// The administrator of a clouds.yaml, and the region.
pub(super) fn admin(clouds_yaml: &Path) -> Result<(Account, String), StackError> {
    let failed = |why: String| StackError::NotRunning {
        why: format!("{}: {why}", clouds_yaml.display()),
    };
    let text = fs::read_to_string(clouds_yaml).map_err(|error| failed(error.to_string()))?;
    let mut clouds: Clouds =
        serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let admin = clouds.clouds.remove("admin");
    let admin = admin.ok_or_else(|| failed("no cloud called admin".to_owned()))?;
    let account = Account {
        auth_url: admin.auth.auth_url.trim_end_matches('/').to_owned(),
        username: admin.auth.username,
        password: admin.auth.password,
        project: admin.auth.project_name,
    };
    Ok((account, admin.region_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clouds_yaml_that_is_not_there_is_an_error_that_says_what_to_type() {
        let error = admin(Path::new("/nowhere/clouds.yaml")).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("/nowhere/clouds.yaml"), "{text}");
        assert!(text.contains("cargo xtask openstack up"), "{text}");
    }
}
