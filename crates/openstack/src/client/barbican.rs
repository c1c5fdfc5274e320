//! Barbican, API v1: whether a certificate exists, and certificates of our own. Their content is
//! written, and read by Octavia only.

use http::Method;
use landfall_rest::{At, Change};
use serde::Deserialize;
use serde_json::Value;

use super::catalog::Service;
use super::{ApiError, Cloud};
use crate::objects::{Container, Id, Secret};

const SECRETS: &str = "secrets";
const CONTAINERS: &str = "containers";
/// As many as a page has at most, unless the cloud is configured otherwise.
const PAGE: (&str, &str) = ("limit", "100");

/// What Barbican answers when it has made a secret.
#[derive(Deserialize)]
struct MadeSecret {
    secret_ref: String,
}

/// What Barbican answers when it has made a container.
#[derive(Deserialize)]
struct MadeContainer {
    container_ref: String,
}

impl Cloud {
    /// Whether the catalog has a key manager.
    pub async fn has_key_manager(&self) -> Result<bool, ApiError> {
        let session = self.client().session().await?;
        Ok(session.endpoints.key_manager.is_some())
    }

    /// Whether there is a secret with this UUID.
    pub async fn secret_exists(&self, id: &str) -> Result<bool, ApiError> {
        let path = [SECRETS, id];
        self.client().exists(barbican("secret", &path)).await
    }

    /// Whether there is a container with this UUID.
    pub async fn container_exists(&self, id: &str) -> Result<bool, ApiError> {
        let path = [CONTAINERS, id];
        self.client().exists(barbican("container", &path)).await
    }

    /// All containers of the project.
    pub async fn containers(&self) -> Result<Vec<Container>, ApiError> {
        let path = [CONTAINERS];
        let at = barbican("container", &path).query(&[PAGE]);
        self.client().list(at, CONTAINERS).await
    }

    /// The secrets of the project that have this name; names aren't unique.
    pub async fn secrets_named(&self, name: &str) -> Result<Vec<Secret>, ApiError> {
        let path = [SECRETS];
        let query = [("name", name), PAGE];
        let at = barbican("secret", &path).query(&query);
        self.client().list(at, SECRETS).await
    }

    /// Makes a secret; returns its address. The body is in no trace.
    pub async fn create_secret(&self, body: Value) -> Result<String, ApiError> {
        let path = [SECRETS];
        let change = Change::new(Method::POST, Some(body));
        let at = barbican("secret", &path).private();
        let made: MadeSecret = self.client().changed(at, change).await?;
        Ok(made.secret_ref)
    }

    /// Makes a container of secrets; returns its address.
    pub async fn create_container(&self, body: Value) -> Result<String, ApiError> {
        let path = [CONTAINERS];
        let change = Change::new(Method::POST, Some(body));
        let at = barbican("container", &path);
        let made: MadeContainer = self.client().changed(at, change).await?;
        Ok(made.container_ref)
    }

    /// Deletes a container. The secrets in it stay.
    pub async fn delete_container(&self, id: &Id) -> Result<(), ApiError> {
        let path = [CONTAINERS, id.as_str()];
        self.client().delete(barbican("container", &path)).await
    }

    /// Deletes a secret.
    pub async fn delete_secret(&self, id: &Id) -> Result<(), ApiError> {
        let path = [SECRETS, id.as_str()];
        self.client().delete(barbican("secret", &path)).await
    }
}

/// Barbican's answers have no envelope.
const fn barbican<'a>(resource: &'static str, path: &'a [&'a str]) -> At<'a, Service> {
    At::new(Service::KeyManager, resource, path)
}
