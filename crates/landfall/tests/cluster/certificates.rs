//! Certificates of one's own, and clients that look for them.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::bed::DEADLINE;

/// A certificate that vouches for itself.
pub struct Certificate {
    host: String,
    chain: String,
    key: String,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Makes one for these names, of which clients ask for the first.
    pub fn of(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let host = names[0].clone();
        let certificate = CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        Self {
            host,
            chain: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
        }
    }

    /// A Secret that holds it.
    pub fn secret(&self, name: &str) -> String {
        let block = |text: &str| text.trim_end().replace('\n', "\n    ");
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: \
             kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n",
            block(&self.chain),
            block(&self.key)
        )
    }

    /// Whether this very certificate is served there.
    pub async fn is_served_at(&self, address: SocketAddr) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = ServerName::try_from(self.host.clone()).unwrap();
        let handshake = async {
            let stream = TcpStream::connect(address).await?;
            TlsConnector::from(Arc::new(config))
                .connect(host, stream)
                .await
        };
        let ended = tokio::time::timeout(DEADLINE, handshake).await;
        matches!(ended, Ok(Ok(_)))
    }
}
