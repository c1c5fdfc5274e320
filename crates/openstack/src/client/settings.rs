//! Settings of the client.

use landfall_rest::{Timeouts, Tls};

use super::auth::Auth;
use super::source::CredentialsSource;

/// The address of a cloud, credentials, certificates and timeouts.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// Keystone, with or without `/v3`.
    pub auth_url: String,
    /// The credentials.
    pub auth: Auth,
    /// Where these and `tls` are read again while the client is in use; `None`: they never change.
    pub source: Option<CredentialsSource>,
    /// Only endpoints of this region; `None`: of any.
    pub region: Option<String>,
    /// Which of the catalog's addresses are used.
    pub interface: Interface,
    /// Certificates.
    pub tls: Tls,
    /// Timeouts by kind of call.
    pub timeouts: Timeouts,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Bodies above this many bytes are refused by the services, as far as is known before one is.
    pub body_limit: usize,
}

/// Which address of a service: `os-endpoint-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// For all clients.
    #[default]
    Public,
    /// From inside the cloud.
    Internal,
    /// For administrators.
    Admin,
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
            source: None,
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
