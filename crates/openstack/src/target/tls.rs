//! TLS that ends at a listener: the certificates, and what clients may ask for. Pure.

use std::collections::BTreeSet;

use landfall_model::dialect::Given;
use landfall_model::listener::{Certificates, Mode, TlsVersion};
use landfall_model::{Code, Listener, Protocol, Reason};

use super::{ListenerBuilder, WantedListener};

/// How TLS ends at a listener.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) certificate: Option<String>,
    /// `None`: as they are.
    pub(super) others: Option<BTreeSet<String>>,
    pub(super) versions: Option<BTreeSet<String>>,
    pub(super) ciphers: Option<String>,
    pub(super) alpn: Option<Vec<String>>,
    /// A certificate can't be named yet.
    pub(super) pending: bool,
}

/// What Octavia calls the newest version.
const NEWEST: &str = "TLSv1.3";

// === impl ListenerBuilder ===

impl ListenerBuilder<'_> {
    /// Returns how TLS ends at a listener; `None`: it passes bytes as they come.
    pub(super) fn ending(&mut self, listener: &Listener) -> Option<Ending> {
        let mut ending = match &listener.mode {
            Mode::Https { certificates, .. } => self.of_secrets(certificates),
            Mode::Tls { .. } => {
                self.refuse(format!(
                    "Octavia ends TLS for HTTP only, and port {} has the mode tls",
                    listener.key
                ));
                return None;
            }
            Mode::Stream | Mode::Http(_) => self.of_barbican(listener)?,
        };
        self.restrict(listener, &mut ending);
        Some(ending)
    }

    /// With the certificates of Secrets, the first of which is for clients that ask for none.
    fn of_secrets(&self, certificates: &Certificates) -> Ending {
        let mut references = Vec::new();
        for certificate in &certificates.0 {
            references.push(
                self.certificates
                    .reference(self.names, certificate)
                    .cloned(),
            );
        }
        let pending = references.is_empty() || references.iter().any(Option::is_none);
        let mut references = references.into_iter().flatten();
        Ending {
            certificate: references.next(),
            others: Some(references.collect()),
            pending,
            ..Ending::default()
        }
    }

    /// With a certificate that is in Barbican already. It is for all ports, except where a port is
    /// to pass bytes unread.
    fn of_barbican(&self, listener: &Listener) -> Option<Ending> {
        let tcp = listener.key.protocol == Protocol::Tcp;
        let passes = listener.said.mode && matches!(listener.mode, Mode::Stream);
        let certificate = self.choice.tls.clone().filter(|_| tcp && !passes)?;
        let others = self.intent.extensions.openstack.sni_containers.as_ref();
        let others = match others {
            Some(given) => {
                let others = given.value.iter().filter(|it| **it != certificate);
                Some(others.cloned().collect())
            }
            // Those of Secrets that it had before are to go.
            None => (!self.certificates.there.is_empty()).then(BTreeSet::new),
        };
        Some(Ending {
            others,
            certificate: Some(certificate),
            ..Ending::default()
        })
    }

    /// Sets what clients may ask for, as far as this Octavia can be asked to.
    fn restrict(&mut self, listener: &Listener, ending: &mut Ending) {
        let cloud = &self.intent.extensions.openstack;
        let newest_only = listener.tls.minimum == TlsVersion::V13;
        let versions = match &cloud.tls_versions {
            Some(given) => Some(given.value.iter().cloned().collect()),
            None => newest_only.then(|| BTreeSet::from([NEWEST.to_owned()])),
        };
        let (ciphers, alpn) = (cloud.tls_ciphers.clone(), cloud.alpn_protocols.clone());
        if versions.is_some() && !self.features.tls_versions() {
            // What is weaker than asked for is not served.
            let why = self.lacks("versions of TLS of listeners", "2.17");
            self.refuse(why);
        }
        if ciphers.is_some() && !self.features.tls_ciphers() {
            let why = self.lacks("ciphers of listeners", "2.15");
            self.refuse(why);
        }
        if alpn.is_some() && !self.features.alpn() {
            let why = self.lacks("ALPN of listeners", "2.20");
            self.lacking(why);
        }
        ending.versions = versions.filter(|_| self.features.tls_versions());
        ending.ciphers = ciphers
            .map(|given| given.value)
            .filter(|_| self.features.tls_ciphers());
        ending.alpn = alpn
            .map(|given| given.value)
            .filter(|_| self.features.alpn());
    }

    /// Reports what is asked of TLS where no port ends it.
    pub(super) fn check_unused(&mut self, wanted: &[WantedListener]) {
        let cloud = &self.intent.extensions.openstack;
        let ends = wanted
            .iter()
            .any(|it| it.protocol == crate::objects::ListenerProtocol::TerminatedHttps);
        let by_reference = wanted.iter().any(|it| it.tls.is_some());
        let asks = |given: &&Given<String>| !given.value.is_empty();
        let text = |given: &Given<String>| (given.annotation.clone(), given.value.clone());
        let list = |given: &Given<Vec<String>>| (given.annotation.clone(), given.value.join(","));
        let certificate = cloud.tls_container.as_ref().filter(asks);
        let unused = [
            certificate.filter(|_| !by_reference).map(text),
            cloud.sni_containers.as_ref().filter(|_| !ends).map(list),
            cloud.tls_versions.as_ref().filter(|_| !ends).map(list),
            cloud.tls_ciphers.as_ref().filter(|_| !ends).map(text),
            cloud.alpn_protocols.as_ref().filter(|_| !ends).map(list),
        ];
        for (annotation, value) in unused.into_iter().flatten() {
            self.remark(
                Reason::warning(
                    Code::OptionNotApplicable,
                    "this has no effect: no port terminates TLS",
                )
                .at_annotation(&annotation)
                .value(value)
                .remedy("remove it, or set another mode than stream for a TCP port"),
            );
        }
    }
}
