//! Membership by Leases, where nodes may not send each other datagrams. Pure: the time comes in.
//!
//! Each node renews a Lease of its own, and reads those of all others. A Lease that was not renewed
//! for its duration, by the clock of the reader, belongs to a dead node: clocks of nodes are not
//! compared. While the Leases can't be read, or the own one can't be renewed, nothing is concluded
//! from that, so that an API server that is away or takes no writes moves no address. A node leaves
//! by deleting its Lease; for a while after another writer has deleted that of this node, nothing
//! is concluded from Leases that are missing: it may have deleted all of them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::View;
use crate::machine::Peer;

/// A Lease that was not renewed for so long is of a node that is gone for good.
const FORGET: Duration = Duration::from_secs(3_600);

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The node whose it is.
    pub node: Arc<str>,
    /// Another text after each renewal.
    pub renewed: String,
    /// The identity of the object: another one after it was deleted and created again.
    pub uid: String,
    /// The version of the object, for its deletion.
    pub version: String,
    /// What the node reports to the others.
    pub metadata: Arc<[u8]>,
}

/// The nodes with a Lease.
#[derive(Debug)]
pub struct Leases {
    own: Arc<str>,
    duration: Duration,
    known: BTreeMap<Arc<str>, Known>,
    reunions: u64,
    read: Option<Instant>,
    /// When the own Lease was renewed last.
    own_renewed: Option<Instant>,
    /// The identity of the own Lease as it was read last.
    own_uid: Option<String>,
    /// When it was noticed last that another writer had deleted the own Lease.
    own_deleted: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    lease: Lease,
    renewals: u64,
    /// When it was first read as it is, or when renewals were possible again after that.
    since: Instant,
    /// It is alive until then, unless it is renewed.
    until: Instant,
    is_alive: bool,
    /// Its Lease is missing, and may have been deleted by another writer.
    is_lost: bool,
}

// === impl Leases ===

impl Leases {
    /// Knows no Lease yet. `duration`: that of all Leases.
    pub fn new(own: &str, duration: Duration) -> Self {
        Self {
            own: own.into(),
            duration,
            known: BTreeMap::new(),
            reunions: 0,
            read: None,
            own_renewed: None,
            own_uid: None,
            own_deleted: None,
        }
    }

    /// Takes note that the API server took the own Lease.
    pub fn note_renewal(&mut self, now: Instant) {
        self.own_renewed = Some(now);
    }

    /// Returns the time from one renewal to the next.
    pub fn renewal(&self) -> Duration {
        self.duration / 3
    }

    /// Returns the time from one read of all Leases to the next.
    pub fn interval(&self) -> Duration {
        self.duration / 4
    }

    /// Takes all Leases as they were just read, and returns the members.
    pub fn take(&mut self, now: Instant, leases: Vec<Lease>) -> View {
        let gap = self.read.map(|read| now.saturating_duration_since(read));
        // Others could not renew, either; or this node was paused, and they took over meanwhile.
        let was_away = gap.is_some_and(|gap| gap > self.duration / 2);
        // Where this node can't renew its Lease, others can't renew theirs.
        let renewed = self.own_renewed.map(|at| now.saturating_duration_since(at));
        let is_refused = renewed.is_none_or(|age| age > self.duration / 2);
        let is_first = self.read.replace(now).is_none();
        let until = now + self.duration;
        let mut before = std::mem::take(&mut self.known);
        let are_lost = self.others_may_be_deleted(now, &leases) || was_away;
        let mut has_met = was_away;
        for lease in leases.into_iter().filter(|it| it.node != self.own) {
            let mut known = before.remove(&lease.node).unwrap_or_else(|| {
                // It may have taken this node for dead.
                has_met |= !is_first;
                Known {
                    lease: lease.clone(),
                    renewals: 0,
                    since: now,
                    until,
                    is_alive: true,
                    is_lost: false,
                }
            });
            if known.lease.renewed != lease.renewed {
                has_met |= !known.is_alive;
                known.renewals += 1;
                known.since = now;
                known.until = until;
                known.is_alive = true;
            } else if was_away || is_refused {
                known.since = now;
                if known.is_alive {
                    known.until = until;
                }
            }
            known.is_alive &= now < known.until;
            // It may have been missing for this node alone, and have announced meanwhile; or it
            // was held for dead elsewhere.
            has_met |= std::mem::take(&mut known.is_lost);
            known.lease = lease;
            self.known.insert(Arc::clone(&known.lease.node), known);
        }
        for (node, mut known) in before {
            known.is_lost |= are_lost;
            if !(known.is_lost && known.is_alive) {
                continue;
            }
            if was_away || is_refused {
                known.since = now;
                known.until = until;
            }
            if now < known.until {
                self.known.insert(node, known);
            }
        }
        self.reunions += u64::from(has_met);
        self.view()
    }

    /// Takes note of the own Lease among those that were read. Returns whether another writer has
    /// deleted it within the duration before, and so may have deleted others, too.
    fn others_may_be_deleted(&mut self, now: Instant, leases: &[Lease]) -> bool {
        let own = leases.iter().find(|lease| lease.node == self.own);
        let is_same = own.is_some_and(|own| Some(&own.uid) == self.own_uid.as_ref());
        if self.own_uid.is_some() && !is_same {
            self.own_deleted = Some(now);
        }
        if let Some(own) = own {
            self.own_uid = Some(own.uid.clone());
        }
        let age = self.own_deleted.map(|at| now.saturating_duration_since(at));
        age.is_some_and(|age| age < self.duration)
    }

    /// Returns the Leases that were not renewed for an hour by the clock of this process: those of
    /// nodes that are gone for good.
    pub fn forgotten(&self, now: Instant) -> Vec<Lease> {
        let age = |known: &Known| now.saturating_duration_since(known.since);
        let old = self.known.values().filter(|known| age(known) > FORGET);
        old.map(|known| known.lease.clone()).collect()
    }

    fn view(&self) -> View {
        let alive = self.known.iter().filter(|(_, known)| known.is_alive);
        let peers = alive.map(|(node, known)| {
            let peer = Peer {
                // It is sent nothing.
                address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                incarnation: known.renewals,
                metadata: Arc::clone(&known.lease.metadata),
            };
            (Arc::clone(node), peer)
        });
        View {
            peers: peers.collect(),
            reunions: self.reunions,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEN: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    fn lease(node: &str, renewed: u64) -> Lease {
        Lease {
            node: node.into(),
            renewed: renewed.to_string(),
            uid: String::new(),
            version: String::new(),
            metadata: node.as_bytes().into(),
        }
    }

    /// The same, created again.
    fn again(node: &str, renewed: u64) -> Lease {
        Lease {
            uid: "again".to_owned(),
            ..lease(node, renewed)
        }
    }

    /// The Leases of all others, of a node that renews its own whenever it reads.
    struct Renewing(Leases);

    impl Renewing {
        fn new(own: &str, duration: Duration) -> Self {
            Self(Leases::new(own, duration))
        }

        fn take(&mut self, now: Instant, mut leases: Vec<Lease>) -> View {
            self.0.note_renewal(now);
            leases.push(lease(&self.0.own, 1));
            self.0.take(now, leases)
        }
    }

    fn names(view: &View) -> Vec<&str> {
        view.peers.keys().map(|name| &**name).collect()
    }

    #[test]
    fn an_api_server_that_takes_no_writes_ends_no_membership() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        leases.note_renewal(began);
        // It goes on answering from its cache.
        for second in 0..60 {
            let view = leases.take(began + SECOND * second, vec![lease("b", 1), lease("c", 1)]);
            assert_eq!(names(&view), ["b", "c"], "{second}");
        }
        // Writes work again, and one of the two is gone.
        for second in 60..70 {
            leases.note_renewal(began + SECOND * second);
            let renewed = vec![lease("b", u64::from(second)), lease("c", 1)];
            let view = leases.take(began + SECOND * second, renewed);
            assert!(names(&view).contains(&"b"), "{second}");
        }
        leases.note_renewal(began + SECOND * 70);
        let view = leases.take(began + SECOND * 70, vec![lease("b", 70), lease("c", 1)]);
        assert_eq!(names(&view), ["b"]);
    }

    #[test]
    fn a_node_that_never_renewed_its_lease_takes_no_other_for_dead() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        for second in 0..60 {
            let view = leases.take(began + SECOND * second, vec![lease("b", 1)]);
            assert_eq!(names(&view), ["b"], "{second}");
        }
    }

    #[test]
    fn a_lease_is_forgotten_after_an_hour_in_which_it_could_have_been_renewed() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        let hour = 3_600;
        for second in 0..=hour {
            let all = vec![lease("b", 1), lease("c", u64::from(second))];
            leases.take(began + SECOND * second, all);
            assert_eq!(leases.0.forgotten(began + SECOND * second), []);
        }
        let now = began + SECOND * (hour + 1);
        leases.take(now, vec![lease("b", 1), lease("c", 9_999)]);
        assert_eq!(leases.0.forgotten(now), [lease("b", 1)]);
        // For another hour nothing could be read.
        let back = now + SECOND * hour;
        leases.take(back, vec![lease("b", 1), lease("c", 9_999)]);
        assert_eq!(leases.0.forgotten(back), []);
    }

    #[test]
    fn a_node_is_a_member_from_its_first_lease_until_it_was_not_renewed_for_its_duration() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        let all = |b: u64| vec![lease("b", b), lease("c", 1)];
        for second in 0..10 {
            let view = leases.take(began + SECOND * second, all(u64::from(second)));
            assert_eq!(names(&view), ["b", "c"], "{second}");
            assert_eq!(&*view.peers["c"].metadata, b"c");
        }
        let view = leases.take(began + TEN, all(10));
        assert_eq!(names(&view), ["b"]);
        assert_eq!(view.reunions, 0);
        // One that comes back may have announced meanwhile.
        let view = leases.take(began + TEN + SECOND, vec![lease("b", 11), lease("c", 2)]);
        assert_eq!((names(&view), view.reunions), (vec!["b", "c"], 1));
    }

    #[test]
    fn a_node_that_deletes_its_lease_has_left_at_once() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        leases.take(began, vec![lease("b", 1), lease("c", 1)]);
        let view = leases.take(began + SECOND, vec![lease("c", 1)]);
        assert_eq!(names(&view), ["c"]);
    }

    #[test]
    fn leases_that_are_all_deleted_end_no_membership_whichever_is_back_first() {
        // `kubectl delete lease --all`: nodes create theirs again one after the other.
        let lists = [
            vec![],
            vec![again("a", 2)],
            vec![again("a", 2), again("b", 2)],
            vec![again("b", 2)],
        ];
        for left in lists {
            let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
            leases.note_renewal(began);
            leases.take(began, vec![lease("a", 1), lease("b", 1), lease("c", 1)]);
            leases.note_renewal(began + SECOND);
            let view = leases.take(began + SECOND * 2, left);
            assert_eq!(names(&view), ["b", "c"]);
            leases.note_renewal(began + SECOND * 4);
            let all = vec![again("a", 3), again("b", 3), again("c", 2)];
            let view = leases.take(began + SECOND * 4, all);
            assert_eq!(names(&view), ["b", "c"]);
            // One of them may have been without this node for a moment.
            assert!(view.reunions > 0);
            // Later, a Lease that is missing alone is that of a node that has left.
            for second in [6, 8, 10, 12] {
                leases.note_renewal(began + SECOND * second);
                let all = vec![
                    again("a", 4),
                    again("b", second.into()),
                    again("c", second.into()),
                ];
                leases.take(began + SECOND * second, all);
            }
            leases.note_renewal(began + SECOND * 14);
            let view = leases.take(began + SECOND * 14, vec![again("a", 4), again("b", 14)]);
            assert_eq!(names(&view), ["b"]);
        }
    }

    #[test]
    fn a_node_that_ends_while_leases_are_deleted_is_out_after_its_duration() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        leases.take(began, vec![lease("a", 1), lease("b", 1), lease("c", 1)]);
        for second in 1..=10 {
            leases.note_renewal(began + SECOND * second);
            let view = leases.take(began + SECOND * second, vec![again("a", 2)]);
            let there: &[&str] = if second < 10 { &["b", "c"] } else { &[] };
            assert_eq!(names(&view), there, "{second}");
        }
    }

    #[test]
    fn leases_that_are_deleted_while_none_can_be_created_end_no_membership() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        leases.note_renewal(began);
        leases.take(began, vec![lease("a", 1), lease("b", 1)]);
        for second in 1..100 {
            // Before writes are seen to be refused, their time goes on; after that it does not.
            let view = leases.take(began + SECOND * second, vec![]);
            assert_eq!(names(&view), ["b"], "{second}");
        }
        // Writes work again, and b comes back in its time.
        leases.note_renewal(began + SECOND * 100);
        for second in [100, 105] {
            leases.note_renewal(began + SECOND * second);
            let view = leases.take(began + SECOND * second, vec![again("a", 2)]);
            assert_eq!(names(&view), ["b"], "{second}");
        }
        let all = vec![again("a", 2), again("b", 2)];
        let view = leases.take(began + SECOND * 108, all);
        assert_eq!((names(&view), view.reunions), (vec!["b"], 1));
    }

    #[test]
    fn an_api_server_that_comes_back_without_leases_ends_no_membership() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        leases.take(began, vec![lease("b", 1)]);
        let back = began + TEN * 30;
        for second in [0, 4, 8] {
            let view = leases.take(back + SECOND * second, vec![]);
            assert_eq!(names(&view), ["b"], "{second}");
        }
        assert!(names(&leases.take(back + TEN, vec![])).is_empty());
    }

    #[test]
    fn a_lease_that_comes_back_is_a_reunion_because_its_node_may_have_announced() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        let first = leases.take(began, vec![lease("b", 1), lease("c", 1)]);
        leases.take(began + SECOND, vec![lease("c", 1)]);
        let back = leases.take(began + SECOND * 2, vec![lease("b", 2), lease("c", 1)]);
        assert_eq!((first.reunions, back.reunions), (0, 1));
        assert_eq!(names(&back), ["b", "c"]);
    }

    #[test]
    fn an_api_server_that_was_away_ends_no_membership() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        leases.take(began, vec![lease("b", 1), lease("c", 1)]);
        // Nothing could be read or renewed for minutes.
        let back = began + TEN * 30;
        let view = leases.take(back, vec![lease("b", 1), lease("c", 1)]);
        assert_eq!((names(&view), view.reunions), (vec!["b", "c"], 1));
        // One of the two renews again, the other one is gone.
        for second in 1..10 {
            leases.take(back + SECOND * second, vec![lease("b", 9), lease("c", 1)]);
        }
        let view = leases.take(back + TEN, vec![lease("b", 10), lease("c", 1)]);
        assert_eq!(names(&view), ["b"]);
    }

    #[test]
    fn a_dead_node_stays_dead_when_the_api_server_comes_back() {
        let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
        for second in 0..=10 {
            leases.take(began + SECOND * second, vec![lease("b", 1)]);
        }
        let view = leases.take(began + TEN * 9, vec![lease("b", 1)]);
        assert!(names(&view).is_empty());
    }

    proptest! {
        /// What the guide promises: a node that ends is out after its duration and one interval.
        #[test]
        fn a_node_that_ends_is_no_member_after_its_duration_and_one_interval(
            last in 0..20_000_u64,
            offset in 0..2_500_u64,
        ) {
            let (mut leases, began) = (Renewing::new("a", TEN), Instant::now());
            let at = |millis: u64| began + Duration::from_millis(millis);
            let mut gone = None;
            let mut now = offset;
            while gone.is_none() && now < 60_000 {
                let renewed = now.min(last) / 3_333;
                let view = leases.take(at(now), vec![lease("b", renewed)]);
                if view.peers.is_empty() {
                    gone = Some(now);
                }
                now += 2_500;
            }
            let renewal = last / 3_333 * 3_333;
            let gone = gone.unwrap();
            let earliest = renewal.max(offset) + 10_000;
            prop_assert!(gone >= earliest, "{gone} after {renewal}");
            prop_assert!(gone <= earliest + 2 * 2_500, "{gone} after {renewal}");
        }
    }
}
