//! Credentials that change while we run, proxies, and servers without streamed lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_kube::{ApiError, Connection, SourceConfig, access};
use landfall_testkit::cluster::{Cluster, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    DEADLINE, Watching, cluster, connect, connect_by, identity, install, service,
};

/// Asks something that every valid identity may ask.
async fn ask(connection: &Connection) -> Result<(), ApiError> {
    access::missing(connection, access::to_report())
        .await
        .map(drop)
}

/// A copy of our kubeconfig, changed.
fn kubeconfig(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let text = std::fs::read_to_string(identity(cluster)).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    change(&mut value);
    let path = cluster.directory().join(name);
    write_at_once(&path, &value.to_string());
    path
}

/// As careful programs write: never half a file.
fn write_at_once(path: &Path, text: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(&part, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_were_replaced_are_used_without_a_restart() {
    let cluster = cluster().await;
    let namespace = &cluster.namespace("rotation").await.unwrap();
    let kubectl = cluster.kubectl();
    kubectl
        .run(&["-n", namespace, "create", "serviceaccount", "robot"])
        .await
        .unwrap();
    let token = kubectl
        .run(&["-n", namespace, "create", "token", "robot"])
        .await
        .unwrap();
    let path = kubeconfig(cluster, "rotation.kubeconfig", |value| {
        value["users"][0]["user"] = json!({"token": token.trim()});
    });
    let connection = connect_by(&path, "landfall/rotation").await;
    ask(&connection).await.unwrap();

    // The token dies with its account.
    kubectl
        .run(&["-n", namespace, "delete", "serviceaccount", "robot"])
        .await
        .unwrap();
    let refused = async {
        loop {
            match ask(&connection).await {
                Err(ApiError::Unauthorized { .. }) => return,
                // Tokens are remembered as valid for some seconds.
                Ok(()) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, refused)
        .await
        .expect("the token is refused in time");
    // A file that is broken for a moment changes nothing.
    write_at_once(&path, "{");
    assert!(matches!(
        ask(&connection).await,
        Err(ApiError::Unauthorized { .. })
    ));
    kubectl
        .run(&["-n", namespace, "create", "serviceaccount", "robot"])
        .await
        .unwrap();
    let token = kubectl
        .run(&["-n", namespace, "create", "token", "robot"])
        .await
        .unwrap();
    kubeconfig(cluster, "rotation.kubeconfig", |value| {
        value["users"][0]["user"] = json!({"token": token.trim()});
    });
    ask(&connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_that_was_renewed_is_noticed_before_the_old_one_ends() {
    let cluster = cluster().await;
    let before = cluster.identity("before", &[]).unwrap();
    let after = cluster.identity("after", &[]).unwrap();
    let path = cluster.directory().join("renewed.kubeconfig");
    write_at_once(&path, &std::fs::read_to_string(before).unwrap());
    let connection = connect_by(&path, "landfall/renewed").await;
    let audit = cluster.audit();
    ask(&connection).await.unwrap();
    assert!(
        audit
            .entries()
            .unwrap()
            .iter()
            .any(|entry| entry.user == "before")
    );
    write_at_once(&path, &std::fs::read_to_string(after).unwrap());
    let noticed = async {
        while !audit
            .entries()
            .unwrap()
            .iter()
            .any(|entry| entry.user == "after")
        {
            ask(&connection).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(DEADLINE, noticed)
        .await
        .expect("the new certificate is noticed in time");
}

/// A proxy as `HTTPS_PROXY` means it: `CONNECT host:port`, then bytes. Counts the tunnels.
async fn proxy() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let tunnels = Arc::new(AtomicUsize::new(0));
    let count = tunnels.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    client.read_line(&mut line).await.unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    lines.push(line);
                }
                let target = lines[0]
                    .strip_prefix("CONNECT ")
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                client
                    .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
                    .await
                    .unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (url, tunnels)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_of_a_kubeconfig_is_used_for_requests_and_watches() {
    let cluster = cluster().await;
    let (url, tunnels) = proxy().await;
    let path = kubeconfig(cluster, "proxied.kubeconfig", |value| {
        value["clusters"][0]["cluster"]["proxy-url"] = url.into();
    });
    let connection = connect_by(&path, "landfall/proxied").await;
    ask(&connection).await.unwrap();
    let mut watching = Watching::start(&connection, SourceConfig::default());
    watching.until("synced").await;
    // One for requests, and one for each watch that goes on.
    assert!(
        tunnels.load(Ordering::Relaxed) >= 4,
        "{}",
        tunnels.load(Ordering::Relaxed)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_streamed_lists_is_listed_in_pages() {
    let options = Options {
        api_server_flags: vec!["--feature-gates=WatchList=false".to_owned()],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await.unwrap();
    install(&cluster).await;
    let namespace = &cluster.namespace("pages").await.unwrap();
    cluster
        .kubectl()
        .apply(&service(namespace, "web", ""))
        .await
        .unwrap();
    let audit = cluster.audit();
    let mut watching = Watching::start(
        &connect(&cluster, "landfall/old").await,
        SourceConfig::default(),
    );
    let mut reported = watching.until_in(namespace, "synced").await;
    reported.sort();
    assert_eq!(
        reported,
        [
            format!("+Namespace {namespace}"),
            format!("+Service {namespace}/web")
        ]
    );
    cluster
        .kubectl()
        .apply(&service(namespace, "later", ""))
        .await
        .unwrap();
    watching.until(&format!("+Service {namespace}/later")).await;
    let entries = audit.entries().unwrap();
    let listed = |entry: &&landfall_testkit::cluster::AuditEntry| {
        entry.user_agent == "landfall/old" && entry.verb == "list" && entry.resource == "services"
    };
    assert_eq!(entries.iter().filter(listed).count(), 1);
}
