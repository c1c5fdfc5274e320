//! What has been sent of one kind, so that nothing is sent twice and nothing that vanished unseen
//! is forgotten: pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use landfall_model::ServiceKey;
use landfall_model::id::ByNamespace;
use landfall_model::reason::Reason;
use landfall_model::rows::Fact;

use super::kind::{Kind, Object, Outcome, Version};
use super::shares::{Kept, Shares};

/// The objects of one kind as of the last answer.
#[derive(Debug)]
pub(crate) struct Known {
    kind: Kind,
    objects: ByNamespace<Entry>,
    /// Which listing an object was last seen in.
    listing: bool,
    /// How much of the objects of each namespace was sent.
    shares: Shares,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    version: Version,
    listing: bool,
    /// A row of it was sent: this version's, or the last one that could be validated.
    reported: bool,
    /// What was sent of it.
    kept: Kept,
    /// Which cluster IPs were sent: a number that only shows whether two are the same.
    cluster_ips: u32,
}

/// A Service has no cluster IPs.
const NO_CLUSTER_IPS: u32 = 0;

// === impl Known ===

impl Known {
    pub(crate) fn new(kind: Kind) -> Self {
        let shares = Shares::new(&kind);
        Self::with(kind, shares)
    }

    pub(super) fn with(kind: Kind, shares: Shares) -> Self {
        Self {
            kind,
            objects: ByNamespace::default(),
            listing: false,
            shares,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// A full listing begins: what it does not bring is gone.
    pub(crate) fn begin_listing(&mut self) {
        // A listing that was broken off leaves some objects seen and some not: all are to be seen
        // again.
        self.listing = !self.listing;
        for entry in self.objects.values_mut() {
            entry.listing = !self.listing;
        }
    }

    /// The listing is complete.
    pub(crate) fn end_listing(&mut self, mut report: impl FnMut(Fact)) {
        let vanished: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, entry)| entry.listing != self.listing)
            .map(|(key, _)| key)
            .collect();
        for key in vanished {
            self.remove(&key, &mut report);
        }
        self.objects.compact();
    }

    /// An object was listed, or appeared or changed.
    pub(crate) fn apply(&mut self, object: Object, mut report: impl FnMut(Fact)) {
        let Object {
            key,
            version,
            outcome,
            left_out,
            cluster_ips,
            ..
        } = object;
        if let Some(entry) = self.objects.get_mut(&key)
            && entry.version == version
            && !entry.kept.refused
        {
            entry.listing = self.listing;
            return;
        }
        let old = self.objects.get(&key);
        let before = old.map_or_else(Kept::default, |entry| entry.kept);
        let mut entry = Entry {
            version,
            listing: self.listing,
            reported: old.is_some_and(|entry| entry.reported),
            kept: Kept {
                faulty: false,
                ..before
            },
            cluster_ips: old.map_or(NO_CLUSTER_IPS, |entry| entry.cluster_ips),
        };
        // Before the row, which may be decided upon at once.
        if let Some(addresses) = cluster_ips {
            let print = print_of(&addresses);
            if std::mem::replace(&mut entry.cluster_ips, print) != print {
                report(Fact::ClusterIps(key.clone(), addresses));
            }
        }
        match outcome {
            Outcome::Row(fact) => {
                let (kept, row) = self.shares.admit(fact, before, entry.reported);
                entry.kept = kept;
                self.send(&key, row, &mut entry, &mut report);
            }
            Outcome::Nothing => {
                entry.kept = Kept::default();
                self.send(&key, None, &mut entry, &mut report);
            }
            Outcome::Refused(reasons) => {
                self.kind
                    .incomplete(&self.kind.part(&key), true)
                    .into_iter()
                    .for_each(&mut report);
                self.complain(&key, reasons, before, &mut entry, &mut report);
            }
        }
        if !left_out.is_empty() && entry.reported {
            self.complain(&key, left_out, before, &mut entry, &mut report);
        }
        if before.faulty && !entry.kept.faulty {
            self.clear_problems(&key, &mut report);
        }
        self.note(&key, before, entry.kept, &mut report);
        self.objects.insert(&key, entry);
    }

    /// An object was deleted.
    pub(crate) fn delete(&mut self, key: &ServiceKey, mut report: impl FnMut(Fact)) {
        self.remove(key, &mut report);
    }

    /// The kind is not needed any more, or it does not exist any more.
    pub(crate) fn forget_all(&mut self, report: impl FnMut(Fact)) {
        self.begin_listing();
        self.end_listing(report);
    }

    /// Whether to list everything again, because some of it was refused for lack of room, and there
    /// may be room by now.
    pub(crate) fn take_freed(&mut self) -> bool {
        self.shares.take_freed()
    }

    #[cfg(test)]
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.iter().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn remove(&mut self, key: &ServiceKey, report: &mut impl FnMut(Fact)) {
        let Some(entry) = self.objects.remove(key) else {
            return;
        };
        if entry.reported {
            report(self.kind.gone(key));
        }
        if entry.cluster_ips != NO_CLUSTER_IPS {
            report(Fact::ClusterIps(key.clone(), Box::default()));
        }
        if entry.kept.faulty {
            self.clear_problems(key, report);
        }
        self.note(key, entry.kept, Kept::default(), report);
    }

    /// Sends a row of an object, or that it is gone.
    fn send(
        &self,
        key: &ServiceKey,
        row: Option<Fact>,
        entry: &mut Entry,
        report: &mut impl FnMut(Fact),
    ) {
        let was_sent = std::mem::replace(&mut entry.reported, row.is_some());
        let gone = || was_sent.then(|| self.kind.gone(key));
        row.or_else(gone).into_iter().for_each(report);
    }

    /// Reports what is wrong with an object.
    fn complain(
        &self,
        key: &ServiceKey,
        reasons: Vec<Reason>,
        before: Kept,
        entry: &mut Entry,
        report: &mut impl FnMut(Fact),
    ) {
        let reasons = self.shares.report(&self.kind, key, before, reasons);
        entry.kept.faulty = reasons.is_some();
        let part = self.kind.part(key);
        let problem = reasons.map(|reasons| Fact::SourceProblems { part, reasons });
        problem.into_iter().for_each(report);
    }

    /// Notes what is sent of an object now.
    fn note(&mut self, key: &ServiceKey, before: Kept, now: Kept, report: &mut impl FnMut(Fact)) {
        let namespace = key.shared_namespace();
        let problem = self.shares.note(&self.kind, namespace, before, now);
        problem.into_iter().for_each(report);
    }

    fn clear_problems(&self, key: &ServiceKey, report: &mut impl FnMut(Fact)) {
        let part = self.kind.part(key);
        report(Fact::SourceProblems {
            part: part.clone(),
            reasons: Vec::new(),
        });
        self.kind
            .incomplete(&part, false)
            .into_iter()
            .for_each(report);
    }
}

/// Of each of the objects no more is kept than needed: the addresses themselves are the receiver's.
fn print_of(cluster_ips: &[IpAddr]) -> u32 {
    if cluster_ips.is_empty() {
        return NO_CLUSTER_IPS;
    }
    let mut hasher = DefaultHasher::new();
    cluster_ips.hash(&mut hasher);
    // Never the number of none.
    u32::try_from(hasher.finish() >> 32).unwrap_or_default() | 1
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use landfall_model::reason::Code;
    use landfall_model::rows::ResourceKind;

    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    fn object(name: &str, version: u64, what: &str) -> Object {
        let outcome = match what {
            "row" => Outcome::Row(Fact::Service(
                landfall_testkit::svc(name).in_namespace("shop").row(),
            )),
            "nothing" => Outcome::Nothing,
            _ => Outcome::Refused(vec![Reason::error(Code::InvalidField, "no")]),
        };
        let version = version.to_string();
        Object {
            key: key(name),
            version: Version::of(&version),
            resume_from: version,
            outcome,
            left_out: Vec::new(),
            cluster_ips: None,
        }
    }

    /// Facts in one word each.
    fn words(facts: &[Fact]) -> Vec<String> {
        facts
            .iter()
            .map(|fact| match fact {
                Fact::Service(row) => format!("+{}", row.key.name()),
                Fact::ServiceGone(key) => format!("-{}", key.name()),
                Fact::ClusterIps(key, addresses) => {
                    let texts = addresses.iter().map(|it| format!(" {it}"));
                    format!("{} at{}", key.name(), texts.collect::<String>())
                }
                Fact::SourceProblems { part, reasons } => {
                    format!(
                        "{}{part}",
                        if reasons.is_empty() { "fine " } else { "bad " }
                    )
                }
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn apply(known: &mut Known, object: Object) -> Vec<String> {
        let mut facts = Vec::new();
        known.apply(object, |fact| facts.push(fact));
        words(&facts)
    }

    #[test]
    fn the_same_version_is_sent_once() {
        let mut known = Known::new(Kind::Services);
        assert_eq!(apply(&mut known, object("a", 1, "row")), ["+a"]);
        assert_eq!(
            apply(&mut known, object("a", 1, "row")),
            Vec::<String>::new()
        );
        assert_eq!(apply(&mut known, object("a", 2, "row")), ["+a"]);
    }

    #[test]
    fn the_last_valid_version_stays_while_a_newer_one_is_invalid() {
        let mut known = Known::new(Kind::Services);
        apply(&mut known, object("a", 1, "row"));
        assert_eq!(
            apply(&mut known, object("a", 2, "bad")),
            ["bad Service shop/a"]
        );
        assert_eq!(
            apply(&mut known, object("a", 3, "row")),
            ["+a", "fine Service shop/a"]
        );
        apply(&mut known, object("a", 4, "bad"));
        let mut facts = Vec::new();
        known.delete(&key("a"), |fact| facts.push(fact));
        assert_eq!(words(&facts), ["-a", "fine Service shop/a"]);
    }

    #[test]
    fn an_invalid_pool_makes_the_pools_incomplete_until_it_is_corrected_or_deleted() {
        for repaired in [true, false] {
            let mut known = Known::new(Kind::Resources {
                kind: ResourceKind::IpAddressPool,
                namespace: "shop".to_owned(),
            });
            let mut facts = Vec::new();
            known.apply(object("a", 1, "bad"), |fact| facts.push(fact));
            if repaired {
                known.apply(object("a", 2, "nothing"), |fact| facts.push(fact));
            } else {
                known.delete(&key("a"), |fact| facts.push(fact));
            }
            let unreadable_parts = facts.iter().filter_map(|fact| match fact {
                Fact::PoolsIncomplete { part, incomplete } => Some((&**part, *incomplete)),
                _ => None,
            });
            let unreadable_parts: Vec<_> = unreadable_parts.collect();
            let part = "IPAddressPool shop/a";
            assert_eq!(unreadable_parts, [(part, true), (part, false)]);
        }
    }

    #[test]
    fn what_a_new_listing_does_not_bring_is_gone() {
        let mut known = Known::new(Kind::Services);
        for name in ["a", "b", "c"] {
            apply(&mut known, object(name, 1, "row"));
        }
        // Broken off: b was seen in it, but may have vanished since.
        known.begin_listing();
        apply(&mut known, object("b", 1, "row"));
        known.begin_listing();
        assert_eq!(
            apply(&mut known, object("a", 1, "row")),
            Vec::<String>::new()
        );
        assert_eq!(apply(&mut known, object("c", 2, "row")), ["+c"]);
        let mut facts = Vec::new();
        known.end_listing(|fact| facts.push(fact));
        assert_eq!(words(&facts), ["-b"]);
    }

    #[test]
    fn a_service_that_gives_up_its_load_balancer_is_gone_once() {
        let mut known = Known::new(Kind::Services);
        assert_eq!(
            apply(&mut known, object("a", 1, "nothing")),
            Vec::<String>::new()
        );
        assert_eq!(apply(&mut known, object("a", 2, "row")), ["+a"]);
        assert_eq!(apply(&mut known, object("a", 3, "nothing")), ["-a"]);
        let mut facts = Vec::new();
        known.delete(&key("a"), |fact| facts.push(fact));
        assert_eq!(words(&facts), Vec::<String>::new());
    }

    #[test]
    fn cluster_ips_are_sent_once_whatever_becomes_of_the_service() {
        let mut known = Known::new(Kind::Services);
        let mut version = 0;
        let mut apply = |known: &mut Known, what, addresses: Option<&[[u8; 4]]>| {
            version += 1;
            let addresses = addresses.map(|them| them.iter().map(|it| IpAddr::from(*it)).collect());
            let object = Object {
                cluster_ips: addresses,
                ..object("a", version, what)
            };
            let mut facts = Vec::new();
            known.apply(object, |fact| facts.push(fact));
            words(&facts)
        };
        let one: &[_] = &[[10, 96, 0, 7]];
        let nothing = Vec::<String>::new();
        assert_eq!(apply(&mut known, "nothing", Some(one)), ["a at 10.96.0.7"]);
        assert_eq!(apply(&mut known, "nothing", Some(one)), nothing);
        assert_eq!(apply(&mut known, "row", Some(one)), ["+a"]);
        // Of a shape that is wrong.
        assert_eq!(apply(&mut known, "bad", None), ["bad Service shop/a"]);
        let two: &[_] = &[[10, 96, 0, 7], [10, 96, 0, 8]];
        let changed = ["a at 10.96.0.7 10.96.0.8", "-a", "fine Service shop/a"];
        assert_eq!(apply(&mut known, "nothing", Some(two)), changed);
        assert_eq!(apply(&mut known, "nothing", Some(&[])), ["a at"]);
        assert_eq!(apply(&mut known, "nothing", Some(&[])), nothing);
        assert_eq!(apply(&mut known, "nothing", Some(one)), ["a at 10.96.0.7"]);
        // A listing does not bring it any more, and brings one of that name later.
        let mut facts = Vec::new();
        known.forget_all(|fact| facts.push(fact));
        assert_eq!(words(&facts), ["a at"]);
        assert_eq!(apply(&mut known, "nothing", Some(one)), ["a at 10.96.0.7"]);
    }

    proptest! {
        /// However a history is cut into watches and listings, a receiver of the facts ends up
        /// with what is there.
        #[test]
        fn facts_add_up_to_what_is_there(
            steps in proptest::collection::vec((0u8..4, 0usize..4, 0u8..3), 1..60),
        ) {
            let names = ["a", "b", "c", "d"];
            let whats = ["row", "nothing", "bad"];
            let mut server: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
            let mut good: BTreeSet<&str> = BTreeSet::new();
            let mut known = Known::new(Kind::Services);
            let mut seen: BTreeSet<String> = BTreeSet::new();
            let mut bad: BTreeSet<String> = BTreeSet::new();
            let mut version = 0;
            let mut watching = true;
            for (step, which, what) in steps {
                let mut facts = Vec::new();
                let name = names[which];
                match step {
                    0 | 1 => {
                        version += 1;
                        server.insert(name, (version, whats[usize::from(what)]));
                        if watching {
                            known.apply(object(name, version, whats[usize::from(what)]),
                                |fact| facts.push(fact));
                        }
                    }
                    2 => {
                        server.remove(name);
                        if watching {
                            known.delete(&key(name), |fact| facts.push(fact));
                        }
                    }
                    _ => {
                        watching = !watching;
                        if watching {
                            known.begin_listing();
                            for (name, (version, what)) in &server {
                                known.apply(object(name, *version, what), |fact| facts.push(fact));
                            }
                            known.end_listing(|fact| facts.push(fact));
                        }
                    }
                }
                for word in words(&facts) {
                    match word.split_at(1) {
                        ("+", name) => { seen.insert(name.to_owned()); }
                        ("-", name) => prop_assert!(seen.remove(name), "gone twice: {name}"),
                        _ if word.starts_with("bad ") => { bad.insert(word[17..].to_owned()); }
                        _ => prop_assert!(bad.remove(&word[18..]), "fine twice: {word}"),
                    }
                }
                if watching {
                    good.clear();
                    let rows: BTreeSet<String> = server.iter()
                        .filter(|(_, (_, what))| *what == "row").map(|(name,
                            _)| (*name).to_owned()).collect();
                    let refused: BTreeSet<String> = server.iter()
                        .filter(|(_, (_, what))| *what == "bad").map(|(name,
                            _)| (*name).to_owned()).collect();
                    prop_assert!(rows.is_subset(&seen));
                    // Beyond them only what could be validated once and can't be now.
                    prop_assert!(seen.difference(&rows).all(|name| refused.contains(name)));
                    prop_assert_eq!(&bad, &refused);
                }
            }
        }
    }
}
