//! What tells a cluster from every other: the UID of its namespace `kube-system`. Owners of objects in a
//! cloud are told apart by it.

use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use landfall_kube::access::{self, Right};
use landfall_kube::{Connection, Origin};
use serde::Deserialize;

/// The namespace that every cluster has.
const NAMESPACE: &str = "kube-system";
/// How often an API server is asked that does not answer, and how long is waited in between. After
/// that the process ends and is started anew by whoever runs it.
const ATTEMPTS: u32 = 15;
const PAUSE: Duration = Duration::from_secs(2);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The part of a Namespace that is read here.
#[derive(Debug, Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    uid: String,
}

/// The id of the cluster; `None`, with a warning in the log, where this identity may not read it.
///
/// An API server that does not answer yet is waited for: a process that began without the id would
/// leave objects without it.
pub async fn read(connection: &Connection, origin: &Origin) -> anyhow::Result<Option<String>> {
    let mut attempt = 1;
    let missing = loop {
        match access::missing(connection, vec![right()]).await {
            Ok(missing) => break missing,
            Err(error) if attempt < ATTEMPTS => {
                let server = connection.server();
                tracing::warn!(%error, server, "waiting for the API server, for the cluster's id");
            }
            Err(error) => return Err(error).context("reading the cluster's id"),
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    };
    if let Some(right) = missing.first() {
        tracing::warn!(
            "this identity may not {right}: objects in the cloud are told from those of other \
             clusters by their names alone; bind it to the roles of deploy/rbac.yaml"
        );
        return Ok(None);
    }
    let uid = tokio::time::timeout(PATIENCE, ask(origin)).await;
    let uid = uid.context("no answer").and_then(|uid| uid);
    uid.map(Some).context("reading the cluster's id")
}

fn right() -> Right {
    Right {
        verb: "get",
        group: "",
        resource: "namespaces",
        subresource: "",
        namespace: None,
        name: Some(NAMESPACE.to_owned()),
    }
}

async fn ask(origin: &Origin) -> anyhow::Result<String> {
    let config = match origin {
        Origin::Infer => Config::infer().await?,
        Origin::InCluster => Config::incluster()?,
        Origin::Kubeconfig { path, context } => {
            let kubeconfig = match path {
                Some(path) => Kubeconfig::read_from(path)?,
                None => Kubeconfig::read()?,
            };
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(kubeconfig, &options).await?
        }
    };
    // Making a client runs the credential command, where there is one, and waits for it. What that
    // says may be secret, so its errors are not repeated; the rights were asked for the same way.
    let client = tokio::task::spawn_blocking(move || Client::try_from(config)).await?;
    let client = client.map_err(|_| anyhow::anyhow!("no client can be made"))?;
    let request = http::Request::get(format!("/api/v1/namespaces/{NAMESPACE}"));
    let request = request.body(Vec::new())?;
    let answer = client.request::<Namespace>(request).await;
    let namespace = answer.map_err(|error| match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        _ => anyhow::anyhow!("the API server did not answer"),
    })?;
    Ok(namespace.metadata.uid)
}
