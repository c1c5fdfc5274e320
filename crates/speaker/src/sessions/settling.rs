//! Whether the sessions of a speaker that just started are up: pure. A rolling update that went on
//! before would withdraw the routes of one node after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_bgp::driver::Statuses;
use landfall_bgp::peer::PeerAddress;

use super::Shown;

/// So long at most: a router that is gone must not hold up an update. Some let a neighbor that
/// went away back in after a minute only.
const LONGEST: Duration = Duration::from_secs(90);

/// Returns whether it is not known yet what routers are to be sent, and may be soon. `since`: when
/// the cluster was known.
pub(super) fn is_beginning(shown: &Shown, since: Instant, now: Instant) -> bool {
    shown.begun.is_none() && now.saturating_duration_since(since) < LONGEST
}

/// Returns the routers that are to be sent routes and with which there was no session yet.
/// `started`: the process.
pub(super) fn unmet(
    shown: &Shown,
    statuses: &Statuses,
    started: Instant,
    now: Instant,
) -> Vec<Arc<str>> {
    let since = shown.begun.unwrap_or(started);
    if now.saturating_duration_since(since) >= LONGEST {
        return Vec::new();
    }
    let is_unmet = |name: &Arc<str>| {
        let routes = shown.routing.union.routes.get(name);
        if routes.is_none_or(|routes| routes.is_empty()) {
            return false;
        }
        // Of a range, none may be there at all.
        let desired = shown.routing.peers.get(name);
        if desired.is_none_or(|it| matches!(it.peer.address, PeerAddress::Range(_))) {
            return false;
        }
        match statuses.get(name) {
            Some(status) => status.counts.established == 0,
            // It begins in a moment, unless it cannot.
            None => !shown.problems.contains_key(name),
        }
    };
    let peers = shown.routing.peers.keys();
    peers.filter(|name| is_unmet(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use landfall_bgp::route::Routes;
    use landfall_bgp::status::State;

    use super::super::about;
    use super::super::wanted::tests::{failed, tor};
    use super::*;
    use crate::routes::Union;
    use crate::routing::Routing;

    /// A node with one router, which is to be sent one route.
    fn shown(begun: Instant, address: &PeerAddress) -> Shown {
        let mut desired = tor();
        desired.peer.address = address.clone();
        let route = ("192.0.2.1/32".parse().unwrap(), Arc::default());
        let routes = Arc::new(Routes::from_iter([route]));
        let routing = Routing {
            peers: [("tor".into(), desired)].into(),
            union: Union {
                routes: [("tor".into(), routes)].into(),
                ..Union::default()
            },
            ..Routing::default()
        };
        Shown {
            routing: Arc::new(routing),
            begun: Some(begun),
            ..Shown::default()
        }
    }

    fn status(established: u64) -> Statuses {
        let mut status = failed(landfall_bgp::error::SessionError::BfdDown);
        status.state = State::Idle;
        status.counts.established = established;
        [("tor".into(), status)].into()
    }

    #[test]
    fn a_speaker_waits_for_its_first_session_with_a_router_that_gets_routes_and_not_for_ever() {
        let now = Instant::now();
        let one = PeerAddress::Ip([192, 0, 2, 254].into());
        let shown = shown(now, &one);
        let waits = |statuses: &Statuses, seconds| {
            let later = now + Duration::from_secs(seconds);
            !unmet(&shown, statuses, now, later).is_empty()
        };
        for not_yet in [Statuses::new(), status(0)] {
            assert!(waits(&not_yet, 0) && waits(&not_yet, 89));
            assert!(!waits(&not_yet, 90));
        }
        // Once there was one, its loss is no reason to stop an update.
        assert!(!waits(&status(1), 1));
    }

    #[test]
    fn what_routers_are_to_be_sent_is_waited_for_and_not_for_ever() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let unknown = Shown::default();
        assert!(is_beginning(&unknown, now, later(89)));
        assert!(!is_beginning(&unknown, now, later(90)));
        let known = shown(now, &PeerAddress::Ip([192, 0, 2, 254].into()));
        assert!(!is_beginning(&known, now, now));
    }

    #[test]
    fn a_router_without_routes_or_session_to_come_is_not_waited_for() {
        let now = Instant::now();
        let none = Statuses::new();
        let one = PeerAddress::Ip([192, 0, 2, 254].into());
        let mut idle = shown(now, &one);
        Arc::make_mut(&mut idle.routing).union.routes = BTreeMap::new();
        let range = shown(now, &PeerAddress::Range("192.0.2.0/24".parse().unwrap()));
        let mut unusable = shown(now, &one);
        let problem = about("tor", "no password", "write one");
        unusable.problems.insert("tor".into(), problem);
        for shown in [idle, range, unusable] {
            assert_eq!(unmet(&shown, &none, now, now), [] as [Arc<str>; 0]);
        }
    }
}
