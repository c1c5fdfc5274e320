//! Credential commands of kubeconfigs (`users[].user.exec`), run with a limit of time.
//!
//! The client library would run them while requests wait, and can't end one that hangs. Nothing
//! that a command prints is ever shown.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// What a command may print: certificates are a few kilobytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// What a command answered.
#[derive(Deserialize)]
struct ExecCredential {
    pub(super) status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    pub(super) token: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key_data: Option<String>,
}

/// Puts what the credential command says in its place, where there is one. Returns how long it
/// holds; `None`: until the server refuses it.
pub(super) async fn resolve(
    auth: &mut AuthInfo,
    limit: Duration,
) -> Result<Option<Timestamp>, String> {
    let Some(exec) = auth.exec.take() else {
        return Ok(None);
    };
    let answered = tokio::time::timeout(limit, run(&exec)).await;
    let status = answered.map_err(|_| {
        let limit = limit.as_secs();
        format!("the credential command of the kubeconfig timed out after {limit} s")
    })??;
    if let Some(token) = status.token {
        auth.token = Some(token.into());
        auth.token_file = None;
    }
    if let (Some(certificate), Some(key)) = (status.client_certificate_data, status.client_key_data)
    {
        auth.client_certificate_data = Some(STANDARD.encode(certificate));
        auth.client_key_data = Some(STANDARD.encode(key).into());
    }
    Ok(status.expiration_timestamp)
}

/// Runs a command to its end; it is killed if this is dropped before.
async fn run(exec: &ExecConfig) -> Result<Status, String> {
    let started = |error: io::Error| {
        format!("the credential command of the kubeconfig can't be run: {error}")
    };
    let Some(program) = &exec.command else {
        return Err("the kubeconfig names no credential command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    // A process that serves has no one to ask.
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        let cluster = serde_json::to_value(&exec.cluster);
        spec["cluster"] = cluster.map_err(|error| error.to_string())?;
    }
    let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    let quiet = exec.interactive_mode == Some(ExecInteractiveMode::Never);
    let stderr = if quiet {
        Stdio::null()
    } else {
        Stdio::inherit()
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(started)?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = stdout.take(LONGEST_ANSWER);
        stdout.read_to_end(&mut answer).await.map_err(started)?;
    }
    let status = child.wait().await.map_err(started)?;
    if !status.success() {
        return Err(format!(
            "the credential command of the kubeconfig ended with {status}"
        ));
    }
    // The parser's own words would show what it could not read.
    let credential: Option<ExecCredential> = serde_json::from_slice(&answer).ok();
    credential.and_then(|it| it.status).ok_or_else(|| {
        "the output of the credential command of the kubeconfig is not an ExecCredential".to_owned()
    })
}
