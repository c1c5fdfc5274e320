//! A replica that starts serves what it served last, until the API server has sent everything.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use landfall_files::Snapshot;
use landfall_kube::{Connection, Origin};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, DEADLINE, LOOK, address, only, text};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{self, Backend, answered_by, ask, refused};

mod unable;

const CERTIFICATES: &str = include_str!("../../../../deploy/rbac-certificates.yaml");

fn service(name: &str, annotations: &str, ports: &str, range: &Range) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations:\n    \
         landfall.dev/endpoints: \"{}\"\n{annotations}spec:\n  type: LoadBalancer\n  \
         ports: [{ports}]\n",
        range.member(1)
    )
}

const PLAIN: &str = "{name: plain, port: 8080}";
const BOTH: &str = "{name: plain, port: 8080}, {name: secure, port: 8443}";
const TLS: &str =
    "    landfall.dev/mode.secure: tls\n    landfall.dev/tls-secret.secure: web-tls\n";

/// A replica that remembers what it serves.
struct Remembering<'a> {
    bed: &'a Bed,
    admin: SocketAddr,
    config: PathBuf,
    state: PathBuf,
    elected: bool,
}

impl<'a> Remembering<'a> {
    fn new(bed: &'a Bed, range: &Range, elected: bool) -> Self {
        Self {
            bed,
            admin: range.admin(1),
            config: bed.write("landfall.yaml", &only(&range.pool())),
            state: bed.cluster.directory().join("remembered"),
            elected,
        }
    }

    fn start(&self, name: &str) -> Replica {
        self.start_by(&self.bed.kubeconfig(), name)
    }

    fn start_by(&self, kubeconfig: &Path, name: &str) -> Replica {
        self.start_with(kubeconfig, name, &[])
    }

    fn start_with(&self, kubeconfig: &Path, name: &str, more: &[&str]) -> Replica {
        let (config, state) = (text(&self.config), text(&self.state));
        let elected = format!("--leader-elect={}", self.elected);
        let arguments = ["--config", config, "--state", state, &elected];
        let arguments = [&arguments, more].concat();
        Replica::spawn_by(kubeconfig, self.bed, name, self.admin, &arguments)
    }

    fn file(&self) -> PathBuf {
        self.state.join("served.snapshot")
    }

    /// Waits until all of these are remembered, with an address.
    async fn remembers(&self, names: &[&str]) {
        let began = Instant::now();
        loop {
            let file = std::fs::read_to_string(self.file()).unwrap_or_default();
            let is_in = |name: &&str| file.contains(&format!("\"name\":\"{name}\""));
            if names.iter().all(is_in) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{names:?} are not in {file}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn target(bed: &Bed, name: &str, port: u16) -> SocketAddr {
    let held = bed.service(name).await;
    SocketAddr::new(address(&held).unwrap().parse().unwrap(), port)
}

/// Whether what is served is from before the start.
async fn is_last_known(replica: &Replica) -> bool {
    let (_, metrics) = traffic::http(replica.admin, "/metrics")
        .await
        .unwrap_or_default();
    let mut lines = metrics.lines();
    lines.any(|it| it.contains("code=\"LastKnownState\"") && !it.ends_with(" 0"))
}

async fn until_followed(replica: &Replica) {
    let began = Instant::now();
    while is_last_known(replica).await || traffic::http(replica.admin, "/readyz").await.is_err() {
        assert!(
            began.elapsed() < DEADLINE,
            "{} follows nothing",
            replica.name
        );
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_starts_during_an_outage_serves_its_last_known_state() {
    let bed = Bed::open("remembered").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let certificate = bed.write("tls.crt", &certificate);
    let key = bed.write("tls.key", &key.serialize_pem());
    let (certificate, key) = (
        format!("--cert={}", text(&certificate)),
        format!("--key={}", text(&key)),
    );
    bed.kubectl().apply(CERTIFICATES).await.unwrap();
    bed.run(&["create", "secret", "tls", "web-tls", &certificate, &key])
        .await;
    bed.apply(&service("web", "", PLAIN, &range)).await;
    bed.apply(&service("shop", TLS, BOTH, &range)).await;
    let remembering = Remembering::new(&bed, &range, true);
    let mut first = remembering.start("first");
    first.ready().await;
    bed.programmed(&["web", "shop"]).await;
    remembering.remembers(&["web", "shop"]).await;
    assert_eq!(
        (mode(&remembering.state), mode(&remembering.file())),
        (0o700, 0o600)
    );
    let kept = std::fs::read_to_string(remembering.file()).unwrap();
    assert!(!kept.contains("PRIVATE KEY"), "{kept}");
    let (web, store) = (
        target(&bed, "web", 8080).await,
        target(&bed, "shop", 8080).await,
    );
    let secure = target(&bed, "shop", 8443).await;
    drop(TcpStream::connect(secure).await.unwrap());

    bed.cluster.stop_api_server();
    first.kill().await;
    refused(web).await;
    let second = remembering.start("second");
    answered_by(web, &["one"]).await;
    answered_by(store, &["one"]).await;
    assert!(is_last_known(&second).await);
    refused(secure).await;
    let (_, page) = traffic::http(second.admin, "/api/v1/instance")
        .await
        .unwrap();
    assert!(page.contains("CertificateNotFound"), "{page}");

    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let stop = stop.clone();
        async move {
            let (mut good, mut failed) = (0_u64, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                match ask(web).await {
                    Ok(_) => good += 1,
                    Err(error) => failed.push(error.to_string()),
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (good, failed)
        }
    });
    let mut idle = TcpStream::connect(store).await.unwrap();
    bed.cluster.start_api_server().await.unwrap();
    until_followed(&second).await;
    // It leads by now, and follows changes.
    bed.apply(&service("new", "", PLAIN, &range)).await;
    bed.programmed(&["new", "web", "shop"]).await;
    let began = Instant::now();
    while TcpStream::connect(secure).await.is_err() {
        assert!(
            began.elapsed() < DEADLINE,
            "the port that ends TLS stays closed"
        );
        tokio::time::sleep(LOOK).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (good, failed) = asking.await.unwrap();
    assert_eq!(failed, Vec::<String>::new(), "{} of {good}", failed.len());
    idle.write_all(b"?").await.unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "one");
    assert_eq!(target(&bed, "web", 8080).await, web);
    remembering.remembers(&["web", "shop", "new"]).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_before_the_outage_is_closed_once_that_is_known() {
    let bed = Bed::open("deleted").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    bed.apply(&service("web", "", PLAIN, &range)).await;
    bed.apply(&service("old", "", PLAIN, &range)).await;
    let remembering = Remembering::new(&bed, &range, false);
    let mut first = remembering.start("first");
    first.ready().await;
    bed.programmed(&["web", "old"]).await;
    remembering.remembers(&["web", "old"]).await;
    let (web, old) = (
        target(&bed, "web", 8080).await,
        target(&bed, "old", 8080).await,
    );
    first.kill().await;
    let none = r#"{"metadata": {"finalizers": null}}"#;
    bed.run(&["patch", "service", "old", "--type=merge", "-p", none])
        .await;
    bed.run(&["delete", "service", "old", "--timeout=60s"])
        .await;
    bed.cluster.stop_api_server();
    let second = remembering.start("second");
    answered_by(web, &["one"]).await;
    answered_by(old, &["one"]).await;
    bed.cluster.start_api_server().await.unwrap();
    refused(old).await;
    answered_by(web, &["one"]).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_replica_that_served_last_remembers_and_another_configuration_is_none() {
    let bed = Bed::open("others").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    bed.apply(&service("web", "", PLAIN, &range)).await;
    let remembering = Remembering::new(&bed, &range, true);
    let mut first = remembering.start("first");
    first.ready().await;
    bed.programmed(&["web"]).await;
    remembering.remembers(&["web"]).await;
    let web = target(&bed, "web", 8080).await;
    // Another one takes over, so that this one leaves nothing behind.
    let config = text(&remembering.config);
    let mut other = Replica::spawn(&bed, "other", range.admin(2), &["--config", config]);
    other.ready().await;
    first.stop().await;
    assert!(!remembering.file().exists());
    other.stop().await;
    let mut third = remembering.start("third");
    third.ready().await;
    remembering.remembers(&["web"]).await;
    third.kill().await;
    bed.cluster.stop_api_server();
    let elsewhere = Range::claim();
    bed.write("landfall.yaml", &only(&elsewhere.pool()));
    let fourth = remembering.start("fourth");
    let began = Instant::now();
    while !fourth.said("it is of another configuration") {
        assert!(began.elapsed() < DEADLINE, "nothing is said");
        tokio::time::sleep(LOOK).await;
    }
    refused(web).await;
}

/// An API server that answers one question, and then none any more.
struct Fading {
    kubeconfig: PathBuf,
    answered: Arc<AtomicBool>,
}

impl Fading {
    async fn start(bed: &Bed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = format!(
            "{{clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], current-context: x, \
            contexts: [{{name: x, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: \
            {{}}}}]}}"
        );
        let answered = Arc::new(AtomicBool::new(false));
        let done = answered.clone();
        tokio::spawn(async move {
            let body =
                r#"{"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": []}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            while let Ok((mut client, _)) = listener.accept().await {
                if !done.load(Ordering::Relaxed) {
                    let mut room = [0; 4096];
                    let _asked = client.read(&mut room).await.unwrap();
                    client.write_all(answer.as_bytes()).await.unwrap();
                    done.store(true, Ordering::Relaxed);
                }
            }
        });
        Self {
            kubeconfig: bed.write("fading.kubeconfig", &kubeconfig),
            answered,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_answers_once_and_goes_away_again_leaves_what_was_served_served() {
    let bed = Bed::open("fading").await;
    let range = Range::claim();
    let _backend = Backend::start("one", range.member(1)).await;
    bed.apply(&service("web", "", PLAIN, &range)).await;
    let remembering = Remembering::new(&bed, &range, false);
    let mut first = remembering.start("first");
    first.ready().await;
    bed.programmed(&["web"]).await;
    remembering.remembers(&["web"]).await;
    let web = target(&bed, "web", 8080).await;
    first.kill().await;

    let fading = Fading::start(&bed).await;
    let origin = Origin::Kubeconfig {
        path: Some(fading.kubeconfig.clone()),
        context: None,
    };
    let connection = Connection::new(origin, "test").await.unwrap();
    let kept = std::fs::read(remembering.file()).unwrap();
    let mut snapshot = Snapshot::decode(&kept).unwrap();
    connection.cluster().clone_into(&mut snapshot.about.cluster);
    std::fs::write(remembering.file(), snapshot.encode()).unwrap();
    let second = remembering.start_by(&fading.kubeconfig, "second");
    let began = Instant::now();
    while !fading.answered.load(Ordering::Relaxed) {
        assert!(began.elapsed() < DEADLINE, "nothing was asked");
        tokio::time::sleep(LOOK).await;
    }
    answered_by(web, &["one"]).await;
    // As it goes on, with what comes after the first answer.
    while !second.said("can't be watched at present") {
        assert!(began.elapsed() < DEADLINE, "nothing is watched");
        tokio::time::sleep(LOOK).await;
    }
    answered_by(web, &["one"]).await;
    second.kill().await;
}
