//! What the tests share: a cluster with our roles, our identity, and facts as they arrive.

use std::path::{Path, PathBuf};
use std::time::Duration;

use landfall_engine::leadership::Role;
use landfall_kube::{Connection, Origin, SourceConfig, Sources};
use landfall_model::rows::Fact;
use landfall_testkit::cluster::Cluster;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The user that `deploy/rbac.yaml` binds its roles to.
pub(crate) const USER: &str = "system:serviceaccount:landfall-system:landfall";

/// Anything that happens at all happens within this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The manifests that people apply.
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// The shared cluster, with our roles in it.
pub(crate) async fn cluster() -> &'static Cluster {
    static READY: OnceCell<()> = OnceCell::const_new();
    let cluster = Cluster::shared().await;
    READY.get_or_init(|| install(cluster)).await;
    cluster
}

/// Grants what `deploy/rbac*.yaml` grant.
pub(crate) async fn install(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: landfall-system}}";
    kubectl.apply(namespace).await.unwrap();
    for entry in std::fs::read_dir(MANIFESTS).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("rbac") {
            kubectl
                .apply(&std::fs::read_to_string(entry.path()).unwrap())
                .await
                .unwrap();
        }
    }
}

/// Connected as ourselves. The name stands in the audit log.
pub(crate) async fn connect(cluster: &Cluster, agent: &str) -> Connection {
    let kubeconfig = identity(cluster);
    connect_by(&kubeconfig, agent).await
}

pub(crate) fn identity(cluster: &Cluster) -> PathBuf {
    cluster.identity(USER, &["system:serviceaccounts"]).unwrap()
}

pub(crate) async fn connect_by(kubeconfig: &Path, agent: &str) -> Connection {
    let origin = Origin::Kubeconfig {
        path: Some(kubeconfig.to_owned()),
        context: None,
    };
    Connection::new(origin, agent).await.unwrap()
}

/// Running sources and the facts that they send. They end when this is dropped.
pub(crate) struct Watching {
    pub(crate) sources: Sources,
    pub(crate) synced: bool,
    facts: mpsc::Receiver<Fact>,
    cancel: CancellationToken,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Watching {
    pub(crate) fn start(connection: &Connection, config: SourceConfig) -> Self {
        Self::start_as(connection, config, None)
    }

    /// Those of a replica with a role.
    pub(crate) fn start_as(
        connection: &Connection,
        config: SourceConfig,
        role: Option<watch::Receiver<Role>>,
    ) -> Self {
        let (sender, facts) = mpsc::channel(1024);
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let sources = Sources::start(connection, config, sender, role, &tasks, &cancel);
        Self {
            sources,
            synced: false,
            facts,
            cancel,
        }
    }

    /// The next fact.
    pub(crate) async fn next(&mut self) -> Fact {
        let fact = tokio::time::timeout(DEADLINE, self.facts.recv()).await;
        let fact = fact.expect("a fact in time").expect("facts go on");
        self.synced |= matches!(fact, Fact::Synced);
        fact
    }

    /// Every fact up to and with the first one that fits, in one word each.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let fact = tokio::time::timeout(DEADLINE, self.facts.recv()).await;
            let Ok(fact) = fact else {
                panic!("waited for {last:?}, saw {seen:?}")
            };
            let fact = fact.expect("facts go on");
            self.synced |= matches!(fact, Fact::Synced);
            // One stands beside the first fact about most Services.
            if matches!(fact, Fact::ClusterIps(..)) {
                continue;
            }
            seen.push(word(&fact));
            if seen.last().is_some_and(|word| word == last) {
                return seen;
            }
        }
    }

    /// The same, without those about objects of other tests.
    pub(crate) async fn until_in(&mut self, namespace: &str, last: &str) -> Vec<String> {
        let mut seen = self.until(last).await;
        seen.retain(|word| word.contains(namespace));
        seen
    }

    /// What has been sent so far.
    pub(crate) fn so_far(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Ok(fact) = self.facts.try_recv() {
            if !matches!(fact, Fact::ClusterIps(..)) {
                seen.push(word(&fact));
            }
        }
        seen
    }

    /// Waits until everything is (or something isn't) followed.
    pub(crate) async fn connected(&mut self, wanted: bool) {
        let mut health = self.sources.health();
        let reached = health.wait_for(|health| health.is_connected() == wanted);
        tokio::time::timeout(DEADLINE, reached)
            .await
            .expect("the connection in time")
            .unwrap();
    }
}

/// A fact in a few words: `+Service shop/web`, `-Node n1`, `bad Node n1`, `fine Node n1`.
pub(crate) fn word(fact: &Fact) -> String {
    match fact {
        Fact::Service(row) => format!("+Service {}", row.key),
        Fact::ServiceGone(key) => format!("-Service {key}"),
        Fact::ClusterIps(key, _) => format!("cluster IPs of {key}"),
        Fact::Slice(row) if row.cut => format!("+Slice {} (cut)", row.key),
        Fact::Slice(row) => format!("+Slice {}", row.key),
        Fact::SliceGone(key) => format!("-Slice {key}"),
        Fact::Node(row) => format!("+Node {}", row.name),
        Fact::NodeGone(name) => format!("-Node {name}"),
        Fact::Namespace(row) => format!("+Namespace {}", row.name),
        Fact::NamespaceGone(name) => format!("-Namespace {name}"),
        Fact::Secret(row) => format!("+Secret {}", row.key),
        Fact::SecretGone(key) => format!("-Secret {key}"),
        Fact::SecretsUnavailable => "no Secrets".to_owned(),
        Fact::Machine(networks) => format!("at {networks:?}"),
        Fact::Pool(row) => format!("+Pool {}", row.name),
        Fact::PoolGone(name) => format!("-Pool {name}"),
        Fact::Resource(row) => format!("+{row}"),
        Fact::ResourceGone(kind, key) => format!("-{kind} {key}"),
        Fact::SourceProblems { part, reasons } if reasons.is_empty() => format!("fine {part}"),
        Fact::SourceProblems { part, .. } => format!("bad {part}"),
        Fact::PoolsIncomplete { part, incomplete } => {
            format!("pools incomplete by {part}: {incomplete}")
        }
        Fact::Synced => "synced".to_owned(),
        Fact::Current { term } => format!("current in term {term}"),
    }
}

/// A Service that wants a load balancer.
pub(crate) fn service(namespace: &str, name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: {name}, \
         annotations: {{{annotations}}}}}\nspec: {{type: LoadBalancer, selector: {{app: {name}}}, \
         ports: [{{name: web, port: 80}}]}}\n---\n"
    )
}

/// A wire between a client and the API server that can be cut.
pub(crate) struct Relay {
    open: watch::Sender<bool>,
    /// How often answers stalled on the connections of then.
    stalls: watch::Sender<u64>,
    kubeconfig: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// A relay for our own identity.
    pub(crate) async fn to(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("https://{}", listener.local_addr().unwrap());
        let kubeconfig = cluster.directory().join(format!(
            "relay-{}.kubeconfig",
            here.rsplit(':').next().unwrap_or_default()
        ));
        let text = std::fs::read_to_string(identity(cluster)).unwrap();
        std::fs::write(&kubeconfig, text.replace(&cluster.server(), &here)).unwrap();
        let server = cluster.server().trim_start_matches("https://").to_owned();
        let (open, is_open) = watch::channel(true);
        let (stalls, stalled) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *is_open.borrow() {
                    let mut stalled = stalled.clone();
                    stalled.mark_unchanged();
                    tokio::spawn(carry(client, server.clone(), is_open.clone(), stalled));
                }
            }
        });
        Self {
            open,
            stalls,
            kubeconfig,
            task,
        }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Breaks every connection and takes no new ones.
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Keeps back every answer on the connections that there are. They stay open, and new ones are
    /// carried.
    pub(crate) fn stall(&self) {
        self.stalls.send_modify(|stalls| *stalls += 1);
    }

    pub(crate) fn repair(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(
    client: TcpStream,
    server: String,
    mut open: watch::Receiver<bool>,
    mut stalled: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut asks, mut receives) = client.into_split();
    let (mut answers, mut takes) = server.into_split();
    let asking = tokio::io::copy(&mut asks, &mut takes);
    let answering = async {
        tokio::select! {
            ended = tokio::io::copy(&mut answers, &mut receives) => drop(ended),
            Ok(()) = stalled.changed() => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = asking => {}
        () = answering => {}
        _ = open.wait_for(|open| !open) => {}
    }
}
