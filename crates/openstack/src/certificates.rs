//! The certificates of Secrets as containers of Barbican: which a Service needs, which there are,
//! and which of its own nothing needs any more. Pure.
//!
//! A container is never changed: another content is another container, and the old one goes once no
//! listener of the project names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_model::listener::{Certificate, Mode};
use landfall_model::{LoadBalancerSpec, Reason};
use sha2::{Digest, Sha256};

use crate::names::Names;
use crate::objects::{Container, Id, Listener, Pool, id_in};

/// The certificates of Secrets that concern a Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateView {
    /// Containers of the Service, by their names.
    pub(crate) there: BTreeMap<String, Container>,
    /// Those that are to be made, by the names that they get.
    pub(crate) missing: BTreeMap<String, Arc<Certificate>>,
    /// Those of the Service that nothing needs any more.
    pub(crate) unneeded: Vec<Container>,
    /// Why there can be none.
    pub(crate) problem: Option<Reason>,
}

/// Returns the certificates that a Service needs, by the names of their containers.
pub(crate) fn needed(
    spec: Option<&LoadBalancerSpec>,
    names: &Names,
) -> BTreeMap<String, Arc<Certificate>> {
    let listeners = spec.into_iter().flat_map(|spec| &spec.listeners);
    let https = listeners.filter_map(|listener| match &listener.mode {
        Mode::Https { certificates, .. } => Some(certificates),
        Mode::Stream | Mode::Tls { .. } | Mode::Http(_) => None,
    });
    let all = https.flat_map(|it| &it.0);
    all.map(|it| (name_of(names, it), it.clone())).collect()
}

/// Returns the name of the container of a certificate of a Service.
pub(crate) fn name_of(names: &Names, certificate: &Certificate) -> String {
    let mut hasher = Sha256::new();
    for part in [&certificate.chain_pem, &certificate.key_pem] {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let first = digest.iter().take(16);
    let number = first.fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    format!("{}{number:032x}", names.certificates())
}

/// Returns the ids of all secrets and containers that listeners and pools name.
pub(crate) fn used<'a>(
    listeners: impl IntoIterator<Item = &'a Listener>,
    pools: impl IntoIterator<Item = &'a Pool>,
) -> BTreeSet<Id> {
    let of_listeners = listeners.into_iter().flat_map(|it| {
        let first = it.default_tls_container_ref.iter();
        let first = first.chain(&it.sni_container_refs);
        first.chain(&it.client_ca_tls_container_ref)
    });
    let of_pools = pools.into_iter().flat_map(|it| {
        let own = it.tls_container_ref.iter();
        own.chain(&it.ca_tls_container_ref)
    });
    of_listeners.chain(of_pools).map(|it| id_in(it)).collect()
}

/// A chain of certificates, PEM: that of the server, and those that lead to its authority.
pub(crate) fn split(chain: &[u8]) -> Option<(String, String)> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = std::str::from_utf8(chain).ok()?;
    let end = text.find(END)? + END.len();
    let (first, others) = text.split_at_checked(end)?;
    let begin = first.find("-----BEGIN CERTIFICATE-----")?;
    Some((
        format!("{}\n", first.get(begin..)?),
        others.trim_start().to_owned(),
    ))
}

// === impl CertificateView ===

impl CertificateView {
    /// Returns what there is of the Service's own among the containers of the project, and what is
    /// to be made.
    pub(crate) fn new(
        names: &Names,
        needed: BTreeMap<String, Arc<Certificate>>,
        all: &[Container],
    ) -> Self {
        let prefix = names.certificates();
        let ours = all.iter().filter(|it| it.name.starts_with(&prefix));
        let there: BTreeMap<String, Container> =
            ours.map(|it| (it.name.clone(), it.clone())).collect();
        let missing = needed.into_iter();
        let missing = missing.filter(|(name, _)| !there.contains_key(name));
        Self {
            missing: missing.collect(),
            there,
            ..Self::default()
        }
    }

    /// Returns those of the Service that none of these names is of.
    pub(crate) fn others_than(
        &self,
        needed: &BTreeMap<String, Arc<Certificate>>,
    ) -> Vec<Container> {
        let there = self.there.iter();
        let others = there.filter(|(name, _)| !needed.contains_key(*name));
        others.map(|(_, container)| container.clone()).collect()
    }

    /// Returns the address of the container of a certificate; `None`: there is none yet.
    pub(crate) fn reference(&self, names: &Names, certificate: &Certificate) -> Option<&String> {
        let container = self.there.get(&name_of(names, certificate))?;
        Some(&container.container_ref)
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::{ServiceKey, Uid};

    use super::*;

    fn names(cluster: Option<&str>) -> Names {
        let service = ServiceKey::new("default", "web");
        Names::new("c1", cluster, &service, &Uid::new("u1"))
    }

    fn certificate(chain: &str, key: &str) -> Certificate {
        Certificate {
            source: "default/tls".to_owned(),
            chain_pem: chain.as_bytes().to_vec(),
            key_pem: key.as_bytes().to_vec(),
        }
    }

    #[test]
    fn another_content_is_another_container_of_the_same_service() {
        let names = names(Some("ks"));
        let name = |chain, key| name_of(&names, &certificate(chain, key));
        assert!(name("a", "b").starts_with("landfall_tls_ks_u1_"));
        assert_eq!(name("a", "b"), name("a", "b"));
        let all = [
            name("a", "b"),
            name("a", "c"),
            name("ab", ""),
            name("", "ab"),
        ];
        assert_eq!(BTreeSet::from(all).len(), 4);
        assert!(
            super::tests::names(None)
                .certificates()
                .starts_with("landfall_tls_-_u1_")
        );
    }

    #[test]
    fn a_chain_is_split_after_the_servers_certificate() {
        let pem = |text: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let chain = format!("subject=me\n{}{}{}", pem("a"), pem("b"), pem("c"));
        let (first, others) = split(chain.as_bytes()).unwrap();
        assert_eq!(first, pem("a"));
        assert_eq!(others, format!("{}{}", pem("b"), pem("c")));
        assert_eq!(split(pem("a").as_bytes()).unwrap().1, "");
        assert_eq!(split(b"no certificate"), None);
        assert_eq!(split(&[0xff, 0xfe]), None);
    }
}
