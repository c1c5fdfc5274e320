//! One picture of a running instance, drawn from the engine's book and the provider.

use landfall_engine::EngineHandle;
use landfall_engine::book::Record;
use landfall_model::provider::Provider as _;
use landfall_model::reason::Reason;
use landfall_model::view::{InstanceView, ServiceView};

use crate::platform::Platform;

/// Everything the instance knows, with traffic counted up to now.
pub fn instance(handle: &EngineHandle<Platform>, started: &str) -> InstanceView {
    handle.book.read(|pages| {
        let unhandled: Vec<String> = pages
            .records
            .iter()
            .filter(|(_, record)| !record.handled)
            .map(|(key, _)| format!("{key} has not been handled yet"))
            .collect();
        let mut waiting = unhandled;
        if !pages.synced {
            waiting.insert(0, "the manifests are still being read".to_owned());
        }
        InstanceView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.to_owned(),
            ready: waiting.is_empty(),
            waiting,
            problems: pages.problems.clone(),
            pools: handle
                .providers
                .iter()
                .flat_map(|provider| provider.pools())
                .collect(),
            services: pages
                .records
                .values()
                .map(|record| service(handle, record))
                .collect(),
        }
    })
}

fn service(handle: &EngineHandle<Platform>, record: &Record) -> ServiceView {
    let row = &record.row;
    let provider = handle.providers.get(record.instance);
    ServiceView {
        key: row.key.clone(),
        uid: row.uid.clone(),
        class: row.class.as_ref().map(ToString::to_string),
        origin: row.source.as_ref().map(|source| source.document.clone()),
        status: record.status.clone(),
        reasons: placed(&record.reasons, record),
        address: record.address.clone(),
        listeners: provider
            .map(|provider| provider.live(&row.uid))
            .unwrap_or_default(),
        left_out: record.left_out.clone(),
        pending: record.pending.clone(),
    }
}

/// Reasons that name a field and no place get the place of the field in its file.
fn placed(reasons: &[Reason], record: &Record) -> Vec<Reason> {
    let place = |reason: &Reason| {
        let origin = reason.origin.clone().or_else(|| {
            reason
                .field
                .as_ref()
                .and_then(|field| record.row.origin_of(field))
        });
        reason.clone().origin(origin)
    };
    reasons.iter().map(place).collect()
}
