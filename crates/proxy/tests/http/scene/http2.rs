//! HTTP/2 clients and members, spoken by hyper, and TLS around them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_model::listener::{Certificate, Certificates};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TIMEOUT;

/// A body made by a test.
pub type TestBody = BoxBody<Bytes, Infallible>;

/// An HTTP/2 connection of a client.
pub struct Http2Client {
    pub sender: SendRequest<TestBody>,
    connection: tokio::task::JoinHandle<()>,
}

/// A response with all of its body.
#[derive(Debug)]
pub struct Whole {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

/// A member that speaks HTTP/2 only.
pub struct Http2Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// A body whose frames a test sends one by one.
pub struct Frames(mpsc::Receiver<Frame<Bytes>>);

pub fn nothing() -> TestBody {
    Empty::new().boxed()
}

pub fn text(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).boxed()
}

/// A body, and what sends its frames.
pub fn frames() -> (mpsc::Sender<Frame<Bytes>>, TestBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Frames(receiver).boxed())
}

pub fn get(path: &str) -> Request<TestBody> {
    Request::get(format!("http://shop.example{path}"))
        .body(nothing())
        .unwrap()
}

pub fn post(path: &str, body: TestBody) -> Request<TestBody> {
    Request::post(format!("http://shop.example{path}"))
        .body(body)
        .unwrap()
}

impl Http2Client {
    /// Connects with prior knowledge.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { sender, connection }
    }

    /// Sends a request and waits for the head of the response.
    pub async fn begin(&self, request: Request<TestBody>) -> hyper::Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        timeout(TIMEOUT, sender.send_request(request))
            .await
            .expect("an answer in time")
    }

    /// Sends a request and waits for all of the response.
    pub async fn ask(&self, request: Request<TestBody>) -> Whole {
        whole(self.begin(request).await.unwrap()).await.unwrap()
    }

    /// Waits for the end of the connection.
    pub async fn ended(self) {
        drop(self.sender);
        timeout(TIMEOUT, self.connection)
            .await
            .expect("the connection ends")
            .unwrap();
    }
}

/// Reads a response to its end.
pub async fn whole(response: Response<Incoming>) -> hyper::Result<Whole> {
    let (parts, body) = response.into_parts();
    let collected = timeout(TIMEOUT, body.collect())
        .await
        .expect("a body in time")?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok(Whole {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: collected.to_bytes().to_vec(),
        trailers,
    })
}

impl Whole {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Http2Server {
    /// Calls `serve` with each request.
    pub async fn start<F>(
        serve: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        Self::start_allowing(None, serve).await
    }

    /// The same, with so many requests at once on each connection.
    pub async fn start_allowing<F>(
        allowed: Option<u32>,
        serve: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicUsize::new(0));
        let (accepted, asked) = (connections.clone(), requests.clone());
        let held = open.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (serve, asked) = (serve.clone(), asked.clone());
                held.fetch_add(1, Ordering::SeqCst);
                let held = held.clone();
                let service = service_fn(move |request| {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let answer = serve(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                serving.spawn(async move {
                    let mut builder =
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    if let Some(allowed) = allowed {
                        builder.max_concurrent_streams(allowed);
                    }
                    let _ = builder
                        .auto_date_header(false)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    held.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            connections,
            open,
            requests,
            _tasks: tasks,
        }
    }

    /// Answers every request with its name, and with the request's head and body as body.
    pub async fn echo(name: &'static str) -> Self {
        Self::start(move |request| async move {
            let (parts, body) = request.into_parts();
            let mut said = format!("{} {}\n", parts.method, parts.uri);
            for (field, value) in &parts.headers {
                said.extend([field.as_str(), ": ", value.to_str().unwrap(), "\n"]);
            }
            said.push('\n');
            let Ok(collected) = body.collect().await else {
                return Response::builder().status(400).body(nothing()).unwrap();
            };
            let trailers = collected.trailers().cloned();
            let said = [said.as_bytes(), &collected.to_bytes()[..]].concat();
            // Of no known length, so that trailers can follow it everywhere.
            let (sender, body) = frames();
            tokio::spawn(async move {
                let _ = sender.send(Frame::data(Bytes::from(said))).await;
                if let Some(trailers) = trailers {
                    let _ = sender.send(Frame::trailers(trailers)).await;
                }
            });
            Response::builder()
                .header("x-member", name)
                .body(body)
                .unwrap()
        })
        .await
    }

    /// Connections that are open at present.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// A certificate for a name, fresh.
pub fn certificates(name: &str) -> Certificates {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([name.to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    Certificates(vec![Arc::new(Certificate {
        source: "shop/tls".into(),
        chain_pem: certificate.pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
    })])
}

/// A TLS connection that offers these protocols, and trusts any certificate.
pub async fn tls(address: SocketAddr, protocols: &[&str]) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("shop.example").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
