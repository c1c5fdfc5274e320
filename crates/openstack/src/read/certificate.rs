//! Whether the certificate that a Service names is in Barbican.

use landfall_config::cloud_conf::ContainerStore;
use landfall_model::{Code, Reason};
use tokio::time::Instant;

use crate::client::ApiError;
use crate::provider::OpenStack;
use crate::read::floating_ips::LASTING;
use crate::target::Target;

impl OpenStack {
    /// Adds to the target's reasons what is wrong with its certificate.
    pub(crate) async fn check_certificate(&self, target: &mut Target) -> Result<(), ApiError> {
        let Some(reference) = &target.choice.tls else {
            return Ok(());
        };
        let seen = |at: &Instant| at.elapsed() < LASTING;
        if self.settings.conf.container_store == ContainerStore::External
            || self
                .memory()
                .caches
                .certificates
                .get(reference)
                .is_some_and(seen)
        {
            return Ok(());
        }
        let mut words = reference.trim_end_matches('/').rsplit('/');
        let (id, kind) = (words.next().unwrap_or_default(), words.next());
        let why = match kind {
            _ if !self.cloud.has_key_manager().await? => Why::NoKeyManager,
            Some("secrets") if self.cloud.secret_exists(id).await? => {
                self.note_certificate(reference);
                return Ok(());
            }
            Some("containers") if self.cloud.container_exists(id).await? => {
                self.note_certificate(reference);
                return Ok(());
            }
            Some("secrets" | "containers") => Why::Unseen(id),
            _ => Why::Neither,
        };
        let reason = why.reason(reference, target.choice.tls_annotation.as_deref());
        target.reasons.push(reason);
        Ok(())
    }

    fn note_certificate(&self, reference: &str) {
        let certificates = &mut self.memory().caches.certificates;
        certificates.retain(|_, at| at.elapsed() < LASTING);
        certificates.insert(reference.to_owned(), Instant::now());
    }
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug)]
enum Why<'a> {
    /// There is no Barbican.
    NoKeyManager,
    /// Barbican has none of this id.
    Unseen(&'a str),
    /// It is no address of a certificate.
    Neither,
}

// === impl Why ===

impl Why<'_> {
    /// The reason, at the place that names the certificate: an annotation, else in the
    /// configuration, where one line concerns every Service.
    fn reason(self, reference: &str, annotation: Option<&str>) -> Reason {
        let (message, remedy) = match self {
            Self::NoKeyManager => (
                "the cloud's catalog has no key-manager, so that certificates can't be read"
                    .to_owned(),
                match annotation {
                    Some(_) => "remove the annotation, or set container-store to external",
                    None => "remove the key from cloud.conf, or set container-store to external",
                },
            ),
            Self::Unseen(id) => (
                format!("Barbican has none with the id {id}, or does not permit reading it"),
                "put the certificate into Barbican, and let Octavia's user read it",
            ),
            Self::Neither => (
                "this names neither a secret nor a container".to_owned(),
                "write the address of a secret or container: .../v1/secrets/UUID",
            ),
        };
        let reason = Reason::error(Code::CertificateNotFound, message);
        let reason = match annotation {
            Some(annotation) => reason.at_annotation(annotation),
            None => reason.at("[LoadBalancer] default-tls-container-ref"),
        };
        reason.value(reference).remedy(remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_reported_where_it_was_named() {
        let text = |why: Why<'_>, annotation| why.reason("x/orders/1", annotation).to_string();
        assert_eq!(
            text(Why::Neither, None),
            "[LoadBalancer] default-tls-container-ref: \"x/orders/1\": this names neither a secret \
            nor a container; write the address of a secret or container: .../v1/secrets/UUID"
        );
        let none = text(Why::NoKeyManager, None);
        assert!(none.contains("remove the key from cloud.conf") && !none.contains("annotation"));
        let key = "loadbalancer.openstack.org/default-tls-container-ref";
        let annotated = text(Why::NoKeyManager, Some(key));
        assert!(
            annotated.starts_with(&format!("metadata.annotations[{key}]: ")),
            "{annotated}"
        );
        assert!(annotated.contains("remove the annotation"), "{annotated}");
    }
}
