//! What routers are sent where what runs the sessions has ended, and where they are removed.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_bgp::driver::{Neighbor, Speaker, Wanted};
use landfall_bgp::peer::{Peer, PeerAddress};
use landfall_bgp::route::Attributes;
use landfall_testkit::namespace::until;
use landfall_testkit::router::{NOTIFICATION, Router};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::{peer, routes};
use crate::router::Setup;
use crate::scenarios::V4;

/// Ends a session in some way, and returns whether the router was notified to drop the routes.
async fn is_notified(end: impl FnOnce(Speaker)) -> bool {
    let router = Router::start().unwrap();
    let setup = Setup {
        graceful_restart: true,
        ..Setup::default()
    };
    let mut peer = Peer {
        address: PeerAddress::Ip(router.address.ip()),
        port: router.address.port(),
        source: Some(IpAddr::from([127, 0, 0, 1])),
        ..peer(&setup)
    };
    peer.families.ipv6 = false;
    let all = routes(&[V4], Attributes::default());
    let wanted = Wanted {
        peers: [("router".into(), Neighbor { peer, routes: all })].into(),
        ..Wanted::default()
    };
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let speaker = Speaker::start(wanted, &tracker, stop);
    let statuses = speaker.statuses();
    until("the router has all", || {
        let statuses = Arc::clone(&statuses.borrow());
        statuses.values().any(|it| it.prefixes_sent == 1)
    })
    .await;
    end(speaker);
    tracker.close();
    let received = tokio::task::spawn_blocking(move || router.received());
    received.await.unwrap().unwrap().contains(&NOTIFICATION)
}

#[tokio::test]
async fn a_router_keeps_the_routes_where_what_runs_the_sessions_is_gone_and_no_stop_was_asked_for()
{
    assert!(!is_notified(drop).await);
}

#[tokio::test]
async fn a_router_that_is_removed_drops_the_routes() {
    let (keep, kept) = std::sync::mpsc::channel();
    let remove = move |speaker: Speaker| {
        speaker.update(|wanted| wanted.peers.clear());
        keep.send(speaker).unwrap();
    };
    assert!(is_notified(remove).await);
    drop(kept);
}
