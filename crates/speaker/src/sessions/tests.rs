use std::collections::BTreeSet;

use landfall_bgp::peer::{Families, Mode, PeerAddress, RemoteAsn};
use landfall_bgp::route::Routes;
use landfall_bgp::status::{State, Status};
use landfall_engine::report::{Found, OwnKind, OwnObject, ReportError, Version};
use landfall_model::Uid;
use landfall_testkit::namespace::until;
use landfall_testkit::router::{NOTIFICATION, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wanted::tests::tor;
use super::*;
use crate::routes::{Sent, Union};

/// Panics at the first event.
#[derive(Debug)]
struct Panics;

impl OwnReport for Panics {
    async fn write_own<S: Serialize + Sync>(
        &self,
        _object: &OwnObject,
        _status: &S,
    ) -> Result<Version, ReportError> {
        Ok(Version::default())
    }

    async fn delete_own(&self, _: &OwnObject, _: &Version) -> Result<(), ReportError> {
        Ok(())
    }

    async fn delete_matching(&self, _kind: &OwnKind, _selector: &str) -> Result<(), ReportError> {
        Ok(())
    }

    async fn list_own<S: DeserializeOwned + Send>(
        &self,
        _kind: &OwnKind,
        _selector: &str,
    ) -> Result<Vec<Found<S>>, ReportError> {
        Ok(Vec::new())
    }

    async fn own_event(&self, _service: &ServiceKey, _uid: &Uid, _event: &Event) {
        std::panic::panic_any("of a test");
    }
}

/// A node that sends one route to a router.
fn routing(router: &Router) -> Routing {
    let mut desired = tor();
    let peer = &mut desired.peer;
    peer.address = PeerAddress::Ip(router.address.ip());
    peer.port = router.address.port();
    peer.source = Some([127, 0, 0, 1].into());
    peer.mode = Mode::Active;
    peer.remote_asn = RemoteAsn::External;
    peer.families = Families {
        ipv4: true,
        ipv6: false,
    };
    peer.graceful_restart = Some(Duration::from_mins(1));
    let route = ("192.0.2.1/32".parse().unwrap(), Arc::default());
    let all = Arc::new(Routes::from_iter([route]));
    Routing {
        peers: [("tor".into(), desired)].into(),
        union: Union {
            routes: [("tor".into(), all)].into(),
            ..Union::default()
        },
        ..Routing::default()
    }
}

#[tokio::test]
async fn where_the_task_panics_sessions_go_on_until_they_are_ended_and_routers_keep_the_routes() {
    let router = Router::start().unwrap();
    let mut wanted = routing(&router);
    let (change, followed) = watch::channel(Some(Arc::new(wanted.clone())));
    let (_passwords, passwords) = watch::channel(Arc::default());
    let mut sessions = Sessions::start(Parts {
        node: "node-a".into(),
        routing: followed,
        passwords,
        reporter: Arc::new(Panics),
        listen: None,
    });
    // What is there from the start is no news.
    change.send_modify(|_| {});
    let statuses = sessions.statuses.clone();
    until("the router has all", || {
        let statuses = Arc::clone(&statuses.borrow());
        statuses.values().any(|it| it.prefixes_sent == 1)
    })
    .await;
    let announced = Sent {
        uid: Uid::new("a"),
        peers: BTreeSet::from(["tor".into()]),
        addresses: BTreeSet::new(),
        prefixes: BTreeSet::new(),
    };
    let key = ServiceKey::new("default", "web");
    wanted.union.sent.set(&key, Some(announced));
    change.send_replace(Some(Arc::new(wanted)));
    while sessions.shown.changed().await.is_ok() {}

    let received = tokio::task::spawn_blocking(move || router.received());
    let is_up = |it: &Status| it.state == State::Established;
    assert!(statuses.borrow().values().any(is_up));
    sessions.end(Duration::ZERO).await;
    assert!(!received.await.unwrap().unwrap().contains(&NOTIFICATION));
}
