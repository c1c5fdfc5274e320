//! Writes to Barbican: certificates of Secrets as containers.

use landfall_model::listener::Certificate;
use landfall_model::provider::Applied;
use serde_json::{Value, json};

use crate::certificates::split;
use crate::client::{ApiError, ErrorKind};
use crate::memory::afterwards;
use crate::objects::{Container, Id, SecretRef, id_in};
use crate::provider::OpenStack;
use crate::step::Step;

impl OpenStack {
    /// A write to Barbican. The answer is put into the list; without one it is stale.
    pub(super) async fn write_certificate(&self, step: &Step) -> Result<Applied, ApiError> {
        let outcome = match step {
            Step::CreateCertificate {
                name, certificate, ..
            } => self.create_certificate(name, certificate).await,
            Step::DeleteCertificate {
                container, secrets, ..
            } => self.delete_certificate(container, secrets).await,
            _ => Ok(()),
        };
        if outcome.is_err() {
            self.memory().containers_written = Some(afterwards());
        }
        outcome.map(|()| Applied::Done)
    }

    async fn create_certificate(
        &self,
        name: &str,
        certificate: &Certificate,
    ) -> Result<(), ApiError> {
        let key = std::str::from_utf8(&certificate.key_pem).ok();
        let (Some((own, others)), Some(key)) = (split(&certificate.chain_pem), key) else {
            let why = format!("the Secret {} is not PEM", certificate.source);
            return Err(ApiError::ours(ErrorKind::Invalid, "POST /v1/secrets", why));
        };
        // An attempt that ended halfway has left them, and no container holds them.
        for left in self.cloud.secrets_named(name).await? {
            if left.name == name {
                self.cloud.delete_secret(&id_in(&left.secret_ref)).await?;
            }
        }
        let mut parts = vec![("certificate", "certificate", own.as_str())];
        parts.push(("private_key", "private", key));
        if !others.is_empty() {
            parts.push(("intermediates", "certificate", others.as_str()));
        }
        let mut made = Vec::new();
        for (role, kind, payload) in parts {
            let body = json!({"name": name, "secret_type": kind, "payload": payload,
                "payload_content_type": "text/plain"});
            match self.cloud.create_secret(body).await {
                Ok(secret_ref) => made.push(SecretRef {
                    name: role.to_owned(),
                    secret_ref,
                }),
                Err(error) => {
                    self.take_back(&made).await;
                    return Err(error);
                }
            }
        }
        let body: Value = json!({"type": "certificate", "name": name, "secret_refs": made});
        match self.cloud.create_container(body).await {
            Ok(container_ref) => {
                let container = Container {
                    container_ref,
                    name: name.to_owned(),
                    secret_refs: made,
                };
                let containers = &self.lists.containers;
                containers.put(container, |it| &it.container_ref).await;
                Ok(())
            }
            // One whose answer was lost may be there: what it holds stays.
            Err(error) if error.may_be_done() => Err(error),
            Err(error) => {
                self.take_back(&made).await;
                Err(error)
            }
        }
    }

    /// Deletes secrets of an attempt that failed. Those that stay are found by their name.
    async fn take_back(&self, made: &[SecretRef]) {
        for secret in made {
            if let Err(error) = self.cloud.delete_secret(&id_in(&secret.secret_ref)).await {
                tracing::debug!(%error, "a secret stays until the next attempt");
            }
        }
    }

    async fn delete_certificate(&self, container: &Id, secrets: &[Id]) -> Result<(), ApiError> {
        // The secrets first: without the container nothing would name them.
        for secret in secrets {
            self.cloud.delete_secret(secret).await?;
        }
        self.cloud.delete_container(container).await?;
        let others = |all: &mut Vec<Container>| {
            all.retain(|it| id_in(&it.container_ref) != *container);
        };
        self.lists.containers.amend(others).await;
        Ok(())
    }
}
