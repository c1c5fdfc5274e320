//! Talks to a running instance's admin endpoint.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use landfall_web::token::TokenFile;
use serde::de::DeserializeOwned;

use crate::cli::AdminArgs;

/// The longest that a command waits for an answer from the instance.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running instance, by its admin address.
#[derive(Clone, Debug)]
pub struct Admin {
    address: String,
    token_file: Option<PathBuf>,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no answer.
    #[error(
        "no instance answers at {address}: {why} (is `landfall up` running, and is --admin or \
         LANDFALL_ADMIN the address that it printed? A speaker has 127.0.0.1:9641 by default)"
    )]
    Unreachable {
        /// The admin address.
        address: String,
        /// What the system said.
        why: String,
    },
    /// The token can't be read.
    #[error("--admin-token-file: {why}")]
    NoToken {
        /// Why.
        why: String,
    },
    /// It answered with an error.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// What it said.
        message: String,
    },
    /// It answered with something else than was expected.
    #[error("{address} did not answer like Landfall: {why}")]
    Foreign {
        /// The admin address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
}

// === impl Admin ===

impl Admin {
    /// The instance at `HOST:PORT` (a leading `http://` is tolerated).
    pub fn at(args: &AdminArgs) -> Self {
        let address = args.admin.trim_end_matches('/');
        let address = address.strip_prefix("http://").unwrap_or(address);
        Self {
            address: address.to_owned(),
            token_file: args.admin_token_file.clone(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Reads a JSON document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Sends manifests and reads a JSON document.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        self.ask(Method::POST, path, body.into()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, AskError> {
        let token = match &self.token_file {
            None => None,
            Some(path) => match TokenFile::new(path.clone()).read().await {
                Ok(token) => Some(token),
                Err(error) => {
                    return Err(AskError::NoToken {
                        why: error.to_string(),
                    });
                }
            },
        };
        let exchange = self.exchange(method, path, body, token);
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(Ok((status, bytes))) if status.is_success() => serde_json::from_slice(&bytes)
                .map_err(|error| AskError::Foreign {
                    address: self.address.clone(),
                    why: error.to_string(),
                }),
            Ok(Ok((status, bytes))) => Err(AskError::Refused {
                status,
                message: error_message(status, &bytes),
            }),
            Ok(Err(error)) => Err(self.unanswered(&format!("{error:#}"))),
            Err(_) => Err(self.unanswered("no answer in 30 s")),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(body))
            .context("not an address of the form HOST:PORT")?;
        let response = self.client.request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    fn unanswered(&self, why: &str) -> AskError {
        AskError::Unreachable {
            address: self.address.clone(),
            why: why.to_owned(),
        }
    }
}

fn error_message(status: StatusCode, body: &[u8]) -> String {
    let message = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|json| Some(json.get("error")?.get("message")?.as_str()?.to_owned()));
    message.unwrap_or_else(|| format!("the instance answered {status}"))
}
