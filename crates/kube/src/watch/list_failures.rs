//! What stands in for a list that fails: pure.
//!
//! A list that fails says nothing: neither that objects are gone nor that there are none. So
//!
//! - a kind that was listed in full once stands as it was known, with what was seen since: that is
//!   what a leader goes by whose watch breaks, too;
//! - a kind that never was is not known, and nothing is begun before it is: taken for empty it
//!   would cost Services their members, or their addresses;
//! - nothing stands in for Services: they are the record of claims, and the leader before wrote it;
//! - a Secret concerns those Services alone that name it, and they report that it is missing.
//!
//! Nothing stands in where Services fail, too: then the API server is away, and is waited for. Time
//! counts from when Services fare well, so that after an outage every kind has its chance.

use std::time::{Duration, Instant};

use super::Kind;

/// Attempts in a row that came to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListFailures {
    since: Option<Instant>,
}

// === impl ListFailures ===

impl ListFailures {
    /// Notes an attempt that was begun then and has failed now. Returns how long all have while
    /// Services fared well; `well_since`: since when they do.
    pub(super) fn fail(
        &mut self,
        begun: Instant,
        now: Instant,
        well_since: Option<Instant>,
    ) -> Option<Duration> {
        let since = *self.since.get_or_insert(begun);
        let both = since.max(well_since?);
        Some(now.saturating_duration_since(both))
    }
}

/// Whether what is known of a kind may stand in for a list of it. `listed`: it was listed in full
/// before, or known not to be there.
pub(super) fn stands_in(kind: &Kind, listed: bool) -> bool {
    match kind {
        Kind::Services => false,
        Kind::Slices | Kind::Nodes | Kind::Namespaces | Kind::Resources { .. } => listed,
        Kind::Secret(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::ServiceKey;
    use landfall_model::rows::ResourceKind;

    use super::*;

    #[test]
    fn what_was_never_listed_is_not_taken_for_empty_and_services_are_never_left_out() {
        let pools = Kind::Resources {
            kind: ResourceKind::IpAddressPool,
            namespace: "system".to_owned(),
        };
        for kind in [Kind::Slices, Kind::Nodes, Kind::Namespaces, pools] {
            assert!(stands_in(&kind, true) && !stands_in(&kind, false));
        }
        assert!(!stands_in(&Kind::Services, true) && !stands_in(&Kind::Services, false));
        assert!(stands_in(
            &Kind::Secret(ServiceKey::new("shop", "tls")),
            false
        ));
    }

    #[test]
    fn a_lapse_lasts_from_its_first_attempt_and_counts_only_while_services_fare_well() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let seconds = |count| Some(Duration::from_secs(count));
        let mut list_failures = ListFailures::default();
        assert_eq!(list_failures.fail(at(5), at(7), Some(at(0))), seconds(2));
        assert_eq!(list_failures.fail(at(20), at(35), Some(at(0))), seconds(30));
        // The API server was away, and everything has its chance.
        assert_eq!(list_failures.fail(at(40), at(70), None), None);
        assert_eq!(list_failures.fail(at(70), at(75), Some(at(74))), seconds(1));
    }
}
