use super::*;

const CONFIG: &str = r#"{
    "apiVersion": "v1", "kind": "Config", "current-context": "one",
    "clusters": [
        {"name": "here", "cluster": {"server": "https://127.0.0.1:6443", "proxy-url": "http://proxy:3128"}},
        {"name": "there", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [
        {"name": "me", "user": {"token": "secret-token"}},
        {"name": "file", "user": {"client-certificate": "cert.pem", "client-key": "key.pem"}},
        {"name": "exec", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh", "args": ["-c", "echo secret-token; exit 3"], "interactiveMode": "Never"}}}],
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
