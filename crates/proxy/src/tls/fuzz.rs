//! Broken hellos of TLS clients.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use landfall_model::listener::Certificate;
use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;

use super::*;
use landfall_testkit::fuzz::{Random, Seeds, run};

fn hello(name: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Makes the lengths of the record and of the message in it fit what is there.
fn complete(bytes: &mut [u8]) {
    let length = bytes.len().saturating_sub(5).to_be_bytes();
    let inner = bytes.len().saturating_sub(9).to_be_bytes();
    if let Some(record) = bytes.get_mut(3..5) {
        record.copy_from_slice(&length[6..]);
    }
    if let Some(message) = bytes.get_mut(6..9) {
        message.copy_from_slice(&inner[5..]);
    }
}

#[test]
fn fuzz_tls_hellos() {
    let key = KeyPair::generate().unwrap();
    let names = ["shop.example".to_owned(), "*.shop.example".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key);
    let certificates = Certificates(vec![Arc::new(Certificate {
        source: "shop/tls".into(),
        chain_pem: certificate.unwrap().pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
    })]);
    let termination =
        Termination::new(&certificates, Offer::Http, TlsPolicy::default(), None).unwrap();
    let messages = [
        hello("shop.example", &[&rustls::version::TLS13]),
        hello("a.shop.example", &[&rustls::version::TLS12]),
        hello("192.0.2.1", rustls::ALL_VERSIONS),
    ];
    let seeds = Seeds {
        messages: &messages,
        words: &[
            b"\x16\x03\x01",
            b"\0\0",
            b"\xFF\xFF",
            b"\0\x10",
            b"\x15\x03\x03\0\x02\x01\0",
        ],
        longest: 70_000,
    };
    let clock = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let case = async |random: &mut Random| {
        let mut bytes = random.broken(seeds);
        if random.below(2) == 0 {
            complete(&mut bytes);
        }
        let (mut client, server) = tokio::io::duplex(128 * 1024);
        client.write_all(&bytes).await.unwrap();
        let keeps_silent = random.below(4) == 0;
        if !keeps_silent {
            client.shutdown().await.unwrap();
        }
        let mut accepting = pin!(termination.accept(server, MAX_HANDSHAKE));
        let mut context = Context::from_waker(Waker::noop());
        let first = accepting.as_mut().poll(&mut context);
        assert!(
            keeps_silent || first.is_ready(),
            "the end of the client is no end"
        );
        if let Poll::Ready(done) = first {
            // A hello alone is no handshake.
            assert!(done.is_err());
        } else {
            let waited = tokio::time::timeout(MAX_HANDSHAKE * 2, accepting).await;
            assert!(waited.expect("silence ends").is_err());
        }
    };
    run("tls-hellos", |random| clock.block_on(case(random)));
}
