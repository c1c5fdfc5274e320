//! The real kubectl: the user's hands.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::ClusterError;

/// kubectl as one user.
#[derive(Clone, Copy, Debug)]
pub struct Kubectl<'a> {
    program: &'a Path,
    kubeconfig: &'a Path,
    place: &'a Path,
}

// === impl Kubectl ===

impl<'a> Kubectl<'a> {
    pub(super) fn new(program: &'a Path, kubeconfig: &'a Path, place: &'a Path) -> Self {
        Self {
            program,
            kubeconfig,
            place,
        }
    }

    /// Runs it; what it prints is the answer.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        self.run_with(arguments, "").await
    }

    /// Runs it with something to read.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Result<String, ClusterError> {
        let failed = |source| ClusterError::Io {
            what: "kubectl can't be run".to_owned(),
            source,
        };
        let mut child = Command::new(self.program)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig)
            .env("KUBECACHEDIR", self.place.join("kubectl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may end without reading all of it, and says why.
            let _broken_pipe = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(ClusterError::Kubectl {
            arguments: arguments.join(" "),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// `kubectl apply -f -`
    pub async fn apply(&self, manifest: &str) -> Result<(), ClusterError> {
        self.run_with(&["apply", "-f", "-"], manifest)
            .await
            .map(drop)
    }

    /// `kubectl get ... -o json`
    pub async fn get(&self, arguments: &[&str]) -> Result<Value, ClusterError> {
        let all = [&["get", "-o", "json"], arguments].concat();
        let text = self.run(&all).await?;
        serde_json::from_str(&text).map_err(|error| ClusterError::Kubectl {
            arguments: all.join(" "),
            stderr: error.to_string(),
        })
    }
}
