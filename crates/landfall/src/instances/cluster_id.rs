//! The identity of a cluster: the UID of its namespace `kube-system`. Owners of objects
//! in a cloud are distinguished by it.

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
/// that the process ends, and its supervisor starts it again.
const ATTEMPTS: u32 = 15;
const PAUSE: Duration = Duration::from_secs(2);
/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

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
            "this identity may not {right}: objects in the cloud get no mark of the cluster, and \
            only names and UIDs of Services distinguish them from those of other clusters; bind it \
            to the roles of deploy/rbac.yaml"
        );
        return Ok(None);
    }
    let uid = tokio::time::timeout(TIMEOUT, ask(origin)).await;
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
    let client = client.map_err(|_| anyhow::anyhow!("no client can be created"))?;
    let request = http::Request::get(format!("/api/v1/namespaces/{NAMESPACE}"));
    let request = request.body(Vec::new())?;
    let answer = client.request::<Namespace>(request).await;
    let namespace = answer.map_err(|error| match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        _ => anyhow::anyhow!("the API server did not answer"),
    })?;
    Ok(namespace.metadata.uid)
}

#[cfg(test)]
mod tests {
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    /// What is read from an API server that allows it or not, and answers so.
    async fn read_from(
        allowed: bool,
        status: StatusCode,
        namespace: Value,
    ) -> anyhow::Result<Option<String>> {
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review = async |State(allowed): State<bool>, Json(asked): Json<Value>| {
            let attributes = &asked["spec"]["resourceAttributes"];
            assert_eq!(attributes["verb"], "get");
            assert_eq!(attributes["name"], "kube-system");
            Json(json!({"status": {"allowed": allowed}}))
        };
        let answer = async move || (status, Json(namespace.clone()));
        let router = Router::new()
            .route(reviews, post(review))
            .route("/api/v1/namespaces/kube-system", get(answer))
            .with_state(allowed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let origin = Origin::Kubeconfig {
            path: Some(path),
            context: None,
        };
        let connection = Connection::new(origin.clone(), "test").await.unwrap();
        let id = read(&connection, &origin).await;
        serving.abort();
        id
    }

    #[tokio::test]
    async fn the_id_is_the_uid_of_a_namespace_that_every_cluster_has() {
        let namespace = json!({"metadata": {"name": "kube-system", "uid": "u-1"}});
        let id = read_from(true, StatusCode::OK, namespace).await.unwrap();
        assert_eq!(id.as_deref(), Some("u-1"));
    }

    #[tokio::test]
    async fn without_the_right_there_is_no_id_and_no_failure() {
        let namespace = json!({"metadata": {"uid": "u-1"}});
        let id = read_from(false, StatusCode::OK, namespace).await.unwrap();
        assert_eq!(id, None);
    }

    #[tokio::test]
    async fn an_answer_without_an_id_is_a_failure_in_the_servers_words() {
        let status = json!({
            "kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError",
            "message": "etcd is away",
        });
        let failed = read_from(true, StatusCode::INTERNAL_SERVER_ERROR, status).await;
        let text = format!("{:#}", failed.unwrap_err());
        assert!(
            text.contains("cluster's id") && text.contains("etcd is away"),
            "{text}"
        );
        let nothing = read_from(true, StatusCode::OK, json!({"metadata": {}})).await;
        assert!(nothing.is_err());
    }
}
