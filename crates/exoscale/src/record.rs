//! What is known of a Service's objects, written on the Service: which NLB it has and whether that
//! is its own, the instance pool that was inferred, and its NLB services whatever their names.

use std::collections::BTreeSet;
use std::fmt;

use landfall_model::Intent;
use landfall_model::dialect::exoscale::LOAD_BALANCER_ID;
use landfall_model::status::{RECORD, RECORD_OF_GIVEN};

use crate::objects::Id;

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The NLB.
    pub load_balancer: Id,
    /// The NLB is the Service's own: it may be renamed and deleted.
    pub own: bool,
    /// The instance pool that was inferred.
    pub inferred: Option<Id>,
    /// The NLB services that are the Service's.
    pub services: BTreeSet<Id>,
    /// The user named the NLB.
    pub given: bool,
}

const OWN: &str = "own";
const SHARED: &str = "shared";
const NONE: &str = "-";

// === impl Record ===

impl Record {
    /// Returns the record on a Service.
    pub(crate) fn of(intent: &Intent) -> Option<Self> {
        Self::parse(intent.marks.get(RECORD)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut id = || words.next();
        let (load_balancer, own) = (Id::parse(id()?)?, id()? == OWN);
        let inferred = id().and_then(Id::parse);
        let services = id()?.split(',').filter_map(Id::parse).collect();
        Some(Self {
            load_balancer,
            own,
            inferred,
            services,
            given: text.ends_with(RECORD_OF_GIVEN),
        })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.own { OWN } else { SHARED };
        let inferred = self.inferred.as_ref().map_or(NONE, Id::as_str);
        let services: Vec<_> = self.services.iter().map(Id::as_str).collect();
        let services = if services.is_empty() {
            NONE.to_owned()
        } else {
            services.join(",")
        };
        let given = if self.given { RECORD_OF_GIVEN } else { "" };
        let id = &self.load_balancer;
        write!(f, "{id} {own} {inferred} {services}{given}")
    }
}

/// Returns whether the user, and no controller, wrote which NLB the Service has.
pub(crate) fn is_given(intent: &Intent) -> bool {
    intent.extensions.exoscale.load_balancer.is_some()
        && !intent.marks.contains_key(LOAD_BALANCER_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let id = |n: u8| Id::parse(&format!("{n:08x}-0000-4000-8000-000000000000")).unwrap();
        for record in [
            Record {
                load_balancer: id(1),
                own: true,
                inferred: Some(id(2)),
                services: [id(3), id(4)].into(),
                given: false,
            },
            Record {
                load_balancer: id(1),
                own: false,
                inferred: None,
                services: BTreeSet::new(),
                given: true,
            },
        ] {
            assert_eq!(Record::parse(&record.to_string()), Some(record));
        }
        for text in ["", "x", "v1 abc own - -"] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
    }
}
