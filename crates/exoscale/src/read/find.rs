//! Which NLB is that of a Service. Pure.

use landfall_model::dialect::Given;
use landfall_model::{Code, Intent, Reason};
use tokio::time::Instant;

use crate::memory::{Certainty, Row, Rows};
use crate::objects::{Id, LoadBalancer};
use crate::options;
use crate::ownership::Owner;

/// What was found for a Service.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub row: Option<Row>,
    /// Why the NLB that it names can't be used.
    pub missing: Option<Reason>,
    /// Further NLBs with objects of the Service.
    pub surplus: Vec<Row>,
}

/// Finds the NLB of a Service: by id, by labels, by the reference's name.
pub(crate) fn find(want: &Intent, owner: &Owner, rows: &Rows) -> Found {
    let options = &want.extensions.exoscale;
    let external = options.external.as_ref().is_some_and(|it| it.value);
    let given = options::id(options.load_balancer.as_ref()).ok().flatten();
    let recorded = owner.record.as_ref().map(|it| it.load_balancer.clone());
    let mut found = Found::default();
    let by_id = |id: Option<Id>| id.and_then(|id| rows.get(&id));
    let row = if external {
        match by_name(want, rows, by_id(given.clone()), by_id(recorded)) {
            Ok(row) => Some(row),
            Err(reason) => {
                found.missing = Some(*reason);
                None
            }
        }
    } else {
        by_id(given)
            .or_else(|| by_id(recorded))
            .or_else(|| rows.all().find(|it| owner.is_labelled(&it.load_balancer)))
            .or_else(|| {
                let name = owner.load_balancer_name();
                let is_named = |it: &LoadBalancer| it.name == name && owner.owns(it, &name);
                rows.all().find(|it| is_named(&it.load_balancer))
            })
    };
    found.row = row.cloned();
    let chosen = found.row.as_ref().map(|row| &row.load_balancer.id);
    let others = rows.all().filter(|row| {
        let it = &row.load_balancer;
        let has_ours = it.services.iter().any(|one| owner.owns_service(it, one));
        Some(&it.id) != chosen && (has_ours || owner.is_labelled(it))
    });
    found.surplus = others.cloned().collect();
    found
}

/// Finds the NLB of others: by id, and as long as none is given, by name or id in `name`.
fn by_name<'a>(
    want: &Intent,
    rows: &'a Rows,
    given: Option<&'a Row>,
    recorded: Option<&'a Row>,
) -> Result<&'a Row, Box<Reason>> {
    let options = &want.extensions.exoscale;
    let refuse = |message: &str| Reason::error(Code::CloudObjectNotFound, message);
    let about = |message: &str, given: &Given<String>, remedy: &str| {
        let reason = refuse(message).at_annotation(&given.annotation);
        Err(Box::new(reason.value(given.value.as_str()).remedy(remedy)))
    };
    if let Some(id) = &options.load_balancer {
        let remedy = "write the id of one that exists in the zone of the instance";
        return given.map_or_else(
            || about("the zone has no such load balancer", id, remedy),
            Ok,
        );
    }
    if let Some(row) = recorded {
        return Ok(row);
    }
    let Some(name) = options.name.as_ref().filter(|it| !it.value.is_empty()) else {
        let reason = refuse("an external load balancer needs an id or a name");
        let remedy = "set service.beta.kubernetes.io/exoscale-loadbalancer-id or -name";
        return Err(Box::new(reason.remedy(remedy)));
    };
    let mut matching = rows.all().filter(|row| {
        let it = &row.load_balancer;
        it.name == name.value || it.id.as_str() == name.value
    });
    let remedy = "write the name or the id of one in the zone of the instance";
    match (matching.next(), matching.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => about("no load balancer has this name", name, remedy),
        (Some(_), Some(_)) => about("several load balancers have this name", name, remedy),
    }
}

// === impl Found ===

impl Found {
    /// Returns all rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.row.iter().chain(&self.surplus)
    }

    /// Returns an NLB that has to be read.
    pub fn unknown(&self) -> Option<Id> {
        let mut unknown = self
            .rows()
            .filter(|row| row.certainty == Certainty::Unknown);
        unknown.next().map(|row| row.load_balancer.id.clone())
    }

    /// Returns whether anything rests on what our changes should have done.
    pub fn is_assumed(&self) -> bool {
        self.row
            .as_ref()
            .is_some_and(|row| row.certainty == Certainty::Assumed)
    }

    /// Returns when this was read.
    pub fn read_at(&self, want: &Intent, rows: &Rows) -> Option<Instant> {
        match &self.row {
            Some(row) if want.load_balancer.is_some() => Some(row.at),
            // That nothing else is there, only the list shows.
            _ => rows.listed_at,
        }
    }
}
