//! Listeners that read requests: HTTP/1.1 and HTTP/2, with and without TLS.

use std::sync::Arc;

use base64::Engine as _;
use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::ServiceView;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::backend::Backend;
use crate::client::{self, Browser, Talk};
use crate::lab::Lab;
use crate::manifest::{slice, svc, tls_secret};
use crate::view::{at, condition, listener};

/// A certificate of its own making for some names.
pub struct Identity {
    chain: String,
    key: String,
    der: CertificateDer<'static>,
}

impl Identity {
    pub fn of(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        Self {
            chain: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
        }
    }

    pub fn secret(&self, name: &str) -> String {
        tls_secret(name, &self.chain, &self.key)
    }
}

/// Connects as `name`, trusting only these certificates.
pub async fn tls(
    at: std::net::SocketAddr,
    name: &str,
    trusted: &[&Identity],
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_over(client::connect(at).await?, name, trusted, protocols).await
}

/// The same over a connection that is there.
pub async fn tls_over(
    stream: TcpStream,
    name: &str,
    trusted: &[&Identity],
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for identity in trusted {
        roots.add(identity.der.clone()).unwrap();
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_connection_spread_and_name_the_client_to_members() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let b = Backend::http("b", lab.ranges.backend(2, 3001)).await;
    let service = svc("web")
        .port("http", "TCP", 8080)
        .option("mode", "http")
        .members(&[a.address, b.address]);
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    let target = at(&web, 8080);
    assert_eq!(listener(&web, 8080).mode, "http");
    let stream = client::connect(target).await.unwrap();
    let source = stream.local_addr().unwrap().ip().to_string();
    let mut browser = Browser::over(stream).await.unwrap();
    let mut names = Vec::new();
    for number in 0..6 {
        let path = format!("/page?number={number}");
        let answer = browser.get("shop.example", &path, &[]).await.unwrap();
        let seen = answer.json();
        assert_eq!(seen["target"], path);
        assert_eq!(seen["version"], "HTTP/1.1");
        assert_eq!(answer.seen("host").as_deref(), Some("shop.example"));
        assert_eq!(answer.seen("x-forwarded-for"), Some(source.clone()));
        assert_eq!(answer.seen("x-forwarded-proto").as_deref(), Some("http"));
        assert_eq!(answer.seen("x-forwarded-port").as_deref(), Some("8080"));
        names.push(seen["name"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["a", "a", "a", "b", "b", "b"]);
    // What a client claims is appended to (the address) or replaced (the rest).
    let claims = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
    ];
    let answer = browser.get("shop.example", "/", &claims).await.unwrap();
    assert_eq!(
        answer.seen("x-forwarded-for"),
        Some(format!("192.0.2.1, {source}"))
    );
    assert_eq!(answer.seen("x-forwarded-proto").as_deref(), Some("http"));

    // Headers change in place, on the connection that is there.
    lab.write(
        "web.yaml",
        &service.option("forwarded-headers", "port").yaml(),
    );
    lab.settled().await;
    let answer = browser.get("shop.example", "/", &[]).await.unwrap();
    assert_eq!(answer.seen("x-forwarded-for"), None);
    assert_eq!(answer.seen("x-forwarded-proto"), None);
    assert_eq!(answer.seen("x-forwarded-port").as_deref(), Some("8080"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_understood_from_clients_and_spoken_to_members() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let service = svc("web")
        .port("one", "TCP", 8081)
        .port("two", "TCP", 8082)
        .option("mode", "http")
        .option("member-protocol.two", "http2")
        .members(&[a.address]);
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let web = lab.ready("default/web").await;
    for (port, version) in [(8081, "HTTP/1.1"), (8082, "HTTP/2.0")] {
        let target = at(&web, port);
        let stream = client::connect(target).await.unwrap();
        let mut two = Browser::over_h2(stream).await.unwrap();
        for _ in 0..3 {
            let answer = two.get("shop.example", "/two", &[]).await.unwrap();
            assert_eq!(answer.status, 200);
            let seen = answer.json();
            assert_eq!(seen["version"], version);
            assert!(seen["target"].as_str().unwrap().ends_with("/two"), "{seen}");
            assert_eq!(answer.seen("x-forwarded-port"), Some(port.to_string()));
        }
        let one = client::http(target, "/one").await.unwrap();
        assert_eq!(one.json()["version"], version);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_member_are_answered_with_503_and_bad_ones_with_400() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let service = svc("web").tcp(8080).option("mode", "http");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let reason = lab.reason("default/web", Code::NoEndpoints).await;
    assert!(reason.remedy.contains("landfall.dev/endpoints"), "{reason}");
    let web = lab.service("default/web").await;
    assert_eq!(
        condition(&web, ConditionType::Programmed),
        (false, Code::NoEndpoints)
    );
    let target = at(&web, 8080);
    assert_eq!(client::http(target, "/").await.unwrap().status, 503);
    lab.write("web.yaml", &service.members(&[a.address]).yaml());
    lab.ready("default/web").await;
    assert_eq!(client::http(target, "/").await.unwrap().status, 200);
    let served = a.served();
    for bad in [
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GARBAGE\r\n\r\n",
    ] {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = client::connect(target).await.unwrap();
        stream.write_all(bad.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    }
    assert_eq!(a.served(), served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_picks_the_certificate_by_name_and_reloads_it_under_a_living_connection() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let (shop, blog) = (
        Identity::of(&["shop.example"]),
        Identity::of(&["*.blog.example"]),
    );
    let service = svc("web")
        .port("https", "TCP", 8443)
        .option("mode", "https")
        .option("tls-secret", "shop-tls, blog-tls")
        .members(&[a.address]);
    lab.write("web.yaml", &service.yaml());
    lab.write("shop.yaml", &shop.secret("shop-tls"));
    lab.write("blog.yaml", &blog.secret("blog-tls"));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8443);
    let stream = tls(target, "shop.example", &[&shop], &["http/1.1"])
        .await
        .unwrap();
    let mut old = Browser::over(stream).await.unwrap();
    let answer = old.get("shop.example", "/", &[]).await.unwrap();
    assert_eq!(answer.seen("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(answer.seen("x-forwarded-port").as_deref(), Some("8443"));
    assert!(tls(target, "a.blog.example", &[&blog], &[]).await.is_ok());
    assert!(tls(target, "a.blog.example", &[&shop], &[]).await.is_err());
    // Without a certificate for the name: the first one, which this client does not want.
    let error = tls(target, "else.example", &[&shop, &blog], &[])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    // HTTP/2 by ALPN.
    let stream = tls(target, "shop.example", &[&shop], &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut two = Browser::over_h2(stream).await.unwrap();
    let answer = two.get("shop.example", "/", &[]).await.unwrap();
    assert_eq!(answer.seen("x-forwarded-proto").as_deref(), Some("https"));

    // A new certificate for new connections; the old ones live on.
    let renewed = Identity::of(&["shop.example"]);
    lab.write("shop.yaml", &renewed.secret("shop-tls"));
    lab.settled().await;
    assert!(tls(target, "shop.example", &[&renewed], &[]).await.is_ok());
    assert!(tls(target, "shop.example", &[&shop], &[]).await.is_err());
    assert_eq!(old.get("shop.example", "/", &[]).await.unwrap().status, 200);
    assert_eq!(two.get("shop.example", "/", &[]).await.unwrap().status, 200);

    // One that is of no use is refused, and the last good one is presented on; members and options
    // don't wait for a certificate.
    let mixed = tls_secret("shop-tls", &renewed.chain, &shop.key);
    lab.write("shop.yaml", &mixed);
    let reason = lab.reason("default/web", Code::InvalidCertificate).await;
    assert!(reason.message.contains("default/shop-tls"), "{reason}");
    assert!(reason.remedy.contains("tls.key"), "{reason}");
    let arguments = ["check", "--pool", &lab.ranges.pool_cidr(), "-f"];
    let checked = lab.landfall(&arguments, &[&lab.folder()]).await;
    assert_eq!(checked.code(), Some(1), "{}", checked.stdout);
    assert!(
        checked.stdout.starts_with("error InvalidCertificate: "),
        "{}",
        checked.stdout
    );
    let b = Backend::http("b", lab.ranges.backend(2, 3001)).await;
    lab.write("web.yaml", &service.members(&[b.address]).yaml());
    let follows = |service: &ServiceView| {
        let members = &listener(service, 8443).members;
        members.iter().any(|it| it.address == b.address)
    };
    let web = lab
        .until("default/web", "has its new member", follows)
        .await;
    let accepted = condition(&web, ConditionType::Accepted);
    assert_eq!(accepted, (false, Code::InvalidCertificate));
    assert_eq!(
        condition(&web, ConditionType::Programmed),
        (true, Code::Ready)
    );
    let stream = tls(target, "shop.example", &[&renewed], &[]).await.unwrap();
    let mut new = Browser::over(stream).await.unwrap();
    let answer = new.get("shop.example", "/", &[]).await.unwrap();
    assert_eq!(answer.json()["name"], "b");
    assert_eq!(old.get("shop.example", "/", &[]).await.unwrap().status, 200);
    // Keys show nowhere.
    let secret_part = shop.key.lines().nth(1).unwrap();
    let everything = [
        lab.text("/api/v1/instance").await,
        lab.text("/api/v1/services").await,
        lab.log().iter().map(ToString::to_string).collect(),
    ];
    assert!(everything.iter().all(|text| !text.contains(secret_part)));
    lab.write("shop.yaml", &renewed.secret("shop-tls"));
    lab.until("default/web", "has nothing to say", |it| {
        it.reasons.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_ends_at_the_listener_and_plain_bytes_go_on() {
    let lab = Lab::new();
    let a = Backend::lines("a", lab.ranges.backend(1, 3001)).await;
    let identity = Identity::of(&["line.example"]);
    let service = svc("line")
        .tcp(8443)
        .option("mode", "tls")
        .option("tls-secret", "line-tls")
        .option("proxy-protocol", "v2")
        .members(&[a.address]);
    let text = format!("{}---\n{}", service.yaml(), identity.secret("line-tls"));
    lab.write("line.yaml", &text);
    let lab = lab.started().await;
    let target = at(&lab.ready("default/line").await, 8443);
    let stream = tls(target, "line.example", &[&identity], &[])
        .await
        .unwrap();
    let source = stream.get_ref().0.local_addr().unwrap();
    let mut talk = Talk::over(stream);
    let said = talk.say("hello").await.unwrap();
    assert_eq!(said.header, format!("v2 {source} {target}"));
    let text = "x".repeat(1_000_000);
    assert_eq!(talk.say(&text).await.unwrap().name, "a");
    // A client without TLS gets nothing and disturbs no other.
    let mut plain = Talk::to(target).await.unwrap();
    assert!(plain.say("hello").await.is_err());
    assert_eq!(talk.say("still there").await.unwrap().name, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_gone_is_presented_on_and_members_follow() {
    let lab = Lab::new();
    let a = Backend::lines("a", lab.ranges.backend(1, 3001)).await;
    let b = Backend::lines("b", lab.ranges.backend(2, 3001)).await;
    let identity = Identity::of(&["line.example"]);
    let service = svc("line")
        .port("line", "TCP", 8443)
        .option("mode", "tls")
        .option("tls-secret", "line-tls");
    let of = |backend: &Backend| {
        let pods = [(backend.name.as_str(), backend.address)];
        slice("line", "line", "TCP", &pods)
    };
    lab.write("line.yaml", &service.yaml());
    lab.write("slice.yaml", &of(&a));
    lab.write("secret.yaml", &identity.secret("line-tls"));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/line").await, 8443);
    let said = async || {
        let stream = tls(target, "line.example", &[&identity], &[]).await?;
        Talk::over(stream).say("hello").await.map(|said| said.name)
    };
    assert_eq!(said().await.unwrap(), "a");
    for (spoil, code) in [
        ("nonsense", Code::InvalidCertificate),
        ("", Code::CertificateNotFound),
    ] {
        if spoil.is_empty() {
            lab.remove("secret.yaml");
        } else {
            lab.write("secret.yaml", &tls_secret("line-tls", spoil, spoil));
        }
        let reason = lab.reason("default/line", code).await;
        assert!(reason.message.contains("default/line-tls"), "{reason}");
        for (backend, name) in [(&b, "b"), (&a, "a")] {
            lab.write("slice.yaml", &of(backend));
            let follows = |service: &ServiceView| {
                let members = &listener(service, 8443).members;
                members.iter().any(|it| it.address == backend.address)
            };
            let line = lab
                .until("default/line", "has its new member", follows)
                .await;
            assert_eq!(condition(&line, ConditionType::Accepted), (false, code));
            assert_eq!(
                condition(&line, ConditionType::Programmed),
                (true, Code::Ready)
            );
            assert_eq!(said().await.unwrap(), name);
        }
    }
    lab.write("secret.yaml", &identity.secret("line-tls"));
    lab.until("default/line", "has nothing to say", |it| {
        it.reasons.is_empty()
    })
    .await;
}

/// A member that speaks TLS and answers each line with the same line. Ends with the test.
async fn member_over_tls(address: std::net::SocketAddr, identity: &Identity) -> JoinSet<()> {
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![identity.der.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut room = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut room).await {
                    if stream.write_all(&room[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    tasks
}

fn authority(name: &str, pem: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: Opaque\n\
         data:\n  ca.crt: {encoded}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_verified_by_the_last_good_authority_of_a_secret() {
    let lab = Lab::new();
    let address = lab.ranges.backend(1, 3001);
    let identity = Identity::of(&["line.default.svc"]);
    let _member = member_over_tls(address, &identity).await;
    let service = svc("line")
        .port("line", "TCP", 8443)
        .option("member-tls", "verify")
        .option("member-ca-secret", "line-ca");
    lab.write("line.yaml", &service.yaml());
    lab.write(
        "slice.yaml",
        &slice("line", "line", "TCP", &[("a", address)]),
    );
    lab.write("secret.yaml", &authority("line-ca", &identity.chain));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/line").await, 8443);
    let echoes = async || {
        let mut stream = client::connect(target).await?;
        stream.write_all(b"hello").await?;
        let mut room = [0; 5];
        stream.read_exact(&mut room).await?;
        Ok::<_, std::io::Error>(&room == b"hello")
    };
    assert!(echoes().await.unwrap());
    for (spoil, code) in [
        (authority("line-ca", "nonsense"), Code::InvalidCertificate),
        (tls_secret("line-ca", "x", "y"), Code::InvalidCertificate),
        (String::new(), Code::CertificateNotFound),
    ] {
        if spoil.is_empty() {
            lab.remove("secret.yaml");
        } else {
            lab.write("secret.yaml", &spoil);
        }
        lab.reason("default/line", code).await;
        assert!(echoes().await.unwrap(), "{code:?}");
    }
    // Another authority did not sign for this member.
    let other = Identity::of(&["line.default.svc"]);
    lab.write("secret.yaml", &authority("line-ca", &other.chain));
    lab.until("default/line", "has nothing to say of its Secret", |it| {
        it.reasons.iter().all(|reason| {
            !matches!(
                reason.code,
                Code::InvalidCertificate | Code::CertificateNotFound
            )
        })
    })
    .await;
    let refused = async { while echoes().await.is_ok() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), refused)
        .await
        .expect("the old authority is still believed");
}
