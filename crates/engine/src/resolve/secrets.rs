//! What the Secrets that a Service names hold.

use std::sync::Arc;

use landfall_model::dialect::ModeChoice;
use landfall_model::listener::{Certificate, Certificates};
use landfall_model::{Code, Reason, ServiceKey};

use super::ResolveContext;
use super::findings::Findings;
use super::layers::{Choice, Layers};

/// What is looked for in a Secret.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A certificate and its key.
    Certificate,
    /// Authorities that sign certificates.
    Authorities,
}

/// Returns the certificates of a port that terminates TLS.
pub(super) fn certificates(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    mode: &Choice<'_, ModeChoice>,
    findings: &mut Findings<'_>,
) -> Certificates {
    let Some(names) = layers.get(findings, |port| &port.tls_secrets) else {
        let word = mode.given.value.as_str();
        let reason = Reason::error(
            Code::ConflictingOptions,
            format!("mode {word} needs a certificate, and none is named"),
        )
        .remedy("name a Secret of type kubernetes.io/tls in landfall.dev/tls-secret");
        findings.push(findings.at(reason, &mode.given.annotation));
        return Certificates::default();
    };
    let annotation = &names.given.annotation;
    let mut certificates = Vec::new();
    for name in names.take(findings) {
        certificates.extend(secret(scene, name, Kind::Certificate, annotation, findings));
    }
    Certificates(certificates)
}

/// What a Secret has, or had when this version was accepted; `None` if it does not exist, which
/// goes to the findings.
pub(super) fn secret(
    scene: &ResolveContext<'_>,
    name: &str,
    kind: Kind,
    annotation: &str,
    findings: &mut Findings<'_>,
) -> Option<Arc<Certificate>> {
    let reason = match content(scene, name, kind) {
        Ok(certificate) => return Some(certificate),
        Err(reason) => reason,
    };
    let held = held(scene, name, kind);
    if held.is_none() {
        let reason = if unavailable(scene, name) {
            not_readable(name)
        } else {
            *reason
        };
        findings.push(findings.at(reason, annotation));
    }
    held
}

/// Whether a Secret is not known because none can be read.
pub(super) fn unavailable(scene: &ResolveContext<'_>, name: &str) -> bool {
    let key = ServiceKey::new(scene.service.key.namespace(), name);
    scene.world.secrets_unavailable() && scene.world.secret(&key).is_none()
}

fn not_readable(name: &str) -> Reason {
    Reason::warning(
        Code::CertificateNotFound,
        format!("the Secret {name} can't be read at present; ports that need it stay closed"),
    )
    .remedy("no action is needed here: they are opened once the API server answers again")
}

/// What a Secret had when this version was accepted.
fn held(scene: &ResolveContext<'_>, name: &str, kind: Kind) -> Option<Arc<Certificate>> {
    let key = ServiceKey::new(scene.service.key.namespace(), name);
    let source = match kind {
        Kind::Certificate => key.to_string(),
        Kind::Authorities => format!("{key}[ca.crt]"),
    };
    let mut held = scene.certificates.iter();
    held.find(|it| it.source == source).cloned()
}

fn content(
    scene: &ResolveContext<'_>,
    name: &str,
    kind: Kind,
) -> Result<Arc<Certificate>, Box<Reason>> {
    let namespace = scene.service.key.namespace();
    let key = ServiceKey::new(namespace, name);
    let refuse = |code, message: String, remedy: String| {
        Box::new(Reason::error(code, message).remedy(remedy))
    };
    let secret = scene.world.secret(&key).ok_or_else(|| {
        refuse(
            Code::CertificateNotFound,
            format!("there is no Secret {key}"),
            match kind {
                Kind::Certificate => format!(
                    "create a Secret {name} of type kubernetes.io/tls in the namespace {namespace}"
                ),
                Kind::Authorities => format!(
                    "create a Secret {name} with the authority in ca.crt in the namespace \
                     {namespace}"
                ),
            },
        )
    })?;
    let (content, remedy) = match kind {
        Kind::Certificate => (
            &secret.certificate,
            "put a PEM certificate chain into tls.crt and its private key into tls.key",
        ),
        Kind::Authorities => (
            &secret.authorities,
            "put the certificate of the authority into ca.crt, PEM",
        ),
    };
    content.clone().map_err(|why| {
        refuse(
            Code::InvalidCertificate,
            format!("the Secret {key} is not usable: {why}"),
            remedy.to_owned(),
        )
    })
}
