//! Settings of the connections to a cloud.

use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

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

/// Timeouts by kind of request.
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

// === impl Tls ===

impl Tls {
    /// Returns whether connections are the same with the other.
    pub fn is_same(&self, other: &Self) -> bool {
        let own = self.identity.as_ref().map(SecretString::expose_secret);
        let its = other.identity.as_ref().map(SecretString::expose_secret);
        self.ca_file == other.ca_file && own == its && self.insecure == other.insecure
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
