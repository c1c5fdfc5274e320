//! A folder of manifests, a running source, and a reader of its facts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use landfall_files::{ManifestStore, Manifests, Options};
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{IngressAddress, ServiceStatus};
use landfall_model::{Reason, ServiceKey};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far beyond anything that should happen, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A temporary folder with `manifests/` and `state/` in it.
pub(crate) struct Stage {
    root: tempfile::TempDir,
}

/// A running source and what it said.
pub(crate) struct Running {
    pub(crate) store: ManifestStore,
    facts: mpsc::Receiver<Fact>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    pub(crate) services: BTreeMap<ServiceKey, Arc<ServiceRow>>,
    pub(crate) problems: BTreeMap<String, Vec<Reason>>,
    /// Every fact in a few words.
    received: Vec<String>,
    synced: bool,
}

/// A Service with one port.
pub(crate) fn service(name: &str, port: u32) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  type: \
        LoadBalancer\n  ports:\n  - port: {port}\n"
    )
}

pub(crate) fn namespace(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

pub(crate) fn pool(name: &str, addresses: &str) -> String {
    format!(
        "---\napiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata:\n  name: \
        {name}\nspec:\n  addresses: [{addresses}]\n"
    )
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

pub(crate) fn status(last: u8) -> ServiceStatus {
    ServiceStatus {
        ingress: vec![IngressAddress {
            ip: Some(std::net::IpAddr::from([127, 0, 0, last])),
            ..IngressAddress::default()
        }],
        conditions: Vec::new(),
        ..ServiceStatus::default()
    }
}

// === impl Stage ===

impl Stage {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("manifests")).unwrap();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("manifests")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// Writes a file as editors do: beside it, and then in its place.
    pub(crate) fn put(&self, name: &str, content: &str) {
        let draft = self.path(".draft");
        fs::write(&draft, content).unwrap();
        fs::rename(draft, self.path(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            paths: vec![self.folder()],
            recursive: false,
            state: Some(self.state()),
        }
    }

    /// Starts serving the folder with its state, and waits until everything is reported.
    pub(crate) async fn start(&self) -> Running {
        Running::start(self.options()).await
    }
}

// === impl Running ===

impl Running {
    pub(crate) async fn start(options: Options) -> Self {
        let (manifests, store) = Manifests::open(options).unwrap();
        let (sender, facts) = mpsc::channel(4);
        let cancel = CancellationToken::new();
        let task = tokio::spawn(manifests.run(sender, cancel.clone()));
        let mut running = Self {
            store,
            facts,
            cancel,
            task,
            services: BTreeMap::new(),
            problems: BTreeMap::new(),
            received: Vec::new(),
            synced: false,
        };
        running
            .until("everything is reported", |running| running.synced)
            .await;
        running
    }

    /// Listens until something is so.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let listening = async {
            while !is_so(self) {
                let fact = self.facts.recv().await.expect("the source runs");
                self.receive(fact);
            }
        };
        let in_time = tokio::time::timeout(DEADLINE, listening).await.is_ok();
        assert!(
            in_time,
            "waited in vain until {what}; received {:#?}",
            self.received
        );
    }

    fn receive(&mut self, fact: Fact) {
        let received = match fact {
            Fact::Service(row) => {
                let mut words = format!("Service {} {}", row.key.name(), row.ports[0].port);
                for address in row.status.addresses() {
                    words = format!("{words} {address}");
                }
                if row.finalized {
                    words.push_str(" finalized");
                }
                if row.deleting {
                    words.push_str(" deleting");
                }
                self.services.insert(row.key.clone(), row);
                words
            }
            Fact::ServiceGone(key) => {
                self.services
                    .remove(&key)
                    .expect("only what was there can go");
                format!("ServiceGone {}", key.name())
            }
            Fact::SourceProblems { part, reasons } => {
                let name = Path::new(&*part).file_name().map_or(&*part, |name| {
                    name.to_str().expect("names in tests are plain")
                });
                let words = format!("problems {name} {}", reasons.len());
                self.problems.insert(name.to_owned(), reasons);
                words
            }
            Fact::PoolsIncomplete { incomplete, .. } => format!("pools incomplete: {incomplete}"),
            Fact::Synced => {
                self.synced = true;
                "Synced".to_owned()
            }
            Fact::Namespace(row) => format!("Namespace {}", row.name),
            Fact::NamespaceGone(name) => format!("NamespaceGone {name}"),
            Fact::Pool(row) => format!("Pool {} {}", row.name, row.addresses.join(" ")),
            Fact::PoolGone(name) => format!("PoolGone {name}"),
            other => format!("{other:?}"),
        };
        self.received.push(received);
    }

    /// What was received since the last call.
    pub(crate) fn received(&mut self) -> Vec<String> {
        std::mem::take(&mut self.received)
    }

    pub(crate) fn has_received(&self, words: &str) -> bool {
        self.received.iter().any(|received| received == words)
    }

    pub(crate) async fn until_received(&mut self, words: &str) {
        self.until(words, |running| running.has_received(words))
            .await;
    }

    pub(crate) fn row(&self, name: &str) -> &ServiceRow {
        &self.services[&key(name)]
    }

    pub(crate) fn problem(&self, file: &str) -> String {
        let reasons = self.problems.get(file).map_or(&[][..], Vec::as_slice);
        let lines: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    /// What the engine does first, and after it found an address.
    pub(crate) async fn claim(&mut self, name: &str, last: u8) {
        let uid = self.row(name).uid.clone();
        self.store
            .add_finalizer(&key(name), &uid, None)
            .await
            .unwrap();
        self.store
            .write_status(&key(name), &uid, &status(last))
            .await
            .unwrap();
        self.until("the claim is reported", |running| {
            let row = running.row(name);
            row.finalized && row.status == status(last)
        })
        .await;
    }

    /// What the engine does last.
    pub(crate) async fn release(&mut self, name: &str) {
        let uid = self.row(name).uid.clone();
        self.store.remove_finalizer(&key(name), &uid).await.unwrap();
    }

    /// Ends it in good order.
    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }

    /// Ends it as `kill -9` does: in the middle of whatever it did.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}
