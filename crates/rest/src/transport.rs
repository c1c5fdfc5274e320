//! The transport of requests and answers: the network, or a function in this process.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use secrecy::ExposeSecret;

use super::settings::{Timeouts, Tls};

/// A future of an answer.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response<Bytes>, NoAnswer>> + Send>>;

/// Answers requests in this process: a simulated cloud.
pub type InProcess = Arc<dyn Fn(Request<Bytes>) -> Answering + Send + Sync>;

/// A transport to a cloud.
#[derive(Clone)]
pub enum Transport {
    /// Over the network.
    Network(reqwest::Client),
    /// To a function.
    InProcess(InProcess),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The request can't have got there.
    Unreachable(String),
    /// The request may have got there.
    Lost(String),
    /// More than is read.
    TooLong,
}

/// Why a transport can't be made from its settings.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The authorities are not PEM, or the file has none.
    #[error("ca-file: {0}")]
    Authorities(String),
    /// The client's certificate or its key is invalid.
    #[error("cert-file, key-file: {0}")]
    Identity(String),
    /// Another error.
    #[error("HTTP client: {0}")]
    Client(String),
}

/// The longest answer that is read; a page of 1000 load balancers is about 2 MiB.
const MAX_ANSWER: usize = 64 << 20;

// === impl Transport ===

impl Transport {
    /// Makes a transport over the network, through the proxies that the environment names.
    /// Redirects aren't followed: a token must not go to a host that was not configured.
    pub fn network(tls: &Tls, timeouts: &Timeouts) -> Result<Self, TransportError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only when another thread was faster, with the same one.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(timeouts.connect)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tls_danger_accept_invalid_certs(tls.insecure);
        if let Some(pem) = &tls.ca_file {
            let authorities = reqwest::Certificate::from_pem_bundle(pem)
                .map_err(|error| TransportError::Authorities(chain(&error)))?;
            if authorities.is_empty() {
                let empty = "no certificate in it".to_owned();
                return Err(TransportError::Authorities(empty));
            }
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(pem) = &tls.identity {
            let identity = reqwest::Identity::from_pem(pem.expose_secret().as_bytes())
                .map_err(|error| TransportError::Identity(chain(&error)))?;
            builder = builder.identity(identity);
        }
        let client = builder
            .build()
            .map_err(|error| TransportError::Client(chain(&error)))?;
        Ok(Self::Network(client))
    }

    /// Sends a request and returns its answer, whatever the status.
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        match self {
            Self::Network(client) => over_network(client, request).await,
            Self::InProcess(answer) => answer(request).await,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network(_) => "Network",
            Self::InProcess(_) => "InProcess",
        })
    }
}

async fn over_network(
    client: &reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, NoAnswer> {
    let request = reqwest::Request::try_from(request).map_err(no_answer)?;
    let mut answer = client.execute(request).await.map_err(no_answer)?;
    let mut head = Response::new(Bytes::new());
    *head.status_mut() = answer.status();
    *head.headers_mut() = std::mem::take(answer.headers_mut());
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(NoAnswer::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    *head.body_mut() = body.freeze();
    Ok(head)
}

fn no_answer(error: reqwest::Error) -> NoAnswer {
    let error = error.without_url();
    if error.is_connect() || error.is_builder() {
        NoAnswer::Unreachable(chain(&error))
    } else {
        NoAnswer::Lost(chain(&error))
    }
}

/// Joins an error and its sources: the outermost alone only says that there was one.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let deeper = error.to_string();
        if !text.contains(&deeper) {
            text.push_str(": ");
            text.push_str(&deeper);
        }
        source = error.source();
    }
    text
}
