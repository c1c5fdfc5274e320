//! The client of OpenStack's APIs: one method per call that Landfall makes, each of them one
//! request, or as many as a list has pages.
//!
//! ```text
//!  Cloud::listeners()         octavia, neutron, barbican: addresses, bodies, types
//!    landfall_rest::Client    envelope, pages, 401, throttle, timeout, redaction, transport
//!      session (one token) ── identity (Keystone) ── credentials, catalog
//!      errors                 how these services word their errors
//! ```
//!
//! It decides nothing: no request is repeated, except one whose token was refused.

pub mod auth;
mod barbican;
mod catalog;
mod credentials;
mod errors;
mod identity;
mod neutron;
mod octavia;
mod session;
mod settings;
mod source;
mod version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use landfall_rest::{Client, Exchange};

use crate::objects::Id;
use identity::Identity;
use session::OpenStackApi;
use version::LastVersion;

pub use landfall_rest::{
    Answering, ApiError, CallCount, CallKey, ErrorKind, InProcess, NoAnswer, Query, Timeouts, Tls,
    Transport, TransportError,
};
pub use neutron::Tagged;
pub use octavia::ProviderDriver;
pub use settings::{CloudConfig, Interface};
pub use source::{Access, CredentialsSource};
pub use version::ApiVersion;

/// A cloud and a project in it. Copies share the token, the connections and the counters.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

/// Why there can't be a client.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The address of Keystone is invalid.
    #[error("auth-url: {0}")]
    AuthUrl(String),
    /// The `User-Agent` is invalid.
    #[error("user agent: {0:?} can't stand in a header")]
    UserAgent(String),
    /// A certificate is invalid.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

struct Inner {
    config: CloudConfig,
    client: Client<OpenStackApi>,
    version: LastVersion,
}

// === impl Cloud ===

impl Cloud {
    /// Makes a client over the network. Nothing is sent yet.
    pub fn new(config: CloudConfig) -> Result<Self, CloudError> {
        let transport = Transport::network(&config.tls, &config.timeouts)?;
        Self::over(config, transport)
    }

    /// Makes a client over any transport.
    pub fn over(config: CloudConfig, transport: Transport) -> Result<Self, CloudError> {
        let identity = Identity::new(&config).map_err(CloudError::AuthUrl)?;
        let user_agent = HeaderValue::from_str(&config.user_agent)
            .map_err(|_| CloudError::UserAgent(config.user_agent.clone()))?;
        let exchange = Exchange::new(transport, user_agent, errors::FORMAT);
        exchange.hide(auth::secret(&config.auth));
        let api = OpenStackApi::new(identity);
        Ok(Self(Arc::new(Inner {
            client: Client::new(api, exchange, config.timeouts, config.body_limit),
            version: LastVersion::default(),
            config,
        })))
    }

    /// Authenticates, finds the services in the catalog, and asks for Octavia's version: everything
    /// that must work before the rest can.
    pub async fn check(&self) -> Result<ApiVersion, ApiError> {
        self.versions().await
    }

    /// Returns the project that the token is for; `None` when it is for a domain.
    pub async fn project_id(&self) -> Result<Option<Id>, ApiError> {
        Ok(self.client().session().await?.project_id.clone())
    }

    /// Returns why credentials that have changed are not in use.
    pub fn credentials_problem(&self) -> Option<String> {
        let problem = self.client().api().credentials().problem()?;
        Some(format!("cloud at {}: {problem}", self.config().auth_url))
    }

    /// Returns the limit of bodies in bytes: larger ones are not sent. It shrinks when the cloud
    /// refuses a smaller one.
    pub fn body_limit(&self) -> usize {
        self.client().body_limit()
    }

    /// Returns the counters of all requests so far.
    pub fn calls(&self) -> BTreeMap<CallKey, CallCount> {
        self.client().exchange().calls()
    }

    fn config(&self) -> &CloudConfig {
        &self.0.config
    }

    fn client(&self) -> &Client<OpenStackApi> {
        &self.0.client
    }

    fn last_version(&self) -> &LastVersion {
        &self.0.version
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

/// Returns the project's id as a filter, where there is one.
fn of_project(project: Option<&Id>) -> Option<(&'static str, &str)> {
    project.map(|id| ("project_id", id.as_str()))
}
