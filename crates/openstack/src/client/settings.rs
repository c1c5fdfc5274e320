//! What the client is told about the cloud.

use std::fmt;
use std::time::Duration;

use secrecy::SecretString;

use super::auth::Auth;

/// Where the cloud is, who asks, and with how much timeout.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// Keystone, with or without `/v3`.
    pub auth_url: String,
    /// The credentials.
    pub auth: Auth,
    /// Only endpoints of this region; `None`: of any.
    pub region: Option<String>,
    /// Which of the catalog's addresses are used.
    pub interface: Interface,
    /// Certificates.
    pub tls: Tls,
    /// Patience per kind of call.
    pub timeouts: Timeouts,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Bodies above this many bytes are refused by the services, as far as is known before one is.
    pub body_limit: usize,
}

/// Which address of a service: `os-endpoint-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// For everybody.
    #[default]
    Public,
    /// From inside the cloud.
    Internal,
    /// For administrators.
    Admin,
}

/// Certificates of the connections.
#[derive(Clone, Default)]
pub struct Tls {
    /// PEM of the authorities to trust, in place of the system's.
    pub ca_file: Option<Vec<u8>>,
    /// PEM of a client certificate and its key, one after the other.
    pub identity: Option<SecretString>,
    /// Trust every server.
    pub insecure: bool,
}

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Of a `GET`.
    pub read: Duration,
    /// Of a change.
    pub write: Duration,
    /// Of an authentication.
    pub auth: Duration,
    /// Of the connection, within the others.
    pub connect: Duration,
}

// === impl CloudConfig ===

impl CloudConfig {
    /// The services' own limit of a body (oslo.middleware), in bytes.
    pub const BODY_LIMIT: usize = 114_688;

    /// A cloud by its address and credentials, all else by default.
    pub fn new(auth_url: &str, auth: Auth) -> Self {
        Self {
            auth_url: auth_url.to_owned(),
            auth,
            region: None,
            interface: Interface::default(),
            tls: Tls::default(),
            timeouts: Timeouts::default(),
            user_agent: concat!("landfall/", env!("CARGO_PKG_VERSION")).to_owned(),
            body_limit: Self::BODY_LIMIT,
        }
    }
}

impl Interface {
    /// As the catalog writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca_file", &self.ca_file.as_ref().map(Vec::len))
            .field("identity", &self.identity.is_some())
            .field("insecure", &self.insecure)
            .finish()
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            read: Duration::from_secs(60),
            write: Duration::from_secs(60),
            auth: Duration::from_secs(30),
            connect: Duration::from_secs(10),
        }
    }
}
