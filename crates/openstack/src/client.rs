//! The client of the cloud's APIs: one method per call that Landfall makes, each of them one
//! request, or as many as a list has pages.
//!
//! ```text
//!  Cloud::listeners()                 octavia, neutron, barbican: addresses, bodies, types
//!    call: envelope, pages, 401       ── session (one token) ── identity (Keystone) ── catalog
//!      exchange: gate, timeout, trace, count, errors
//!        transport: the network, or a function in this process
//! ```
//!
//! It decides nothing: no request is repeated, but for one whose token was refused. It must never
//! show a secret.

pub mod auth;
mod barbican;
mod call;
mod calls;
mod catalog;
mod error;
mod exchange;
mod gate;
mod identity;
mod neutron;
mod octavia;
mod session;
mod settings;
mod transport;
mod version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;
use tokio::sync::OnceCell;

use crate::objects::Id;
use exchange::Exchange;
use identity::Identity;
use session::{Session, Sessions};

pub use call::Query;
pub use calls::{CallCount, CallKey};
pub use error::{ApiError, ErrorKind};
pub use neutron::Tagged;
pub use octavia::ProviderDriver;
pub use settings::{CloudConfig, Interface, Timeouts, Tls};
pub use transport::{Answering, InProcess, NoAnswer, Transport, TransportError};
pub use version::ApiVersion;

/// A cloud and a project in it. Copies share the token, the connections and the counters.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

/// Why there can't be a client.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The address of Keystone.
    #[error("auth-url: {0}")]
    AuthUrl(String),
    /// The name that we give ourselves.
    #[error("user agent: {0:?} can't stand in a header")]
    UserAgent(String),
    /// Certificates.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

struct Inner {
    config: CloudConfig,
    exchange: Exchange,
    sessions: Sessions,
    version: OnceCell<ApiVersion>,
    body_limit: AtomicUsize,
}

/// A cloud that doesn't read so many bytes can't be worked with.
const SMALLEST_LIMIT: usize = 8 << 10;

// === impl Cloud ===

impl Cloud {
    /// A client over the network. Nothing is asked yet.
    pub fn new(config: CloudConfig) -> Result<Self, CloudError> {
        let transport = Transport::network(&config)?;
        Self::over(config, transport)
    }

    /// A client over any transport.
    pub fn over(config: CloudConfig, transport: Transport) -> Result<Self, CloudError> {
        let identity = Identity::new(&config).map_err(CloudError::AuthUrl)?;
        let user_agent = HeaderValue::from_str(&config.user_agent)
            .map_err(|_| CloudError::UserAgent(config.user_agent.clone()))?;
        let secret = auth::secret(&config.auth).clone();
        Ok(Self(Arc::new(Inner {
            exchange: Exchange::new(transport, user_agent, secret),
            sessions: Sessions::new(identity),
            version: OnceCell::new(),
            body_limit: AtomicUsize::new(config.body_limit),
            config,
        })))
    }

    /// Authenticates, looks for the services in the catalog, and asks for Octavia's version: all
    /// that must be well before anything else is.
    pub async fn check(&self) -> Result<ApiVersion, ApiError> {
        self.versions().await
    }

    /// The project that the token is for; `None` when it is for a domain.
    pub async fn project_id(&self) -> Result<Option<Id>, ApiError> {
        Ok(self.session(None).await?.project_id.clone())
    }

    /// Bodies above this many bytes are refused, and are not even sent. It shrinks when the cloud
    /// refuses a smaller one.
    pub fn body_limit(&self) -> usize {
        self.0.body_limit.load(Ordering::Relaxed)
    }

    /// Learns that a body of so many bytes is too large for this cloud, as something before its
    /// services may be stricter than they are. Says whether the next one is smaller for it.
    fn halve(&self, size: usize) -> bool {
        let limit = (size / 2).max(SMALLEST_LIMIT);
        if size <= limit {
            return false;
        }
        let before = self.0.body_limit.fetch_min(limit, Ordering::Relaxed);
        if limit < before {
            tracing::warn!(
                size,
                limit,
                "a request is too large for the cloud; the next ones are smaller"
            );
        }
        true
    }

    /// What has been asked so far.
    pub fn calls(&self) -> BTreeMap<CallKey, CallCount> {
        self.0.exchange.calls.snapshot()
    }

    fn config(&self) -> &CloudConfig {
        &self.0.config
    }

    fn exchange(&self) -> &Exchange {
        &self.0.exchange
    }

    fn version_cell(&self) -> &OnceCell<ApiVersion> {
        &self.0.version
    }

    async fn session(&self, refused: Option<&Session>) -> Result<Arc<Session>, ApiError> {
        let Inner {
            config,
            exchange,
            sessions,
            ..
        } = &*self.0;
        sessions.session(exchange, config, refused).await
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}
