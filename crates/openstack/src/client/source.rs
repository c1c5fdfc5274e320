//! Where credentials and certificates come from.

use std::fmt;
use std::sync::Arc;

use landfall_rest::Tls;

use super::auth::Auth;

/// What a source has.
#[derive(Clone, Debug)]
pub struct Access {
    /// The credentials.
    pub auth: Auth,
    /// Certificates.
    pub tls: Tls,
}

/// Reads credentials and certificates again from where they came from.
#[derive(Clone)]
pub struct CredentialsSource(Arc<dyn Fn() -> Result<Access, String> + Send + Sync>);

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsSource")
    }
}

// === impl CredentialsSource ===

impl CredentialsSource {
    /// Makes a source. `read` blocks on the disk; its error says why there are no credentials.
    pub fn new(read: impl Fn() -> Result<Access, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) async fn read(&self) -> Result<Access, String> {
        let read = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || read());
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
