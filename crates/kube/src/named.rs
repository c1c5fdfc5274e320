//! Which Secrets a Service names: pure.

use std::collections::BTreeSet;

use landfall_model::rows::ServiceRow;
use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::{ServiceKey, dialect, wire};

/// Returns how many Secrets are watched for a Service, or would be.
pub(crate) fn count(row: &ServiceRow) -> usize {
    now(row).union(&accepted(row)).count()
}

/// Returns the Secrets of the newest version.
pub(crate) fn now(row: &ServiceRow) -> BTreeSet<ServiceKey> {
    secrets_of(row, row)
}

/// Returns the Secrets of the version that is on record as the one being served.
pub(crate) fn accepted(row: &ServiceRow) -> BTreeSet<ServiceKey> {
    let recorded = row.status.marks.get(ACCEPTED_VERSION);
    let served = recorded.and_then(|text| wire::accepted_from_text(text, row).ok());
    served.map_or_else(BTreeSet::new, |version| secrets_of(row, &version))
}

fn secrets_of(service: &ServiceRow, version: &ServiceRow) -> BTreeSet<ServiceKey> {
    if version.annotations.is_empty() {
        return BTreeSet::new();
    }
    let options = dialect::options(&version.annotations, &version.ports);
    options
        .secrets()
        .map(|name| ServiceKey::new(service.key.namespace(), name))
        .collect()
}
