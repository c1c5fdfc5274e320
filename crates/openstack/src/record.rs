//! What was seen of a load balancer, written on the Service, so that a restart need not read it
//! again: its id, its `updated_at`, and a fingerprint of what was wanted and found to be there.
//! Where a second load balancer serves the Service's other family, the same follows of that one.

use std::fmt;

use landfall_model::Intent;
use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::status::{RECORD, RECORD_OF_GIVEN};

use crate::objects::Id;

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) balancer: String,
    pub(crate) token: String,
    pub(crate) fingerprint: String,
    /// The user named the load balancer.
    pub(crate) given: bool,
    /// The Service has certificates of Secrets in Barbican.
    pub(crate) certified: bool,
}

/// The word by which a record says that the Service has certificates in Barbican.
const CERTIFIED: &str = "tls";

/// What stands between the record of the first load balancer and that of the second.
const BESIDE: &str = " + ";

/// The record of the second load balancer on a Service, as it stands.
pub(crate) fn beside(intent: &Intent) -> Option<&str> {
    let (_, second) = intent.marks.get(RECORD)?.split_once(BESIDE)?;
    Some(second)
}

/// A record, followed by that of a second load balancer.
pub(crate) fn with_beside(record: &str, second: &str) -> String {
    let first = record.split_once(BESIDE).map_or(record, |(first, _)| first);
    format!("{first}{BESIDE}{second}")
}

/// Whether a record is of the same listeners and pools of the same load balancers as the one
/// before: only members have changed, or nothing but the time of the last change. It is worth no
/// write then: each change of nodes would be one for every Service. A restart has more to read.
pub(crate) fn is_refreshed(before: &str, now: &str) -> bool {
    let records =
        |text: &str| -> Option<Vec<Record>> { text.split(BESIDE).map(Record::parse).collect() };
    let (Some(before), Some(now)) = (records(before), records(now)) else {
        return false;
    };
    let mut pairs = before.iter().zip(&now);
    before.len() == now.len() && pairs.all(|(before, now)| now.refreshes(before))
}

// === impl Record ===

impl Record {
    /// The record on a Service.
    pub(crate) fn of(intent: &Intent) -> Option<Self> {
        Self::parse(intent.marks.get(RECORD)?)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let given = text.ends_with(RECORD_OF_GIVEN);
        let first = text.split(BESIDE).next().unwrap_or_default();
        let certified = first.split(' ').skip(3).any(|word| word == CERTIFIED);
        let mut words = text.split(' ');
        let record = Self {
            balancer: words.next()?.to_owned(),
            token: words.next()?.to_owned(),
            fingerprint: words.next()?.to_owned(),
            given,
            certified,
        };
        Some(record)
    }

    /// Whether listeners and pools were seen as this fingerprint has them, with whichever members.
    pub(crate) fn is_of_shape(&self, fingerprint: &str) -> bool {
        let shape = |text: &str| text.split_once('-').map(|(shape, _)| shape.to_owned());
        shape(&self.fingerprint) == shape(fingerprint)
    }

    fn refreshes(&self, before: &Self) -> bool {
        let shape = self.fingerprint.split_once('-').map(|(shape, _)| shape);
        let same = before.balancer == self.balancer
            && before.given == self.given
            && before.certified == self.certified
            && before.fingerprint.split_once('-').map(|(shape, _)| shape) == shape;
        // Of two changes in one second, the old record would vouch for what the first one left.
        let reported_apart = before.token != self.token || before.fingerprint == self.fingerprint;
        same && shape.is_some_and(|shape| !shape.is_empty()) && reported_apart
    }

    /// Whether this load balancer is as wanted, without reading it.
    pub(crate) fn vouches_for(&self, id: &Id, token: Option<&str>, fingerprint: &str) -> bool {
        self.balancer == id.as_str()
            && Some(self.token.as_str()) == token
            && self.fingerprint == fingerprint
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.balancer, self.token, self.fingerprint)?;
        if self.certified {
            write!(f, " {CERTIFIED}")?;
        }
        f.write_str(if self.given { RECORD_OF_GIVEN } else { "" })
    }
}

/// Whether what the Service publishes is its own, rather than that of a load balancer that it
/// shares.
pub(crate) fn owned(intent: &Intent) -> bool {
    Record::of(intent).is_some_and(|record| !record.given)
}

/// Whether the Service has certificates in Barbican, by the record on it.
pub(crate) fn is_certified(intent: &Intent) -> bool {
    Record::of(intent).is_some_and(|record| record.certified)
}

/// Whether we wrote the id that the Service names.
pub(crate) fn is_given(intent: &Intent) -> bool {
    intent.extensions.openstack.load_balancer.is_some()
        && !intent.marks.contains_key(LOAD_BALANCER_ID)
}

/// Whether a controller, rather than the user, has written on the Service which load balancer it
/// has: it has noted the address, too.
pub(crate) fn was_noted(intent: &Intent) -> bool {
    intent.extensions.openstack.published.is_some()
        || intent.marks.contains_key(LOAD_BALANCER_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_refreshed_where_only_members_or_the_time_are_others() {
        for (before, now, refreshed) in [
            ("lb 1 s-m", "lb 2 s-n", true),
            ("lb 1 s-m", "lb 2 s-m", true),
            ("lb 1 s-m given", "lb 2 s-n given", true),
            ("lb 1 s-m tls given", "lb 2 s-n tls given", true),
            ("lb 1 s-m", "lb 2 s-m tls", false),
            ("lb 1 s-m + six 1 s-m", "lb 2 s-n + six 1 s-m", true),
            // Other listeners, another load balancer, or one load balancer more.
            ("lb 1 s-m", "lb 2 t-m", false),
            ("lb 1 s-m", "other 2 s-m", false),
            ("lb 1 s-m", "lb 2 s-m given", false),
            ("lb 1 s-m", "lb 2 s-n + six 1 s-m", false),
            ("lb 1 s-m + six 1 s-m", "lb 2 s-n + six 1 t-m", false),
            // What was not seen yet, and what an older version wrote.
            ("lb - -", "lb 2 s-m", false),
            ("lb 1 s-m", "lb - -", false),
            ("lb 1 s", "lb 2 s-m", false),
            ("lb 1 s", "lb 2 s", false),
            ("", "lb 2 s-m", false),
            // Changed twice in one second.
            ("lb 1 s-m", "lb 1 s-n", false),
        ] {
            assert_eq!(is_refreshed(before, now), refreshed, "{before} {now}");
        }
    }
}
