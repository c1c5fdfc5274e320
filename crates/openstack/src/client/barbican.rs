//! Barbican, API v1: whether a certificate exists. Only Octavia reads its content.

use landfall_rest::At;

use super::catalog::Service;
use super::{ApiError, Cloud};

impl Cloud {
    /// Whether the catalog has a key manager.
    pub async fn has_key_manager(&self) -> Result<bool, ApiError> {
        let session = self.client().session().await?;
        Ok(session.endpoints.key_manager.is_some())
    }

    /// Whether there is a secret with this UUID.
    pub async fn secret_exists(&self, id: &str) -> Result<bool, ApiError> {
        let path = ["secrets", id];
        self.client()
            .exists(At::new(Service::KeyManager, "secret", &path))
            .await
    }

    /// Whether there is a container with this UUID.
    pub async fn container_exists(&self, id: &str) -> Result<bool, ApiError> {
        let path = ["containers", id];
        self.client()
            .exists(At::new(Service::KeyManager, "container", &path))
            .await
    }
}
