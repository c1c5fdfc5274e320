//! The store of a cluster: how it is started, and what it is asked without the API server.

use std::net::Ipv4Addr;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::ports::Ports;
use super::{Cluster, ClusterError};

impl Cluster {
    /// Forgets the history of every object in the store, so that no watch can begin in the past
    /// once the API server has been started again.
    pub async fn compact(&self) -> Result<(), ClusterError> {
        // The key only has to be valid: the answer's header names the revision.
        let answer = self.etcd_request("range", r#"{"key": "AA=="}"#).await?;
        let revision = answer["header"]["revision"]
            .as_str()
            .ok_or_else(|| ClusterError::Etcd(answer.to_string()))?
            .to_owned();
        let body = format!(r#"{{"revision": "{revision}", "physical": true}}"#);
        self.etcd_request("compaction", &body).await.map(drop)
    }

    async fn etcd_request(
        &self,
        what: &str,
        body: &str,
    ) -> Result<serde_json::Value, ClusterError> {
        let failed = |source| ClusterError::Io {
            what: "etcd can't be asked".to_owned(),
            source,
        };
        let address = (Ipv4Addr::LOCALHOST, self.ports.etcd);
        let mut stream = tokio::net::TcpStream::connect(address)
            .await
            .map_err(failed)?;
        let request = format!(
            "POST /v3/kv/{what} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: \
            {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(failed)?;
        let refused = || ClusterError::Etcd(answer.clone());
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(refused)?;
        let status = head.split(' ').nth(1);
        let value = serde_json::from_str(body).map_err(|_| refused())?;
        if status == Some("200") {
            Ok(value)
        } else {
            Err(refused())
        }
    }
}

/// The flags that etcd is started with.
pub(super) fn etcd_flags(place: &Path, ports: Ports) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    [
        ("data-dir", place.join("etcd").display().to_string()),
        // What is lost with the machine is no loss.
        ("unsafe-no-fsync", "true".to_owned()),
        ("initial-cluster", format!("default={peer}")),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer),
    ]
    .into_iter()
    .map(|(name, value)| format!("--{name}={value}"))
    .collect()
}
