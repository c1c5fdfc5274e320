//! Members with sockets of their own, on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_membership::driver::{Config, Membership, StartError, View, Wanted};
use landfall_membership::machine::Settings;
use landfall_membership::seal::{Key, Keys};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::world::{keys, name};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

struct Running {
    membership: Membership,
    stop: CancellationToken,
    tracker: TaskTracker,
}

async fn start(node: usize, seeds: BTreeMap<Arc<str>, SocketAddr>) -> Running {
    start_with(node, seeds, keys()).await
}

async fn start_with(node: usize, seeds: BTreeMap<Arc<str>, SocketAddr>, keys: Keys) -> Running {
    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    let config = Config {
        name: name(node),
        bind: LOOPBACK.into(),
        address: LOOPBACK.into(),
        settings: Settings::default(),
    };
    let wanted = Wanted {
        keys,
        seeds,
        metadata: [node as u8].into(),
    };
    let started = Membership::start(config, wanted, &tracker, stop.clone()).await;
    tracker.close();
    Running {
        membership: started.unwrap(),
        stop,
        tracker,
    }
}

async fn until(view: &mut watch::Receiver<Arc<View>>, names: &[usize]) {
    let names: Vec<_> = names.iter().map(|it| name(*it)).collect();
    let is_so = |view: &Arc<View>| view.peers.keys().eq(names.iter());
    view.wait_for(is_so).await.unwrap();
}

#[tokio::test]
async fn members_find_each_other_get_reports_and_that_one_leaves() {
    let one = start(1, BTreeMap::new()).await;
    let seeds = BTreeMap::from([(name(1), one.membership.address())]);
    let two = start(2, seeds.clone()).await;
    let three = start(3, seeds).await;
    let mut view = one.membership.view();
    until(&mut view, &[2, 3]).await;
    // The third knew only the address of the first.
    until(&mut two.membership.view(), &[1, 3]).await;
    two.membership
        .update(|wanted| wanted.metadata = b"more".as_slice().into());
    let has_more = |view: &Arc<View>| &*view.peers[&name(2)].metadata == b"more";
    view.wait_for(has_more).await.unwrap();
    three.stop.cancel();
    three.tracker.wait().await;
    until(&mut view, &[2]).await;
    assert_eq!(one.membership.counts().died, 0);
    assert!(one.membership.counts().accepted > 0);
}

#[tokio::test]
async fn row_101_one_with_another_key_is_a_member_once_the_others_open_what_it_seals() {
    let one = start(1, BTreeMap::new()).await;
    let seeds = BTreeMap::from([(name(1), one.membership.address())]);
    let two = start(2, seeds.clone()).await;
    let other = Key::new(b"the next key of these tests").unwrap();
    let with_other = Keys {
        first: other.clone(),
        others: vec![keys().first],
    };
    let only_other = Keys {
        first: other.clone(),
        others: Vec::new(),
    };
    let three = start_with(3, seeds, only_other).await;
    let mut view = one.membership.view();
    until(&mut view, &[2]).await;
    while one.membership.counts().unknown_key == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(three.membership.view().borrow().peers.is_empty());
    assert!(!view.borrow().peers.contains_key(&name(3)));
    // First every member can open what the new key seals, then it seals.
    for member in [&one, &two] {
        let also = Keys {
            first: keys().first,
            others: vec![other.clone()],
        };
        member.membership.update(|wanted| wanted.keys = also);
    }
    for member in [&one, &two] {
        let with_other = with_other.clone();
        member.membership.update(|wanted| wanted.keys = with_other);
    }
    until(&mut view, &[2, 3]).await;
    until(&mut three.membership.view(), &[1, 2]).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let one = start(1, BTreeMap::new()).await;
    let bind = one.membership.address();
    let config = Config {
        name: name(2),
        bind,
        address: bind,
        settings: Settings::default(),
    };
    let wanted = Wanted {
        keys: keys(),
        seeds: BTreeMap::new(),
        metadata: [].into(),
    };
    let tracker = TaskTracker::new();
    let failed = Membership::start(config, wanted, &tracker, CancellationToken::new()).await;
    let Err(StartError::Bind(address, _)) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(address, bind);
}
