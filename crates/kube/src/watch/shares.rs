//! How much is kept of the Services and EndpointSlices of each namespace: pure.
//!
//! A tenant can write objects of megabytes, and without number. What is over the limit is not kept
//! as it is; an object that takes no more than before is kept in any case, so that a namespace at
//! its limit goes on to be served. Of a Service beyond it a row is left with its identity, what it
//! holds and why it is refused; of an EndpointSlice nothing, because the endpoints of an older
//! version may belong to others by now.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::limits::{BYTES_OF_SERVICES, BYTES_OF_SLICES};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Fact, PackedService, PackedSlice, ServiceRow, SliceRow};

use super::kind::Kind;
use crate::named;

/// What each row takes beside its own bytes: names, and its places in maps.
const ROW: usize = 256;

/// What each Secret takes that a Service names, even if there is no room to watch it.
const SECRET: usize = 1024;

/// This part of a share is added for what is left of Services that are refused: why they are.
const FOR_REFUSED: usize = 4;

/// The objects of one namespace with problems that are reported. Each has so many lines of them at
/// most.
const FAULTY: usize = 16;

/// What every namespace takes.
#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    of: BTreeMap<Arc<str>, Share>,
    /// Whether a namespace takes less than before of which something was refused.
    freed: bool,
}

/// What a namespace takes.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    refused: usize,
    faulty: usize,
}

/// What is kept of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) bytes: u32,
    /// For lack of room it is not kept as it is.
    pub(super) refused: bool,
    /// Problems of it are reported.
    pub(super) faulty: bool,
}

// === impl Shares ===

impl Shares {
    /// Gives each namespace what is usual for objects of a kind.
    pub(super) fn new(kind: &Kind) -> Self {
        Self::of(match kind {
            Kind::Slices => BYTES_OF_SLICES,
            _ => BYTES_OF_SERVICES,
        })
    }

    /// Gives each namespace so many bytes.
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            of: BTreeMap::new(),
            freed: false,
        }
    }

    /// Decides what is kept of a row, and which fact says so; `None`: nothing. `before` is what was
    /// kept of the version before, if one was sent.
    pub(super) fn admit(&self, fact: Fact, before: Kept, was_sent: bool) -> (Kept, Option<Fact>) {
        match fact {
            Fact::Service(row) => {
                let bytes = weight(&row);
                if self.fits(row.key.namespace(), bytes, before, self.most) {
                    return (Kept::whole(bytes), Some(Fact::Service(row)));
                }
                let rest = self.refuse(&row);
                let bytes = weight(&rest);
                let most = self.most + self.most / FOR_REFUSED;
                // What may have something is not forgotten, or it would be taken away.
                let status = &row.status;
                let holds = was_sent || !status.conditions.is_empty() || !status.ingress.is_empty();
                if holds || self.fits(row.key.namespace(), bytes, before, most) {
                    let fact = Fact::Service(Arc::new(rest));
                    return (Kept::refused(bytes), Some(fact));
                }
                (Kept::refused(0), None)
            }
            Fact::Slice(row) => {
                let bytes = weight_of_slice(&row);
                if self.fits(row.key.namespace(), bytes, before, self.most) {
                    return (Kept::whole(bytes), Some(Fact::Slice(row)));
                }
                (Kept::refused(0), None)
            }
            other => (Kept::default(), Some(other)),
        }
    }

    /// Notes what is kept of an object now. Returns what there is to say of its namespace, if that
    /// is something else than before.
    pub(super) fn note(
        &mut self,
        kind: &Kind,
        namespace: &Arc<str>,
        before: Kept,
        now: Kept,
    ) -> Option<Fact> {
        if before == now {
            return None;
        }
        let share = self.of.entry(namespace.clone()).or_default();
        let earlier = share.refused;
        let turn = |count: usize, now, before| {
            (count + usize::from(now)).saturating_sub(usize::from(before))
        };
        share.bytes = (share.bytes + now.size()).saturating_sub(before.size());
        share.refused = turn(earlier, now.refused, before.refused);
        share.faulty = turn(share.faulty, now.faulty, before.faulty);
        self.freed |= share.refused > 0 && now.size() < before.size();
        let refuses = share.refused > 0;
        if share.bytes == 0 && share.faulty == 0 && !refuses {
            self.of.remove(namespace);
        }
        let reasons = refuses.then(|| self.problem(kind, namespace));
        (refuses != (earlier > 0)).then(|| Fact::SourceProblems {
            part: format!("limit of {kind} of {namespace}").into(),
            reasons: reasons.into_iter().collect(),
        })
    }

    /// Returns which of the problems of an object are reported. An object that a tenant can write
    /// may have thousands, and there may be thousands of them.
    pub(super) fn report(
        &self,
        kind: &Kind,
        key: &ServiceKey,
        before: Kept,
        mut reasons: Vec<Reason>,
    ) -> Option<Vec<Reason>> {
        if !matches!(kind, Kind::Services | Kind::Slices) {
            return Some(reasons);
        }
        reasons.truncate(FAULTY);
        let others = self.of.get(key.namespace()).map_or(0, |share| share.faulty);
        (before.faulty || others < FAULTY).then_some(reasons)
    }

    /// Whether to list everything again, because there may be room by now for what was refused.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    fn fits(&self, namespace: &str, bytes: usize, before: Kept, most: usize) -> bool {
        let taken = self.of.get(namespace).map_or(0, |share| share.bytes);
        let others = taken.saturating_sub(before.size());
        (bytes <= before.size() && !before.refused) || others.saturating_add(bytes) <= most
    }

    /// What is left of a Service.
    fn refuse(&self, row: &ServiceRow) -> ServiceRow {
        let fault = Reason::error(
            Code::LimitReached,
            format!(
                "the Services of the namespace take more than {} MiB of memory, so this one is not \
                 read",
                self.most >> 20
            ),
        )
        .remedy("shorten annotations, or remove Services; it is read again within minutes");
        ServiceRow {
            key: row.key.clone(),
            uid: row.uid.clone(),
            resource_version: row.resource_version.clone(),
            recorded: row.recorded.clone(),
            class: row.class.clone(),
            families: row.families.clone(),
            // One shows that it has any.
            ports: row.ports.iter().take(1).cloned().collect(),
            status: row.status.clone(),
            faults: vec![fault],
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            selector: BTreeMap::new(),
            load_balancer_ip: None,
            source_ranges: Vec::new(),
            node_fields: BTreeMap::new(),
            source: None,
            ..*row
        }
    }

    /// What operators have to know.
    fn problem(&self, kind: &Kind, namespace: &str) -> Reason {
        let most = self.most >> 20;
        let message = match kind {
            Kind::Slices => format!(
                "the EndpointSlices of namespace {namespace} take more than {most} MiB of memory: \
                 those beyond that are left out"
            ),
            _ => format!(
                "the Services of namespace {namespace} take more than {most} MiB of memory: those \
                 beyond that are refused, and served as they were"
            ),
        };
        Reason::warning(Code::LimitReached, message)
            .remedy("limit the objects of the namespace by a ResourceQuota")
    }
}

// === impl Kept ===

impl Kept {
    fn whole(bytes: usize) -> Self {
        Self {
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    fn refused(bytes: usize) -> Self {
        Self {
            refused: true,
            ..Self::whole(bytes)
        }
    }

    fn size(self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }
}

/// How many bytes a Service takes.
fn weight(row: &ServiceRow) -> usize {
    PackedService::of(row).size() + ROW + named::count(row) * SECRET
}

fn weight_of_slice(row: &SliceRow) -> usize {
    PackedSlice::of(row).size() + ROW
}

#[cfg(test)]
mod tests;
