//! What the writes alone cost: those of a first start, sent by a client that does nothing else.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_testkit::cluster::Cluster;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{USER, kubectl_in_parts};

/// As many at the same time as Landfall writes.
const AT_ONCE: &str = "64";

const PATCH: (&str, &str, &str) = ("PATCH", "application/strategic-merge-patch+json", "200");
const POST: (&str, &str, &str) = ("POST", "application/json", "201");

/// A client of the API server that sends what it is given.
struct Client {
    server: String,
    place: PathBuf,
    /// Options of curl that every request has.
    options: String,
}

/// How long the writes took.
pub struct Floor {
    /// One write for each Service, which its traffic has to wait for.
    pub firsts: Duration,
    /// Another one for each Service, and an event.
    pub rest: Duration,
}

/// Sends the writes of a first start for so many Services that no controller serves.
pub async fn floor(cluster: &Cluster, count: u32) -> anyhow::Result<Floor> {
    kubectl_in_parts(cluster, "create", count, |number| {
        super::service(number, false).replace("name: web-", "name: floor-")
    })
    .await?;
    let client = Client::new(cluster)?;
    let of = |body: fn(u32) -> Value| {
        let path = |number| format!("/api/v1/namespaces/default/services/floor-{number}/status");
        (0..count).map(move |number| (path(number), body(number)))
    };
    let began = Instant::now();
    client.send(PATCH, of(first)).await?;
    let firsts = began.elapsed();
    let began = Instant::now();
    client.send(PATCH, of(second)).await?;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let events = (0..count).map(|number| (path.to_owned(), event(number)));
    client.send(POST, events).await?;
    let rest = began.elapsed();
    Ok(Floor { firsts, rest })
}

/// The claim and a finalizer, as long as Landfall's.
fn first(number: u32) -> Value {
    let version = json!({"annotations": {}, "spec": {"ports": [{"name": "http", "port": 8080,
        "protocol": "TCP", "targetPort": 8000}], "selector": {"app": format!("web-{number}")},
        "type": "LoadBalancer"}});
    let address = format!("198.51.{}.{}", number / 250, number % 250);
    json!({
        "metadata": {
            "finalizers": ["service.example.com/load-balancer"],
            "annotations": {"state.example.com/accepted": version.to_string()},
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]},
            "conditions": [
                condition("Accepted", true, "Accepted", "The Service is valid"),
                condition("Addressed", true, "Addressed", &address),
                condition("Programmed", false, "Progressing", "a listener is opened"),
            ],
        },
    })
}

fn second(_: u32) -> Value {
    let message = "1 listener serves; 3 of 3 members are reachable";
    json!({"status": {"conditions": [condition("Programmed", true, "Programmed", message)]}})
}

fn condition(kind: &str, status: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": kind,
        "status": if status { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn event(number: u32) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("floor-{number}.0123456789abcdef"), "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/floor",
        "reportingInstance": "floor",
        "action": "Ensure",
        "reason": "EnsuredLoadBalancer",
        "type": "Normal",
        "note": "Ensured load balancer",
        "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": "default",
            "name": format!("floor-{number}")},
    })
}

// === impl Client ===

impl Client {
    /// With the rights of Landfall.
    fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeconfig = cluster.identity(USER, &["system:serviceaccounts"])?;
        let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
        let place = cluster.directory().to_owned();
        let mut options = String::from("silent\nhttp1.1\noutput = \"/dev/null\"\n");
        for (option, field) in [
            ("cacert", "/clusters/0/cluster/certificate-authority-data"),
            ("cert", "/users/0/user/client-certificate-data"),
            ("key", "/users/0/user/client-key-data"),
        ] {
            let text = config.pointer(field).and_then(Value::as_str);
            let file = place.join(format!("floor.{option}"));
            let text = text.with_context(|| format!("the kubeconfig has no {field}"))?;
            std::fs::write(&file, STANDARD.decode(text)?)?;
            writeln!(options, "{option} = {}", quoted(&file.to_string_lossy()))?;
        }
        Ok(Self {
            server: cluster.server(),
            place,
            options,
        })
    }

    /// Sends requests, many at the same time.
    async fn send(
        &self,
        (method, content_type, status): (&str, &str, &str),
        requests: impl Iterator<Item = (String, Value)>,
    ) -> anyhow::Result<()> {
        let (mut text, mut count) = (String::new(), 0);
        for (path, body) in requests {
            if count > 0 {
                text.push_str("next\n");
            }
            let header = format!("Content-Type: {content_type}");
            text.push_str(&self.options);
            writeln!(text, "url = {}", quoted(&format!("{}{path}", self.server)))?;
            writeln!(text, "request = {}", quoted(method))?;
            writeln!(text, "header = {}", quoted(&header))?;
            writeln!(text, "data = {}", quoted(&body.to_string()))?;
            text.push_str("write-out = \"%{http_code}\\n\"\n");
            count += 1;
        }
        let file = self.place.join("floor.curl");
        std::fs::write(&file, text)?;
        let statuses = run_curl(&file).await?;
        let done = statuses.lines().filter(|it| *it == status).count();
        if done != count {
            let other = statuses.lines().find(|it| *it != status);
            let other = other.unwrap_or_default();
            bail!("{done} of {count} {method} were answered with {status}, one with {other}");
        }
        Ok(())
    }
}

async fn run_curl(requests: &Path) -> anyhow::Result<String> {
    let output = Command::new("curl")
        .args([
            "--parallel",
            "--parallel-immediate",
            "--parallel-max",
            AT_ONCE,
        ])
        .arg("--config")
        .arg(requests)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("curl can't be started")?;
    Ok(String::from_utf8(output.stdout)?)
}

/// A value as curl's configuration quotes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_quoted_for_curl() {
        let body = json!({"a": "b\\c"}).to_string();
        assert_eq!(quoted(&body), r#""{\"a\":\"b\\\\c\"}""#);
    }
}
