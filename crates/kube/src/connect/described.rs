//! What a kubeconfig or a service account says of the way to the API server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::{ConnectError, Current, Origin, exec};
use crate::error::{chain, of_client};
use crate::proxy_env;

/// What an [`Origin`] says at the moment.
pub(super) struct Described {
    pub(super) config: Config,
    pub(super) files: Vec<PathBuf>,
}

/// A file and how it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) path: PathBuf,
    looks: Option<(SystemTime, u64)>,
}

/// How long a credential command may take.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(30);

impl Described {
    pub(super) async fn read(origin: &Origin) -> Result<Self, ConnectError> {
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

    pub(super) fn in_cluster() -> Result<Self, ConnectError> {
        let config =
            Config::incluster().map_err(|error| ConnectError::InCluster { why: chain(&error) })?;
        // The client reads its files again by itself.
        Self {
            config,
            files: Vec::new(),
        }
        .with_proxy(None)
    }

    pub(super) async fn kubeconfig(
        path: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let bad = |error: KubeconfigError| ConnectError::Kubeconfig {
            path: path.map(Path::to_owned),
            why: match &error {
                // The path of one that was named is known already.
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

    pub(super) async fn connect(mut self, agent: &str) -> Result<Current, ConnectError> {
        let server = self.config.cluster_url.to_string();
        let failed = |why: String| ConnectError::Client {
            server: server.clone(),
            why,
        };
        let agent = match http::HeaderValue::from_str(agent) {
            Ok(agent) => agent,
            Err(error) => return Err(failed(format!("the name {agent:?}: {error}"))),
        };
        self.config.headers.push((http::header::USER_AGENT, agent));
        // A write that is repeated behind our back may come after the Lease has passed on.
        self.config.default_retry = false;
        // Before the client is made: files that change in between are seen to be newer.
        let files = self.files.into_iter().map(Mark::of).collect();
        let until = exec::resolve(&mut self.config.auth_info, COMMAND_LIMIT).await;
        let until =
            until.map_err(|why| failed(format!("no credentials for the API server: {why}")))?;
        // Making a client reads files.
        let made = tokio::task::spawn_blocking(move || Client::try_from(self.config)).await;
        match made {
            Ok(Ok(client)) => Ok(Current {
                until: until.or(*client.valid_until()),
                client: Ok(client),
                files,
                looked: Instant::now(),
                distrusted: false,
                renewal: None,
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

impl Mark {
    pub(super) fn of(path: PathBuf) -> Self {
        let looks = looks_of(&path);
        Self { path, looks }
    }

    pub(super) fn is_outdated(&self) -> bool {
        looks_of(&self.path) != self.looks
    }
}

fn looks_of(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
