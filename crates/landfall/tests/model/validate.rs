//! What must hold, and what was found that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use landfall_local::memory::Listeners;
use landfall_model::listener::ListenerKey;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{ACCEPTED_VERSION, ConditionType};
use landfall_model::wire::accepted_from_text;
use landfall_model::{Code, Uid};
use tokio::time::Instant;

use crate::api::on_record;

/// How long a process may not know of an edit: the watch takes a while.
const LAG: Duration = Duration::from_secs(1);

/// On what terms a version of a Service holds addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Terms {
    namespace: String,
    sharing_key: Option<String>,
    ports: BTreeSet<ListenerKey>,
}

/// A version that its user has written.
#[derive(Clone, Debug)]
struct Version {
    number: u64,
    terms: Terms,
    /// The address that it asks for.
    requested: Option<IpAddr>,
    valid: bool,
    /// Whether it is of type `LoadBalancer`.
    wants: bool,
    until: Option<Instant>,
}

/// What is known of a Service from what was done to it.
#[derive(Clone, Debug, Default)]
struct Past {
    versions: Vec<Version>,
    /// Edits that may move it.
    valid_edits: u32,
    /// How often everything of it was removed.
    removals: u32,
    /// How often another program has taken its record away for good.
    lost_records: u32,
    /// The last version that was reported as accepted.
    accepted: Option<u64>,
    /// The version with which everything of it was removed: no earlier one is served again.
    removed: u64,
}

/// What a Service had when everything had settled, and what may have changed that since.
#[derive(Clone, Debug)]
struct Settled {
    addresses: Vec<IpAddr>,
    causes: [u32; 4],
}

#[derive(Debug, Default)]
struct Notes {
    pasts: BTreeMap<Uid, Past>,
    settled: BTreeMap<Uid, Settled>,
    /// What stood in statuses from which another program took it. The process that runs knows it.
    wiped: BTreeMap<Uid, Vec<IpAddr>>,
    /// The same, while the process had just begun: it may know it or not.
    unread: BTreeMap<Uid, Vec<IpAddr>>,
    pools: u32,
    /// The addresses of the pools, where all of them can be read.
    pooled: Option<Vec<IpAddr>>,
    /// Since when the process runs.
    since: Option<Instant>,
    violations: Vec<String>,
    story: Vec<String>,
}

/// Keeps what users have done and what was found.
#[derive(Debug, Default)]
pub struct Checker {
    notes: Mutex<Notes>,
    begun: Mutex<Option<Instant>>,
}

/// Reasons for which a valid Service may be without the address that it asks for.
const NO_ADDRESS: [Code; 8] = [
    Code::PoolExhausted,
    Code::AddressInUse,
    Code::AddressNotInPool,
    Code::AddressNotShareable,
    Code::NoPools,
    Code::NoAddressOfFamily,
    Code::PoolNotFound,
    Code::InvalidPool,
];

/// The sharing key of a version.
pub const SHARING_KEY: &str = "landfall.dev/sharing-key";

/// The address that a version asks for.
pub const ADDRESSES: &str = "landfall.dev/addresses";

/// Numbers the versions that users write. Nothing that is validated here reads it.
pub const VERSION: &str = "example.org/version";

// === impl Terms ===

impl Terms {
    fn of(row: &ServiceRow) -> Self {
        let ports = row.ports.iter().map(|port| ListenerKey {
            protocol: port.protocol,
            port: port.port,
        });
        Self {
            namespace: row.key.namespace().to_owned(),
            sharing_key: row.annotations.get(SHARING_KEY).cloned(),
            ports: ports.collect(),
        }
    }

    fn may_share(&self, other: &Self) -> bool {
        self.sharing_key.is_some()
            && self.sharing_key == other.sharing_key
            && self.ports.is_disjoint(&other.ports)
    }
}

// === impl Past ===

impl Past {
    /// The terms that a process may know to hold.
    fn terms(&self, now: Instant) -> Vec<&Terms> {
        let recent = |version: &&Version| version.until.is_none_or(|until| until + LAG > now);
        let recent = self.versions.iter().filter(recent);
        recent
            .chain(self.servable())
            .map(|version| &version.terms)
            .collect()
    }

    /// The versions that may be served where the newest is invalid: the one that was reported as
    /// accepted last, and valid ones since. Those a process may have seen, and died before it could
    /// report it; or not have seen, as they were replaced before the watch sent them.
    fn servable(&self) -> impl Iterator<Item = &Version> {
        let first = self.accepted.unwrap_or(0);
        self.versions.iter().filter(move |version| {
            version.valid
                && version.wants
                && version.number >= first
                && version.number > self.removed
        })
    }

    fn is_valid(&self, number: u64) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|version| version.number == number && version.valid)
    }

    fn newest(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// The version that is served where everything has settled: the newest, or where that is
    /// invalid the one on record; none where there is none.
    fn served(&self, row: &ServiceRow) -> Option<&Version> {
        let newest = self.newest()?;
        if newest.valid {
            return Some(newest);
        }
        let recorded = recorded(row)?;
        self.servable().find(|version| version.number == recorded)
    }
}

/// The number of the version that a row is of.
fn version(row: &ServiceRow) -> Option<u64> {
    row.annotations.get(VERSION)?.parse().ok()
}

/// The number of the version that is on record as accepted.
fn recorded(row: &ServiceRow) -> Option<u64> {
    let text = row.annotations.get(ACCEPTED_VERSION)?;
    version(&accepted_from_text(text, row).ok()?)
}

// === impl Checker ===

impl Checker {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap()
    }

    pub fn violations(&self) -> Vec<String> {
        self.notes().violations.clone()
    }

    pub fn story(&self) -> String {
        self.notes().story.join("\n")
    }

    /// Adds a line to the story.
    pub fn note(&self, line: &str) {
        let now = Instant::now();
        let begun = *self.begun.lock().unwrap().get_or_insert(now);
        let at = now.duration_since(begun).as_millis();
        self.notes().story.push(format!("{at:>8} ms  {line}"));
    }

    pub fn violation(&self, what: String) {
        self.note(&format!("VIOLATION {what}"));
        self.notes().violations.push(what);
    }

    /// A user has written a Service.
    pub fn edited(&self, row: &ServiceRow, valid: bool) {
        let now = Instant::now();
        let mut notes = self.notes();
        let past = notes.pasts.entry(row.uid.clone()).or_default();
        if let Some(last) = past.versions.last_mut() {
            last.until = Some(now);
        }
        let requested = row.annotations.get(ADDRESSES);
        past.versions.push(Version {
            number: version(row).unwrap(),
            terms: Terms::of(row),
            requested: requested.map(|text| text.parse().unwrap()),
            valid,
            wants: row.wants_load_balancer,
            until: None,
        });
        if valid {
            past.valid_edits += 1;
        }
    }

    /// A process begins, and knows what stands in the API server. Whatever another program has
    /// taken away there, and was not put back yet, is lost.
    pub fn begun(&self) {
        let mut notes = self.notes();
        notes.since = Some(Instant::now());
        notes.unread.clear();
        for uid in std::mem::take(&mut notes.wiped).into_keys() {
            notes.pasts.entry(uid).or_default().lost_records += 1;
        }
    }

    /// Another program has taken the addresses out of a status. A process that runs puts them back;
    /// one that has just begun may not have read them before, and then nothing reports them to it.
    pub fn wiped(&self, old: &ServiceRow) {
        let mut notes = self.notes();
        let now = Instant::now();
        let recent = notes.since.is_some_and(|since| since + LAG > now);
        if recent {
            notes.pasts.entry(old.uid.clone()).or_default().lost_records += 1;
        }
        let map = if recent {
            &mut notes.unread
        } else {
            &mut notes.wiped
        };
        map.entry(old.uid.clone())
            .or_default()
            .extend(on_record(old));
    }

    /// What is on record of a Service, or was until another program took it from a process that
    /// knows it.
    fn held(&self, row: &ServiceRow) -> Vec<IpAddr> {
        let mut held = on_record(row);
        held.extend(self.notes().wiped.get(&row.uid).into_iter().flatten());
        held
    }

    /// Whether a process may believe that a Service holds an address.
    fn may_hold(&self, row: &ServiceRow, address: IpAddr) -> bool {
        let unread = |notes: &Notes| {
            let addresses = notes.unread.get(&row.uid);
            addresses.is_some_and(|addresses| addresses.contains(&address))
        };
        self.held(row).contains(&address) || unread(&self.notes())
    }

    /// Something is written although nothing changes any more.
    pub fn never_settles(&self, writes: u64) {
        self.violation(format!("{writes} writes, though nothing changes any more"));
    }

    /// The pools have changed.
    pub fn pools_changed(&self, pooled: Option<Vec<IpAddr>>) {
        let mut notes = self.notes();
        notes.pools += 1;
        notes.pooled = pooled;
    }

    /// The pools can't be read, and stay as they were.
    pub fn pools_unreadable(&self) {
        self.notes().pooled = None;
    }

    /// A process writes a Service, of which it knows `known`: no address may be published that
    /// another one publishes, unless they share it.
    pub fn written(
        &self,
        what: &str,
        known: &ServiceRow,
        [old, new]: [&ServiceRow; 2],
        others: &[ServiceRow],
    ) {
        let (before, after) = (on_record(old), on_record(new));
        let of = version(known).unwrap();
        self.note(&format!(
            "write {what} {} of {of}: {before:?} -> {after:?}, accepted on record: {:?}",
            new.key,
            recorded(new)
        ));
        for address in after.iter().filter(|it| !before.contains(it)) {
            let holders = others.iter().filter(|row| self.held(row).contains(address));
            for other in holders {
                if !self.may_share(&new.uid, &other.uid) {
                    self.violation(format!(
                        "{} publishes {address}, which {} publishes",
                        new.key, other.key
                    ));
                }
            }
        }
        let mut notes = self.notes();
        notes.wiped.remove(&new.uid);
        notes.unread.remove(&new.uid);
        let past = notes.pasts.entry(new.uid.clone()).or_default();
        match new.status.condition(ConditionType::Accepted) {
            None => {
                past.accepted = None;
                past.removed = of;
                past.removals += 1;
            }
            // A finalizer is written with the status as it was, which speaks of an earlier version
            // where the newest is invalid. That none of these stays accepted is checked in the end.
            Some(condition) if condition.status && past.is_valid(of) => {
                past.accepted = Some(of);
            }
            Some(_) => {}
        }
    }

    /// Everything of a Service may have been removed, or be removed yet.
    pub fn may_be_removed(&self, uid: &Uid) {
        let mut notes = self.notes();
        let past = notes.pasts.entry(uid.clone()).or_default();
        past.accepted = None;
        past.removals += 1;
    }

    fn may_share(&self, one: &Uid, other: &Uid) -> bool {
        let now = Instant::now();
        let notes = self.notes();
        let (Some(one), Some(other)) = (notes.pasts.get(one), notes.pasts.get(other)) else {
            return false;
        };
        let theirs = other.terms(now);
        one.terms(now)
            .iter()
            .any(|mine| theirs.iter().any(|theirs| mine.may_share(theirs)))
    }

    /// A listener opens: its address must be on record for its Service.
    pub fn opened(&self, address: IpAddr, key: ListenerKey, uid: &Uid, row: Option<&ServiceRow>) {
        self.note(&format!("open {address} {key} for {uid:?}"));
        match row {
            None => self.violation(format!("{address} {key} opens for {uid:?}, which is gone")),
            Some(row) if !self.may_hold(row, address) => self.violation(format!(
                "{address} {key} opens for {}, whose record names {:?}",
                row.key,
                on_record(row)
            )),
            Some(_) => {}
        }
    }

    /// Nothing changes any more: what is there must be right, and what is said true.
    pub fn settled(&self, services: &[ServiceRow], listeners: &Listeners) {
        self.note("settled");
        for (id, owner) in listeners {
            let row = services.iter().find(|row| row.uid == owner.uid);
            let Some(row) = row.filter(|row| row.wants_load_balancer && !row.deleting) else {
                self.violation(format!("{id} is open for {}, which is gone", owner.service));
                continue;
            };
            if !on_record(row).contains(&id.address) {
                self.violation(format!(
                    "{id} is open for {}, which does not hold it",
                    row.key
                ));
            }
        }
        for (position, row) in services.iter().enumerate() {
            for other in services.iter().skip(position + 1) {
                self.validate_pair(row, other);
            }
            self.validate_exhaustion(row, services);
            if row.deleting {
                self.validate_deleting(row);
            } else if row.wants_load_balancer {
                self.validate_service(row, listeners);
            } else if row.finalized || !row.status.conditions.is_empty() {
                self.violation(format!(
                    "{} wants no load balancer and keeps marks",
                    row.key
                ));
            }
        }
        self.validate_stability(services);
    }

    /// Where pools are said to be exhausted, every address of theirs is on record.
    fn validate_exhaustion(&self, row: &ServiceRow, services: &[ServiceRow]) {
        let addressed = row.status.condition(ConditionType::Addressed);
        if addressed.is_none_or(|condition| condition.reason != Code::PoolExhausted) {
            return;
        }
        let taken: BTreeSet<IpAddr> = services.iter().flat_map(on_record).collect();
        let pooled = self.notes().pooled.clone();
        let free = pooled.into_iter().flatten().find(|it| !taken.contains(it));
        if let Some(free) = free {
            self.violation(format!(
                "{} says {addressed:?}, and {free} is free",
                row.key
            ));
        }
    }

    /// A Service that is being deleted and is still there waits for another controller.
    fn validate_deleting(&self, row: &ServiceRow) {
        if row.finalized {
            self.violation(format!("{} is still being deleted", row.key));
        }
        if !row.status.conditions.is_empty() || !on_record(row).is_empty() {
            self.violation(format!("{} is deleted and keeps its status", row.key));
        }
    }

    fn validate_pair(&self, one: &ServiceRow, other: &ServiceRow) {
        let (ours, theirs) = (on_record(one), on_record(other));
        let notes = self.notes();
        // Where nothing is served, the newest version counts, as it does for a process that begins.
        let terms = |row: &ServiceRow| {
            let past = notes.pasts.get(&row.uid)?;
            let version = past.served(row).or(past.newest());
            version.map(|version| version.terms.clone())
        };
        let (mine, their) = (terms(one), terms(other));
        drop(notes);
        let share = mine.is_some_and(|mine| their.is_some_and(|their| mine.may_share(&their)));
        for address in ours.iter().filter(|address| theirs.contains(address)) {
            if !share {
                self.violation(format!("{} and {} hold {address}", one.key, other.key));
            }
        }
    }

    fn validate_service(&self, row: &ServiceRow, listeners: &Listeners) {
        let past = self
            .notes()
            .pasts
            .get(&row.uid)
            .cloned()
            .unwrap_or_default();
        let condition = |kind| row.status.condition(kind);
        let conditions = (
            condition(ConditionType::Accepted),
            condition(ConditionType::Addressed),
            condition(ConditionType::Programmed),
        );
        let (Some(accepted), Some(addressed), Some(programmed)) = conditions else {
            return self.violation(format!("{} lacks a condition", row.key));
        };
        let newest_valid = past.newest().is_some_and(|version| version.valid);
        let held = on_record(row);
        // One that was never accepted has nothing that would have to be removed.
        if !row.finalized && (newest_valid || !held.is_empty()) {
            self.violation(format!("{} lacks the finalizer", row.key));
        }
        if accepted.status && !newest_valid {
            self.violation(format!("{}: an invalid version is accepted", row.key));
        }
        if !accepted.status && newest_valid && !NO_ADDRESS.contains(&accepted.reason) {
            let reason = accepted.reason;
            self.violation(format!("{}: a valid version is refused: {reason}", row.key));
        }
        if addressed.status == held.is_empty() {
            let said = addressed.status;
            self.violation(format!("{}: Addressed={said} with {held:?}", row.key));
        }
        if newest_valid && held.is_empty() && !NO_ADDRESS.contains(&addressed.reason) {
            let reason = addressed.reason;
            self.violation(format!("{}: no address, because {reason}", row.key));
        }
        let open: BTreeSet<(IpAddr, ListenerKey)> = listeners
            .iter()
            .filter(|(_, owner)| owner.uid == row.uid)
            .map(|(id, _)| (id.address, id.key))
            .collect();
        let served = past.served(row);
        let wanted: BTreeSet<(IpAddr, ListenerKey)> = served
            .into_iter()
            .flat_map(|version| &version.terms.ports)
            .flat_map(|key| held.iter().map(|address| (*address, *key)))
            .collect();
        let complete = !wanted.is_empty() && open == wanted;
        if programmed.status && !complete {
            self.violation(format!(
                "{}: Programmed=True with {open:?} open, where {wanted:?} is served",
                row.key
            ));
        }
        if !programmed.status && complete && newest_valid {
            let reason = programmed.reason;
            self.violation(format!("{}: it serves, and says {reason}", row.key));
        }
        if !held.is_empty() && open != wanted {
            self.violation(format!(
                "{}: {open:?} is open instead of {wanted:?}",
                row.key
            ));
        }
        if newest_valid {
            return;
        }
        if served.is_none() && (past.accepted.is_some() || recorded(row).is_some()) {
            self.violation(format!(
                "{}: {:?} is on record, and {:?} was accepted",
                row.key,
                recorded(row),
                past.accepted
            ));
        }
    }

    /// No address changes without a cause.
    fn validate_stability(&self, services: &[ServiceRow]) {
        let notes = self.notes();
        let before = notes.settled.clone();
        let pools = notes.pools;
        let now: Vec<(&ServiceRow, Option<IpAddr>, Settled)> = services
            .iter()
            .filter(|row| row.wants_load_balancer && !row.deleting)
            .map(|row| {
                let past = notes.pasts.get(&row.uid).cloned().unwrap_or_default();
                let requested = past.served(row).and_then(|version| version.requested);
                let settled = Settled {
                    addresses: on_record(row),
                    causes: [past.valid_edits, past.removals, past.lost_records, pools],
                };
                (row, requested, settled)
            })
            .collect();
        drop(notes);
        for (row, requested, settled) in &now {
            let Some(earlier) = before.get(&row.uid) else {
                continue;
            };
            // One that asks for an address that another one has gets it as soon as that is free.
            let granted = requested.is_some_and(|requested| {
                !earlier.addresses.contains(&requested) && settled.addresses == [requested]
            });
            let lost = !earlier.addresses.is_empty() && earlier.addresses != settled.addresses;
            if earlier.causes == settled.causes && lost && !granted {
                self.violation(format!(
                    "{} had {:?} and has {:?}, and nothing of it changed",
                    row.key, earlier.addresses, settled.addresses
                ));
            }
        }
        let settled = now.into_iter().map(|(row, _, it)| (row.uid.clone(), it));
        self.notes().settled = settled.collect();
    }
}
