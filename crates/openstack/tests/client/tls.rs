//! The network: authorities of our own, client certificates, a server that isn't there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_openstack::client::{
    Access, ApiError, Cloud, CloudConfig, CloudError, CredentialsSource, ErrorKind, Tls,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fake::{catalog, grant, password};

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

struct Certificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, names: &[&str]) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).unwrap();
        Certificate {
            certificate: params.signed_by(&key, &self.issuer).unwrap(),
            key,
        }
    }
}

impl Certificate {
    fn pem(&self) -> String {
        format!("{}{}", self.certificate.pem(), self.key.serialize_pem())
    }
}

/// A Keystone with Octavia's versions, which wants a certificate of its clients; served while the
/// tasks live.
async fn serve(authority: &Authority) -> (SocketAddr, JoinSet<()>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = authority.sign(&["127.0.0.1"]);
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(authority.pem.as_bytes());
    roots.add(der.unwrap()).unwrap();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![server.certificate.der().clone()],
            PrivateKeyDer::Pkcs8(server.key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, address).await;
                }
            });
        }
    });
    (address, tasks)
}

/// Answers one request after the other.
async fn answer(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, address: SocketAddr) {
    let mut request = String::new();
    let mut part = [0; 4096];
    while let Ok(size @ 1..) = stream.read(&mut part).await {
        request.push_str(std::str::from_utf8(&part[..size]).unwrap());
        let Some((head, body)) = request.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            continue;
        }
        let (status, extra, body) = if head.starts_with("POST /v3/auth/tokens ") {
            let catalog = catalog()
                .to_string()
                .replace("http://cloud", &format!("https://{address}"));
            let grant = grant(&serde_json::from_str(&catalog).unwrap());
            ("201 Created", "x-subject-token: token-1\r\n", grant)
        } else if head.starts_with("GET /octavia/ ") {
            ("200 OK", "", json!({"versions": [{"id": "v2.27"}]}))
        } else {
            ("302 Found", "location: https://127.0.0.1:1/\r\n", json!({}))
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\n{extra}content-length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        request.clear();
    }
}

fn config(address: SocketAddr, tls: Tls) -> CloudConfig {
    let mut config = CloudConfig::new(&format!("https://{address}/v3"), password());
    config.tls = tls;
    config
}

async fn check(address: SocketAddr, tls: Tls) -> Result<Cloud, ApiError> {
    let cloud = Cloud::new(config(address, tls)).unwrap();
    cloud.check().await.map(|_| cloud)
}

#[tokio::test]
async fn our_authority_and_our_certificate_open_the_cloud_and_nothing_else_does() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (address, _server) = serve(&ours).await;
    let ca = |authority: &Authority| Some(authority.pem.clone().into_bytes());
    let identity = |authority: &Authority| Some(authority.sign(&["client"]).pem().into());
    let good = Tls {
        ca_file: ca(&ours),
        identity: identity(&ours),
        insecure: false,
    };
    let cloud = check(address, good.clone()).await.unwrap();

    // Redirects are not followed: the token stays with the host that the catalog named.
    let error = cloud.load_balancers().await.unwrap_err();
    assert_eq!(error.status, Some(302));
    assert!(error.message.contains("https://127.0.0.1:1/"), "{error}");

    let insecure = Tls {
        ca_file: None,
        identity: identity(&ours),
        insecure: true,
    };
    check(address, insecure).await.unwrap();

    let other_authority = Tls {
        ca_file: ca(&theirs),
        ..good.clone()
    };
    let error = check(address, other_authority).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(error.message.contains("UnknownIssuer"), "{error}");

    for identity in [None, identity(&theirs)] {
        let tls = Tls {
            identity,
            ..good.clone()
        };
        let error = check(address, tls).await.unwrap_err();
        assert!(
            matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Lost),
            "{error}"
        );
    }
}

/// Lets the files be read again.
async fn later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn certificates_that_have_changed_are_used_once_they_are_valid() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (address, _server) = serve(&ours).await;
    let tls = |trusted: &Authority, signer: &Authority| Tls {
        ca_file: Some(trusted.pem.clone().into_bytes()),
        identity: Some(signer.sign(&["client"]).pem().into()),
        insecure: false,
    };
    let expired = tls(&theirs, &theirs);
    let files = Arc::new(Mutex::new(expired.clone()));
    let read = Arc::clone(&files);
    let source = move || {
        let tls = read.lock().unwrap().clone();
        Ok(Access {
            auth: password(),
            tls,
        })
    };
    let mut config = config(address, expired);
    config.source = Some(CredentialsSource::new(source));
    let cloud = Cloud::new(config).unwrap();

    // The cloud wants both of them.
    let mut refused = cloud.check().await;
    for next in [tls(&ours, &theirs), tls(&ours, &ours)] {
        refused.unwrap_err();
        *files.lock().unwrap() = next;
        later().await;
        refused = cloud.check().await;
    }
    refused.unwrap();

    let mut broken = tls(&ours, &ours);
    broken.ca_file = Some("half a certificate".into());
    *files.lock().unwrap() = broken;
    later().await;
    // The server's answer, although it is a redirect.
    let error = cloud.load_balancers().await.unwrap_err();
    assert_eq!(error.status, Some(302), "{error}");
    let problem = cloud.credentials_problem().unwrap();
    let why = "can't be read again: ca-file: no certificate in it";
    assert!(problem.ends_with(why), "{problem}");
    *files.lock().unwrap() = tls(&ours, &ours);
    later().await;
    let error = cloud.load_balancers().await.unwrap_err();
    assert_eq!(error.status, Some(302), "{error}");
    assert_eq!(cloud.credentials_problem(), None);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = CloudConfig::new(&format!("http://{address}/v3"), password());
    let error = Cloud::new(config).unwrap().check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(error.is_transient() && !error.may_be_done());
    assert_eq!(error.request, "POST /v3/auth/tokens");
}

#[tokio::test]
async fn a_server_that_hangs_up_has_lost_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let config = CloudConfig::new(&format!("http://{address}/v3"), password());
    let error = Cloud::new(config).unwrap().check().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Lost, "{error}");
    assert!(error.may_be_done());
}

#[test]
fn what_is_wrong_with_certificates_or_addresses_is_said_at_once() {
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let build = |config| Cloud::new(config).map(|_| ()).unwrap_err();
    for pem in [
        "",
        "not PEM",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        let tls = Tls {
            ca_file: Some(pem.into()),
            ..Tls::default()
        };
        let error = build(config(at, tls));
        assert!(error.to_string().starts_with("ca-file: "), "{pem}: {error}");
    }
    let only_certificate = Authority::new("x").pem;
    for pem in ["", only_certificate.as_str()] {
        let tls = Tls {
            identity: Some(pem.into()),
            ..Tls::default()
        };
        let error = build(config(at, tls));
        assert!(
            error.to_string().starts_with("cert-file, key-file: "),
            "{error}"
        );
    }
    for url in ["", "cloud:5000/v3", "ftp://cloud", "/v3"] {
        let error = build(CloudConfig::new(url, password()));
        assert!(matches!(error, CloudError::AuthUrl(_)), "{url}: {error}");
    }
    let mut config = CloudConfig::new("http://cloud", password());
    config.user_agent = "two\nlines".to_owned();
    assert!(matches!(build(config), CloudError::UserAgent(_)));
}
