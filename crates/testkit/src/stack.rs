//! A real OpenStack for tests: Keystone, Neutron with OVN's databases, Octavia (providers amphora
//! and ovn) and Barbican. `testbed/openstack` starts it; all test binaries of a machine share it.
//!
//! ```text
//!  Stack::shared ──> project(name) ──> clouds_yaml(), cloud_conf()   for the code under test
//!   (or starts it)     │    ├──> nodes(..)                           ports of servers
//!                      │    ├──> get, post, put, delete              the test's own hands
//!                      │    └──> delete()                            nothing is left of it
//!                      └──> mark(), calls_since(..)                  which API calls were made
//! ```
//!
//! A project is a cloud of its own: empty at first, with a network, a router and a user that no
//! other test knows. So tests may run at the same time. Where the stack can't be started, a test
//! fails and says what to do; it never skips.

mod calls;
mod faults;
mod http;
mod locate;
mod nodes;
mod project;
mod purge;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use calls::{Call, Mark};
pub use faults::Fault;
pub use http::{Answer, Method};
pub use nodes::Node;
pub use project::Project;

use session::Session;

/// A running OpenStack. Cheap to clone; it goes on when the test ends.
#[derive(Clone)]
pub struct Stack {
    inner: Arc<Inner>,
}

struct Inner {
    /// Where its files are.
    place: PathBuf,
    admin: Session,
    region: String,
    external_network: String,
}

/// The services that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
    /// Barbican.
    KeyManager,
}

/// What went wrong with the test bed.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// It does not run, and it can't be started.
    #[error(
        "no OpenStack to test with: {why}; start it by `cargo xtask openstack up` (as root), or \
        let LANDFALL_OPENSTACK name the clouds.yaml of one that runs"
    )]
    NotRunning {
        /// What was tried.
        why: String,
    },
    /// A request got no answer.
    #[error("{request} got no answer: {why}")]
    Unreachable {
        /// Method and address.
        request: String,
        /// What the network said.
        why: String,
    },
    /// A request that should have been carried out was not.
    #[error("{request} was answered with {status}: {body}")]
    Refused {
        /// Method, path and service.
        request: String,
        /// HTTP status.
        status: u16,
        /// What it said.
        body: String,
    },
    /// An answer lacks what it should hold.
    #[error("an answer is not as expected: {0}")]
    Answer(String),
    /// Something did not happen in time.
    #[error("{what} did not happen within {} s; last seen: {seen}", within.as_secs())]
    TooSlow {
        /// What was waited for.
        what: String,
        /// For how long.
        within: Duration,
        /// The state at the end.
        seen: String,
    },
    /// Files or processes.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

static SHARED: OnceCell<Stack> = OnceCell::const_new();

// === impl Service ===

impl Service {
    /// Every service.
    pub const ALL: [Self; 4] = [
        Self::Identity,
        Self::Network,
        Self::LoadBalancer,
        Self::KeyManager,
    ];

    /// Its type in the catalogue.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
            Self::KeyManager => "key-manager",
        }
    }

    /// The name of the program, and of its files.
    fn name(self) -> &'static str {
        match self {
            Self::Identity => "keystone",
            Self::Network => "neutron",
            Self::LoadBalancer => "octavia",
            Self::KeyManager => "barbican",
        }
    }
}

// === impl Stack ===

impl Stack {
    /// The stack, for all tests of this process; each takes a project of its own.
    ///
    /// # Panics
    ///
    /// When it does not run and can't be started: a test has nothing else to do then.
    #[expect(clippy::panic, reason = "a test without its cloud fails")]
    pub async fn shared() -> &'static Self {
        match SHARED.get_or_try_init(Self::connect).await {
            Ok(stack) => stack,
            Err(error) => panic!("{error}"),
        }
    }

    /// The stack whose clouds.yaml `LANDFALL_OPENSTACK` names; else this checkout's, which is
    /// started unless it runs: 20 seconds, a minute the first time, and some minutes where its
    /// Python packages have to be installed.
    pub async fn connect() -> Result<Self, StackError> {
        let clouds = locate::clouds_yaml().await?;
        let (account, region) = locate::admin(&clouds)?;
        let admin = Session::new(http::Client::new(), account);
        let path = "/v2.0/networks?router:external=true&name=ext";
        let mut external_network = None;
        // Where several ask at once, Neutron's first answers after its start are empty lists.
        for _ in 0..10 {
            let networks = admin.list(Service::Network, path, "networks").await;
            let networks = networks.map_err(|error| StackError::NotRunning {
                why: format!("{} leads nowhere: {error}", clouds.display()),
            })?;
            external_network = networks.first().map(id_of).transpose()?;
            if external_network.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(Self {
            inner: Arc::new(Inner {
                place: clouds.parent().unwrap_or(Path::new("/")).to_owned(),
                admin,
                region,
                external_network: external_network.ok_or_else(|| {
                    StackError::Answer("there is no external network called ext".to_owned())
                })?,
            }),
        })
    }

    /// A new project with a user, a network with a subnet of either family, and a router to the
    /// outside. Its name begins like the given one.
    pub async fn project(&self, name: &str) -> Result<Project, StackError> {
        Project::create(self, name, json!({"cidr": Project::SUBNET})).await
    }

    /// The same with another IPv4 subnet: its `cidr`, `allocation_pools` and whatever else Neutron
    /// takes.
    pub async fn project_in(&self, name: &str, subnet: Value) -> Result<Project, StackError> {
        Project::create(self, name, subnet).await
    }

    /// Where its files are: `log/`, `run/`, `clouds.yaml` of the administrator.
    pub fn place(&self) -> &Path {
        &self.inner.place
    }

    /// Id of the external network that every project's router leads to.
    pub fn external_network(&self) -> &str {
        &self.inner.external_network
    }

    /// Asks as the administrator. The path begins with its version, as in `/v2.0/ports`.
    pub async fn ask_as_admin(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, StackError> {
        self.admin().ask(method, service, path, body).await
    }

    /// From here on calls are counted.
    pub async fn mark(&self) -> Result<Mark, StackError> {
        calls::mark(self.place(), self.admin()).await
    }

    /// Every call since the mark whose `User-Agent` begins like the given one, by service and in
    /// the order of the answers. Where tests run at the same time, [`Project::calls_since`]
    /// separates them.
    pub async fn calls_since(
        &self,
        mark: &Mark,
        user_agent: &str,
    ) -> Result<Vec<Call>, StackError> {
        let mut calls = calls::since(self.place(), self.admin(), mark).await?;
        calls.retain(|call| call.user_agent.starts_with(user_agent));
        Ok(calls)
    }

    /// Stops octavia-worker, for all projects: the API goes on to answer, and what it accepts stays
    /// PENDING_* for as long as the guard is held.
    pub fn pause_worker(&self) -> Result<Fault, StackError> {
        Fault::pause(self.place(), "octavia-worker")
    }

    /// Stops an API, for all projects: requests to it hang for as long as the guard is held.
    pub fn pause_api(&self, service: Service) -> Result<Fault, StackError> {
        Fault::pause(self.place(), service.name())
    }

    fn admin(&self) -> &Session {
        &self.inner.admin
    }
}

fn id_of(object: &Value) -> Result<String, StackError> {
    text_of(object, "id")
}

fn text_of(object: &Value, name: &str) -> Result<String, StackError> {
    match object[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(StackError::Answer(format!("no {name} in {object}"))),
    }
}
