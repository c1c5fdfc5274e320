//! `v1` Secret of type `kubernetes.io/tls`: its shape and its row.
//!
//! What it holds shows nowhere: not in `Debug`, not in a reason, not in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::id::ServiceKey;
use crate::listener::Certificate;
use crate::reason::Reason;
use crate::rows::SecretRow;

use super::findings::{Findings, strictly};
use super::{ObjectMeta, lenient, names};

/// The type of Secrets that hold a certificate and its key.
pub const TLS_SECRET_TYPE: &str = "kubernetes.io/tls";

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// The most of a chain or a key that is kept: chains are some KiB long, and a namespace may have
/// hundreds of Secrets.
const LONGEST: usize = 64 * 1024;

/// The same for authorities: as many as browsers trust.
const MOST_AUTHORITIES: usize = 256 * 1024;

/// `v1` Secret.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// What it is for.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Values in base64.
    #[serde(deserialize_with = "lenient::texts")]
    pub data: BTreeMap<String, String>,
    /// Values as they are, which go before those of `data`. Only in manifests.
    #[serde(deserialize_with = "lenient::texts")]
    pub string_data: BTreeMap<String, String>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("metadata", &self.metadata)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

// === impl Secret ===

impl Secret {
    /// The row, or what is wrong with its metadata. What is wrong with the certificate is part of
    /// the row, so that the Services that use it can say so.
    pub fn into_row(self) -> Result<SecretRow, Vec<Reason>> {
        strictly(self.validated(Findings::default()))
    }

    /// Returns the row of a Secret that the API server has admitted.
    pub fn into_admitted_row(self) -> SecretRow {
        self.validated(Findings::of_admitted()).0
    }

    fn validated(self, mut findings: Findings) -> (SecretRow, Vec<Reason>) {
        let name = findings.name(&self.metadata, names::dns_subdomain);
        let namespace = findings.namespace(&self.metadata);
        findings.metadata(&self.metadata);
        let key = ServiceKey::new(&namespace, &name);
        let row = SecretRow {
            certificate: self.certificate(&key).map(Arc::new),
            authorities: self.authorities(&key).map(Arc::new),
            key,
            source: None,
        };
        (row, findings.reasons())
    }

    fn certificate(&self, key: &ServiceKey) -> Result<Certificate, String> {
        match self.kind.as_deref() {
            Some(TLS_SECRET_TYPE) => {}
            Some(other) => return Err(format!("it is of type {other}, not {TLS_SECRET_TYPE}")),
            None => return Err(format!("it is of no type, and should be {TLS_SECRET_TYPE}")),
        }
        Ok(Certificate {
            source: key.to_string(),
            chain_pem: self.value(CHAIN, LONGEST)?,
            key_pem: self.value(KEY, LONGEST)?,
        })
    }

    /// Of Secrets of any type: what signs certificates is often kept apart from their keys.
    fn authorities(&self, key: &ServiceKey) -> Result<Certificate, String> {
        Ok(Certificate {
            source: format!("{key}[{AUTHORITIES}]"),
            chain_pem: self.value(AUTHORITIES, MOST_AUTHORITIES)?,
            key_pem: Vec::new(),
        })
    }

    fn value(&self, name: &str, longest: usize) -> Result<Vec<u8>, String> {
        let value = match (self.string_data.get(name), self.data.get(name)) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(text)) => {
                // Kubernetes skips line breaks inside the base64 text.
                let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                STANDARD
                    .decode(text)
                    .map_err(|_| format!("data[{name}] is not base64"))?
            }
            (None, None) => return Err(format!("it has no {name}")),
        };
        if value.is_empty() {
            return Err(format!("its {name} is empty"));
        }
        if value.len() > longest {
            let most = longest / 1024;
            return Err(format!("its {name} is longer than {most} KiB"));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(value: Value) -> SecretRow {
        serde_json::from_value::<Secret>(value)
            .unwrap()
            .into_row()
            .unwrap()
    }

    fn secret(kind: &str, data: impl Into<Value>) -> Value {
        let data = data.into();
        json!({"metadata": {"name": "tls", "namespace": "shop"}, "type": kind, "data": data})
    }

    #[test]
    fn a_tls_secret_gives_its_certificate() {
        let row = row(secret(
            TLS_SECRET_TYPE,
            json!({"tls.crt": "Y2hh\naW4=\n", "tls.key": "a2V5"}),
        ));
        let certificate = row.certificate.unwrap();
        assert_eq!(
            *certificate,
            Certificate {
                source: "shop/tls".to_owned(),
                chain_pem: b"chain".to_vec(),
                key_pem: b"key".to_vec(),
            }
        );
    }

    #[test]
    fn authorities_are_taken_from_a_secret_of_any_type_and_without_its_key() {
        let held = row(secret(
            "Opaque",
            json!({"ca.crt": "Y2hhaW4=", "tls.key": "a2V5"}),
        ));
        let authorities = held.authorities.unwrap();
        assert_eq!(authorities.source, "shop/tls[ca.crt]");
        assert_eq!(authorities.chain_pem, b"chain");
        assert_eq!(authorities.key_pem, b"");
        let none = row(secret(TLS_SECRET_TYPE, json!({"tls.crt": "YQ=="})));
        assert_eq!(none.authorities, Err("it has no ca.crt".to_owned()));
    }

    #[test]
    fn plain_texts_go_before_base64() {
        let mut value = secret(TLS_SECRET_TYPE, json!({"tls.crt": "!!", "tls.key": "a2V5"}));
        value["stringData"] = json!({"tls.crt": "chain"});
        assert_eq!(row(value).certificate.unwrap().chain_pem, b"chain");
    }

    #[test]
    fn a_secret_without_a_usable_certificate_says_what_is_missing() {
        let cases = [
            (
                secret("Opaque", json!({"tls.crt": "YQ==", "tls.key": "YQ=="})),
                "Opaque",
            ),
            (secret(TLS_SECRET_TYPE, Value::Null), "no tls.crt"),
            (
                secret(TLS_SECRET_TYPE, json!({"tls.crt": "YQ=="})),
                "no tls.key",
            ),
            (
                secret(TLS_SECRET_TYPE, json!({"tls.crt": "?", "tls.key": ""})),
                "not base64",
            ),
            (
                secret(TLS_SECRET_TYPE, json!({"tls.crt": "YQ==", "tls.key": null})),
                "empty",
            ),
        ];
        for (value, expected) in cases {
            let why = row(value).certificate.unwrap_err();
            assert!(
                why.contains(expected),
                "{why:?} should contain {expected:?}"
            );
        }
    }

    #[test]
    fn no_more_of_a_secret_is_kept_than_a_chain_a_key_and_authorities_need() {
        let part = |length: usize| STANDARD.encode(vec![b'x'; length]);
        let of = |chain, key, authorities| {
            let parts = json!({"tls.crt": part(chain), "tls.key": part(key),
                "ca.crt": part(authorities)});
            row(secret(TLS_SECRET_TYPE, parts))
        };
        let most = of(LONGEST, LONGEST, MOST_AUTHORITIES);
        assert!(most.certificate.is_ok() && most.authorities.is_ok());
        let more = of(LONGEST + 1, 1, MOST_AUTHORITIES + 1);
        let why = "its tls.crt is longer than 64 KiB";
        assert_eq!(more.certificate, Err(why.to_owned()));
        let why = "its ca.crt is longer than 256 KiB";
        assert_eq!(more.authorities, Err(why.to_owned()));
        assert!(of(1, LONGEST + 1, 1).certificate.is_err());
    }

    #[test]
    fn what_a_secret_holds_never_shows() {
        let value = secret(
            TLS_SECRET_TYPE,
            json!({"tls.crt": "c2VjcmV0", "tls.key": "c2VjcmV0"}),
        );
        let secret: Secret = serde_json::from_value(value).unwrap();
        let shown = format!("{secret:?}{:?}", secret.clone().into_row());
        assert!(!shown.contains("c2Vj") && !shown.contains("115"), "{shown}");
    }
}
