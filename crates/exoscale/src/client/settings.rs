//! Settings of the client: given ones, and the environment, which precedes.

use std::fmt;
use std::path::PathBuf;

use landfall_rest::{Polling, Timeouts, Tls};
use secrecy::{ExposeSecret, SecretString};

use super::credentials::{Credentials, CredentialsSource};

/// Settings as they are given: in landfall.yaml, or in the section `global` of the reference's
/// file. Empty is as good as absent.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The key.
    pub api_key: Option<String>,
    /// Its secret.
    pub api_secret: Option<SecretString>,
    /// The file or directory with both.
    pub api_credentials_file: Option<PathBuf>,
    /// The address that is asked for the list of zones.
    pub api_endpoint: Option<String>,
    /// The zone.
    pub zone: Option<String>,
}

/// An account in a zone.
#[derive(Clone)]
pub struct CloudConfig {
    /// The API key.
    pub credentials: CredentialsSource,
    /// The zone.
    pub zone: String,
    /// The address that is asked for the list of zones. All else goes to the zone's own.
    pub endpoint: String,
    /// Certificates.
    pub tls: Tls,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
    /// When operations are asked for.
    pub polling: Polling,
    /// The header `User-Agent`.
    pub user_agent: String,
}

/// Why settings can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There are no credentials.
    #[error(
        "no credentials: EXOSCALE_API_KEY with EXOSCALE_API_SECRET, or \
         EXOSCALE_API_CREDENTIALS_FILE is required"
    )]
    NoCredentials,
    /// There is no zone.
    #[error("no zone: EXOSCALE_API_ZONE is required, such as ch-gva-2")]
    NoZone,
}

/// The address that is asked for the list of zones, if none is given.
pub const DEFAULT_ENDPOINT: &str = "https://api-ch-gva-2.exoscale.com/v2";
/// The same before production.
const PREVIEW_ENDPOINT: &str = "https://ppapi-ch-gva-2.exoscale.com/v2";

// === impl Given ===

impl Given {
    /// Applies the environment. A variable that is set precedes, even if it is empty; of two for
    /// one setting, the first that isn't empty.
    #[must_use]
    pub fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        if let Some(key) = variable("EXOSCALE_API_KEY") {
            self.api_key = Some(key);
        }
        if let Some(secret) = variable("EXOSCALE_API_SECRET") {
            self.api_secret = Some(SecretString::from(secret));
        }
        if let Some(path) = variable("EXOSCALE_API_CREDENTIALS_FILE") {
            self.api_credentials_file = Some(PathBuf::from(path));
        }
        if let Some(endpoint) = variable("EXOSCALE_API_ENDPOINT") {
            self.api_endpoint = Some(endpoint);
        } else if variable("EXOSCALE_API_ENVIRONMENT").as_deref() == Some("ppapi") {
            self.api_endpoint = Some(PREVIEW_ENDPOINT.to_owned());
        }
        let zones = ["EXOSCALE_API_ZONE", "EXOSCALE_ZONE"];
        let zone = zones.into_iter().filter_map(variable);
        if let Some(zone) = zone.into_iter().find(|zone| !zone.is_empty()) {
            self.zone = Some(zone);
        }
        self
    }

    /// Completes the settings. A key and its secret precede a file.
    pub fn complete(self, user_agent: String) -> Result<CloudConfig, SettingsError> {
        let key = self.api_key.unwrap_or_default();
        let secret = self.api_secret.unwrap_or_default();
        let path = self.api_credentials_file.unwrap_or_default();
        let credentials = if !key.is_empty() && !secret.expose_secret().is_empty() {
            CredentialsSource::Given(Credentials { key, secret })
        } else if !path.as_os_str().is_empty() {
            CredentialsSource::Path(path)
        } else {
            return Err(SettingsError::NoCredentials);
        };
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(CloudConfig {
            credentials,
            zone: filled(self.zone).ok_or(SettingsError::NoZone)?,
            endpoint: filled(self.api_endpoint).unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
            tls: Tls::default(),
            timeouts: Timeouts::default(),
            polling: Polling::default(),
            user_agent,
        })
    }
}

impl fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudConfig")
            .field("credentials", &self.credentials)
            .field("zone", &self.zone)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
