//! One machine that announces addresses which it does not have (`announce` of an instance of kind
//! `local`): those with an open listener get a route and are announced by ARP and Neighbour
//! Discovery. No other machine is asked; an address that another host has is not announced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_l2::driver::{Announcer, Config, Report, Wanted};
use landfall_l2::fsm::{Announcement, Event, Scope, Start, State, Status};
use landfall_l2::interfaces::{CONTAINER_NETWORKS, Exclusions};
use landfall_l2::local_routes::LocalRoutes;
use landfall_local::OpenAddresses;
use landfall_proxy::Proxy;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::lifetime::Lifetime;

/// Changes of listeners that are acted upon together.
const TOGETHER: Duration = Duration::from_millis(10);

/// From one check of routes, and of listeners that drain, to the next.
const LOOK: Duration = Duration::from_secs(5);

/// What announces, until the end of its lifetime.
#[derive(Debug)]
pub struct Announcing {
    task: JoinHandle<LocalRoutes>,
}

/// The task.
struct Task {
    announced: Vec<(OpenAddresses, Scope)>,
    proxy: Arc<Proxy>,
    announcer: Announcer,
    routes: LocalRoutes,
    /// The addresses with a route that an earlier process left: it announced them.
    found: BTreeSet<IpAddr>,
    /// The addresses so far.
    before: BTreeSet<IpAddr>,
    /// How each began.
    starts: BTreeMap<IpAddr, Start>,
}

/// Begins to announce once `handled` ends: by then all listeners are open that an earlier process
/// had. `None`: no instance announces.
///
/// # Errors
/// A capability is missing.
pub async fn start(
    announced: Vec<(OpenAddresses, Scope)>,
    proxy: Option<&Arc<Proxy>>,
    handled: impl Future<Output = ()> + Send + 'static,
    lifetime: &Lifetime,
) -> anyhow::Result<Option<Announcing>> {
    let (Some(proxy), false) = (proxy, announced.is_empty()) else {
        return Ok(None);
    };
    let what = "an instance announces addresses";
    let routes = LocalRoutes::open(Ipv4Addr::LOCALHOST).await.context(what)?;
    let Lifetime { tasks, cancel } = lifetime;
    let config = Config {
        exclusions: Exclusions::new(CONTAINER_NETWORKS)?,
        ..Config::default()
    };
    let (handle, reports) = Announcer::start(config, tasks, cancel.clone()).context(what)?;
    tasks.spawn(cancel.clone().run_until_cancelled_owned(log(reports)));
    let task = Task {
        announced,
        proxy: Arc::clone(proxy),
        announcer: handle,
        found: routes.held().clone(),
        routes,
        before: BTreeSet::new(),
        starts: BTreeMap::new(),
    };
    let task = tasks.spawn(task.run(handled, cancel.clone()));
    Ok(Some(Announcing { task }))
}

// === impl Announcing ===

impl Announcing {
    /// Removes the routes, once announcing has ended and nothing drains any more. Without this they
    /// stay, for a process that takes over.
    pub async fn remove_routes(self) {
        let removed = match self.task.await {
            Ok(routes) => routes.close().await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = removed {
            warn!(%error, "routes of this machine could not be removed");
        }
    }
}

// === impl Task ===

impl Task {
    async fn run(
        mut self,
        handled: impl Future<Output = ()>,
        cancel: CancellationToken,
    ) -> LocalRoutes {
        if cancel.run_until_cancelled(handled).await.is_none() {
            return self.routes;
        }
        let mut changes = self.proxy.changes().version();
        let mut view = self.announcer.view();
        loop {
            self.apply().await;
            self.found.clear();
            let woken = async {
                let change = async {
                    tokio::select! {
                        _ = changes.changed() => {}
                        Ok(()) = view.changed() => {}
                    }
                };
                let change = tokio::time::timeout(LOOK, change).await;
                if change.is_ok() {
                    tokio::time::sleep(TOGETHER).await;
                } else if let Err(error) = self.routes.refresh().await {
                    warn!(%error, "the routes of this machine can't be read");
                }
            };
            if cancel.run_until_cancelled(woken).await.is_none() {
                return self.routes;
            }
        }
    }

    /// Lets exactly the addresses with listeners have routes and be announced.
    async fn apply(&mut self) {
        let mut announcements = BTreeMap::new();
        for (addresses, scope) in &self.announced {
            for address in addresses.now() {
                let start = self.starts.entry(address);
                let announcement = Announcement {
                    interfaces: scope.clone(),
                    start: *start.or_insert_with(|| start_of(address, &self.found)),
                    revision: 0,
                };
                announcements.insert(address, announcement);
            }
        }
        self.starts
            .retain(|address, _| announcements.contains_key(address));
        // What drains needs its route until the end.
        let open = self.proxy.addresses();
        let kept = self.before.intersection(&open).copied();
        let mut routed: BTreeSet<IpAddr> = kept.chain(announcements.keys().copied()).collect();
        // This machine reaches the host, too, and the next process does not take it for its own.
        let view = Arc::clone(&self.announcer.view().borrow());
        routed.retain(|address| !view.addresses.get(address).is_some_and(is_refused));
        if routed != *self.routes.held() {
            for (address, error) in self.routes.set(&routed).await {
                warn!(%address, %error, "its route could not be changed");
            }
        }
        self.before = routed;
        self.announcer.set(Wanted {
            announcements,
            ..Wanted::default()
        });
    }
}

/// Returns how an address begins, if earlier processes left routes of these.
fn start_of(address: IpAddr, found: &BTreeSet<IpAddr>) -> Start {
    if found.contains(&address) {
        Start::TakeOver
    } else {
        Start::Probe
    }
}

/// Returns whether another host has an address, or had it when it was asked last.
fn is_refused(status: &Status) -> bool {
    let asks = matches!(status.state, State::Conflicted | State::Probing);
    asks && status.conflict.is_some()
}

async fn log(mut reports: mpsc::Receiver<Report>) {
    while let Some(Report { address, event }) = reports.recv().await {
        match event {
            Event::Announced => info!(%address, "announced"),
            Event::Refused(conflict) => {
                let host = conflict.mac;
                warn!(%address, %host, "not announced: another host has it");
            }
            Event::RefusedOn(conflict) => {
                let (host, interface) = (conflict.mac, conflict.interface);
                warn!(%address, %host, interface, "not announced on an interface: a host has it");
            }
            Event::Disputed(conflict) => {
                let host = conflict.mac;
                warn!(%address, %host, "another host uses it, too");
            }
        }
    }
}
