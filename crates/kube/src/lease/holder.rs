//! Which process holds the Lease of another controller: whether that one is at work.

use std::time::Duration;

use jiff::Timestamp;

use super::record::Lease;
use crate::api::{self, Ask};
use crate::connect::Connection;
use crate::error::ApiError;

/// The holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// Its identity.
    pub identity: String,
    /// When it renewed the Lease last, by its own clock.
    pub renewed: Timestamp,
    /// For how long each renewal holds.
    pub lasts: Duration,
}

/// The longest that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

impl LeaseHolder {
    /// Whether the Lease has not ended. Clocks may differ by as much as a renewal holds.
    pub fn is_active(&self, now: Timestamp) -> bool {
        let since = now.duration_since(self.renewed).unsigned_abs();
        since <= self.lasts * 2
    }
}

/// Returns the holder of a Lease; `None`: the Lease does not exist, or has no holder.
///
/// # Errors
/// The API server does not answer, or refuses.
pub async fn holder(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Option<LeaseHolder>, ApiError> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let ask = Ask::get(path, "get leases.coordination.k8s.io");
    match api::request_json::<Lease>(connection, ask, TIMEOUT).await {
        Ok(lease) => Ok(of(&lease)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn of(lease: &Lease) -> Option<LeaseHolder> {
    let spec = &lease.spec;
    let identity = spec.holder_identity.clone().filter(|it| !it.is_empty())?;
    let seconds = u64::try_from(spec.lease_duration_seconds?).ok()?;
    Some(LeaseHolder {
        identity,
        renewed: spec.renew_time.as_deref()?.parse().ok()?,
        lasts: Duration::from_secs(seconds),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_holder_is_active_until_its_lease_has_ended_by_any_clock() {
        let lease = |holder: &str| {
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z"});
            serde_json::from_value::<Lease>(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let holder = of(&lease("occm-1")).unwrap();
        assert_eq!(holder.identity, "occm-1");
        let at = |text: &str| holder.is_active(text.parse().unwrap());
        assert!(at("2026-01-01T00:00:20Z") && at("2025-12-31T23:59:50Z"));
        assert!(!at("2026-01-01T00:01:00Z"));
        assert_eq!(of(&lease("")), None);
    }
}
