//! What was seen of a load balancer, written on the Service, so that a restart need not read it
//! again: its id, its `updated_at`, and a fingerprint of what was wanted and found to be there.
//! Where a second load balancer serves the Service's other family, the same follows of that one.

use std::fmt;

use landfall_model::Intent;
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
}

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

// === impl Record ===

impl Record {
    /// The record on a Service.
    pub(crate) fn of(intent: &Intent) -> Option<Self> {
        let text = intent.marks.get(RECORD)?;
        let given = text.ends_with(RECORD_OF_GIVEN);
        let mut words = text.split(' ');
        let record = Self {
            balancer: words.next()?.to_owned(),
            token: words.next()?.to_owned(),
            fingerprint: words.next()?.to_owned(),
            given,
        };
        Some(record)
    }

    /// Whether this load balancer is as wanted, although nobody looked.
    pub(crate) fn vouches_for(&self, id: &Id, token: Option<&str>, fingerprint: &str) -> bool {
        self.balancer == id.as_str()
            && Some(self.token.as_str()) == token
            && self.fingerprint == fingerprint
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = if self.given { RECORD_OF_GIVEN } else { "" };
        write!(
            f,
            "{} {} {}{given}",
            self.balancer, self.token, self.fingerprint
        )
    }
}
