//! TLS toward members, with and without TLS of clients, and checks over it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2 as client_http2;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_model::listener::{
    Certificate, Certificates, Check, Http, HttpMethod, Listener, Member, MemberTls, Mode, Monitor,
    ProxyProtocol, Redirect, RedirectStatus, TlsPolicy, TlsVersion,
};
use landfall_proxy::ListenError;
use landfall_proxy::counters::Refusal;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::scene::{Scene, connect, ended, in_time, read_all, until};

const NAME: &str = "web.shop.svc";

/// An authority that signs for members and clients.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A member that speaks TLS. Ends with the test.
struct Secured {
    address: SocketAddr,
    /// What was read inside TLS, and the names that were asked for.
    seen: Arc<Mutex<(Vec<u8>, Vec<String>)>>,
    _tasks: JoinSet<()>,
}

/// What a member does inside TLS.
#[derive(Clone, Copy)]
enum Does {
    Echo,
    /// One answer with a body to each request of HTTP/1.
    Http1,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, name: &str) -> Arc<Certificate> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Arc::new(Certificate {
            source: "shop/signed".into(),
            chain_pem: signed.pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
        })
    }

    fn authorities(&self) -> Arc<Certificate> {
        Arc::new(Certificate {
            source: "shop/ca[ca.crt]".into(),
            chain_pem: self.pem.clone().into_bytes(),
            key_pem: Vec::new(),
        })
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(der).unwrap();
        roots
    }

    fn verified(&self) -> MemberTls {
        MemberTls {
            authorities: Some(self.authorities()),
            server_name: NAME.to_owned(),
            certificate: None,
        }
    }
}

fn server(certificate: &Certificate, clients: Option<&Authority>, alpn: &[&str]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(authority.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(&certificate.chain_pem);
    let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem).unwrap();
    let mut config = builder
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    config
}

impl Secured {
    async fn start(config: ServerConfig, does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::default());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut tasks = JoinSet::new();
        let shared = seen.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), shared.clone());
                connections.spawn(async move {
                    // How a connection ends is the other side's business in every test.
                    let _ = serve(acceptor, stream, does, &seen).await;
                });
            }
        });
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    fn received(&self) -> Vec<u8> {
        self.seen.lock().unwrap().0.clone()
    }

    fn names(&self) -> Vec<String> {
        self.seen.lock().unwrap().1.clone()
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    does: Does,
    seen: &Mutex<(Vec<u8>, Vec<String>)>,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let name = stream.get_ref().1.server_name().unwrap_or_default();
    seen.lock().unwrap().1.push(name.to_owned());
    let mut room = vec![0; 16 * 1024];
    let mut head = Vec::new();
    loop {
        let count = stream.read(&mut room).await?;
        seen.lock().unwrap().0.extend_from_slice(&room[..count]);
        if count == 0 {
            return stream.shutdown().await;
        }
        match does {
            Does::Echo => stream.write_all(&room[..count]).await?,
            Does::Http1 => {
                head.extend_from_slice(&room[..count]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                                   3\r\nwel\r\n3\r\nl d\r\n3\r\none\r\n0\r\n\r\n";
                    stream.write_all(answer).await?;
                }
            }
        }
        stream.flush().await?;
    }
}

async fn echoes(client: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) {
    client.write_all(bytes).await.unwrap();
    let mut room = vec![0; bytes.len()];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, bytes);
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut client = connect(address).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(read_all(&mut client).await).unwrap()
}

/// Why the member is not what it should be, in the words that people see.
async fn detail(scene: &Scene) -> String {
    let reported = || {
        scene
            .status()
            .members
            .first()
            .map(|it| it.cause.to_string())
    };
    until("reported", || reported().is_some_and(|it| !it.is_empty())).await;
    reported().unwrap()
}

fn quick(check: Check) -> Monitor {
    Monitor {
        delay: Duration::from_millis(50),
        timeout: Duration::from_secs(20),
        max_retries_down: 1,
        ..Monitor::new(check)
    }
}

fn page() -> Check {
    Check::Http {
        method: HttpMethod::Get,
        path: "/healthz".to_owned(),
        codes: "200".parse().unwrap(),
    }
}

#[tokio::test]
async fn plain_bytes_of_clients_reach_a_member_over_verified_tls() {
    let authority = Authority::new();
    let member = Secured::start(server(&authority.sign(NAME), None, &[]), Does::Echo).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(authority.verified());
    })
    .await;
    echoes(&mut scene.client().await, b"in the clear").await;
    assert_eq!(member.received(), b"in the clear");
    assert_eq!(member.names(), [NAME]);
}

#[tokio::test]
async fn a_download_over_tls_that_is_cut_does_not_look_whole_to_a_client_without() {
    let authority = Authority::new();
    let member = Secured::start(server(&authority.sign(NAME), None, &[]), Does::Echo).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(authority.verified());
        listener.drain = Duration::from_millis(50);
    })
    .await;
    let mut client = scene.client().await;
    echoes(&mut client, b"half").await;
    scene
        .change(|listener| listener.pool.members.clear())
        .await
        .unwrap();
    assert!(!ended(&mut client).await);
}

#[tokio::test]
async fn a_member_of_another_authority_or_name_gets_no_byte_and_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    for (certificate, why) in [
        (other.sign(NAME), "invalid peer certificate"),
        (authority.sign("other.test"), "not valid for name"),
    ] {
        let member = Secured::start(server(&certificate, None, &[]), Does::Http1).await;
        let scene = Scene::tcp_with(&[member.address], |listener| {
            listener.mode = Mode::Http(Http::default());
            listener.pool.tls = Some(authority.verified());
            listener.pool.monitor = Some(Monitor {
                tls: true,
                ..quick(page())
            });
        })
        .await;
        let answer = get(scene.address(), "/").await;
        assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
        let reported = detail(&scene).await;
        assert!(
            reported.contains("TLS: ") && reported.contains(why),
            "{reported}"
        );
        assert_eq!(member.received(), b"");
    }
}

#[tokio::test]
async fn only_what_is_called_insecure_takes_any_certificate() {
    let member = Secured::start(
        server(&Authority::new().sign("other.test"), None, &[]),
        Does::Echo,
    )
    .await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(MemberTls {
            authorities: None,
            server_name: NAME.to_owned(),
            certificate: None,
        });
    })
    .await;
    echoes(&mut scene.client().await, b"any client").await;
}

#[tokio::test]
async fn authorities_that_cant_be_read_open_no_listener_and_change_none() {
    let authority = Authority::new();
    let member = Secured::start(server(&authority.sign(NAME), None, &[]), Does::Echo).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(authority.verified());
    })
    .await;
    for pem in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let broken = Certificate {
            source: "shop/ca[ca.crt]".into(),
            chain_pem: pem.as_bytes().to_vec(),
            key_pem: Vec::new(),
        };
        let refused = scene
            .change(|listener| {
                listener.pool.tls = Some(MemberTls {
                    authorities: Some(Arc::new(broken)),
                    ..authority.verified()
                });
            })
            .await;
        let Err(ListenError::Certificate { source, .. }) = refused else {
            panic!("{refused:?}");
        };
        let reported = source.to_string();
        assert!(reported.contains("shop/ca[ca.crt]"), "{reported}");
    }
    echoes(&mut scene.client().await, b"as before").await;
}

#[tokio::test]
async fn requests_share_secured_connections_until_other_authorities_are_named() {
    let authority = Authority::new();
    let member = Secured::start(
        server(&authority.sign(NAME), None, &["http/1.1"]),
        Does::Http1,
    )
    .await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http::default());
        listener.pool.tls = Some(authority.verified());
    })
    .await;
    // Which of the two workers has a client is the kernel's choice; one client stays with one.
    let mut client = connect(scene.address()).await;
    for _ in 0..5 {
        let request = b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"0\r\n\r\n") {
            assert!(in_time(client.read_buf(&mut answer)).await.unwrap() > 0);
        }
    }
    assert_eq!(member.names().len(), 1);
    // The kept connection was verified by what does not count any more.
    scene
        .change(|listener| {
            listener.pool.tls = Some(Authority::new().verified());
        })
        .await
        .unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let answer = read_all(&mut client).await;
    assert!(answer.starts_with(b"HTTP/1.1 502"), "{answer:?}");
}

#[tokio::test]
async fn members_that_ask_for_a_certificate_get_the_one_that_is_named() {
    let authority = Authority::new();
    let config = || server(&authority.sign(NAME), Some(&authority), &[]);
    let member = Secured::start(config(), Does::Echo).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(MemberTls {
            certificate: Some(authority.sign("proxy.test")),
            ..authority.verified()
        });
    })
    .await;
    echoes(&mut scene.client().await, b"known").await;
    scene
        .change(|listener| listener.pool.tls = Some(authority.verified()))
        .await
        .unwrap();
    let mut client = scene.client().await;
    let mut room = [0; 1];
    let read = in_time(client.read(&mut room)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_proxy_header_goes_ahead_of_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::new();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |it| {
        it.pool.tls = Some(authority.verified());
        it.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let mut client = scene.client().await;
    client.write_all(b"hello").await.unwrap();
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(in_time(member.read_u8()).await.unwrap());
    }
    assert!(line.starts_with(b"PROXY TCP4 "), "{line:?}");
    let config = server(&authority.sign(NAME), None, &[]);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut inside = in_time(acceptor.accept(member)).await.unwrap();
    let mut room = [0; 5];
    in_time(inside.read_exact(&mut room)).await.unwrap();
    assert_eq!(&room, b"hello");
}

#[tokio::test]
async fn checks_over_tls_name_their_host_and_look_for_a_text() {
    let authority = Authority::new();
    let config = server(&authority.sign(NAME), None, &["http/1.1"]);
    let member = Secured::start(config, Does::Http1).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.tls = Some(authority.verified());
        listener.pool.monitor = Some(Monitor {
            tls: true,
            host: Some("app.test:8443".to_owned()),
            // It is spread over three chunks.
            body: Some("well done".to_owned()),
            ..quick(page())
        });
    })
    .await;
    assert_eq!(detail(&scene).await, "HTTP 200");
    let head = String::from_utf8(member.received()).unwrap().to_lowercase();
    assert!(head.starts_with("get /healthz http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: app.test:8443\r\n"), "{head}");
    scene
        .change(|listener| {
            listener.pool.monitor.as_mut().unwrap().body = Some("well gone".to_owned());
        })
        .await
        .unwrap();
    until("reported", || {
        let status = scene.status();
        &*status.members[0].cause == "the body does not contain \"well gone\""
    })
    .await;
}

#[tokio::test]
async fn checks_of_members_that_clients_verify_themselves_take_any_certificate() {
    let config = server(&Authority::new().sign("any.test"), None, &[]);
    let member = Secured::start(config, Does::Http1).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.monitor = Some(Monitor {
            tls: true,
            ..quick(page())
        });
    })
    .await;
    assert_eq!(detail(&scene).await, "HTTP 200");
}

#[tokio::test]
async fn a_member_without_tls_fails_a_check_over_tls() {
    let member = crate::scene::Server::named("SSH-2.0-OpenSSH_9.2\r\n").await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.pool.monitor = Some(Monitor {
            tls: true,
            ..quick(page())
        });
    })
    .await;
    let reported = detail(&scene).await;
    assert!(reported.starts_with("TLS: "), "{reported}");
}

/// A client that trusts an authority, and speaks these versions.
async fn client(
    address: SocketAddr,
    authority: &Authority,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    in_time(connector.connect(name, connect(address).await)).await
}

async fn ending_tls(authority: &Authority, policy: TlsPolicy, member: SocketAddr) -> Scene {
    let certificates = Certificates(vec![authority.sign("web.test")]);
    Scene::tcp_with(&[member], move |listener: &mut Listener| {
        listener.mode = Mode::Tls { certificates };
        listener.tls = policy;
    })
    .await
}

#[tokio::test]
async fn a_minimum_version_refuses_older_clients_and_can_be_changed_in_place() {
    let authority = Authority::new();
    let server = crate::scene::Server::start(crate::scene::Manner::Echo).await;
    let scene = ending_tls(&authority, TlsPolicy::default(), server.address).await;
    let only_1_2: &[_] = &[&rustls::version::TLS12];
    let mut old = client(scene.address(), &authority, "web.test", only_1_2)
        .await
        .unwrap();
    scene
        .change(|listener| listener.tls.minimum = TlsVersion::V13)
        .await
        .unwrap();
    let refused = client(scene.address(), &authority, "web.test", only_1_2).await;
    let reported = refused.unwrap_err().to_string();
    assert!(reported.contains("ProtocolVersion"), "{reported}");
    let all = rustls::ALL_VERSIONS;
    let new = client(scene.address(), &authority, "web.test", all).await;
    echoes(&mut new.unwrap(), b"new").await;
    echoes(&mut old, b"old, and open already").await;
}

#[tokio::test]
async fn strict_names_refuse_clients_without_a_known_name_by_its_alert() {
    let authority = Authority::new();
    let server = crate::scene::Server::start(crate::scene::Manner::Echo).await;
    let policy = TlsPolicy {
        strict_names: true,
        ..TlsPolicy::default()
    };
    let scene = ending_tls(&authority, policy, server.address).await;
    for name in ["other.test", "127.0.0.1"] {
        let refused = client(scene.address(), &authority, name, rustls::ALL_VERSIONS).await;
        let reported = refused.unwrap_err().to_string();
        assert!(reported.contains("UnrecognisedName"), "{name}: {reported}");
    }
    // Counted behind the alert.
    crate::scene::until("counted", || scene.refused(Refusal::Tls) == 2).await;
    let known = client(
        scene.address(),
        &authority,
        "web.test",
        rustls::ALL_VERSIONS,
    )
    .await;
    echoes(&mut known.unwrap(), b"known").await;
    scene
        .change(|listener| listener.tls.strict_names = false)
        .await
        .unwrap();
    let other = client(
        scene.address(),
        &authority,
        "other.test",
        rustls::ALL_VERSIONS,
    )
    .await;
    let reported = other.unwrap_err().to_string();
    assert!(reported.contains("not valid for name"), "{reported}");
}

async fn redirecting(status: RedirectStatus, port: u16) -> (Scene, crate::scene::Server) {
    let server = crate::scene::Server::start(crate::scene::Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.mode = Mode::Http(Http::default());
        listener.redirect = Some(Redirect {
            status,
            port: port.try_into().unwrap(),
        });
    })
    .await;
    (scene, server)
}

async fn answer(address: SocketAddr, request: &str) -> String {
    let mut client = connect(address).await;
    client.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(read_all(&mut client).await).unwrap()
}

#[tokio::test]
async fn requests_are_sent_to_the_same_resource_under_https_and_reach_no_member() {
    let (scene, server) = redirecting(RedirectStatus::Permanent, 8443).await;
    let request = "GET /a/b?c=d HTTP/1.1\r\nHost: web.test:80\r\n\
                   X-Forwarded-Host: evil.test\r\n\r\n";
    // The connection stays open for the next request.
    let both = [
        request,
        &request.replace("Host: web", "Connection: close\r\nHost: two"),
    ]
    .concat();
    let answers = answer(scene.address(), &both).await;
    let expected = "HTTP/1.1 308 Permanent Redirect\r\n\
                    location: https://web.test:8443/a/b?c=d\r\ncontent-length: 0\r\n\r\n\
                    HTTP/1.1 308 Permanent Redirect\r\n\
                    location: https://two.test:8443/a/b?c=d\r\ncontent-length: 0\r\n\
                    connection: close\r\n\r\n";
    assert_eq!(answers, expected);
    scene
        .change(|listener| {
            listener.redirect = Some(Redirect {
                status: RedirectStatus::Moved,
                port: 443.try_into().unwrap(),
            });
        })
        .await
        .unwrap();
    let posted =
        "POST http://web.test/x HTTP/1.1\r\nHost: other.test\r\nContent-Length: 5\r\n\r\nhello";
    let answer = answer(scene.address(), posted).await;
    assert!(
        answer.starts_with("HTTP/1.1 301 Moved Permanently\r\nlocation: https://web.test/x\r\n"),
        "{answer}"
    );
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn an_invalid_host_is_refused_and_not_repeated() {
    let (scene, _server) = redirecting(RedirectStatus::Permanent, 443).await;
    for head in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test:80:90\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test@evil.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test,evil.test\r\n\r\n",
    ] {
        let answer = answer(scene.address(), head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head}: {answer}");
        assert!(!answer.contains("location"), "{answer}");
    }
}

/// What a server of HTTP/2 saw: scheme, authority, path and body of each request.
type Requests = Arc<Mutex<Vec<(String, String, String, Vec<u8>)>>>;

/// A server of HTTP/2, with TLS or without, with the given health. Ends with the test.
struct Http2 {
    address: SocketAddr,
    requests: Requests,
    _tasks: JoinSet<()>,
}

impl Http2 {
    async fn start(tls: Option<ServerConfig>, health: &'static [u8], status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let mut tasks = JoinSet::new();
        let seen = requests.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => answer_http2(stream, seen, health, status).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                answer_http2(stream, seen, health, status).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            requests,
            _tasks: tasks,
        }
    }

    fn first(&self) -> (String, String, String, Vec<u8>) {
        self.requests.lock().unwrap()[0].clone()
    }
}

async fn answer_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    seen: Requests,
    health: &'static [u8],
    status: &'static str,
) {
    let answer = move |request: http::Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let uri = request.uri().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            seen.lock().unwrap().push((
                uri.scheme_str().unwrap_or_default().to_owned(),
                uri.authority().map(ToString::to_string).unwrap_or_default(),
                uri.path().to_owned(),
                body.to_vec(),
            ));
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", status.parse().unwrap());
            let body = Full::new(Bytes::from_static(health));
            let body = body.with_trailers(async move { Some(Ok(trailers)) });
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    };
    let _ = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";

#[tokio::test]
async fn a_member_over_http2_and_tls_is_asked_under_https() {
    let authority = Authority::new();
    let config = server(&authority.sign(NAME), None, &["h2", "http/1.1"]);
    let member = Http2::start(Some(config), b"over HTTP/2", "0").await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http {
            member_http2: true,
            ..Http::default()
        });
        listener.pool.tls = Some(authority.verified());
    })
    .await;
    let answer = get(scene.address(), "/path").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("over HTTP/2"), "{answer}");
    let (scheme, host, path, _) = member.first();
    assert_eq!(
        (scheme.as_str(), host.as_str(), path.as_str()),
        ("https", "web.test", "/path")
    );
}

#[tokio::test]
async fn a_member_that_does_not_agree_to_http2_fails_with_that_word() {
    let authority = Authority::new();
    // It takes no part in ALPN.
    let config = server(&authority.sign(NAME), None, &[]);
    let member = Secured::start(config, Does::Http1).await;
    let scene = Scene::tcp_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http {
            member_http2: true,
            ..Http::default()
        });
        listener.pool.tls = Some(authority.verified());
        listener.pool.monitor = Some(Monitor {
            tls: true,
            ..quick(page())
        });
    })
    .await;
    let answer = get(scene.address(), "/").await;
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    assert_eq!(
        detail(&scene).await,
        "TLS: the member does not accept HTTP/2"
    );
}

fn grpc(service: &str) -> Check {
    Check::Grpc {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn grpc_checks_ask_for_the_health_of_a_service_in_the_clear_and_over_tls() {
    let authority = Authority::new();
    for secured in [false, true] {
        let config = secured.then(|| server(&authority.sign(NAME), None, &["h2"]));
        let member = Http2::start(config, SERVING, "0").await;
        let scene = Scene::tcp_with(&[member.address], |listener| {
            listener.pool.tls = secured.then(|| authority.verified());
            listener.pool.monitor = Some(Monitor {
                tls: secured,
                host: Some("health.test".to_owned()),
                ..quick(grpc("shop.Cart"))
            });
        })
        .await;
        assert_eq!(detail(&scene).await, "gRPC SERVING");
        let expected = (
            if secured { "https" } else { "http" }.to_owned(),
            "health.test".to_owned(),
            "/grpc.health.v1.Health/Check".to_owned(),
            b"\0\0\0\0\x0b\x0a\x09shop.Cart".to_vec(),
        );
        assert_eq!(member.first(), expected);
    }
}

#[tokio::test]
async fn what_does_not_say_serving_fails_a_grpc_check_with_what_it_says() {
    for (health, status, reported) in [
        (
            &b"\0\0\0\0\x02\x08\x02"[..],
            "0",
            "gRPC health: NOT_SERVING",
        ),
        (&b""[..], "12", "gRPC health: status 12"),
        (
            &b"\0\0\0\0\x02"[..],
            "0",
            "gRPC health: the answer can't be read",
        ),
    ] {
        let member = Http2::start(None, health, status).await;
        let scene = Scene::tcp_with(&[member.address], |listener| {
            listener.pool.monitor = Some(quick(grpc("")));
        })
        .await;
        assert_eq!(detail(&scene).await, reported);
    }
    let plain = crate::scene::Server::named("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let scene = Scene::tcp_with(&[plain.address], |listener| {
        listener.pool.monitor = Some(quick(grpc("")));
    })
    .await;
    assert_eq!(detail(&scene).await, "the answer is not HTTP/2");
}

#[tokio::test]
async fn requests_over_http2_are_sent_elsewhere_too() {
    let (scene, server) = redirecting(RedirectStatus::Permanent, 443).await;
    let stream = TokioIo::new(connect(scene.address()).await);
    let executor = TokioExecutor::new();
    let (mut sender, connection) = client_http2::handshake(executor, stream).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let request = http::Request::get("http://web.test:8080/a?b=c")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = in_time(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 308);
    assert_eq!(response.headers()["location"], "https://web.test/a?b=c");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_changed_pool_of_members_keeps_its_tls() {
    let authority = Authority::new();
    let config = || server(&authority.sign(NAME), None, &[]);
    let first = Secured::start(config(), Does::Echo).await;
    let second = Secured::start(config(), Does::Echo).await;
    let scene = Scene::tcp_with(&[first.address], |listener| {
        listener.pool.tls = Some(authority.verified());
    })
    .await;
    let mut open = scene.client().await;
    echoes(&mut open, b"first").await;
    scene
        .change(|listener| listener.pool.members = vec![Member::new(second.address)])
        .await
        .unwrap();
    echoes(&mut scene.client().await, b"second").await;
    echoes(&mut open, b"still first").await;
    assert_eq!(second.received(), b"second");
}
