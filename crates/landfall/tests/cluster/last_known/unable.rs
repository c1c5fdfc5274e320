//! A replica that carries what it served last and can't come to work: others do, and then it ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{PLAIN, Remembering, is_last_known, service, target, until_followed};
use crate::bed::{Bed, DEADLINE, LOOK, text};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{Backend, answered_by};

/// Everything about Leases, and nothing else.
const LESSER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lesser, namespace: landfall-system}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lesser, namespace: landfall-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lesser}
subjects: [{kind: User, name: lesser}]
";

/// A cluster in which a replica served a Service and was killed.
struct Scene {
    bed: Bed,
    range: Range,
    web: SocketAddr,
    _backend: Backend,
}

impl Scene {
    async fn open(name: &str) -> Self {
        let bed = Bed::open(name).await;
        let range = Range::claim();
        let backend = Backend::start("one", range.member(1)).await;
        bed.apply(&service("web", "", PLAIN, &range)).await;
        let remembering = Remembering::new(&bed, &range, true);
        let mut first = remembering.start("first");
        first.ready().await;
        bed.programmed(&["web"]).await;
        remembering.remembers(&["web"]).await;
        let web = target(&bed, "web", 8080).await;
        first.kill().await;
        Self {
            bed,
            range,
            web,
            _backend: backend,
        }
    }

    /// Lets another replica come, which must work, and in the end be the only one that serves.
    async fn is_replaced(&self, remembering: &Remembering<'_>, mut unable: Replica) {
        let config = ["--config", text(&remembering.config)];
        let other = Replica::spawn(&self.bed, "other", self.range.admin(2), &config);
        self.bed
            .apply(&service("new", "", PLAIN, &self.range))
            .await;
        self.bed.programmed(&["new", "web"]).await;
        let status = unable.end().await;
        assert!(!status.success(), "{status}");
        assert!(unable.said("another replica serves"));
        assert!(!remembering.file().exists());
        answered_by(self.web, &["one"]).await;
        assert_eq!(target(&self.bed, "web", 8080).await, self.web);
        other.stop().await;
    }
}

/// A kubeconfig like the bed's whose credentials are a command's. It works while `mark` is there.
fn by_command(bed: &Bed, mark: &Path) -> PathBuf {
    let config = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let user = &mut config["users"][0]["user"];
    let pem = |name: &str| {
        let data = STANDARD.decode(user[name].as_str().unwrap()).unwrap();
        String::from_utf8(data).unwrap()
    };
    let credential = json!({"status": {
        "clientCertificateData": pem("client-certificate-data"),
        "clientKeyData": pem("client-key-data"),
    }});
    let credential = bed.write("credential.json", &credential.to_string());
    let script = format!("test -e {} && cat {}", text(mark), text(&credential));
    *user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "/bin/sh", "args": ["-c", script],
    }});
    bed.write("command.kubeconfig", &config.to_string())
}

async fn says(replica: &Replica, text: &str) {
    let began = Instant::now();
    while !replica.said(text) {
        assert!(
            began.elapsed() < DEADLINE,
            "{} never says {text}",
            replica.name
        );
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_may_not_learn_what_it_needs_serves_on_until_another_one_serves() {
    let scene = Scene::open("lesser").await;
    let Scene { bed, range, .. } = &scene;
    bed.kubectl().apply(LESSER).await.unwrap();
    let remembering = Remembering::new(bed, range, true);
    let lesser = bed.cluster.identity("lesser", &[]).unwrap();
    let unable = remembering.start_by(&lesser, "second");
    says(&unable, "this identity may not").await;
    answered_by(scene.web, &["one"]).await;
    scene.is_replaced(&remembering, unable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_start_fails_leaves_the_lease_to_others_and_serves_until_one_does() {
    let scene = Scene::open("failing").await;
    let Scene { bed, range, .. } = &scene;
    let remembering = Remembering::new(bed, range, true);
    let token = bed.write("token", "a-token-that-will-be-gone");
    bed.cluster.stop_api_server();
    let arguments = ["--admin-token-file", text(&token)];
    let unable = remembering.start_with(&bed.kubeconfig(), "second", &arguments);
    answered_by(scene.web, &["one"]).await;
    std::fs::remove_file(token).unwrap();
    bed.cluster.start_api_server().await.unwrap();
    says(&unable, "retried soon").await;
    answered_by(scene.web, &["one"]).await;
    scene.is_replaced(&remembering, unable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_credentials_serves_its_last_known_state_and_follows_once_it_has_some() {
    let bed = Bed::open("uncredited").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    bed.apply(&service("web", "", PLAIN, &range)).await;
    let remembering = Remembering::new(&bed, &range, true);
    let mark = bed.write("works", "");
    let kubeconfig = by_command(&bed, &mark);
    let mut first = remembering.start_by(&kubeconfig, "first");
    first.ready().await;
    bed.programmed(&["web"]).await;
    remembering.remembers(&["web"]).await;
    let web = target(&bed, "web", 8080).await;
    first.kill().await;
    std::fs::remove_file(&mark).unwrap();

    let second = remembering.start_by(&kubeconfig, "second");
    says(
        &second,
        "the credential command of the kubeconfig ended with",
    )
    .await;
    answered_by(web, &["one"]).await;
    assert!(is_last_known(&second).await);
    std::fs::write(&mark, "").unwrap();
    until_followed(&second).await;
    bed.apply(&service("new", "", PLAIN, &range)).await;
    bed.programmed(&["new", "web"]).await;
    assert_eq!(target(&bed, "web", 8080).await, web);
    second.stop().await;
    std::fs::remove_file(&mark).unwrap();
    // No other replica served, so it is remembered.
    std::fs::remove_file(remembering.file()).unwrap();
    // What remembers nothing has nothing to wait with.
    let mut third = remembering.start_by(&kubeconfig, "third");
    assert!(!third.end().await.success());
}
