use std::path::Path;

use super::described::COMMAND_LIMIT;
use super::*;

const CONFIG: &str = r#"{
    "apiVersion": "v1", "kind": "Config", "current-context": "one",
    "clusters": [
        {"name": "here", "cluster": {"server": "https://127.0.0.1:6443",
            "proxy-url": "http://proxy:3128"}},
        {"name": "there", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [
        {"name": "me", "user": {"token": "secret-token"}},
        {"name": "file", "user": {"client-certificate": "cert.pem", "client-key": "key.pem"}},
        {"name": "exec", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh", "args": ["-c", "echo secret-token; exit 3"],
            "interactiveMode": "Never"}}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "here", "user": "me", "namespace": "shop"}},
        {"name": "two", "context": {"cluster": "there", "user": "file"}},
        {"name": "three", "context": {"cluster": "there", "user": "exec"}}]
}"#;

fn origin(directory: &Path, context: Option<&str>) -> Origin {
    let path = directory.join("config");
    std::fs::write(&path, CONFIG).unwrap();
    Origin::Kubeconfig {
        path: Some(path),
        context: context.map(str::to_owned),
    }
}

#[tokio::test]
async fn a_context_decides_server_namespace_and_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let described = Described::read(&origin(directory.path(), None))
        .await
        .unwrap();
    assert_eq!(described.config.cluster_url, "https://127.0.0.1:6443");
    // Named in the kubeconfig, it holds for every server.
    assert_eq!(described.config.proxy_url.unwrap(), "http://proxy:3128");
    let connection = Connection::new(origin(directory.path(), None), "landfall/test")
        .await
        .unwrap();
    assert_eq!(connection.namespace(), "shop");
    assert!(!format!("{connection:?}").contains("secret-token"));
}

#[tokio::test]
async fn the_files_of_a_client_certificate_are_looked_after() {
    let directory = tempfile::tempdir().unwrap();
    let described = Described::read(&origin(directory.path(), Some("two")))
        .await
        .unwrap();
    let names: Vec<_> = described
        .files
        .iter()
        .map(|path| {
            path.strip_prefix(directory.path())
                .unwrap()
                .to_str()
                .unwrap()
        })
        .collect();
    assert_eq!(names, ["config", "cert.pem", "key.pem"]);
    let mark = Mark::of(directory.path().join("cert.pem"));
    assert!(!mark.is_outdated());
    std::fs::write(directory.path().join("cert.pem"), "new").unwrap();
    assert!(mark.is_outdated());
}

#[tokio::test]
async fn a_missing_kubeconfig_or_context_is_named() {
    let nowhere = Origin::Kubeconfig {
        path: Some("/nowhere-at-all".into()),
        context: None,
    };
    let error = Connection::new(nowhere, "landfall/test")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("the kubeconfig /nowhere-at-all can't be used"),
        "{error}"
    );
    let directory = tempfile::tempdir().unwrap();
    let error = Connection::new(origin(directory.path(), Some("four")), "landfall/test")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("four"), "{error}");
}

#[tokio::test]
async fn what_a_credential_command_prints_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let error = Connection::new(origin(directory.path(), Some("three")), "landfall/test")
        .await
        .unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("ended with") && !shown.contains("secret-token"),
        "{shown}"
    );
}

/// A kubeconfig whose credential command is this script.
fn with_command(directory: &Path, script: &str) -> Origin {
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "me", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", script]}}}],
        "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}]
    });
    let path = directory.join("config");
    std::fs::write(&path, config.to_string()).unwrap();
    Origin::Kubeconfig {
        path: Some(path),
        context: None,
    }
}

#[tokio::test]
async fn a_credential_command_that_hangs_delays_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("ran");
    let script = format!(
        "[ -e {0} ] && exec sleep 1000; touch {0}; \
         echo '{{\"status\": {{\"token\": \"secret-token\"}}}}'",
        mark.display()
    );
    let connection = Connection::new(with_command(directory.path(), &script), "landfall/test")
        .await
        .unwrap();
    tokio::time::pause();
    connection.distrust();
    // The one that asks for it waits a moment, and those after it not at all.
    connection.client().await.unwrap();
    let renewal = |connection: &Connection| {
        let current = connection.inner.current();
        current.renewal.as_ref().map(|it| *it.ended.borrow())
    };
    assert_eq!(renewal(&connection), Some(false), "it hangs");
    connection.client().await.unwrap();
    assert_eq!(renewal(&connection), Some(false), "and is not run again");
    // It is given up after its time.
    tokio::time::sleep(COMMAND_LIMIT).await;
    tokio::task::yield_now().await;
    assert_eq!(renewal(&connection), Some(true));
}

#[tokio::test]
async fn a_credential_command_that_never_ends_is_an_error_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let origin = with_command(directory.path(), "exec sleep 1000");
    tokio::time::pause();
    let error = Connection::new(origin, "landfall/test").await.unwrap_err();
    assert!(
        error.to_string().contains("timed out after 30 s"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_begins_without_credentials_has_a_client_once_there_are_some() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("works");
    let script = format!(
        "[ -e {} ] && echo '{{\"status\": {{\"token\": \"secret-token\"}}}}'",
        mark.display()
    );
    let origin = with_command(directory.path(), &script);
    let connection = Connection::begin(origin, "landfall/test").await.unwrap();
    assert_eq!(connection.server(), "https://127.0.0.1:6443/");
    let error = connection.established().await.unwrap_err().to_string();
    assert!(error.contains("ended with exit status: 1"), "{error}");
    let refusal = connection.client().await.map(drop);
    assert_eq!(refusal.map_err(|error| error.to_string()), Err(error));
    std::fs::write(&mark, "").unwrap();
    // As after the time that passes until the next look.
    connection.distrust();
    connection.established().await.unwrap();
    connection.client().await.unwrap();
}

#[tokio::test]
async fn what_a_credential_command_gives_replaces_what_the_kubeconfig_has() {
    let script = "echo \"$KUBERNETES_EXEC_INFO\" >&2; echo '{\"status\": {\"token\": \"one\", \
                  \"clientCertificateData\": \"pem\", \"clientKeyData\": \"key\", \
                  \"expirationTimestamp\": \"2026-01-01T00:00:00Z\"}}'";
    let mut auth = kube::config::AuthInfo {
        exec: Some(
            serde_json::from_value(serde_json::json!({"command": "sh", "args": ["-c", script]}))
                .unwrap(),
        ),
        token_file: Some("/nowhere".to_owned()),
        ..kube::config::AuthInfo::default()
    };
    let until = exec::resolve(&mut auth, COMMAND_LIMIT).await.unwrap();
    assert_eq!(until, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    assert!(auth.exec.is_none() && auth.token.is_some() && auth.token_file.is_none());
    assert_eq!(auth.client_certificate_data.as_deref(), Some("cGVt"));
    assert!(auth.client_key_data.is_some());
}

#[tokio::test]
async fn what_a_credential_command_prints_must_be_a_credential() {
    let mut refused = Vec::new();
    for script in ["true", "echo secret-token", "echo '{}'", "exit 3"] {
        let exec = serde_json::json!({"command": "sh", "args": ["-c", script]});
        let mut auth = kube::config::AuthInfo {
            exec: Some(serde_json::from_value(exec).unwrap()),
            ..kube::config::AuthInfo::default()
        };
        let error = exec::resolve(&mut auth, COMMAND_LIMIT).await.unwrap_err();
        assert!(!error.contains("secret-token"), "{error}");
        refused.push(error);
    }
    assert!(
        refused[0].ends_with("is not an ExecCredential"),
        "{refused:?}"
    );
    assert_eq!(refused[0], refused[1]);
    assert_eq!(refused[0], refused[2]);
    assert!(
        refused[3].contains("ended with exit status: 3"),
        "{refused:?}"
    );
}

/// A client certificate as `openssl x509 -req` makes it without options for extensions, with its
/// key, made for this test.
const VERSION_1: [&str; 2] = [
    "\
-----BEGIN CERTIFICATE-----
MIIBGTCBwQIUNAh0CpjpNOZgNyfuqLIzwVa23w4wCgYIKoZIzj0EAwIwDzENMAsG
A1UEAwwEamFuZTAgFw0yNjExMjMwNzI5NDRaGA8yMTI2MTAzMDA3Mjk0NFowDzEN
MAsGA1UEAwwEamFuZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABP10daMQRBRE
6UJhW0f4xOTRQNvnAd+XLOZiB67S95vbNvGkkyh44YCY1EBq6cCG0ZXjOdGYcUYb
seDYYMB0k0YwCgYIKoZIzj0EAwIDRwAwRAIgKSpes4KhSfGKbmeNOfOXHlvp7ut8
WhcL/nNztz16TLoCIHPytkIGGQbKOMn6THyWuvlQoWkyLs3mDLmlfFhiU3vu
-----END CERTIFICATE-----
",
    "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgV6yTXMuAzYCSY6xt
HJqI0NEHwu4BG3VhaNda0HuMORmhRANCAAT9dHWjEEQUROlCYVtH+MTk0UDb5wHf
lyzmYgeu0veb2zbxpJMoeOGAmNRAaunAhtGV4znRmHFGG7Hg2GDAdJNG
-----END PRIVATE KEY-----
",
];

#[tokio::test]
async fn a_client_certificate_of_version_1_is_called_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in ["cert.pem", "key.pem"].iter().zip(VERSION_1) {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let connection = Connection::new(origin(directory.path(), Some("two")), "landfall/test");
    let error = connection.await.unwrap_err().to_string();
    assert!(error.contains("X.509 version 1"), "{error}");
    assert!(
        !error.contains("can't be reached") && !error.contains("key"),
        "{error}"
    );
}
