//! The optional admission webhook for MetalLB's resources: refuses what contradicts other objects
//! before it is written. It fails open: without an answer the API server admits the object, and the
//! controller reports what is wrong with it, as it does without a webhook.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use landfall_engine::EngineHandle;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::cli::WebhookOptions;

mod review;

/// Connections at a time: API servers keep a few.
const CONNECTIONS: usize = 64;

/// The longest for a handshake, and for a request to come.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An object with its old version fits; the API server takes no larger ones.
const LONGEST_REQUEST: usize = 8 << 20;

/// From one check of the certificate to the next.
const LOOK: Duration = Duration::from_secs(30);

/// After a failed accept.
const REST: Duration = Duration::from_millis(100);

/// A webhook that is ready to serve.
#[derive(Debug)]
pub struct Webhook {
    listener: TcpListener,
    folder: PathBuf,
    tls: watch::Sender<Arc<ServerConfig>>,
    certificate: Vec<u8>,
    /// The namespace of MetalLB's resources.
    home: Arc<str>,
}

// === impl Webhook ===

impl Webhook {
    /// Opens it. `home`: the namespace of MetalLB's resources.
    ///
    /// # Errors
    /// The address is taken, or there is no certificate that can be used.
    pub async fn open(options: &WebhookOptions, home: &str) -> anyhow::Result<Self> {
        let WebhookOptions {
            address,
            certificate: folder,
        } = options;
        let (certificate, tls) = read(folder).await?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("opening the webhook at {address}"))?;
        Ok(Self {
            listener,
            folder: folder.clone(),
            tls: watch::Sender::new(tls),
            certificate,
            home: home.into(),
        })
    }

    /// Answers until cancelled.
    pub async fn serve(self, handle: EngineHandle<Backend>, cancel: CancellationToken) {
        let Self {
            listener,
            folder,
            tls,
            certificate,
            home,
        } = self;
        let (connections, places) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
        let current = tls.subscribe();
        let accepting = async {
            loop {
                // The semaphore is never closed.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let acceptor = TlsAcceptor::from(Arc::clone(&current.borrow()));
                        let (handle, home) = (handle.clone(), Arc::clone(&home));
                        let serving = async move {
                            connection(stream, acceptor, &handle, &home).await;
                            drop(place);
                        };
                        connections.spawn(cancel.clone().run_until_cancelled_owned(serving));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the webhook can't accept a connection");
                        tokio::time::sleep(REST).await;
                    }
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = accepting => {}
            () = follow(folder, tls, certificate) => {}
        }
    }
}

/// Takes another certificate when there is one. One that can't be used changes nothing.
async fn follow(folder: PathBuf, tls: watch::Sender<Arc<ServerConfig>>, mut known: Vec<u8>) {
    loop {
        tokio::time::sleep(LOOK).await;
        match read(&folder).await {
            Ok((certificate, config)) if certificate != known => {
                known = certificate;
                tls.send_replace(config);
                tracing::info!("the webhook has another certificate");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the certificate stays as it was"
                );
            }
        }
    }
}

/// Reads certificate and key.
async fn read(folder: &Path) -> anyhow::Result<(Vec<u8>, Arc<ServerConfig>)> {
    let file = async |name: &str| {
        let path = folder.join(name);
        let read = tokio::fs::read(&path).await;
        read.with_context(|| format!("reading {}", path.display()))
    };
    let (chain, key) = (file("tls.crt").await?, file("tls.key").await?);
    let config =
        config(&chain, &key).with_context(|| format!("the certificate in {}", folder.display()))?;
    Ok(([chain, key].concat(), config))
}

fn config(chain: &[u8], key: &[u8]) -> anyhow::Result<Arc<ServerConfig>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let config = builder
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    Ok(Arc::new(config))
}

/// Answers one client.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handle: &EngineHandle<Backend>,
    home: &str,
) {
    let stream = match tokio::time::timeout(TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a client of the webhook failed"),
        Err(_) => return,
    };
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(request, handle, home).await)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(6 * TIMEOUT)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::trace!(%error, "a connection of the webhook ended early");
    }
}

async fn answer(
    request: Request<Incoming>,
    handle: &EngineHandle<Backend>,
    home: &str,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != "/validate" {
        return text(StatusCode::NOT_FOUND, "POST /validate");
    }
    let body = Limited::new(request.into_body(), LONGEST_REQUEST).collect();
    let body = match tokio::time::timeout(TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "no request that can be read"),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the request does not come"),
    };
    match review::answer(&body, handle.world().await.as_ref(), home) {
        Ok(answer) => {
            let mut response = Response::new(Full::from(answer.to_string()));
            let json = http::HeaderValue::from_static("application/json");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, json);
            response
        }
        Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    response
}
