//! TLS toward members: a handshake that trusts only the authorities that were named for them, and
//! the stream behind it. Never falls back to no verification, nor to no TLS.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use landfall_model::listener::{Certificate, Listener, MemberTls};
use landfall_sys::stream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::load::{self, CertificateError};

/// Bytes of what is said of a handshake that failed.
const LONGEST_TEXT: usize = 256;

/// Everything needed to speak TLS to members.
pub struct TowardMembers {
    settings: MemberTls,
    name: ServerName<'static>,
    bytes: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Bytes that are not checked.
    Bytes,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A connection to a member, plain or over TLS.
#[derive(Debug)]
pub struct MemberStream {
    transport: Transport,
    /// A write met a failure, of which the kernel speaks once: behind it, a read finds what looks
    /// like an end in order.
    broken: bool,
}

#[derive(Debug)]
enum Transport {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Secured(Box<Secured>),
}

/// A connection over TLS, and what it was verified by.
#[derive(Debug)]
struct Secured {
    stream: TlsStream<TcpStream>,
    by: Arc<TowardMembers>,
}

/// A connection to a member whose end says that all was said. Until that is so, it ends with a
/// reset, even where the task that has it is cut.
#[derive(Debug)]
pub(crate) struct Unfinished {
    stream: MemberStream,
    in_order: bool,
}

/// Takes every certificate, as was asked for; the member must still have its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

// === impl TowardMembers ===

impl TowardMembers {
    /// What a listener needs; `None` without TLS toward members. Equal settings give back `before`.
    pub fn of_listener(
        listener: &Listener,
        before: Option<&Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, CertificateError> {
        let Some(settings) = &listener.pool.tls else {
            return Ok(None);
        };
        match before {
            Some(before) if before.settings == *settings => Ok(Some(before.clone())),
            _ => Self::new(settings).map(Some),
        }
    }

    /// TLS for checks of members that are passed through as they are: their clients verify them.
    pub fn of_checks() -> Result<Arc<Self>, CertificateError> {
        Self::new(&MemberTls {
            authorities: None,
            server_name: String::new(),
            certificate: None,
        })
    }

    /// TLS with these settings.
    pub fn new(settings: &MemberTls) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Tls)?;
        let builder = match &settings.authorities {
            Some(authorities) => builder.with_root_certificates(roots(authorities)?),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider.clone()))),
        };
        let mut config = match &settings.certificate {
            Some(certificate) => {
                // Validated as those are that clients see.
                let loaded = load::load(certificate, &provider)?;
                let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem).map_err(|_| {
                    CertificateError::KeyMissing {
                        secret: certificate.source.clone(),
                    }
                })?;
                builder
                    .with_client_auth_cert(loaded.key.cert.clone(), key)
                    .map_err(CertificateError::Tls)?
            }
            None => builder.with_no_client_auth(),
        };
        // A member that is asked for no name shows what it has.
        let name = if settings.server_name.is_empty() {
            config.enable_sni = false;
            "member.invalid"
        } else {
            settings.server_name.as_str()
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|_| CertificateError::Name {
            name: settings.server_name.clone(),
        })?;
        let offering = |protocols: &[&str]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
            Arc::new(config)
        };
        Ok(Arc::new(Self {
            settings: settings.clone(),
            name,
            bytes: offering(&[]),
            http1: offering(&["http/1.1"]),
            http2: offering(&["h2"]),
        }))
    }

    /// Shakes hands with a member. The caller holds the time.
    pub async fn connect(
        self: &Arc<Self>,
        stream: TcpStream,
        inside: Inside,
    ) -> io::Result<MemberStream> {
        let config = match inside {
            Inside::Bytes => &self.bytes,
            Inside::Http1 => &self.http1,
            Inside::Http2 => &self.http2,
        };
        let handshake = TlsConnector::from(config.clone()).connect(self.name.clone(), stream);
        let stream = handshake.await.map_err(|error| {
            // A shortage of the machine is recognized by its number, which must stay.
            match error.raw_os_error() {
                Some(_) => error,
                None => io::Error::new(error.kind(), said(&error)),
            }
        })?;
        if inside == Inside::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "TLS: the member does not accept HTTP/2",
            ));
        }
        Ok(MemberStream::over(Transport::Secured(Box::new(Secured {
            stream,
            by: self.clone(),
        }))))
    }
}

impl PartialEq for TowardMembers {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for TowardMembers {}

impl fmt::Debug for TowardMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowardMembers")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Says why a handshake failed. The library names all that a certificate is for, and the text is
/// kept for each member and logged.
fn said(error: &io::Error) -> String {
    let mut text = format!("TLS: {error}");
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push('…');
    }
    text
}

fn roots(authorities: &Certificate) -> Result<RootCertStore, CertificateError> {
    let secret = || authorities.source.clone();
    let unusable = |problem| CertificateError::Authorities {
        secret: secret(),
        problem,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authorities.chain_pem) {
        let certificate = certificate.map_err(|error| unusable(load::problem(&error)))?;
        roots
            .add(certificate)
            .map_err(|_| unusable("a certificate in it is broken"))?;
    }
    if roots.is_empty() {
        return Err(unusable("it holds no certificate"));
    }
    Ok(roots)
}

// === impl MemberStream ===

impl MemberStream {
    /// A connection without TLS.
    pub fn plain(stream: TcpStream) -> Self {
        Self::over(Transport::Plain(stream))
    }

    fn over(transport: Transport) -> Self {
        Self {
            transport,
            broken: false,
        }
    }

    /// Whether there is TLS.
    pub fn is_secured(&self) -> bool {
        matches!(self.transport, Transport::Secured(_))
    }

    /// Whether it was made as connections are to be made now.
    pub fn is_by(&self, by: Option<&Arc<TowardMembers>>) -> bool {
        match (&self.transport, by) {
            (Transport::Plain(_), None) => true,
            (Transport::Secured(secured), Some(by)) => Arc::ptr_eq(&secured.by, by),
            (Transport::Plain(_), Some(_)) | (Transport::Secured(_), None) => false,
        }
    }

    /// Makes the connection end with a reset.
    fn set_zero_linger(&self) -> io::Result<()> {
        self.socket().set_zero_linger()
    }

    /// How much of what was sent the member's system has not acknowledged, the end included.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        stream::unacknowledged(self.socket())
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Secured(secured) => secured.stream.get_ref().0,
        }
    }

    /// Notes a failure to write. One with EPIPE follows an end that was in order.
    fn note<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.broken |= error.kind() != io::ErrorKind::BrokenPipe;
        }
        polled
    }

    /// Whether the connection is open and the member has said nothing on it that matters, as far as
    /// the runtime knew when it last waited for events. It costs no system call as long as
    /// nothing happens.
    pub fn seems_quiet(&mut self) -> bool {
        match &mut self.transport {
            Transport::Plain(stream) => {
                let read = stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Transport::Secured(secured) => {
                // Session tickets come at any time, and are taken in by this.
                let mut context = Context::from_waker(Waker::noop());
                let mut byte = [0];
                let mut byte = ReadBuf::new(&mut byte);
                Pin::new(&mut secured.stream)
                    .poll_read(&mut context, &mut byte)
                    .is_pending()
            }
        }
    }

    /// Whether the connection is open and the member has said nothing on it that matters, as the
    /// kernel knows it.
    pub fn is_quiet(&mut self) -> bool {
        if self.is_secured() && !self.seems_quiet() {
            return false;
        }
        let peeked = SockRef::from(self.socket()).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for MemberStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, room),
            Transport::Secured(secured) => Pin::new(&mut secured.stream).poll_read(context, room),
        };
        let ends = match &polled {
            Poll::Ready(Ok(())) => room.filled().len() == before && room.remaining() > 0,
            Poll::Ready(Err(error)) => error.kind() == io::ErrorKind::UnexpectedEof,
            Poll::Pending => false,
        };
        if ends && self.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        polled
    }
}

impl AsyncWrite for MemberStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Secured(secured) => Pin::new(&mut secured.stream).poll_write(context, bytes),
        };
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Transport::Secured(secured) => {
                Pin::new(&mut secured.stream).poll_write_vectored(context, parts)
            }
        };
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Secured(secured) => secured.stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(context),
            Transport::Secured(secured) => Pin::new(&mut secured.stream).poll_flush(context),
        };
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Secured(secured) => Pin::new(&mut secured.stream).poll_shutdown(context),
        };
        self.note(polled)
    }
}

// === impl Unfinished ===

impl Unfinished {
    pub(crate) fn new(stream: MemberStream) -> Self {
        Self {
            stream,
            in_order: false,
        }
    }

    pub(crate) fn stream(&mut self) -> &mut MemberStream {
        &mut self.stream
    }

    /// Says whether all was said: then it ends without a reset.
    pub(crate) fn set_in_order(&mut self, in_order: bool) {
        self.in_order = in_order;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.in_order {
            // Should the option fail, the member sees an early end instead.
            let _ = self.stream.set_zero_linger();
        }
    }
}

// === impl AcceptAnyCertificate ===

impl ServerCertVerifier for AcceptAnyCertificate {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_reset_that_a_write_met_is_no_end_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for ends_first in [false, true] {
            let mut stream = MemberStream::plain(TcpStream::connect(address).await.unwrap());
            let (mut member, _) = listener.accept().unwrap();
            member.write_all(b"a part").unwrap();
            if ends_first {
                member.shutdown(std::net::Shutdown::Write).unwrap();
            }
            SockRef::from(&member)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
            drop(member);
            stream.write_all(b"x").await.unwrap_err();
            let mut read = Vec::new();
            let whole = stream.read_to_end(&mut read).await;
            assert_eq!(
                (whole.is_ok(), read.as_slice()),
                (ends_first, &b"a part"[..])
            );
        }
    }

    #[tokio::test]
    async fn what_a_member_said_just_now_is_noticed_though_the_runtime_does_not_know() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for leaves in [false, true] {
            let mut stream = MemberStream::plain(TcpStream::connect(address).await.unwrap());
            let (mut member, _) = listener.accept().unwrap();
            member.write_all(b"answer").unwrap();
            let mut room = [0; 64];
            assert_eq!(stream.read(&mut room).await.unwrap(), 6);
            assert!(stream.is_quiet());
            if leaves {
                drop(member);
            } else {
                member.write_all(b"more").unwrap();
            }
            // No event was fetched meanwhile.
            assert!(!stream.is_quiet());
        }
    }
}
