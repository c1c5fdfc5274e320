//! A real Kubernetes control plane for tests: etcd and kube-apiserver, on demand with
//! kube-controller-manager, on free loopback ports, with RBAC, a client CA and an audit log.
//!
//! ```text
//!  Programs::find ──> Cluster::start ──> identity(user, groups) ──> kubeconfig of the code
//!   (or builds)             │       ├──> kubectl(args)               the user's hands
//!                           │       └──> audit()                     the writers
//!                           └── drop, panic or death of the test: every program of it is gone
//! ```
//!
//! There is no kubelet: Nodes, Pods and EndpointSlices are objects that a test writes. Where the
//! programs can be neither found nor built, a test fails and says how to get them; it never skips.

mod audit;
mod cloud_provider_openstack;
mod daemon;
mod etcd;
mod identity;
mod kubectl;
mod metallb;
mod ports;
mod programs;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

pub use audit::{Audit, AuditEntry};
pub use cloud_provider_openstack::CloudProviderOpenStack;
pub use kubectl::Kubectl;
pub use metallb::MetalLb;
pub use programs::{Program, Programs};

use daemon::{Daemon, Place};
use etcd::etcd_flags;
use identity::Authority;
use ports::Ports;

/// A running control plane. Everything of it ends when it is dropped.
pub struct Cluster {
    // In the order in which they are dropped: the API server before its store, the files last.
    manager: Mutex<Option<Daemon>>,
    api_server: Mutex<Option<Daemon>>,
    etcd: Daemon,
    place: Place,
    programs: Programs,
    authority: Authority,
    options: Options,
    ports: Ports,
    admin: PathBuf,
    namespaces: AtomicU32,
}

/// How a cluster differs from the usual one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Also run the controllers of namespaces, endpoint slices, service accounts and garbage.
    pub controllers: bool,
    /// Where the API server listens.
    pub bind: IpAddr,
    /// Further addresses and names in its certificate.
    pub names: Vec<String>,
    /// Further flags of the API server.
    pub api_server_flags: Vec<String>,
}

/// What went wrong with the test bed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program is not here and can't be built.
    #[error(
        "{program} is neither in KUBEBUILDER_ASSETS, nor on PATH, nor in {cache}, and building it \
         failed: {why}; install Go 1.26 or later and let it reach a module proxy, or point \
         KUBEBUILDER_ASSETS to a directory that has the program"
    )]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where a built one would be.
        cache: String,
        /// What the build said.
        why: String,
    },
    /// Files or processes.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A program ended or did not become ready.
    #[error("{program} {what}; the end of its log:\n{log}")]
    NotReady {
        /// Its name.
        program: &'static str,
        /// What it did instead.
        what: &'static str,
        /// Its last words.
        log: String,
    },
    /// kubectl failed.
    #[error("kubectl {arguments} failed: {stderr}")]
    Kubectl {
        /// What was asked for.
        arguments: String,
        /// What it said.
        stderr: String,
    },
    /// etcd refused a request.
    #[error("etcd answered: {0}")]
    Etcd(String),
}

/// How long a program may take to become ready. Seconds usually; test machines are busy.
const START: Duration = Duration::from_secs(90);

/// Another program may take a port between our looking for it and its use.
const ATTEMPTS: usize = 3;

const POLL: Duration = Duration::from_millis(100);

static SHARED: OnceCell<Cluster> = OnceCell::const_new();

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: false,
            bind: Ipv4Addr::LOCALHOST.into(),
            names: Vec::new(),
            api_server_flags: Vec::new(),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// The cluster that all tests of this process share; each takes a namespace of its own.
    ///
    /// # Panics
    ///
    /// When it can't be started: a test has nothing else to do then.
    #[expect(clippy::panic, reason = "a test without its cluster fails")]
    pub async fn shared() -> &'static Self {
        let start = || async { Self::start(Options::default()).await };
        match SHARED.get_or_try_init(start).await {
            Ok(cluster) => cluster,
            Err(error) => panic!("no Kubernetes to test with: {error}"),
        }
    }

    /// Starts a cluster of its own and waits until it is ready: some seconds.
    pub async fn start(options: Options) -> Result<Self, ClusterError> {
        let programs = Programs::find().await?;
        let mut attempt = 1;
        loop {
            match Self::try_start(&programs, &options).await {
                Err(ClusterError::NotReady { .. }) if attempt < ATTEMPTS => attempt += 1,
                ended => return ended,
            }
        }
    }

    async fn try_start(programs: &Programs, options: &Options) -> Result<Self, ClusterError> {
        let place = Place::make()?;
        let ports = Ports::free(options.bind)?;
        let authority = Authority::new()?;
        authority.write_server_files(place.path(), options)?;
        let etcd = Daemon::start(
            place.path(),
            programs,
            Program::Etcd,
            &etcd_flags(place.path(), ports),
        )?;
        let server = server_url(options, ports);
        let admin =
            authority.write_kubeconfig(place.path(), &server, "admin", &["system:masters"])?;
        let cluster = Self {
            manager: Mutex::new(None),
            api_server: Mutex::new(None),
            etcd,
            programs: programs.clone(),
            authority,
            options: options.clone(),
            ports,
            admin,
            place,
            namespaces: AtomicU32::new(0),
        };
        cluster.start_api_server().await?;
        if cluster.options.controllers {
            cluster.start_controllers()?;
        }
        Ok(cluster)
    }

    /// The kubeconfig of a user that may do everything.
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// Where the API server is.
    pub fn server(&self) -> String {
        server_url(&self.options, self.ports)
    }

    /// Where the files of this cluster are; gone with it.
    pub fn directory(&self) -> &Path {
        self.place.path()
    }

    /// A program of the cluster's version, for tests that run more of it.
    pub fn program(&self, program: Program) -> &Path {
        self.programs.path(program)
    }

    /// A kubeconfig for a user in groups. RBAC decides what they may do: nothing, at first.
    pub fn identity(&self, user: &str, groups: &[&str]) -> Result<PathBuf, ClusterError> {
        self.authority
            .write_kubeconfig(self.place.path(), &self.server(), user, groups)
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl<'_> {
        self.kubectl_as(&self.admin)
    }

    /// kubectl with a kubeconfig of [`Self::identity`].
    pub fn kubectl_as<'a>(&'a self, kubeconfig: &'a Path) -> Kubectl<'a> {
        Kubectl::new(
            self.programs.path(Program::Kubectl),
            kubeconfig,
            self.place.path(),
        )
    }

    /// A new namespace. Its name begins like the given one.
    pub async fn namespace(&self, prefix: &str) -> Result<String, ClusterError> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        self.kubectl().run(&["create", "namespace", &name]).await?;
        Ok(name)
    }

    /// The audit log from here on.
    pub fn audit(&self) -> Audit {
        Audit::from_now(self.place.path().join(AUDIT_LOG))
    }

    /// Ends the API server at once, as a crash does. The store goes on.
    pub fn stop_api_server(&self) {
        drop(taken(&self.api_server));
    }

    /// Freezes the API server: connections stay open, and nothing is answered.
    pub fn freeze_api_server(&self) -> Result<(), ClusterError> {
        self.signal_api_server("STOP")
    }

    /// Lets a frozen API server go on.
    pub fn thaw_api_server(&self) -> Result<(), ClusterError> {
        self.signal_api_server("CONT")
    }

    fn signal_api_server(&self, signal: &str) -> Result<(), ClusterError> {
        let slot = self.api_server.lock().ok();
        let daemon = slot.as_ref().and_then(|slot| slot.as_ref());
        daemon.map_or(Ok(()), |daemon| daemon.signal(signal))
    }

    /// Starts the API server and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), ClusterError> {
        drop(taken(&self.api_server));
        let flags = self.api_server_flags();
        let daemon = Daemon::start(
            self.place.path(),
            &self.programs,
            Program::ApiServer,
            &flags,
        )?;
        if let Ok(mut slot) = self.api_server.lock() {
            *slot = Some(daemon);
        }
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let begun = Instant::now();
        loop {
            if self
                .kubectl()
                .run(&["get", "--raw", "/readyz"])
                .await
                .is_ok()
            {
                return Ok(());
            }
            self.etcd.still_runs()?;
            if let Ok(mut slot) = self.api_server.lock()
                && let Some(daemon) = slot.as_mut()
            {
                daemon.still_runs()?;
                if begun.elapsed() > START {
                    return Err(daemon.not_ready("did not become ready in time"));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn api_server_flags(&self) -> Vec<String> {
        let place = self.place.path();
        let file = |name: &str| place.join(name).display().to_string();
        let mut flags: Vec<String> = [
            (
                "etcd-servers",
                format!("http://127.0.0.1:{}", self.ports.etcd),
            ),
            ("secure-port", self.ports.api_server.to_string()),
            ("bind-address", self.options.bind.to_string()),
            ("advertise-address", "127.0.0.1".to_owned()),
            // Keeps the loopback address out of the Service `kubernetes`, which refuses it.
            ("endpoint-reconciler-type", "none".to_owned()),
            ("tls-cert-file", file(identity::SERVER_CERTIFICATE)),
            ("tls-private-key-file", file(identity::SERVER_KEY)),
            ("client-ca-file", file(identity::AUTHORITY)),
            ("authorization-mode", "RBAC".to_owned()),
            (
                "service-cluster-ip-range",
                "10.96.0.0/16,fd00:10:96::/112".to_owned(),
            ),
            // Without it pods need no token, and so no controller to make one.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".to_owned(),
            ),
            ("service-account-key-file", file(identity::TOKEN_PUBLIC_KEY)),
            (
                "service-account-signing-key-file",
                file(identity::TOKEN_KEY),
            ),
            ("audit-policy-file", file(identity::AUDIT_POLICY)),
            ("audit-log-path", file(AUDIT_LOG)),
        ]
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        flags.extend(self.options.api_server_flags.iter().cloned());
        flags
    }

    fn start_controllers(&self) -> Result<(), ClusterError> {
        let place = self.place.path();
        let user = "system:kube-controller-manager";
        let kubeconfig = self.identity(user, &[])?;
        let file = |name: &str| place.join(name).display().to_string();
        let flags: Vec<String> = [
            ("kubeconfig", kubeconfig.display().to_string()),
            ("leader-elect", "false".to_owned()),
            // Without it the one identity has too few rights to empty a namespace.
            ("use-service-account-credentials", "true".to_owned()),
            ("secure-port", "0".to_owned()),
            ("controllers", CONTROLLERS.join(",")),
            (
                "service-account-private-key-file",
                file(identity::TOKEN_KEY),
            ),
            ("root-ca-file", file(identity::AUTHORITY)),
        ]
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        let daemon = Daemon::start(place, &self.programs, Program::ControllerManager, &flags)?;
        if let Ok(mut slot) = self.manager.lock() {
            *slot = Some(daemon);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

const AUDIT_LOG: &str = "audit.log";

const CONTROLLERS: &[&str] = &[
    "namespace-controller",
    "garbage-collector-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
];

fn taken(slot: &Mutex<Option<Daemon>>) -> Option<Daemon> {
    slot.lock().ok().and_then(|mut slot| slot.take())
}

fn server_url(options: &Options, ports: Ports) -> String {
    let host = match options.bind {
        address if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        address => address,
    };
    format!(
        "https://{}",
        std::net::SocketAddr::new(host, ports.api_server)
    )
}
