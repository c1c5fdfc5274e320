//! TLS that ends at the load balancer: certificates become a rustls configuration that picks one of
//! them by the name that the client asks for. Never talks to members, never logs nor prints a key.
//!
//! A change of certificates makes a new [`Termination`]; connections that are open keep the one that
//! they began with. Session tickets outlive the change, so clients that come back resume.

mod der;
mod load;
mod names;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::{Certificate, Certificates, Mode};
use rustls::ServerConfig;
use rustls::server::ProducesTickets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::der::CertificateFacts;
pub use self::load::CertificateError;
use self::names::ByName;

/// A client that has not finished its handshake by then is not going to, or is up to no good.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);

/// Which protocols are offered inside TLS (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// None: the bytes inside are not looked at.
    Nothing,
    /// `h2`, then `http/1.1`, then `http/1.0`.
    Http,
}

/// Everything needed to end TLS on a listener.
pub struct Termination {
    certificates: Certificates,
    offer: Offer,
    tickets: Arc<dyn ProducesTickets>,
    config: Arc<ServerConfig>,
}

/// Why a client got no further than the handshake.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// It took too long.
    #[error("no TLS handshake within {0:?}")]
    TimedOut(Duration),
    /// Client and listener could not agree, or the client left.
    #[error("TLS handshake failed")]
    Failed(#[source] io::Error),
}

/// Judges one certificate without serving it: what it is for and until when, or why it is unusable.
pub fn validate(certificate: &Certificate) -> Result<CertificateFacts, CertificateError> {
    let loaded = load::load(certificate, &rustls::crypto::aws_lc_rs::default_provider())?;
    Ok(loaded.facts)
}

// === impl Offer ===

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Nothing => Vec::new(),
            // A client that offers nothing but HTTP/1.0 must be told so, or it would be turned away.
            Self::Http => ["h2", "http/1.1", "http/1.0"]
                .map(|name| name.as_bytes().to_vec())
                .to_vec(),
        }
    }
}

// === impl Termination ===

impl Termination {
    /// What a listener's mode needs; `None` for modes without TLS. Takes over from `before` all that
    /// did not change.
    pub fn of_mode(
        mode: &Mode,
        before: Option<&Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, CertificateError> {
        let (certificates, offer) = match mode {
            Mode::Stream | Mode::Http(_) => return Ok(None),
            Mode::Tls { certificates } => (certificates, Offer::Nothing),
            Mode::Https { certificates, .. } => (certificates, Offer::Http),
        };
        Self::new(certificates, offer, before).map(Some)
    }

    /// Ends TLS with these certificates. Equal certificates give back `before` as it is.
    pub fn new(
        certificates: &Certificates,
        offer: Offer,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, CertificateError> {
        if let Some(before) = before
            && before.certificates == *certificates
            && before.offer == offer
        {
            return Ok(before.clone());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let loaded = certificates
            .0
            .iter()
            .map(|certificate| load::load(certificate, &provider));
        let loaded = loaded.collect::<Result<Vec<_>, _>>()?;
        let resolver = ByName::new(loaded).ok_or(CertificateError::None)?;
        let tickets = match before {
            Some(before) => before.tickets.clone(),
            None => rustls::crypto::aws_lc_rs::Ticketer::new().map_err(CertificateError::Tls)?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = offer.protocols();
        config.ticketer = tickets.clone();
        Ok(Arc::new(Self {
            certificates: certificates.clone(),
            offer,
            tickets,
            config: Arc::new(config),
        }))
    }

    /// Shakes hands with a client, in at most `within` and never longer than ten seconds.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        within: Duration,
    ) -> Result<TlsStream<S>, HandshakeError> {
        let within = within.min(MAX_HANDSHAKE);
        let handshake = TlsAcceptor::from(self.config.clone()).accept(stream);
        match tokio::time::timeout(within, handshake).await {
            Ok(done) => done.map_err(HandshakeError::Failed),
            Err(_) => Err(HandshakeError::TimedOut(within)),
        }
    }
}

impl fmt::Debug for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Termination")
            .field("certificates", &self.certificates)
            .field("offer", &self.offer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
