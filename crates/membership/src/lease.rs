//! Membership by Leases, where nodes may not send each other datagrams. Pure: the time comes in.
//!
//! Each node renews a Lease of its own, and reads those of all others. A Lease that was not renewed
//! for its duration, by the clock of the reader, belongs to a dead node: clocks of nodes are not
//! compared. While the Leases can't be read nothing is concluded from that, so that an API server
//! that is away moves no address.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::View;
use crate::machine::Peer;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The node whose it is.
    pub node: Arc<str>,
    /// Another text after each renewal.
    pub renewed: String,
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
}

#[derive(Debug)]
struct Known {
    lease: Lease,
    renewals: u64,
    /// It is alive until then, unless it is renewed.
    until: Instant,
    is_alive: bool,
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
        }
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
        self.read = Some(now);
        let until = now + self.duration;
        let mut before = std::mem::take(&mut self.known);
        let mut has_met = was_away;
        for lease in leases.into_iter().filter(|it| it.node != self.own) {
            let mut known = before.remove(&lease.node).unwrap_or(Known {
                lease: lease.clone(),
                renewals: 0,
                until,
                is_alive: true,
            });
            if known.lease.renewed != lease.renewed {
                has_met |= !known.is_alive;
                known.renewals += 1;
                known.until = until;
                known.is_alive = true;
            } else if was_away && known.is_alive {
                known.until = until;
            }
            known.is_alive &= now < known.until;
            known.lease = lease;
            self.known.insert(Arc::clone(&known.lease.node), known);
        }
        self.reunions += u64::from(has_met);
        self.view()
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
            metadata: node.as_bytes().into(),
        }
    }

    fn names(view: &View) -> Vec<&str> {
        view.peers.keys().map(|name| &**name).collect()
    }

    #[test]
    fn a_node_is_a_member_from_its_first_lease_until_it_was_not_renewed_for_its_duration() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        let all = |b: u64| vec![lease("a", 1), lease("b", b), lease("c", 1)];
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
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
        leases.take(began, vec![lease("b", 1), lease("c", 1)]);
        let view = leases.take(began + SECOND, vec![lease("c", 1)]);
        assert_eq!(names(&view), ["c"]);
    }

    #[test]
    fn an_api_server_that_was_away_ends_no_membership() {
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
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
        let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
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
            let (mut leases, began) = (Leases::new("a", TEN), Instant::now());
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
