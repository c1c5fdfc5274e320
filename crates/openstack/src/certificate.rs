//! Whether the certificate that a Service names is in Barbican.

use landfall_config::cloud_conf::ContainerStore;
use landfall_model::{Code, Reason};

use crate::client::ApiError;
use crate::observed::Target;
use crate::provider::OpenStack;

impl OpenStack {
    /// Adds to the target's reasons what is wrong with its certificate.
    pub(crate) async fn judge_certificate(&self, target: &mut Target) -> Result<(), ApiError> {
        let Some(reference) = &target.choice.tls else {
            return Ok(());
        };
        if self.settings.conf.container_store == ContainerStore::External
            || self.memory().certificates.contains(reference)
        {
            return Ok(());
        }
        let mut words = reference.trim_end_matches('/').rsplit('/');
        let (id, kind) = (words.next().unwrap_or_default(), words.next());
        let refuse = |message: String, remedy: &str| {
            Reason::error(Code::CertificateNotFound, message)
                .at_annotation("loadbalancer.openstack.org/default-tls-container-ref")
                .value(reference.as_str())
                .remedy(remedy)
        };
        let reason = match kind {
            _ if !self.cloud.has_key_manager().await? => refuse(
                "the cloud's catalog has no key-manager, so that certificates can't be read"
                    .to_owned(),
                "remove the annotation, or set container-store to external",
            ),
            Some("secrets") if self.cloud.secret_exists(id).await? => {
                self.memory().certificates.insert(reference.clone());
                return Ok(());
            }
            Some("containers") if self.cloud.container_exists(id).await? => {
                self.memory().certificates.insert(reference.clone());
                return Ok(());
            }
            Some("secrets" | "containers") => refuse(
                format!("Barbican has none of the id {id}, or does not let us see it"),
                "put the certificate into Barbican, and let Octavia's user read it",
            ),
            _ => refuse(
                "this names neither a secret nor a container".to_owned(),
                "write the address of a secret or container: .../v1/secrets/UUID",
            ),
        };
        target.reasons.push(reason);
        Ok(())
    }
}
