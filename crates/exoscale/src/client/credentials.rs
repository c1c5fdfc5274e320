//! API keys: given, in a file, or in a directory with a Secret. Those on disk may change while we
//! run.

use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// A key of an organisation with its secret.
#[derive(Clone)]
pub struct Credentials {
    /// The key; no secret.
    pub key: String,
    /// The secret.
    pub secret: SecretString,
}

/// Where credentials come from.
#[derive(Clone, Debug)]
pub enum CredentialsSource {
    /// They never change.
    Given(Credentials),
    /// A file of JSON with `api_key` and `api_secret`, or a directory with files `api-key` and
    /// `api-secret`, such as the volume of a Secret.
    Path(PathBuf),
}

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A file can't be read.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A file is not what it should be. Its content is never repeated.
    #[error("{}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// The link that Kubernetes replaces when a Secret changes: all files change at once.
const GENERATION: &str = "..data";

#[derive(Deserialize)]
struct File {
    api_key: String,
    api_secret: String,
}

// === impl Credentials ===

impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.secret.expose_secret() == other.secret.expose_secret()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

// === impl CredentialsSource ===

impl CredentialsSource {
    /// Reads the credentials as they are now. Links are followed each time.
    pub async fn read(&self) -> Result<Credentials, CredentialsError> {
        let path = match self {
            Self::Given(credentials) => return Ok(credentials.clone()),
            Self::Path(path) => path,
        };
        let kind = tokio::fs::metadata(path)
            .await
            .map_err(|why| unreadable(path, &why))?;
        if kind.is_dir() {
            return directory(path).await;
        }
        let text = text(path).await?;
        // The error of the parser might repeat the secret.
        let file: File = serde_json::from_str(text.expose_secret())
            .map_err(|_| invalid(path, "not JSON with api_key and api_secret"))?;
        checked(path, &file.api_key, &SecretString::from(file.api_secret))
    }
}

/// Reads the two files of a directory, both of one generation.
async fn directory(path: &Path) -> Result<Credentials, CredentialsError> {
    let generation = tokio::fs::canonicalize(path.join(GENERATION)).await;
    let from = generation.unwrap_or_else(|_| path.to_owned());
    let key = text(&from.join("api-key")).await?;
    let secret = text(&from.join("api-secret")).await?;
    checked(path, key.expose_secret(), &secret)
}

async fn text(path: &Path) -> Result<SecretString, CredentialsError> {
    let text = tokio::fs::read_to_string(path).await;
    text.map(SecretString::from)
        .map_err(|why| unreadable(path, &why))
}

fn checked(path: &Path, key: &str, secret: &SecretString) -> Result<Credentials, CredentialsError> {
    let (key, secret) = (key.trim(), secret.expose_secret().trim());
    if key.is_empty() || secret.is_empty() {
        return Err(invalid(path, "the key or its secret is empty"));
    }
    if !key
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b',')
    {
        return Err(invalid(path, "the key can't stand in a header"));
    }
    Ok(Credentials {
        key: key.to_owned(),
        secret: SecretString::from(secret),
    })
}

fn unreadable(path: &Path, why: &std::io::Error) -> CredentialsError {
    CredentialsError::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn invalid(path: &Path, what: &'static str) -> CredentialsError {
    CredentialsError::Invalid {
        path: path.to_owned(),
        what,
    }
}

#[cfg(test)]
mod tests;
