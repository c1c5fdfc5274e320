//! TLS that ends at the load balancer: certificates become a rustls configuration that picks one of
//! them by the name that the client asks for. Never logs nor prints a key.
//!
//! A change of certificates makes a new [`Termination`]; connections that are open keep the one
//! that they began with. Session tickets outlive the change, so clients that come back resume.

mod der;
mod load;
mod member;
mod names;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::{Certificate, Certificates, Listener, Mode, TlsPolicy, TlsVersion};
use rustls::ServerConfig;
use rustls::server::{Acceptor, ProducesTickets};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

pub use self::der::CertificateFacts;
pub use self::load::CertificateError;
pub(crate) use self::member::Unfinished;
pub use self::member::{Inside, MemberStream, TowardMembers};
use self::names::ByName;

/// A client that has not finished its handshake by then is not going to, or is up to no good.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);

/// The record of a fatal alert `unrecognized_name` (RFC 8446 section 6, RFC 6066 section 3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

static ONLY_1_3: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Which protocols are offered inside TLS (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// None: the bytes inside are not checked.
    Nothing,
    /// `h2`, then `http/1.1`, then `http/1.0`.
    Http,
}

/// Everything needed to end TLS on a listener.
pub struct Termination {
    certificates: Certificates,
    offer: Offer,
    policy: TlsPolicy,
    tickets: Arc<dyn ProducesTickets>,
    names: Arc<ByName>,
    config: Arc<ServerConfig>,
}

/// Why a client got no further than the handshake.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// It took too long.
    #[error("no TLS handshake within {0:?}")]
    TimedOut(Duration),
    /// It asked for no name, or for one that no certificate covers.
    #[error("no certificate matches the requested name")]
    UnknownName,
    /// Client and listener could not agree, or the client left.
    #[error("TLS handshake failed")]
    Failed(#[source] io::Error),
}

/// Validates one certificate without serving it: what it is for and until when, or why it is
/// unusable.
pub fn validate(certificate: &Certificate) -> Result<CertificateFacts, CertificateError> {
    let loaded = load::load(certificate, &rustls::crypto::aws_lc_rs::default_provider())?;
    Ok(loaded.facts)
}

// === impl Offer ===

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Nothing => Vec::new(),
            // A client that offers nothing but HTTP/1.0 must be answered so, or it would be turned
            // away.
            Self::Http => ["h2", "http/1.1", "http/1.0"]
                .map(|name| name.as_bytes().to_vec())
                .to_vec(),
        }
    }
}

// === impl Termination ===

impl Termination {
    /// What a listener needs; `None` for modes without TLS. Takes over from `before` all that did
    /// not
    /// change.
    pub fn of_listener(
        listener: &Listener,
        before: Option<&Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, CertificateError> {
        let (certificates, offer) = match &listener.mode {
            Mode::Stream | Mode::Http(_) => return Ok(None),
            Mode::Tls { certificates } => (certificates, Offer::Nothing),
            Mode::Https { certificates, .. } => (certificates, Offer::Http),
        };
        Self::new(certificates, offer, listener.tls, before).map(Some)
    }

    /// Ends TLS with these certificates. Equal certificates give back `before` as it is.
    pub fn new(
        certificates: &Certificates,
        offer: Offer,
        policy: TlsPolicy,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, CertificateError> {
        if let Some(before) = before
            && before.certificates == *certificates
            && before.offer == offer
            && before.policy == policy
        {
            return Ok(before.clone());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let loaded = certificates
            .0
            .iter()
            .map(|certificate| load::load(certificate, &provider));
        let loaded = loaded.collect::<Result<Vec<_>, _>>()?;
        let names = Arc::new(ByName::new(loaded).ok_or(CertificateError::None)?);
        let tickets = match before {
            Some(before) => before.tickets.clone(),
            None => rustls::crypto::aws_lc_rs::Ticketer::new().map_err(CertificateError::Tls)?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(policy.minimum))
            .map_err(CertificateError::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(names.clone());
        config.alpn_protocols = offer.protocols();
        config.ticketer = tickets.clone();
        Ok(Arc::new(Self {
            certificates: certificates.clone(),
            offer,
            policy,
            tickets,
            names,
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
        let handshake = async {
            if self.policy.strict_names {
                return self.accept_named(stream).await;
            }
            let handshake = TlsAcceptor::from(self.config.clone()).accept(stream);
            handshake.await.map_err(HandshakeError::Failed)
        };
        match tokio::time::timeout(within, handshake).await {
            Ok(done) => done,
            Err(_) => Err(HandshakeError::TimedOut(within)),
        }
    }

    /// As [`Self::accept`], for clients that ask for a name that a certificate covers.
    async fn accept_named<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<TlsStream<S>, HandshakeError> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
        let mut begun = hello.await.map_err(HandshakeError::Failed)?;
        let known = begun
            .client_hello()
            .server_name()
            .is_some_and(|name| self.names.covers(name));
        if !known {
            // The client learns why, if it still listens.
            let _ = begun.io.write_all(&UNRECOGNIZED_NAME).await;
            let _ = begun.io.shutdown().await;
            return Err(HandshakeError::UnknownName);
        }
        let handshake = begun.into_stream(self.config.clone());
        handshake.await.map_err(HandshakeError::Failed)
    }
}

/// The versions that are spoken.
fn versions(minimum: TlsVersion) -> &'static [&'static rustls::SupportedProtocolVersion] {
    match minimum {
        TlsVersion::V12 => rustls::ALL_VERSIONS,
        TlsVersion::V13 => ONLY_1_3,
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
mod fuzz;
#[cfg(test)]
mod tests;
