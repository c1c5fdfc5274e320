//! The audit: which Services have something else in the cloud than when they were observed last.

use landfall_model::Uid;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::memory::{Key, Memory, Seen};
use crate::provider::Exoscale;

impl Exoscale {
    /// Returns the Services that have something else than before, by one list of NLBs and one of
    /// instances.
    pub(crate) async fn differences(&self) -> Result<Vec<Uid>, ApiError> {
        self.list_since(Some(Instant::now())).await?;
        let infers = self.memory().seen.values().any(|it| it.infers);
        let moved = infers && self.list_instances().await?;
        let mut memory = self.memory();
        let due = memory.due(Instant::now());
        let mut services = Vec::new();
        for (service, seen) in &memory.seen {
            let is_due = || {
                let load_balancer = seen.load_balancer.as_ref();
                load_balancer.is_some_and(|it| due.contains(&it.id))
            };
            if (seen.infers && moved) || is_due() || differs(&memory, service, seen) {
                services.push(service.clone());
            }
        }
        Ok(services)
    }
}

/// Returns whether the NLB of a Service is another one than it was. While a change is in flight,
/// that is no drift.
fn differs(memory: &Memory, service: &Uid, seen: &Seen) -> bool {
    let Some(before) = &seen.load_balancer else {
        return !memory
            .operations
            .contains_key(&Key::Creating(service.clone()));
    };
    if memory
        .operations
        .contains_key(&Key::LoadBalancer(before.id.clone()))
    {
        return false;
    }
    let now = memory.rows.get(&before.id);
    now.is_none_or(|row| row.load_balancer != *before)
}
