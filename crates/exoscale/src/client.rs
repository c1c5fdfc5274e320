//! The client of Exoscale's API v2 in one zone: one method per call that Landfall makes, each of
//! them one request.
//!
//! ```text
//!  Cloud: calls          paths, bodies, types
//!    landfall_rest::Client     throttle, timeout, redaction, transport, a second try after a 401
//!      session                 the zone's address; credentials, read again while we run
//!        signature             EXO2-HMAC-SHA256
//!      errors                  how the services word their errors
//!  operation                   the answer to every change
//! ```
//!
//! It decides nothing and waits for nothing.

mod calls;
pub mod credentials;
mod errors;
pub mod operation;
mod session;
pub mod settings;
pub mod signature;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use landfall_rest::{Client, Exchange};

use session::ZoneApi;

pub use landfall_rest::{
    Answering, ApiError, CallCount, CallKey, ErrorKind, InProcess, NoAnswer, Operation as Pending,
    Polling, Progress, Timeouts, Tls, Transport, TransportError,
};
pub use operation::Begun;
pub use settings::{CloudConfig, Given, SettingsError};

/// An account in a zone. Copies share the credentials, the connections and the counters.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

/// Why there can't be a client.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The address of the API is invalid.
    #[error("api-endpoint: {0}")]
    Endpoint(String),
    /// The `User-Agent` is invalid.
    #[error("user agent: {0:?} can't stand in a header")]
    UserAgent(String),
    /// A certificate is invalid.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

struct Inner {
    config: CloudConfig,
    client: Client<ZoneApi>,
}

/// The largest body that is sent; ours have a few hundred bytes.
const BODY_LIMIT: usize = 64 << 10;

// === impl Cloud ===

impl Cloud {
    /// Makes a client over the network. Nothing is sent yet.
    pub fn new(config: CloudConfig) -> Result<Self, CloudError> {
        let transport = Transport::network(&config.tls, &config.timeouts)?;
        Self::over(config, transport)
    }

    /// Makes a client over any transport.
    pub fn over(config: CloudConfig, transport: Transport) -> Result<Self, CloudError> {
        let api = ZoneApi::new(&config).map_err(CloudError::Endpoint)?;
        let user_agent = HeaderValue::from_str(&config.user_agent)
            .map_err(|_| CloudError::UserAgent(config.user_agent.clone()))?;
        // The secret may change: each session names its own.
        let exchange = Exchange::new(transport, user_agent, errors::FORMAT);
        let client = Client::new(api, exchange, config.timeouts, BODY_LIMIT);
        Ok(Self(Arc::new(Inner { config, client })))
    }

    /// Finds the zone and reads the credentials, then proves them with a signed request: everything
    /// that must work before the rest can.
    pub async fn check(&self) -> Result<(), ApiError> {
        self.load_balancer_quota().await.map(drop)
    }

    /// Returns the zone.
    pub fn zone(&self) -> &str {
        &self.0.config.zone
    }

    /// Returns when operations are asked for.
    pub fn polling(&self) -> Polling {
        self.0.config.polling
    }

    /// Returns the counters of all requests so far.
    pub fn calls(&self) -> BTreeMap<CallKey, CallCount> {
        self.client().exchange().calls()
    }

    fn client(&self) -> &Client<ZoneApi> {
        &self.0.client
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}
