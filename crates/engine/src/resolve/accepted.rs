//! The newest version of a Service that was valid: what is served while a newer one is refused.

use std::sync::Arc;

use landfall_model::intent::Intent;
use landfall_model::listener::Certificate;
use landfall_model::provider::ProviderProfile;
use landfall_model::rows::{KeptService, ServiceRow};

use super::{certificates_of, resolve_previous};
use crate::World;

/// A version of a Service that was valid.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The Service as it was.
    pub row: KeptService,
    /// What its Secrets held then.
    pub certificates: Vec<Arc<Certificate>>,
}

// === impl Accepted ===

impl Accepted {
    /// A version that is valid, and what it wants.
    pub fn new(row: KeptService, intent: Option<&Intent>) -> Self {
        let spec = intent.and_then(|intent| intent.load_balancer.as_ref());
        let listeners = spec.iter().flat_map(|spec| &spec.listeners);
        let certificates = listeners.flat_map(|listener| {
            let of_clients = listener.mode.certificates();
            let of_clients = of_clients.into_iter().flat_map(|it| &it.0);
            let of_members = listener.pool.tls.iter().flat_map(certificates_of);
            of_clients.chain(of_members).cloned()
        });
        Self {
            row,
            certificates: certificates.collect(),
        }
    }

    /// Returns what this version wants with the facts of today, for a Service whose newest version
    /// `row` is refused; `None` if it can't be had any more.
    pub fn resolve(
        &self,
        row: &ServiceRow,
        world: &World,
        profile: &ProviderProfile,
    ) -> Option<Intent> {
        // What is held and noted on the Service does not go back to what it was.
        let version = ServiceRow {
            finalized: row.finalized,
            status: row.status.clone(),
            ..self.row.row()?
        };
        resolve_previous(&version, &self.certificates, world, profile).ok()
    }
}
