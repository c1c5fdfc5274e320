//! Keystone: finds its version 3, and reads what a token is for from its answer.

use http::Method;
use jiff::Timestamp;
use reqwest::Url;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

use super::auth::{Auth, body, ready_token, renews};
use super::catalog::{Endpoints, Entry, address, joined, versioned, without_version};
use super::error::{ApiError, ErrorKind};
use super::exchange::{Answer, Ask, Exchange};
use super::settings::CloudConfig;
use crate::objects::Id;

/// Keystone, and the credentials for it.
pub(super) struct Identity {
    /// As it was configured.
    url: Url,
    auth: Auth,
    time_limit: Duration,
}

/// What a token says of itself.
pub(super) struct Grant {
    pub token: SecretString,
    /// How long it lives from now on, if that is told and can be prolonged.
    pub lifetime: Option<Duration>,
    pub project_id: Option<Id>,
    pub endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Body {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    issued_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    project: Option<Project>,
    #[serde(default)]
    catalog: Vec<Entry>,
}

#[derive(Deserialize)]
struct Project {
    id: Id,
}

// === impl Identity ===

impl Identity {
    pub fn new(config: &CloudConfig) -> Result<Self, String> {
        Ok(Self {
            url: address(&config.auth_url)?,
            auth: config.auth.clone(),
            time_limit: config.timeouts.auth,
        })
    }

    /// Asks for a token.
    pub async fn grant(
        &self,
        exchange: &Exchange,
        config: &CloudConfig,
    ) -> Result<Grant, ApiError> {
        let url = joined(&self.v3(exchange).await?, &["auth", "tokens"]);
        let ready = ready_token(&self.auth);
        let ask = match ready {
            Some(token) => Ask {
                token: Some(token),
                subject: Some(token),
                ..Ask::new(Method::GET, url, "token", self.time_limit)
            },
            None => Ask {
                body: Some(body(&self.auth).to_string().into()),
                ..Ask::new(Method::POST, url, "token", self.time_limit)
            },
        };
        let (request, url) = (ask.name(), ask.url.clone());
        let private = Ask {
            private: true,
            ..ask
        };
        let answer = exchange.ask(private).await;
        let answer = answer.map_err(|error| moved(error, &url, "/auth/tokens"))?;
        let unreadable = |why: String| ApiError {
            request_id: answer.request_id.clone(),
            ..ApiError::ours(ErrorKind::Unreadable, &request, why)
        };
        let token = match (ready, answer.subject_token()) {
            (Some(token), _) => token.clone(),
            (None, Some(token)) => token,
            (None, None) => return Err(unreadable("the answer has no X-Subject-Token".to_owned())),
        };
        let Body { token: said } = serde_json::from_slice(&answer.body)
            .map_err(|why| unreadable(format!("not a token: {why}")))?;
        let endpoints = Endpoints::pick(&said.catalog, config.interface, config.region.as_deref())
            .map_err(|why| ApiError::ours(ErrorKind::NoService, &request, why))?;
        Ok(Grant {
            token,
            lifetime: self.lifetime(&said),
            project_id: said.project.map(|project| project.id),
            endpoints,
        })
    }

    /// By the server's clock alone: ours may differ.
    fn lifetime(&self, said: &Token) -> Option<Duration> {
        let lifetime = said.expires_at?.duration_since(said.issued_at?);
        let lifetime = Duration::try_from(lifetime).ok()?;
        renews(&self.auth).then_some(lifetime)
    }

    /// Where version 3 is. Only the path is taken from Keystone's own list, which nobody signs: the
    /// password goes to the host that was configured.
    async fn v3(&self, exchange: &Exchange) -> Result<Url, ApiError> {
        let base = if versioned(&self.url) {
            if self.url.path().trim_end_matches('/').ends_with("/v3") {
                return Ok(self.url.clone());
            }
            without_version(&self.url)
        } else {
            self.url.clone()
        };
        let ask = Ask::new(Method::GET, base.clone(), "version", self.time_limit);
        let fallback = joined(&base, &["v3"]);
        let answer = exchange.ask(ask).await;
        match answer.map_err(|error| elsewhere(error, &base)) {
            Ok(answer) => Ok(listed(&answer, &base).unwrap_or(fallback)),
            Err(error) if error.kind == ErrorKind::Moved => Err(error),
            // Some clouds publish nothing but /v3.
            Err(error) if error.status.is_some_and(|status| status < 500) => Ok(fallback),
            Err(error) => Err(error),
        }
    }
}

/// A redirect isn't followed, as the password would go where nobody has configured. Asking again
/// would bring the same: what is wrong is the address.
fn moved(error: ApiError, asked: &Url, path: &str) -> ApiError {
    let to = error.redirect.as_deref();
    let Some(to) = to.and_then(|to| asked.join(to).ok()) else {
        return error;
    };
    let written = to.as_str().trim_end_matches('/');
    let written = written.strip_suffix(path).unwrap_or(written);
    let message = format!("Keystone redirects to {to}; write {written} as auth-url");
    ApiError {
        kind: ErrorKind::Moved,
        message,
        ..error
    }
}

/// As [`moved`], of the list of versions, where a redirect on the same host is no more than a `/`
/// at the end.
fn elsewhere(error: ApiError, asked: &Url) -> ApiError {
    let to = error.redirect.as_deref();
    let to = to.and_then(|to| asked.join(to).ok());
    match to {
        Some(to) if to.origin() != asked.origin() => moved(error, asked, ""),
        _ => error,
    }
}

/// The path of version 3 in Keystone's list of versions.
fn listed(answer: &Answer, base: &Url) -> Option<Url> {
    let list: Value = serde_json::from_slice(&answer.body).ok()?;
    let versions = list["versions"]["values"]
        .as_array()
        .or_else(|| list["versions"].as_array())?;
    let third = versions.iter().find(|version| {
        let id = version["id"].as_str().unwrap_or_default();
        let status = version["status"].as_str().unwrap_or_default();
        let usable = ["current", "supported", "stable"];
        (id == "v3" || id.starts_with("v3."))
            && usable.iter().any(|u| status.eq_ignore_ascii_case(u))
    })?;
    let links = third["links"].as_array()?;
    let own = links.iter().find(|link| link["rel"] == "self")?;
    let there = address(own["href"].as_str()?).ok()?;
    if !there.path().trim_end_matches('/').ends_with("/v3") {
        return None;
    }
    let mut url = base.clone();
    url.set_path(there.path());
    Some(url)
}
