//! What must hold, and what was found that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use landfall_local::memory::Listeners;
use landfall_model::listener::ListenerKey;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{ACCEPTED_VERSION, ConditionType};
use landfall_model::{Code, ServiceKey, Uid};
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
    terms: Terms,
    valid: bool,
    until: Option<Instant>,
}

/// What is known of a Service from what its user has done.
#[derive(Clone, Debug, Default)]
struct Past {
    versions: Vec<Version>,
    /// Edits that may move it.
    valid_edits: u32,
}

/// What a Service had when everything had settled.
#[derive(Clone, Debug)]
struct Settled {
    addresses: Vec<IpAddr>,
    valid_edits: u32,
    pools: u32,
}

#[derive(Debug, Default)]
struct Notes {
    pasts: BTreeMap<Uid, Past>,
    settled: BTreeMap<Uid, Settled>,
    pools: u32,
    violations: Vec<String>,
    story: Vec<String>,
}

/// Keeps what users have done and what was found.
#[derive(Debug, Default)]
pub struct Judge {
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
        let mut terms: Vec<&Terms> = self
            .versions
            .iter()
            .filter(recent)
            .map(|version| &version.terms)
            .collect();
        // Where the newest is invalid, the one before it goes on to be served.
        let valid = self.versions.iter().rev().find(|version| version.valid);
        terms.extend(valid.map(|version| &version.terms));
        terms
    }

    fn served(&self) -> Option<&Version> {
        self.versions.iter().rev().find(|version| version.valid)
    }

    fn newest(&self) -> Option<&Version> {
        self.versions.last()
    }
}

// === impl Judge ===

impl Judge {
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
    pub fn note(&self, line: String) {
        let now = Instant::now();
        let begun = *self.begun.lock().unwrap().get_or_insert(now);
        let at = now.duration_since(begun).as_millis();
        self.notes().story.push(format!("{at:>8} ms  {line}"));
    }

    fn violation(&self, what: String) {
        self.note(format!("VIOLATION {what}"));
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
        past.versions.push(Version {
            terms: Terms::of(row),
            valid,
            until: None,
        });
        if valid {
            past.valid_edits += 1;
        }
    }

    /// Something is written although nothing changes any more.
    pub fn never_settles(&self, writes: u64) {
        self.violation(format!("{writes} writes, though nothing changes any more"));
    }

    /// The pools have changed.
    pub fn pools_changed(&self) {
        self.notes().pools += 1;
    }

    /// A process writes a Service: no address may be published that another one publishes, unless
    /// they share it.
    pub fn written(&self, what: &str, old: &ServiceRow, new: &ServiceRow, others: &[ServiceRow]) {
        let (before, after) = (on_record(old), on_record(new));
        self.note(format!("write {what} {}: {before:?} -> {after:?}", new.key));
        for address in after.iter().filter(|it| !before.contains(it)) {
            let holders = others.iter().filter(|row| on_record(row).contains(address));
            for other in holders {
                if !self.may_share(&new.uid, &other.uid) {
                    self.violation(format!(
                        "{} publishes {address}, which {} publishes",
                        new.key, other.key
                    ));
                }
            }
        }
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
        self.note(format!("open {address} {key} for {uid:?}"));
        match row {
            None => self.violation(format!("{address} {key} opens for {uid:?}, which is gone")),
            Some(row) if !on_record(row).contains(&address) => self.violation(format!(
                "{address} {key} opens for {}, whose record names {:?}",
                row.key,
                on_record(row)
            )),
            Some(_) => {}
        }
    }

    /// Nothing changes any more: what is there must be right, and what is said true.
    pub fn settled(&self, services: &[ServiceRow], listeners: &Listeners) {
        self.note("settled".to_owned());
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
                self.judge_pair(row, other);
            }
            if row.deleting {
                self.violation(format!("{} is still being deleted", row.key));
            } else if row.wants_load_balancer {
                self.judge_service(row, listeners);
            } else if row.finalized || !row.status.conditions.is_empty() {
                self.violation(format!(
                    "{} wants no load balancer and keeps marks",
                    row.key
                ));
            }
        }
        self.judge_stability(services);
    }

    fn judge_pair(&self, one: &ServiceRow, other: &ServiceRow) {
        let (ours, theirs) = (on_record(one), on_record(other));
        for address in ours.iter().filter(|address| theirs.contains(address)) {
            if !self.may_share(&one.uid, &other.uid) {
                self.violation(format!("{} and {} hold {address}", one.key, other.key));
            }
        }
    }

    fn judge_service(&self, row: &ServiceRow, listeners: &Listeners) {
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
        let addresses = on_record(row);
        if accepted.status && !newest_valid {
            self.violation(format!("{}: an invalid version is accepted", row.key));
        }
        if !accepted.status && newest_valid && !NO_ADDRESS.contains(&accepted.reason) {
            let reason = accepted.reason;
            self.violation(format!("{}: a valid version is refused: {reason}", row.key));
        }
        if addressed.status == addresses.is_empty() {
            let said = addressed.status;
            self.violation(format!("{}: Addressed={said} with {addresses:?}", row.key));
        }
        if newest_valid && addresses.is_empty() && !NO_ADDRESS.contains(&addressed.reason) {
            let reason = addressed.reason;
            self.violation(format!("{}: no address, because {reason}", row.key));
        }
        let open: BTreeSet<(IpAddr, ListenerKey)> = listeners
            .iter()
            .filter(|(_, owner)| owner.uid == row.uid)
            .map(|(id, _)| (id.address, id.key))
            .collect();
        let wanted: BTreeSet<(IpAddr, ListenerKey)> = past
            .served()
            .into_iter()
            .flat_map(|version| &version.terms.ports)
            .flat_map(|key| addresses.iter().map(|address| (*address, *key)))
            .collect();
        let serves = !wanted.is_empty() && open == wanted;
        if programmed.status && !serves {
            self.violation(format!(
                "{}: Programmed=True with {open:?} open, where {wanted:?} is served",
                row.key
            ));
        }
        if !programmed.status && serves && newest_valid {
            let reason = programmed.reason;
            self.violation(format!("{}: it serves, and says {reason}", row.key));
        }
        // What was accepted last and is on record is served, whatever came after it.
        let recorded = row.annotations.contains_key(ACCEPTED_VERSION);
        if !newest_valid && recorded && !addresses.is_empty() && !serves {
            self.violation(format!("{}: the accepted version is not served", row.key));
        }
        if newest_valid && !addresses.is_empty() && !serves {
            self.violation(format!(
                "{}: {open:?} is open instead of {wanted:?}",
                row.key
            ));
        }
    }

    /// No address changes without a cause.
    fn judge_stability(&self, services: &[ServiceRow]) {
        let notes = self.notes();
        let before = notes.settled.clone();
        let pools = notes.pools;
        let edits = |uid: &Uid| notes.pasts.get(uid).map_or(0, |past| past.valid_edits);
        let now: BTreeMap<Uid, (ServiceKey, Settled)> = services
            .iter()
            .map(|row| {
                let settled = Settled {
                    addresses: on_record(row),
                    valid_edits: edits(&row.uid),
                    pools,
                };
                (row.uid.clone(), (row.key.clone(), settled))
            })
            .collect();
        drop(notes);
        for (uid, (key, settled)) in &now {
            let Some(earlier) = before.get(uid) else {
                continue;
            };
            let same_cause =
                earlier.valid_edits == settled.valid_edits && earlier.pools == settled.pools;
            let lost = !earlier.addresses.is_empty() && earlier.addresses != settled.addresses;
            if same_cause && lost {
                self.violation(format!(
                    "{key} had {:?} and has {:?}, and nothing of it changed",
                    earlier.addresses, settled.addresses
                ));
            }
        }
        let settled = now.into_iter().map(|(uid, (_, settled))| (uid, settled));
        self.notes().settled = settled.collect();
    }
}
