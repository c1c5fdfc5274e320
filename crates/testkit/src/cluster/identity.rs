//! The cluster's certificate authority: the API server's certificate, and a kubeconfig per user.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::{ClusterError, Options};

pub(super) const AUTHORITY: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const TOKEN_KEY: &str = "tokens.key";
pub(super) const TOKEN_PUBLIC_KEY: &str = "tokens.pub";
pub(super) const AUDIT_POLICY: &str = "audit.yaml";

/// One entry per request that is answered; long ones (watches) also when they begin.
const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

pub(super) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

// === impl Authority ===

impl Authority {
    pub(super) fn new() -> Result<Self, ClusterError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "landfall-test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Everything that the API server reads at its start.
    pub(super) fn write_server_files(
        &self,
        place: &Path,
        options: &Options,
    ) -> Result<(), ClusterError> {
        let mut names: Vec<String> = [
            "127.0.0.1",
            "10.96.0.1",
            "localhost",
            "kubernetes.default.svc",
        ]
        .map(str::to_owned)
        .to_vec();
        names.extend((!options.bind.is_unspecified()).then(|| options.bind.to_string()));
        names.extend(options.names.iter().cloned());
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        write(place, AUTHORITY, &self.certificate)?;
        write(place, SERVER_CERTIFICATE, &certificate.pem())?;
        write(place, SERVER_KEY, &key.serialize_pem())?;
        let tokens = KeyPair::generate()?;
        write(place, TOKEN_KEY, &tokens.serialize_pem())?;
        write(place, TOKEN_PUBLIC_KEY, &tokens.public_key_pem())?;
        write(place, AUDIT_POLICY, POLICY)?;
        Ok(())
    }

    /// A kubeconfig for a user, whose certificate has its name and groups.
    pub(super) fn write_kubeconfig(
        &self,
        place: &Path,
        server: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<PathBuf, ClusterError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // JSON is YAML.
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(certificate.pem()),
                "client-key-data": STANDARD.encode(key.serialize_pem()),
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        });
        let file: String = user
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        write(
            place,
            &format!("{file}.kubeconfig"),
            &kubeconfig.to_string(),
        )
    }
}

fn write(place: &Path, name: &str, text: &str) -> Result<PathBuf, ClusterError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = place.join(name);
    // Another test may be reading it.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let whole = place.join(format!("{name}.{number}"));
    match fs::write(&whole, text).and_then(|()| fs::rename(&whole, &path)) {
        Ok(()) => Ok(path),
        Err(source) => Err(ClusterError::Io {
            what: format!("{} can't be written", path.display()),
            source,
        }),
    }
}
