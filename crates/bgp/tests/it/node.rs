//! The node: our speaker with one peer, named "router".

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use landfall_bgp::driver::{Neighbor, Speaker, Wanted, configured};
use landfall_bgp::peer::{Families, Hops, Mode, Password, Peer, PeerAddress, RemoteAsn, Timers};
use landfall_bgp::route::{Attributes, Drain, Routes};
use landfall_bgp::status::{State, Status};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lab::{DEADLINE, until};
use crate::router::Setup;

pub struct Node {
    pub speaker: Speaker,
    name: Arc<str>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

pub fn asn(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// A peer that fits a router.
pub fn peer(setup: &Setup) -> Peer {
    Peer {
        asn: asn(setup.node_asn),
        remote_asn: RemoteAsn::Number(asn(setup.asn)),
        address: PeerAddress::Ip(setup.router().parse().unwrap()),
        port: 179,
        source: Some(setup.node().parse().unwrap()),
        mode: Mode::Active,
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        timers: Timers {
            connect: Duration::from_secs(2),
            ..Timers::default()
        },
        password: setup
            .password
            .as_deref()
            .map(|it| Password::new(it).unwrap()),
        hops: if setup.gtsm {
            Hops::Within(1)
        } else {
            Hops::Direct
        },
        vrf: None,
        families: Families {
            ipv4: true,
            ipv6: true,
        },
        graceful_restart: setup.graceful_restart.then_some(Duration::from_secs(60)),
    }
}

/// Routes with these attributes.
pub fn routes(prefixes: &[&str], attributes: Attributes) -> Arc<Routes> {
    let attributes = Arc::new(attributes);
    let one = |it: &&str| (it.parse().unwrap(), Arc::clone(&attributes));
    Arc::new(prefixes.iter().map(one).collect())
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Node {
    pub fn start(peer: Peer, routes: Arc<Routes>) -> Self {
        let name: Arc<str> = "router".into();
        let neighbor = Neighbor { peer, routes };
        let wanted = Wanted {
            peers: [(Arc::clone(&name), neighbor)].into(),
            ..Wanted::default()
        };
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let speaker = Speaker::start(wanted, &tracker, stop.clone());
        Self {
            speaker,
            name,
            tracker,
            stop,
        }
    }

    pub fn status(&self) -> Option<Status> {
        let statuses = self.speaker.statuses().borrow().clone();
        let mut statuses = statuses.iter();
        let found = statuses.find(|(name, _)| configured(name) == &*self.name);
        found.map(|(_, status)| status.clone())
    }

    pub fn is_up(&self) -> bool {
        self.status()
            .is_some_and(|it| it.state == State::Established)
    }

    pub fn reason(&self) -> &'static str {
        let error = self.status().and_then(|it| it.last_error);
        error.map_or("", |(_, error)| error.reason())
    }

    /// Waits for the session.
    pub async fn up(&self) {
        let text = || format!("{:?}", self.status());
        let end = std::time::Instant::now() + DEADLINE;
        while !self.is_up() {
            assert!(
                std::time::Instant::now() < end,
                "not established: {}",
                text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the session failed for a reason.
    pub async fn fails(&self, reason: &str) {
        until(&format!("{reason}, but {:?}", self.status()), || {
            self.reason() == reason
        })
        .await;
    }

    pub fn set_peer(&self, peer: Peer) {
        self.change(|neighbor| neighbor.peer = peer);
    }

    pub fn set_routes(&self, routes: Arc<Routes>) {
        self.change(|neighbor| neighbor.routes = routes);
    }

    fn change(&self, change: impl FnOnce(&mut Neighbor)) {
        self.speaker
            .update(|wanted| change(wanted.peers.get_mut(&self.name).unwrap()));
    }

    /// Accepts connections of the router.
    pub fn listen(&self) {
        self.speaker.update(|wanted| wanted.listen = Some(179));
    }

    pub fn drain(&self) {
        self.speaker.update(|wanted| wanted.drain = Drain::All);
    }

    /// Ends all, as a process does that is asked to.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
