//! From PEM to a certificate that can be served. Errors name the Secret and the key in it that is
//! to be checked, and never quote from it.

use std::sync::Arc;

use landfall_model::listener::Certificate;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::der::{self, CertificateFacts};

/// Why a certificate can't be served.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The chain is not PEM.
    #[error("certificate {secret}: tls.crt is not PEM: {problem}")]
    ChainNotPem {
        /// Where the certificate comes from.
        secret: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No certificate in the chain.
    #[error("certificate {secret}: tls.crt holds no certificate")]
    ChainEmpty {
        /// Where the certificate comes from.
        secret: String,
    },
    /// The leaf can't be read, or is of a kind that TLS does not take.
    #[error("certificate {secret}: the first certificate in tls.crt is unusable")]
    Unreadable {
        /// Where the certificate comes from.
        secret: String,
        /// What rustls said; nothing where the outer form is broken.
        #[source]
        source: Option<rustls::Error>,
    },
    /// The key is not PEM.
    #[error("certificate {secret}: tls.key is not PEM: {problem}")]
    KeyNotPem {
        /// Where the certificate comes from.
        secret: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No private key.
    #[error("certificate {secret}: tls.key holds no private key (PKCS#8, PKCS#1 or SEC1)")]
    KeyMissing {
        /// Where the certificate comes from.
        secret: String,
    },
    /// A private key that can't be used.
    #[error("certificate {secret}: the private key in tls.key is broken or of an unknown kind")]
    KeyUnusable {
        /// Where the certificate comes from.
        secret: String,
    },
    /// Key and certificate are not a pair.
    #[error(
        "certificate {secret}: the key in tls.key does not belong to the certificate in tls.crt"
    )]
    KeyMismatch {
        /// Where the certificate comes from.
        secret: String,
    },
    /// Authorities that can't be used.
    #[error("authorities {secret} are not usable: {problem}")]
    Authorities {
        /// Where they come from.
        secret: String,
        /// What is wrong with them.
        problem: &'static str,
    },
    /// What is no name that a certificate can have.
    #[error("{name:?} is no name that a member's certificate can have")]
    Name {
        /// The name.
        name: String,
    },
    /// A listener that ends TLS was given no certificate at all.
    #[error("a listener that terminates TLS needs a certificate")]
    None,
    /// The TLS library could not be set up.
    #[error("TLS can't be set up")]
    Tls(#[source] rustls::Error),
}

/// A certificate ready to be served.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) facts: CertificateFacts,
}

/// Reads a certificate, and makes sure that key and chain are a pair.
pub(super) fn load(
    certificate: &Certificate,
    provider: &CryptoProvider,
) -> Result<Loaded, CertificateError> {
    let secret = || certificate.source.clone();
    let chain = CertificateDer::pem_slice_iter(&certificate.chain_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| CertificateError::ChainNotPem {
            secret: secret(),
            problem: problem(&error),
        })?;
    let leaf = chain
        .first()
        .ok_or_else(|| CertificateError::ChainEmpty { secret: secret() })?;
    ParsedCertificate::try_from(leaf).map_err(|source| CertificateError::Unreadable {
        secret: secret(),
        source: Some(source),
    })?;
    let facts = der::facts(leaf).ok_or_else(|| CertificateError::Unreadable {
        secret: secret(),
        source: None,
    })?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem).map_err(|error| match error {
        pem::Error::NoItemsFound => CertificateError::KeyMissing { secret: secret() },
        error => CertificateError::KeyNotPem {
            secret: secret(),
            problem: problem(&error),
        },
    })?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|_| CertificateError::KeyUnusable { secret: secret() })?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|_| CertificateError::KeyMismatch { secret: secret() })?;
    Ok(Loaded {
        key: Arc::new(certified),
        facts,
    })
}

/// The problem without the text that has it: that text may be a key.
pub(super) fn problem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section does not end",
        pem::Error::IllegalSectionStart { .. } => "a section does not begin as it should",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it can't be read",
    }
}
