//! How the API server is reached: kubeconfig or service account, proxies, and credentials that
//! change while we run.
//!
//! Token files and the cluster's CA are read again by the client library. Client certificates,
//! credential commands and the kubeconfig itself are not, so a [`Connection`] reads them from
//! time to time and makes a new client when one of them is another. That is a task of its own, and
//! requests go on with the client from before: a command that hangs or a disk that does not answer
//! delays nothing. Nothing here shows a credential.

mod described;
mod exec;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::{Client, Config};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use described::{Described, Mark};

/// Where the way to the API server is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `KUBECONFIG`, else `~/.kube/config`, else the service account.
    Infer,
    /// The service account of the pod that we run in.
    InCluster,
    /// A kubeconfig.
    Kubeconfig {
        /// The file; `None`: `KUBECONFIG`, else `~/.kube/config`.
        path: Option<PathBuf>,
        /// The context; `None`: the current one.
        context: Option<String>,
    },
}

/// The way to the API server. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    origin: Origin,
    agent: String,
    namespace: String,
    server: String,
    /// See [`Connection::cluster`].
    cluster: String,
    current: Mutex<Current>,
}

struct Current {
    /// An error as long as there has been none.
    client: Result<Client, ConnectError>,
    files: Vec<Mark>,
    /// When the credentials end, where that was said.
    until: Option<Timestamp>,
    looked: Instant,
    /// The server refused the credentials.
    distrusted: bool,
    renewal: Option<Renewal>,
}

/// Credentials that are being read. Its end is reported to those that wait for it a little.
struct Renewal {
    ended: watch::Receiver<bool>,
    /// Ends with the connection.
    _task: AbortOnDropHandle<()>,
}

/// Why there is no way to an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is missing or wrong.
    #[error(
        "the kubeconfig{} can't be used: {why}",
        .path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default()
    )]
    Kubeconfig {
        /// Which one, if it was named.
        path: Option<PathBuf>,
        /// Why not.
        why: String,
    },
    /// This is no pod with a service account.
    #[error("there is no service account here: {why}; name a kubeconfig with --kubeconfig")]
    InCluster {
        /// What is missing.
        why: String,
    },
    /// Neither of the two.
    #[error("neither a kubeconfig ({kubeconfig}) nor a service account ({in_cluster}) was found")]
    Nothing {
        /// Why the first does not do.
        kubeconfig: String,
        /// Why the second does not do.
        in_cluster: String,
    },
    /// The proxy variables are wrong.
    #[error("{0}")]
    Proxy(String),
    /// The client can't be made of it: unreadable certificates, a failing credential command.
    #[error("no client for {server}: {why}")]
    Client {
        /// The server's address.
        server: String,
        /// Why not.
        why: String,
    },
}

/// From one check of the files to the next.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a credential command gave is replaced this long before it ends.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// How long the request that asks for new credentials waits for them. Then it goes with the old
/// ones.
const A_MOMENT: Duration = Duration::from_millis(250);

// === impl Connection ===

impl Connection {
    /// Reads the description and makes a client. Nothing is sent yet. `agent` identifies the writer
    /// to the API server (and its audit log); name the replica in it.
    pub async fn new(origin: Origin, agent: &str) -> Result<Self, ConnectError> {
        let connection = Self::begin(origin, agent).await?;
        connection.established().await?;
        Ok(connection)
    }

    /// Reads the description and begins to make a client: credentials may take long, or not be had
    /// at all for a while. Until they are, every request fails.
    pub async fn begin(origin: Origin, agent: &str) -> Result<Self, ConnectError> {
        let described = Described::read(&origin).await?;
        let server = described.config.cluster_url.to_string();
        let cluster = cluster(&described.config);
        let namespace = described.config.default_namespace.clone();
        let current = Current::none(&server);
        let connection = Self {
            inner: Arc::new(Inner {
                origin,
                agent: agent.to_owned(),
                namespace,
                server,
                cluster,
                current: Mutex::new(current),
            }),
        };
        connection.look();
        Ok(connection)
    }

    /// Waits for the credentials that are being read. An error where there have been none yet.
    pub async fn established(&self) -> Result<(), ConnectError> {
        self.look();
        let renewal = {
            let current = self.inner.current();
            current.renewal.as_ref().map(|it| it.ended.clone())
        };
        if let Some(mut ended) = renewal {
            // Whichever way it ends, it is said what came of it.
            let _ended = ended.wait_for(|ended| *ended).await;
        }
        self.inner.current().client.clone().map(drop)
    }

    /// The namespace of the context, or of the pod.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The API server's URL, for people.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Returns what distinguishes this cluster from others while its API server does not answer:
    /// the server's URL, and a digest of the authority that signs for it.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// A client with today's credentials, or with those of before as long as newer ones are not to
    /// be had.
    pub(crate) async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(mut ended) = self.look() {
            // Whichever way it ends, there may be a client from before.
            let _waited = tokio::time::timeout(A_MOMENT, ended.wait_for(|ended| *ended)).await;
        }
        self.inner.current().client.clone()
    }

    /// Begins to read the credentials again where that is due, and says when it is done.
    fn look(&self) -> Option<watch::Receiver<bool>> {
        let mut current = self.inner.current();
        if let Some(renewal) = &current.renewal {
            // Those that come later don't wait: it may hang.
            if !*renewal.ended.borrow() {
                return None;
            }
            current.renewal = None;
        }
        if !current.is_due() {
            return None;
        }
        current.looked = Instant::now();
        let (end, ended) = watch::channel(false);
        let (origin, agent) = (self.inner.origin.clone(), self.inner.agent.clone());
        let (files, urgent) = (current.files.clone(), current.is_urgent(Timestamp::now()));
        current.distrusted = false;
        let inner = Arc::downgrade(&self.inner);
        let task = async move {
            if let Some(renewed) = renewed(&origin, &agent, files, urgent).await
                && let Some(inner) = inner.upgrade()
            {
                inner.current().take(renewed, &inner.server);
            }
            end.send_replace(true);
        };
        current.renewal = Some(Renewal {
            ended: ended.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        });
        Some(ended)
    }

    /// The server refused the credentials: they are read again before the next request.
    pub(crate) fn distrust(&self) {
        self.inner.current().distrusted = true;
    }
}

fn cluster(config: &Config) -> String {
    let mut digest = Sha256::new();
    for certificate in config.root_cert.iter().flatten() {
        digest.update(certificate);
    }
    let digest = digest.finalize();
    let mut text = format!("{} ", config.cluster_url);
    for byte in digest.iter().take(16) {
        // Writing into a text can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads credentials where a file is another than before, or `anyway`; `None`: none is.
async fn renewed(
    origin: &Origin,
    agent: &str,
    files: Vec<Mark>,
    anyway: bool,
) -> Option<Result<Current, ConnectError>> {
    let looking = move || files.iter().any(Mark::is_outdated);
    let outdated = tokio::task::spawn_blocking(looking).await.unwrap_or(true);
    if !outdated && !anyway {
        return None;
    }
    Some(match Described::read(origin).await {
        Ok(described) => described.connect(agent).await,
        Err(error) => Err(error),
    })
}

// === impl Inner ===

impl Inner {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Current ===

impl Current {
    /// Before there is anything.
    fn none(server: &str) -> Self {
        Self {
            client: Err(ConnectError::Client {
                server: server.to_owned(),
                why: "the credentials are still being read".to_owned(),
            }),
            files: Vec::new(),
            until: None,
            looked: Instant::now(),
            distrusted: true,
            renewal: None,
        }
    }

    /// Takes in what came of reading the credentials.
    fn take(&mut self, renewed: Result<Self, ConnectError>, server: &str) {
        match (renewed, &mut self.client) {
            (Ok(renewed), client) => {
                if client.is_ok() {
                    tracing::info!(server, "credentials were read again");
                }
                self.client = renewed.client;
                self.files = renewed.files;
                self.until = renewed.until;
            }
            // Half-written, perhaps. The old client may do for now, and says so if not.
            (Err(error), Ok(_)) => tracing::warn!(%error, "new credentials can't be used"),
            (Err(error), Err(before)) => *before = error,
        }
    }

    fn is_due(&self) -> bool {
        self.distrusted || self.looked.elapsed() >= LOOK_EVERY
    }

    /// Whether the credentials are refused, or end soon.
    fn is_urgent(&self, now: Timestamp) -> bool {
        let ends = self.until.is_some_and(|until| {
            let soon = now.checked_add(BEFORE_EXPIRY);
            soon.is_ok_and(|soon| soon >= until)
        });
        self.distrusted || ends || self.client.is_err()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.inner.server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
