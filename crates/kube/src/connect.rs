//! How the API server is reached: kubeconfig or service account, proxies, and credentials that
//! change while we run.
//!
//! Token files and the cluster's CA are read anew by the client library. Client certificates and
//! the kubeconfig itself are not, so a [`Connection`] looks at their files from time to time and
//! makes a new client when one of them is another. Nothing here shows a credential.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::sync::Mutex;

use crate::api::{ApiError, chain, of_client};
use crate::proxy_env;

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
    current: Mutex<Current>,
    distrusted: std::sync::atomic::AtomicBool,
}

struct Current {
    client: Client,
    files: Vec<Mark>,
    looked: Instant,
}

/// A file and how it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    path: PathBuf,
    looks: Option<(SystemTime, u64)>,
}

/// Why there is no way to an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is missing or wrong.
    #[error("the kubeconfig{} can't be used: {why}", .path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
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

/// From one look at the files to the next.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A certificate from a credential command is replaced this long before it ends.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

// === impl Connection ===

impl Connection {
    /// Reads the description and makes a client. Nothing is sent yet. `agent` tells the API server
    /// (and its audit log) who writes; name the replica in it.
    pub async fn new(origin: Origin, agent: &str) -> Result<Self, ConnectError> {
        let described = Described::read(&origin).await?;
        let server = described.config.cluster_url.to_string();
        let namespace = described.config.default_namespace.clone();
        let current = described.connect(agent).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                origin,
                agent: agent.to_owned(),
                namespace,
                server,
                current: Mutex::new(current),
                distrusted: false.into(),
            }),
        })
    }

    /// The namespace of the context, or of the pod.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The API server's URL, for people.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// A client with today's credentials.
    pub(crate) async fn client(&self) -> Result<Client, ApiError> {
        let mut current = self.inner.current.lock().await;
        let distrusted = self
            .inner
            .distrusted
            .swap(false, std::sync::atomic::Ordering::Relaxed);
        let expiring = current.client.valid_until().is_some_and(|until| {
            let soon = jiff::Timestamp::now().checked_add(BEFORE_EXPIRY);
            soon.is_ok_and(|soon| soon >= until)
        });
        let stale = current.looked.elapsed() >= LOOK_EVERY;
        if !distrusted && !expiring && !stale {
            return Ok(current.client.clone());
        }
        let changed = distrusted || expiring || current.files.iter().any(Mark::is_outdated);
        current.looked = Instant::now();
        if changed {
            let renewed = match Described::read(&self.inner.origin).await {
                Ok(described) => described.connect(&self.inner.agent).await,
                Err(error) => Err(error),
            };
            match renewed {
                Ok(renewed) => {
                    tracing::info!(server = self.server(), "credentials were read anew");
                    *current = renewed;
                }
                // Half-written, perhaps. The old client may do for now, and says so if not.
                Err(error) => tracing::warn!(%error, "new credentials can't be used"),
            }
        }
        Ok(current.client.clone())
    }

    /// The server refused the credentials: read them anew before the next request.
    pub(crate) fn distrust(&self) {
        self.inner
            .distrusted
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.inner.server)
            .finish_non_exhaustive()
    }
}

// === Described ===

/// What an [`Origin`] says at the moment.
struct Described {
    config: Config,
    files: Vec<PathBuf>,
}

impl Described {
    async fn read(origin: &Origin) -> Result<Self, ConnectError> {
        match origin {
            Origin::InCluster => Self::in_cluster(),
            Origin::Kubeconfig { path, context } => {
                Self::kubeconfig(path.as_deref(), context.as_deref()).await
            }
            Origin::Infer => match Self::kubeconfig(None, None).await {
                Ok(described) => Ok(described),
                Err(kubeconfig) => {
                    Self::in_cluster().map_err(|in_cluster| match (kubeconfig, in_cluster) {
                        (
                            ConnectError::Kubeconfig { why, .. },
                            ConnectError::InCluster { why: and_why },
                        ) => ConnectError::Nothing {
                            kubeconfig: why,
                            in_cluster: and_why,
                        },
                        (_, other) => other,
                    })
                }
            },
        }
    }

    fn in_cluster() -> Result<Self, ConnectError> {
        let config =
            Config::incluster().map_err(|error| ConnectError::InCluster { why: chain(&error) })?;
        // The client reads its files anew by itself.
        Self {
            config,
            files: Vec::new(),
        }
        .with_proxy(None)
    }

    async fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let bad = |error: KubeconfigError| ConnectError::Kubeconfig {
            path: path.map(Path::to_owned),
            why: match &error {
                // The path of one that was named is told already.
                KubeconfigError::ReadConfig(cause, _) if path.is_some() => cause.to_string(),
                _ => chain(&error),
            },
        };
        let kubeconfig = match path {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
        .map_err(bad)?;
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let name = context.or(kubeconfig.current_context.as_deref());
        let context = kubeconfig
            .contexts
            .iter()
            .find(|named| Some(named.name.as_str()) == name)
            .and_then(|named| named.context.as_ref());
        let cluster = context.and_then(|context| {
            kubeconfig
                .clusters
                .iter()
                .find(|named| named.name == context.cluster)?
                .cluster
                .as_ref()
        });
        let user = context.and_then(|context| {
            let name = context.user.as_ref()?;
            kubeconfig
                .auth_infos
                .iter()
                .find(|named| named.name == *name)?
                .auth_info
                .as_ref()
        });
        let mut files: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_owned()],
            None => default_kubeconfigs(),
        };
        files.extend(
            cluster
                .and_then(|it| it.certificate_authority.clone())
                .map(PathBuf::from),
        );
        files.extend(
            user.and_then(|it| it.client_certificate.clone())
                .map(PathBuf::from),
        );
        files.extend(user.and_then(|it| it.client_key.clone()).map(PathBuf::from));
        let explicit = cluster
            .and_then(|it| it.proxy_url.clone())
            .filter(|url| !url.is_empty());
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
            .await
            .map_err(bad)?;
        Self { config, files }.with_proxy(explicit)
    }

    /// What the cluster's entry says, else the environment.
    fn with_proxy(mut self, explicit: Option<String>) -> Result<Self, ConnectError> {
        self.config.proxy_url = match explicit {
            Some(url) => Some(url.parse().map_err(|error| {
                ConnectError::Proxy(format!("proxy-url is not a URL: {error}"))
            })?),
            None => proxy_env::proxy_for(&self.config.cluster_url, |name| std::env::var(name).ok())
                .map_err(ConnectError::Proxy)?,
        };
        Ok(self)
    }

    async fn connect(mut self, agent: &str) -> Result<Current, ConnectError> {
        let server = self.config.cluster_url.to_string();
        let failed = |why: String| ConnectError::Client { server, why };
        let agent = match http::HeaderValue::from_str(agent) {
            Ok(agent) => agent,
            Err(error) => return Err(failed(format!("the name {agent:?}: {error}"))),
        };
        self.config.headers.push((http::header::USER_AGENT, agent));
        // A write that is repeated behind our back may come after the Lease has passed on.
        self.config.default_retry = false;
        // Before the client is made: files that change in between are seen to be newer.
        let files = self.files.into_iter().map(Mark::of).collect();
        // Making a client runs the credential command, where there is one, and waits for it.
        let made = tokio::task::spawn_blocking(move || Client::try_from(self.config)).await;
        match made {
            Ok(Ok(client)) => Ok(Current {
                client,
                files,
                looked: Instant::now(),
            }),
            Ok(Err(error)) => Err(failed(of_client(&error).to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn default_kubeconfigs() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        Some(list) => std::env::split_paths(&list).collect(),
        None => std::env::var_os("HOME")
            .map(|home| Path::new(&home).join(".kube/config"))
            .into_iter()
            .collect(),
    }
}

// === impl Mark ===

impl Mark {
    fn of(path: PathBuf) -> Self {
        let looks = looks_of(&path);
        Self { path, looks }
    }

    fn is_outdated(&self) -> bool {
        looks_of(&self.path) != self.looks
    }
}

fn looks_of(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests;
