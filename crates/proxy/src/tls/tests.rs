use landfall_model::listener::MemberTls;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// Takes every certificate, and the given signature schemes only.
#[derive(Debug)]
struct Anything(Vec<SignatureScheme>);

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
        self.0.clone()
    }
}

fn client(schemes: &[SignatureScheme], protocols: &[&str]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything(schemes.to_vec())))
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const RSA: &[SignatureScheme] = &[SignatureScheme::RSA_PSS_SHA256];

fn certificate_of(key: &KeyPair, names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let source = format!("shop/{}", names.first().map_or("nameless", String::as_str));
    let certificate = CertificateParams::new(names)
        .unwrap()
        .self_signed(key)
        .unwrap();
    Certificate {
        source,
        chain_pem: certificate.pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
    }
}

fn certificate(names: &[&str]) -> Certificate {
    certificate_of(&KeyPair::generate().unwrap(), names)
}

fn certificates(all: impl IntoIterator<Item = Certificate>) -> Certificates {
    Certificates(all.into_iter().map(Arc::new).collect())
}

fn terminate(all: impl IntoIterator<Item = Certificate>, offer: Offer) -> Arc<Termination> {
    Termination::new(&certificates(all), offer, TlsPolicy::default(), None).unwrap()
}

type Ends = (
    TlsStream<tokio::io::DuplexStream>,
    ClientStream<tokio::io::DuplexStream>,
);

async fn connect(
    termination: &Termination,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<Ends, HandshakeError> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = TlsConnector::from(client.clone());
    let (server, client) = tokio::join!(
        termination.accept(near, LIMIT),
        connector.connect(name, far)
    );
    Ok((server?, client.unwrap()))
}

/// The names of the certificate that a client of a name gets (of none, if it is an address).
async fn presented(termination: &Termination, client: &Arc<ClientConfig>, name: &str) -> String {
    let (_server, client) = connect(termination, client, name).await.unwrap();
    let chain = client.get_ref().1.peer_certificates().unwrap();
    der::facts(&chain[0]).unwrap().names.join(" ")
}

#[tokio::test]
async fn the_certificate_goes_by_the_name_asked_for() {
    let termination = terminate(
        [
            certificate(&["first.example"]),
            certificate(&["*.shop.example"]),
            certificate(&["www.shop.example", "pay.shop.example"]),
        ],
        Offer::Nothing,
    );
    let client = client(ECDSA, &[]);
    for (name, wanted) in [
        ("first.example", "first.example"),
        ("pay.shop.example", "www.shop.example pay.shop.example"),
        ("PAY.Shop.example", "www.shop.example pay.shop.example"),
        ("img.shop.example", "*.shop.example"),
        ("a.img.shop.example", "first.example"),
        ("shop.example", "first.example"),
        ("unknown.example", "first.example"),
        ("192.0.2.1", "first.example"),
    ] {
        assert_eq!(
            presented(&termination, &client, name).await,
            wanted,
            "{name}"
        );
    }
}

#[tokio::test]
async fn of_two_certificates_for_a_name_the_client_gets_the_one_it_can_verify() {
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let termination = terminate(
        [
            certificate(&["other.example"]),
            certificate_of(&rsa, &["a.example", "rsa"]),
            certificate(&["a.example", "ecdsa"]),
        ],
        Offer::Nothing,
    );
    let (rsa, ecdsa) = (client(RSA, &[]), client(ECDSA, &[]));
    assert_eq!(
        presented(&termination, &rsa, "a.example").await,
        "a.example rsa"
    );
    assert_eq!(
        presented(&termination, &ecdsa, "a.example").await,
        "a.example ecdsa"
    );
    assert_eq!(
        presented(&termination, &rsa, "other.example").await,
        "a.example rsa"
    );
}

#[tokio::test]
async fn http_is_offered_only_where_http_is_spoken() {
    let chosen = async |offer, protocols: &[&str]| {
        let termination = terminate([certificate(&["a.example"])], offer);
        let (server, _client) = connect(&termination, &client(ECDSA, protocols), "a.example")
            .await
            .unwrap();
        server
            .get_ref()
            .1
            .alpn_protocol()
            .map(|name| String::from_utf8_lossy(name).into_owned())
    };
    assert_eq!(
        chosen(Offer::Http, &["http/1.1", "h2"]).await.as_deref(),
        Some("h2")
    );
    assert_eq!(
        chosen(Offer::Http, &["http/1.1"]).await.as_deref(),
        Some("http/1.1")
    );
    assert_eq!(
        chosen(Offer::Http, &["http/1.0"]).await.as_deref(),
        Some("http/1.0")
    );
    assert_eq!(chosen(Offer::Http, &[]).await, None);
    assert_eq!(chosen(Offer::Nothing, &["h2", "http/1.1"]).await, None);
}

#[tokio::test]
async fn a_reload_serves_the_new_certificate_and_leaves_open_connections_alone() {
    let before = terminate([certificate(&["old.example"])], Offer::Nothing);
    let client = client(ECDSA, &[]);
    let (mut server, mut user) = connect(&before, &client, "old.example").await.unwrap();

    let renewed = certificates([certificate(&["new.example"])]);
    let after = Termination::new(
        &renewed,
        Offer::Nothing,
        TlsPolicy::default(),
        Some(&before),
    )
    .unwrap();
    drop(before);
    assert_eq!(
        presented(&after, &client, "new.example").await,
        "new.example"
    );

    user.write_all(b"still here").await.unwrap();
    user.flush().await.unwrap();
    let mut received = [0; 10];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"still here");
}

#[tokio::test]
async fn a_client_resumes_its_session_across_a_reload() {
    let names = ["a.example"];
    let before = terminate([certificate(&names)], Offer::Nothing);
    let renewed = certificates([certificate(&names)]);
    let after = Termination::new(
        &renewed,
        Offer::Nothing,
        TlsPolicy::default(),
        Some(&before),
    )
    .unwrap();
    let unrelated = terminate([certificate(&names)], Offer::Nothing);
    let client = client(ECDSA, &[]);
    let handshake = async |termination: &Termination| {
        let (mut server, mut user) = connect(termination, &client, "a.example").await.unwrap();
        // The client takes in its tickets when it reads what follows them.
        server.write_all(b"x").await.unwrap();
        server.flush().await.unwrap();
        user.read_exact(&mut [0]).await.unwrap();
        user.get_ref().1.handshake_kind().unwrap()
    };
    assert_eq!(handshake(&before).await, HandshakeKind::Full);
    assert_eq!(handshake(&after).await, HandshakeKind::Resumed);
    assert_eq!(handshake(&unrelated).await, HandshakeKind::Full);
}

#[test]
fn equal_certificates_are_not_loaded_again() {
    let all = certificates([certificate(&["a.example"])]);
    let before = Termination::new(&all, Offer::Http, TlsPolicy::default(), None).unwrap();
    let same = Termination::new(
        &all.clone(),
        Offer::Http,
        TlsPolicy::default(),
        Some(&before),
    )
    .unwrap();
    assert!(Arc::ptr_eq(&before, &same));
    let other =
        Termination::new(&all, Offer::Nothing, TlsPolicy::default(), Some(&before)).unwrap();
    assert!(!Arc::ptr_eq(&before, &other));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_go_on_is_given_up() {
    let termination = terminate([certificate(&["a.example"])], Offer::Nothing);
    for (within, wanted) in [(3, 3), (60, 10)] {
        let (near, _far) = tokio::io::duplex(1024);
        let error = termination
            .accept(near, Duration::from_secs(within))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("no TLS handshake within {wanted}s")
        );
    }
}

#[tokio::test]
async fn what_is_not_tls_fails_the_handshake() {
    let termination = terminate([certificate(&["a.example"])], Offer::Http);
    let (near, mut far) = tokio::io::duplex(1024);
    far.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await
        .unwrap();
    let error = termination.accept(near, LIMIT).await.unwrap_err();
    assert!(matches!(error, HandshakeError::Failed(_)), "{error:?}");
}

/// The key inside PKCS#8, which is PKCS#1 for RSA and SEC1 for elliptic curves, as PEM.
fn traditional(key: &KeyPair, label: &str) -> Vec<u8> {
    let pkcs8 = key.serialize_der();
    // After the outer header: version, algorithm, then the octets that hold the key.
    let at = |bytes: &[u8], skip: usize| -> (usize, usize) {
        let (header, length) = match bytes[skip + 1] {
            0x82 => (
                4,
                usize::from(bytes[skip + 2]) << 8 | usize::from(bytes[skip + 3]),
            ),
            0x81 => (3, usize::from(bytes[skip + 2])),
            short => (2, usize::from(short)),
        };
        (skip + header, skip + header + length)
    };
    let (mut start, mut end) = (at(&pkcs8, 0).0, 0);
    for _ in 0..3 {
        let (inner, after) = at(&pkcs8, start);
        (start, end) = (after, inner);
    }
    pem(label, &pkcs8[end..start])
}

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let bits = chunk
            .iter()
            .fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]);
            text.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
}

#[test]
fn keys_are_taken_in_all_three_forms() {
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let curve = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    for (key, label) in [(&rsa, "RSA PRIVATE KEY"), (&curve, "EC PRIVATE KEY")] {
        let mut certificate = certificate_of(key, &["a.example"]);
        assert_eq!(validate(&certificate).unwrap().names, ["a.example"]);
        certificate.key_pem = traditional(key, label);
        assert_eq!(
            validate(&certificate).unwrap().names,
            ["a.example"],
            "{label}"
        );
    }
}

#[test]
fn an_expired_certificate_is_a_fact_and_not_an_error() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let expired = Certificate {
        source: "shop/old".into(),
        chain_pem: params.self_signed(&key).unwrap().pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
    };
    assert_eq!(
        validate(&expired).unwrap().not_after.to_string(),
        "2002-01-01T00:00:00Z"
    );
    terminate([expired], Offer::Nothing);
}

#[test]
fn a_bad_certificate_is_refused_with_the_secret_and_the_field() {
    let good = certificate(&["a.example"]);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (chain, key) = (text(&good.chain_pem), text(&good.key_pem));
    let other = text(&certificate(&["b.example"]).key_pem);
    let cut = |pem: &str| pem.lines().take(3).collect::<Vec<_>>().join("\n");
    let scrambled = |pem: &str| pem.replacen('M', "!", 1);
    let hollow = text(&pem("CERTIFICATE", b"0\x03abc"));
    let hollow_key = text(&pem("PRIVATE KEY", b"0\x03abc"));
    for (chain, key, wanted) in [
        ("", &*key, "tls.crt holds no certificate"),
        (&*key, &key, "tls.crt holds no certificate"),
        (
            &cut(&chain),
            &key,
            "tls.crt is not PEM: a section does not end",
        ),
        (
            &scrambled(&chain),
            &key,
            "tls.crt is not PEM: a section is not base64",
        ),
        (
            &hollow,
            &key,
            "the first certificate in tls.crt is unusable",
        ),
        (
            &chain,
            "",
            "tls.key holds no private key (PKCS#8, PKCS#1 or SEC1)",
        ),
        (
            &chain,
            &chain,
            "tls.key holds no private key (PKCS#8, PKCS#1 or SEC1)",
        ),
        (
            &chain,
            &cut(&key),
            "tls.key is not PEM: a section does not end",
        ),
        (
            &chain,
            &scrambled(&key),
            "tls.key is not PEM: a section is not base64",
        ),
        (
            &chain,
            &hollow_key,
            "the private key in tls.key is broken or of an unknown kind",
        ),
        (
            &chain,
            &other,
            "the key in tls.key does not belong to the certificate in tls.crt",
        ),
    ] {
        let bad = Certificate {
            source: "shop/tls".into(),
            chain_pem: chain.as_bytes().to_vec(),
            key_pem: key.as_bytes().to_vec(),
        };
        let error = validate(&bad).unwrap_err();
        assert_eq!(error.to_string(), format!("certificate shop/tls: {wanted}"));
        let whole = format!("{error:?}");
        assert!(
            key.lines().nth(1).is_none_or(|line| !whole.contains(line)),
            "no secret: {whole}"
        );
        let listener = Termination::new(
            &certificates([good.clone(), bad]),
            Offer::Http,
            TlsPolicy::default(),
            None,
        );
        assert_eq!(listener.unwrap_err().to_string(), error.to_string());
    }
    let nothing = Termination::new(
        &Certificates::default(),
        Offer::Http,
        TlsPolicy::default(),
        None,
    );
    assert!(matches!(nothing, Err(CertificateError::None)));
}

#[tokio::test]
async fn what_is_said_of_a_members_certificate_is_short_however_many_names_it_has() {
    let names: Vec<String> = (0..3000).map(|number| format!("n{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = certificate(&names);
    let toward = TowardMembers::new(&MemberTls {
        authorities: Some(Arc::new(many.clone())),
        server_name: "web.test".to_owned(),
        certificate: None,
    });
    let (toward, termination) = (toward.unwrap(), terminate([many], Offer::Nothing));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    let (_, connected) = tokio::join!(
        termination.accept(far.unwrap().0, LIMIT),
        toward.connect(near.unwrap(), Inside::Bytes),
    );
    let said = connected.unwrap_err().to_string();
    assert!(said.contains("not valid for name"), "{said}");
    assert!(said.len() < 512, "{} bytes", said.len());
}
