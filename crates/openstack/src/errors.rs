//! What the cloud refused, as a Reason in its own words, and when to try again.

use std::time::Duration;

use landfall_model::provider::{ProviderError, Retry, Scope};
use landfall_model::{Code, Reason};

use crate::client::{ApiError, ErrorKind};

/// How long a cloud that asks for quiet is left alone where it does not say.
const QUIET: Duration = Duration::from_secs(5);

/// An error of the client, for the engine.
pub(crate) fn failure(error: &ApiError) -> ProviderError {
    let (code, remedy) = match error.kind {
        ErrorKind::Quota => (
            Code::QuotaExceeded,
            "raise the project's quota, or delete what is not needed",
        ),
        ErrorKind::NoAddresses => (
            Code::NoAddressOfFamily,
            "the network has no address left: choose another one, or free addresses",
        ),
        ErrorKind::Unauthorized => (
            Code::ProviderFailed,
            "check the credentials in the cloud configuration",
        ),
        ErrorKind::Forbidden => (
            Code::ProviderFailed,
            "the credentials' roles do not allow it",
        ),
        ErrorKind::Invalid | ErrorKind::Unsupported => (
            Code::OptionNotSupported,
            "the cloud does not take it: change what the Service asks for",
        ),
        _ => (Code::ProviderFailed, ""),
    };
    let retry = match error.kind {
        ErrorKind::Throttled => Retry::After(error.retry_after.unwrap_or(QUIET)),
        ErrorKind::Stale => Retry::Now,
        _ => Retry::Backoff,
    };
    // With the id under which the cloud's operators find the request. A Reason is without: it would change with
    // every attempt, and each change is a write and an event.
    tracing::info!(%error, "the cloud refused");
    ProviderError {
        reason: Reason::error(code, error.in_words()).remedy(remedy),
        retry,
        scope: Scope::Pass,
    }
}
