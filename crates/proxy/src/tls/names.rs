//! Choice of the certificate to present, by the name in the client's hello (SNI, RFC 6066 section
//! 3).

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::load::Loaded;

/// Certificates by the names that they are for.
#[derive(Debug)]
pub(super) struct ByName {
    /// In the user's order; never empty.
    all: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what follows `*.`; the star stands for exactly one label (RFC 9525 section 6.3).
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

// === impl ByName ===

impl ByName {
    /// `None` without certificates.
    pub(super) fn new(certificates: Vec<Loaded>) -> Option<Self> {
        let mut exact: HashMap<_, Vec<_>> = HashMap::new();
        let mut wildcard: HashMap<_, Vec<_>> = HashMap::new();
        let mut all = Vec::new();
        for Loaded { key, facts } in certificates {
            for name in &facts.names {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(suffix) => (&mut wildcard, suffix),
                    None => (&mut exact, name.as_str()),
                };
                names.entry(name.to_owned()).or_default().push(key.clone());
            }
            all.push(key);
        }
        (!all.is_empty()).then_some(Self {
            all,
            exact,
            wildcard,
        })
    }

    /// Whether a certificate is for this name.
    pub(super) fn covers(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// Those for a name.
    fn named(&self, name: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let exact = self.exact.get(&name).into_iter().flatten();
        let suffix = name.split_once('.').map(|(_, suffix)| suffix);
        let wildcard = suffix.and_then(|suffix| self.wildcard.get(suffix));
        exact.chain(wildcard.into_iter().flatten())
    }

    /// The certificate for a name: the first that covers it and whose key the client can verify,
    /// else the first of all that the client can verify, else the first.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let named = name.and_then(|name| self.named(name).find(fits).cloned());
        named.or_else(|| self.all.iter().find(fits).or(self.all.first()).cloned())
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}
