//! What the cloud refused, as a Reason in its own words, and when to try again.

use landfall_model::provider::{ProviderError, Scope};
use landfall_model::{Code, Reason};

use crate::client::{ApiError, ErrorKind};

/// Returns an error of the client for the engine.
pub(crate) fn failure(error: &ApiError) -> ProviderError {
    let (code, remedy) = match error.kind {
        ErrorKind::Quota => (
            Code::QuotaExceeded,
            "raise the organization's quota, or delete what is not needed",
        ),
        ErrorKind::Unauthorized => (
            Code::ProviderFailed,
            "check the API key and its secret, and the clock of this machine",
        ),
        ErrorKind::Forbidden => (
            Code::ProviderFailed,
            "check the API key, its IAM role, the quota, and the clock of this machine",
        ),
        ErrorKind::Invalid | ErrorKind::Unsupported => (
            Code::OptionNotSupported,
            "Exoscale refuses it: change the Service",
        ),
        ErrorKind::NoService => (Code::ProviderFailed, "check the zone"),
        _ => (Code::ProviderFailed, ""),
    };
    // With the id under which the cloud's operators find the request. A Reason is without: it would
    // change with every attempt, and each change is a write and an event.
    tracing::info!(%error, "the cloud refused");
    ProviderError {
        reason: Reason::error(code, error.without_id()).remedy(remedy),
        retry: error.retry(),
        scope: Scope::Reconcile,
    }
}

/// Returns whether the cloud refuses a change as it is, so that another one may succeed.
pub(crate) fn is_lasting(error: &ApiError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::Forbidden
            | ErrorKind::Quota
            | ErrorKind::TooLarge
            | ErrorKind::NotFound
    )
}
