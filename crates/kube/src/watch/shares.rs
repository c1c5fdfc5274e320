//! How much is kept of the Services and EndpointSlices of each namespace: pure.
//!
//! A tenant can write objects of megabytes, and without number. What is over the limit is not kept
//! as it is; an object that takes no more than before is kept in any case, so that a namespace at
//! its limit goes on to be served.
//!
//! Of a Service beyond it a row is left that says why it is refused, with what shows its owner,
//! what it holds, and the short texts by which it is announced and will be removed. The version
//! that was accepted before is served, so that the Service goes on to be counted with what it took.
//! For those of usual size that serve there is more room: otherwise the order of the first list
//! would decide which of them are read.
//!
//! Of an EndpointSlice beyond it the first endpoints are left, as many as there is room for, and
//! not the older version, whose endpoints may belong to others by now. Of one without room for any
//! there is a mark, so that its Service says why it lacks them.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::limits::{BYTES_OF_SERVICES, BYTES_OF_SLICES};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Fact, PackedService, PackedSlice, ServiceRow, SliceRow};
use landfall_model::status::{ACCEPTED_VERSION, INSTANCE, STATE_ANNOTATIONS};
use landfall_model::{ServiceKey, named, wire};

use super::kind::Kind;

/// What each row takes beside its own bytes: names, and its places in maps.
const ROW: usize = 256;

/// What each Secret takes that a Service names, even if there is no room to watch it.
const SECRET: usize = 1024;

/// This part of a share is added for what is left of Services that are refused, and for those of
/// usual size that serve; for marks of slices as well.
const FOR_REFUSED: usize = 4;

/// No Service of usual size takes more.
const USUAL: usize = 4096;

/// What is left of the labels of a Service that is refused, and of its annotations as well: more
/// than they usually take.
const TEXTS: usize = 2048;

/// What is left of its ports.
const PORTS: usize = 32;

/// The longest annotation that is taken for one of ours on a Service that is refused, although its
/// status does not vouch for it: users can write them.
const MARK: usize = 256;

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
    /// What marks take. It does not count otherwise, or what was removed would make room for them
    /// alone.
    marks: usize,
    refused: usize,
    faulty: usize,
}

/// What is kept of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) bytes: u32,
    /// A version of it was read as it is. That one counts as long as it may be what is served.
    pub(super) read: bool,
    /// For lack of room it is not kept as it is.
    pub(super) refused: bool,
    /// All that is kept of it is a mark that it is there.
    pub(super) mark: bool,
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
            Fact::Service(row) => self.admit_service(row, before, was_sent),
            Fact::Slice(row) => {
                let namespace = row.key.namespace();
                let bytes = weight_of_slice(&row);
                if self.fits(namespace, bytes, before, self.most) {
                    return (Kept::whole(bytes), Some(Fact::Slice(row)));
                }
                if let Some(rest) = self.cut(&row, before) {
                    let bytes = weight_of_slice(&rest);
                    return (Kept::refused(bytes), Some(Fact::Slice(Arc::new(rest))));
                }
                let Some((kept, mark)) = self.mark(&row, before) else {
                    return (Kept::refused(0), None);
                };
                (kept, Some(Fact::Slice(Arc::new(mark))))
            }
            other => (Kept::default(), Some(other)),
        }
    }

    fn admit_service(
        &self,
        row: Arc<ServiceRow>,
        before: Kept,
        was_sent: bool,
    ) -> (Kept, Option<Fact>) {
        let bytes = weight(&row);
        let fits = |bytes, most| self.fits(row.key.namespace(), bytes, before, most);
        let status = &row.status;
        let has_address = !status.ingress.is_empty();
        let serves = before.read || has_address || status.marks.contains_key(ACCEPTED_VERSION);
        let most = self.most.saturating_add(self.most / FOR_REFUSED);
        if fits(bytes, self.most) || (serves && bytes <= USUAL && fits(bytes, most)) {
            let kept = Kept::whole(counted(&row, bytes, before));
            return (kept, Some(Fact::Service(row)));
        }
        // What may have something is not forgotten, or it would be taken away.
        let is_noted = has_address || !status.conditions.is_empty();
        let holds = was_sent || row.finalized || is_noted;
        let rest = self.refuse(&row, TEXTS);
        let shorter = weight(&rest);
        let rest = if fits(shorter, most) {
            rest
        } else if holds {
            self.refuse(&row, 0)
        } else {
            return (Kept::refused(0), None);
        };
        // The version before is served, and kept for that.
        let kept = Kept {
            read: before.read,
            ..Kept::refused(weight(&rest).max(before.of_version()))
        };
        (kept, Some(Fact::Service(Arc::new(rest))))
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
        share.marks = (share.marks + now.of_mark()).saturating_sub(before.of_mark());
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
        bytes <= before.of_version() || others.saturating_add(bytes) <= most
    }

    /// What is left of a Service; `texts`: so many bytes of its labels and of its annotations.
    fn refuse(&self, row: &ServiceRow, texts: usize) -> ServiceRow {
        let fault = Reason::error(
            Code::LimitReached,
            format!(
                "the Services of the namespace take more than {} MiB of memory, so this one is not \
                 read",
                self.most >> 20
            ),
        )
        .remedy("shorten annotations, or remove Services; it is read again within minutes");
        // One port shows that it has any.
        let ports = if texts == 0 { 1 } else { PORTS };
        let address = row.load_balancer_ip.as_ref();
        let mut status = row.status.clone();
        status.marks.retain(|key, value| is_mark(key, value));
        ServiceRow {
            key: row.key.clone(),
            uid: row.uid.clone(),
            resource_version: row.resource_version.clone(),
            recorded: row.recorded.clone(),
            class: row.class.clone(),
            families: row.families.clone(),
            ports: row.ports.iter().take(ports).cloned().collect(),
            status,
            faults: vec![fault],
            labels: shortest(&row.labels, texts),
            annotations: shortest(&row.annotations, texts),
            selector: BTreeMap::new(),
            load_balancer_ip: address.filter(|it| it.len() <= MARK).cloned(),
            source_ranges: Vec::new(),
            node_fields: BTreeMap::new(),
            source: None,
            ..*row
        }
    }

    /// What is left of a slice: as many of its first endpoints as there is room for. The last ones
    /// are those that came last.
    fn cut(&self, row: &SliceRow, before: Kept) -> Option<SliceRow> {
        let first = |count| SliceRow {
            endpoints: row.endpoints.iter().take(count).cloned().collect(),
            ports: row.ports.clone(),
            ..without_endpoints(row)
        };
        let (mut fit, mut beyond) = (0, row.endpoints.len());
        while beyond.saturating_sub(fit) > 1 {
            let middle = fit + (beyond - fit) / 2;
            let bytes = weight_of_slice(&first(middle));
            if self.fits(row.key.namespace(), bytes, before, self.most) {
                fit = middle;
            } else {
                beyond = middle;
            }
        }
        (fit > 0).then(|| first(fit))
    }

    /// What says of a slice that it has endpoints, and that there is no room for them.
    fn mark(&self, row: &SliceRow, before: Kept) -> Option<(Kept, SliceRow)> {
        let mark = without_endpoints(row);
        let bytes = weight_of_slice(&mark);
        let taken = self.of.get(row.key.namespace());
        let taken = taken.map_or(0, |share| share.marks);
        let others = taken.saturating_sub(before.of_mark());
        let fits = others.saturating_add(bytes) <= self.most / FOR_REFUSED;
        let kept = Kept {
            mark: true,
            ..Kept::refused(bytes)
        };
        (fits && !row.endpoints.is_empty()).then_some((kept, mark))
    }

    /// What operators have to know.
    fn problem(&self, kind: &Kind, namespace: &str) -> Reason {
        let most = self.most >> 20;
        let message = match kind {
            Kind::Slices => format!(
                "the EndpointSlices of namespace {namespace} take more than {most} MiB of memory: \
                 endpoints beyond that are left out"
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
            read: true,
            ..Self::default()
        }
    }

    fn refused(bytes: usize) -> Self {
        Self {
            read: false,
            refused: true,
            ..Self::whole(bytes)
        }
    }

    fn size(self) -> usize {
        if self.mark { 0 } else { self.sent() }
    }

    fn of_mark(self) -> usize {
        if self.mark { self.sent() } else { 0 }
    }

    fn sent(self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// How many bytes it may take again.
    fn of_version(self) -> usize {
        if self.read { self.size() } else { 0 }
    }
}

/// How many bytes a Service takes.
fn weight(row: &ServiceRow) -> usize {
    PackedService::of(row).size() + ROW + named::count(row) * SECRET
}

fn weight_of_slice(row: &SliceRow) -> usize {
    PackedSlice::of(row).size() + ROW
}

fn without_endpoints(row: &SliceRow) -> SliceRow {
    SliceRow {
        key: row.key.clone(),
        service: row.service.clone(),
        family: row.family,
        ports: Vec::new(),
        endpoints: Vec::new(),
        cut: true,
        source: row.source.clone(),
    }
}

/// How many bytes count for a Service that is read. One that takes less than before may be invalid,
/// and then the version before is served and kept, until this one is on record as accepted.
fn counted(row: &ServiceRow, bytes: usize, before: Kept) -> usize {
    let text = row.status.marks.get(ACCEPTED_VERSION);
    let is_accepted = || text.is_some_and(|it| wire::accepted_annotations(it, row).is_some());
    if bytes >= before.of_version() || is_accepted() {
        return bytes;
    }
    before.of_version()
}

/// Whether an annotation of ours is kept of a Service that is refused.
fn is_mark(key: &str, value: &str) -> bool {
    let is_vouched = key != INSTANCE && STATE_ANNOTATIONS.contains(&key);
    is_vouched || value.len() <= MARK
}

/// Returns the shortest entries of a map, until they take so many bytes.
fn shortest(map: &BTreeMap<String, String>, mut most: usize) -> BTreeMap<String, String> {
    let size = |(key, value): &(&String, &String)| key.len() + value.len();
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(size);
    let fits = |entry: &(&String, &String)| {
        let left = most.checked_sub(size(entry));
        most = left.unwrap_or(0);
        left.is_some()
    };
    let short = entries.into_iter().take_while(fits);
    short
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests;
