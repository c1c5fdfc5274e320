//! What the cloud refused, as a Reason in its own words, and when to try again.

use landfall_model::provider::{ProviderError, Scope};
use landfall_model::{Code, Reason};

use crate::client::{ApiError, ErrorKind};

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
            "the cloud refuses it: change the Service",
        ),
        ErrorKind::TooLarge => (
            Code::ProviderFailed,
            "allow larger requests in the cloud (max_request_body_size, or a proxy in front of \
            it), or use fewer source ranges, nodes or ports",
        ),
        ErrorKind::Moved => (
            Code::ProviderFailed,
            "write the address that it names as auth-url",
        ),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_model::provider::Retry;

    use super::*;

    fn of(kind: ErrorKind, retry_after: Option<u64>) -> ProviderError {
        failure(&ApiError {
            kind,
            status: None,
            message: "no".to_owned(),
            code: None,
            request: "POST /v2/lbaas/pools".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            redirect: None,
            request_id: None,
        })
    }

    #[test]
    fn what_is_too_large_says_what_to_do_unless_the_next_try_is_smaller() {
        let too_large = of(ErrorKind::TooLarge, None);
        assert!(too_large.reason.remedy.contains("max_request_body_size"));
        assert_eq!(too_large.retry, Retry::Backoff);
        let halved = of(ErrorKind::Halved, None);
        assert_eq!(
            (halved.reason.remedy.as_str(), halved.retry),
            ("", Retry::Now)
        );
    }

    #[test]
    fn a_cloud_that_asks_for_quiet_is_left_alone_as_long_as_it_says() {
        let after = |seconds| Retry::After(Duration::from_secs(seconds));
        assert_eq!(of(ErrorKind::Throttled, Some(30)).retry, after(30));
        assert_eq!(of(ErrorKind::Throttled, None).retry, after(5));
    }
}
