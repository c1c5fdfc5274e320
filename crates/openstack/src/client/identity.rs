//! Keystone: finds its version 3, and reads from its answer what a token is for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use landfall_rest::auth::HeaderToken;
use landfall_rest::{
    ApiError, ApiRequest, ApiResponse, Authorize, ErrorKind, Exchange, Grant, Url, http_url, joined,
};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::auth::{Auth, body, ready_token, renews, secret};
use super::catalog::{Endpoints, Entry, versioned, without_version};
use super::credentials::Credentials;
use super::settings::{CloudConfig, Interface};
use crate::objects::Id;

/// Keystone, and the credentials for it.
pub(super) struct Identity {
    /// As it was configured.
    url: Url,
    credentials: Credentials,
    timeout: Duration,
    interface: Interface,
    region: Option<String>,
}

/// A token and what came with it.
#[derive(Debug)]
pub(super) struct Token {
    pub header: HeaderToken,
    pub project_id: Option<Id>,
    pub endpoints: Endpoints,
}

/// A token that is the credential and the subject of a request.
struct OwnToken(HeaderToken);

#[derive(Deserialize)]
struct Body {
    token: Content,
}

/// What Keystone says of a token.
#[derive(Deserialize)]
struct Content {
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

const SUBJECT_TOKEN: &str = "x-subject-token";

// === impl Token ===

impl Authorize for Token {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        self.header.authorize(request)
    }

    fn secret(&self) -> Option<&SecretString> {
        self.header.secret()
    }
}

// === impl OwnToken ===

impl Authorize for OwnToken {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        self.0.authorize(request)?;
        let subject = HeaderToken {
            header: SUBJECT_TOKEN,
            ..self.0.clone()
        };
        subject.authorize(request)
    }

    fn secret(&self) -> Option<&SecretString> {
        self.0.secret()
    }
}

// === impl Identity ===

impl Identity {
    pub fn new(config: &CloudConfig) -> Result<Self, String> {
        Ok(Self {
            url: http_url(&config.auth_url)?,
            credentials: Credentials::new(config),
            timeout: config.timeouts.auth,
            interface: config.interface,
            region: config.region.clone(),
        })
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Gets a token with the credentials in use. Where these are not accepted any more, those of
    /// the source may be.
    pub async fn grant(&self, exchange: &Exchange) -> Result<Grant<Token>, ApiError> {
        let auth = self.credentials.in_use();
        let granted = self.accepted(exchange, &auth).await;
        if granted.as_ref().is_err_and(is_refused) && self.credentials.next().is_some() {
            return self.grant_next(exchange).await;
        }
        granted
    }

    /// Gets a token with the credentials that the source has now, which are in use from then on.
    pub async fn grant_next(&self, exchange: &Exchange) -> Result<Grant<Token>, ApiError> {
        let Some(auth) = self.credentials.next() else {
            return self.accepted(exchange, &self.credentials.in_use()).await;
        };
        exchange.hide(secret(&auth));
        let granted = self.accepted(exchange, &auth).await;
        if let Err(error) = &granted {
            self.credentials
                .refuse(is_refused(error), &error.to_string());
        }
        granted
    }

    async fn accepted(
        &self,
        exchange: &Exchange,
        auth: &Arc<Auth>,
    ) -> Result<Grant<Token>, ApiError> {
        let granted = self.token(exchange, auth).await?;
        self.credentials
            .accept(auth, granted.value.project_id.as_ref())
            .map_err(|why| ApiError::ours(ErrorKind::Unauthorized, "token", why))?;
        Ok(granted)
    }

    async fn token(&self, exchange: &Exchange, auth: &Auth) -> Result<Grant<Token>, ApiError> {
        let url = joined(&self.v3(exchange).await?, &["auth", "tokens"]);
        let ready = ready_token(auth).map(|token| OwnToken(header(token.clone())));
        let request = match &ready {
            Some(token) => ApiRequest {
                auth: Some(token),
                ..ApiRequest::new(Method::GET, url, "token", self.timeout)
            },
            None => ApiRequest {
                body: Some(body(auth).to_string().into()),
                ..ApiRequest::new(Method::POST, url, "token", self.timeout)
            },
        };
        let (name, url) = (request.name(), request.url.clone());
        let private = ApiRequest {
            private: true,
            ..request
        };
        let answer = exchange.send(private).await;
        let answer = answer.map_err(|error| moved(error, &url, "/auth/tokens"))?;
        let header = match (&ready, subject_token(&answer)) {
            (Some(token), _) => token.0.clone(),
            (None, Some(token)) => header(token),
            (None, None) => {
                return Err(answer.unreadable(&name, "the answer has no X-Subject-Token"));
            }
        };
        let Body { token } = serde_json::from_slice(&answer.body)
            .map_err(|why| answer.unreadable(&name, format!("not a token: {why}")))?;
        let endpoints = Endpoints::pick(&token.catalog, self.interface, self.region.as_deref())
            .map_err(|why| ApiError::ours(ErrorKind::NoService, &name, why))?;
        Ok(Grant {
            lifetime: lifetime(&token).filter(|_| renews(auth)),
            value: Token {
                header,
                project_id: token.project.map(|project| project.id),
                endpoints,
            },
        })
    }

    /// Where version 3 is. Only the path is taken from Keystone's own list, which is not signed:
    /// the password goes to the host that was configured.
    async fn v3(&self, exchange: &Exchange) -> Result<Url, ApiError> {
        let base = if versioned(&self.url) {
            if self.url.path().trim_end_matches('/').ends_with("/v3") {
                return Ok(self.url.clone());
            }
            without_version(&self.url)
        } else {
            self.url.clone()
        };
        let request = ApiRequest::new(Method::GET, base.clone(), "version", self.timeout);
        let fallback = joined(&base, &["v3"]);
        let answer = exchange.send(request).await;
        match answer.map_err(|error| elsewhere(error, &base)) {
            Ok(answer) => Ok(listed(&answer, &base).unwrap_or(fallback)),
            Err(error) if error.kind == ErrorKind::Moved => Err(error),
            // Some clouds publish nothing but /v3.
            Err(error) if error.status.is_some_and(|status| status < 500) => Ok(fallback),
            Err(error) => Err(error),
        }
    }
}

/// Returns the lifetime by the server's clock alone: ours may differ.
fn lifetime(token: &Content) -> Option<Duration> {
    let lifetime = token.expires_at?.duration_since(token.issued_at?);
    Duration::try_from(lifetime).ok()
}

/// Whether credentials are not accepted, and would not be the next time.
fn is_refused(error: &ApiError) -> bool {
    error.kind == ErrorKind::Unauthorized
}

fn header(token: SecretString) -> HeaderToken {
    HeaderToken {
        header: "x-auth-token",
        token,
    }
}

/// Returns the token that Keystone issued.
fn subject_token(answer: &ApiResponse) -> Option<SecretString> {
    let token = answer.headers.get(SUBJECT_TOKEN)?.to_str().ok()?;
    Some(SecretString::from(token))
}

/// A redirect isn't followed, as the password would go to an address that is not configured. Asking
/// again would bring the same: what is wrong is the address.
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
fn listed(answer: &ApiResponse, base: &Url) -> Option<Url> {
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
    let there = http_url(own["href"].as_str()?).ok()?;
    if !there.path().trim_end_matches('/').ends_with("/v3") {
        return None;
    }
    let mut url = base.clone();
    url.set_path(there.path());
    Some(url)
}
