//! Serves what this node is to serve itself: listeners in the data plane, and for each address
//! that has one a route that brings its packets here.
//!
//! It knows no election: a node that does not announce an address is ready to serve it, and serves
//! the pods that run on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::backoff::{Backoff, Retries};
use landfall_engine::queue::Queue;
use landfall_engine::report::{Event, OwnReport};
use landfall_l2::local_routes::LocalRoutes;
use landfall_local::Serving;
use landfall_model::{Code, ServiceKey, Uid};
use landfall_proxy::Proxy;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::plane::Serves;

/// From one check of listeners that drain to the next: their address needs its route until the end.
const LOOK: Duration = Duration::from_secs(1);

/// So many Services get their routes together.
const TOGETHER: u32 = 64;

/// So many looks later, routes and listeners are compared with what is there.
const AUDIT: u32 = 30;

/// What the task is connected to.
#[derive(Debug)]
pub struct Parts<R> {
    /// What this node is to serve.
    pub wanted: watch::Receiver<Arc<Serves>>,
    /// Listeners, with the data plane below.
    pub serving: Arc<Serving>,
    /// The data plane.
    pub proxy: Arc<Proxy>,
    /// The routes of this node.
    pub routes: LocalRoutes,
    /// Where events go.
    pub reporter: Arc<R>,
}

/// What people see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingView {
    /// What this node is to serve.
    pub services: Arc<Serves>,
    /// What can't be served, and why.
    pub problems: BTreeMap<ServiceKey, String>,
    /// The addresses whose packets this node takes.
    pub routed: BTreeSet<IpAddr>,
    /// The addresses of which another node may serve more than this one does.
    pub unserved: BTreeSet<IpAddr>,
}

/// The task.
#[derive(Debug)]
pub struct Server<R> {
    parts: Parts<R>,
    current: Arc<Serves>,
    /// The Services with listeners.
    applied: BTreeMap<ServiceKey, Uid>,
    queue: Queue<ServiceKey>,
    retries: Retries<ServiceKey>,
    problems: BTreeMap<ServiceKey, String>,
    /// Services with a problem that this node has, and another one may not have.
    own_problems: BTreeSet<ServiceKey>,
    /// Addresses whose route could not be set, which was logged.
    unroutable: BTreeSet<IpAddr>,
    view: watch::Sender<Arc<ServingView>>,
}

// === impl ServingView ===

impl ServingView {
    /// Returns whether all of what a node was to serve at its start was tried.
    pub fn has_begun(&self, wanted: &Serves) -> bool {
        wanted.is_empty() || !self.services.is_empty()
    }
}

// === impl Server ===

impl<R: OwnReport> Server<R> {
    /// A task that has not begun, and what people see.
    pub fn new(parts: Parts<R>) -> (Self, watch::Receiver<Arc<ServingView>>) {
        let (view, seen) = watch::channel(Arc::default());
        let backoff = Backoff {
            longest: Duration::from_secs(30),
            ..Backoff::default()
        };
        let server = Self {
            parts,
            current: Arc::default(),
            applied: BTreeMap::new(),
            queue: Queue::new(&[1]),
            retries: Retries::new(backoff),
            problems: BTreeMap::new(),
            own_problems: BTreeSet::new(),
            unroutable: BTreeSet::new(),
            view,
        };
        (server, seen)
    }

    /// Runs until it is stopped, and returns the routes: what is served then is still served.
    pub async fn run(mut self, stop: CancellationToken) -> LocalRoutes {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until_audit = AUDIT;
        self.take();
        loop {
            let mut worked = 0;
            while let Some(key) = self.queue.take(now(), |_| 0) {
                self.work(&key).await;
                self.queue.finish(&key);
                worked += 1;
                // The first of many are served before the last is ready.
                if worked % TOGETHER == 0 {
                    self.route().await;
                }
            }
            self.route().await;
            self.publish();
            let due = self.queue.next_due();
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return self.parts.routes,
                changed = self.parts.wanted.changed() => {
                    if changed.is_err() {
                        // It serves on until it is stopped.
                        stop.cancelled().await;
                        return self.parts.routes;
                    }
                    self.take();
                }
                () = due => {}
                _ = looks.tick() => {
                    until_audit -= 1;
                    if until_audit == 0 {
                        until_audit = AUDIT;
                        self.audit().await;
                    }
                }
            }
        }
    }

    /// Queues what differs from what was wanted before.
    fn take(&mut self) {
        let wanted = Arc::clone(&self.parts.wanted.borrow_and_update());
        let before = std::mem::replace(&mut self.current, Arc::clone(&wanted));
        let keys: BTreeSet<&ServiceKey> = before.keys().chain(wanted.keys()).collect();
        for key in keys {
            if before.get(key) != wanted.get(key) {
                self.retries.reset(key);
                self.queue.push(key);
            }
        }
    }

    async fn work(&mut self, key: &ServiceKey) {
        let wanted = self.current.get(key).cloned();
        let before = self.applied.get(key).cloned();
        if let Some(before) = before.filter(|it| wanted.as_ref().is_none_or(|new| new.uid != *it)) {
            // Closing has no errors.
            let _ = self.parts.serving.serve(&before, key, &[], &[]).await;
            self.applied.remove(key);
        }
        let Some(wanted) = wanted else {
            self.problems.remove(key);
            self.own_problems.remove(key);
            return;
        };
        self.applied.insert(key.clone(), wanted.uid.clone());
        let serving = &self.parts.serving;
        let (listeners, addresses) = (&wanted.listeners, &wanted.addresses);
        let served = serving.serve(&wanted.uid, key, listeners, addresses).await;
        let Err(failed) = served else {
            self.problems.remove(key);
            self.own_problems.remove(key);
            self.retries.reset(key);
            return;
        };
        if failed.iter().any(|it| is_of_this_node(it.reason.code)) {
            self.own_problems.insert(key.clone());
        } else {
            self.own_problems.remove(key);
        }
        let delay = self.retries.fail(key);
        self.queue.push_after(key, delay, now());
        let why: Vec<String> = failed.iter().map(|it| it.reason.to_string()).collect();
        let message = why.join("; ");
        let before = self.problems.insert(key.clone(), message.clone());
        if before.as_ref() != Some(&message) {
            warn!(service = %key, error = message, "this node can't serve all of it");
            let event = Event {
                reason: "serveFailed",
                warning: true,
                message,
            };
            let reporter = &self.parts.reporter;
            reporter.own_event(key, &wanted.uid, &event).await;
        }
    }

    /// Lets exactly the addresses with a listener have a route, but for those that other hosts
    /// have: with a route, this node and its pods could not reach them any more.
    async fn route(&mut self) {
        let wanted = routable(self.parts.proxy.addresses(), &self.current);
        let routes = &mut self.parts.routes;
        if wanted == *routes.held() && self.unroutable.is_empty() {
            return;
        }
        let failed = routes.set(&wanted).await;
        for (address, error) in &failed {
            if !self.unroutable.contains(address) {
                warn!(%address, %error, "its route could not be changed");
            }
        }
        self.unroutable = failed.into_keys().collect();
    }

    async fn audit(&mut self) {
        if let Err(error) = self.parts.routes.refresh().await {
            warn!(%error, "the routes of this node can't be read");
        }
        let lost: BTreeSet<Uid> = self.parts.serving.audit().into_iter().collect();
        for (key, uid) in &self.applied {
            if lost.contains(uid) {
                info!(service = %key, "a listener is gone, and is opened again");
                self.queue.push(key);
            }
        }
    }

    /// Returns the addresses of which another node may serve more.
    fn unserved(&self) -> BTreeSet<IpAddr> {
        let services = self.own_problems.iter();
        let services = services.filter_map(|key| self.current.get(key));
        let addresses = services.flat_map(|it| &it.addresses).copied();
        let listening = self.parts.proxy.addresses();
        let unrouted = self.unroutable.intersection(&listening).copied();
        addresses.chain(unrouted).collect()
    }

    fn publish(&self) {
        let view = ServingView {
            unserved: self.unserved(),
            services: Arc::clone(&self.current),
            problems: self.problems.clone(),
            routed: self.parts.routes.held().clone(),
        };
        self.view.send_if_modified(|seen| {
            let is_new = **seen != view;
            if is_new {
                *seen = Arc::new(view);
            }
            is_new
        });
    }
}

fn routable(mut listening: BTreeSet<IpAddr>, serves: &Serves) -> BTreeSet<IpAddr> {
    for address in serves.values().flat_map(|it| &it.refused) {
        listening.remove(address);
    }
    listening
}

/// Returns whether a listener could not be opened for a reason that other nodes may not have. What
/// a Service asks for is the same on all nodes.
fn is_of_this_node(code: Code) -> bool {
    matches!(
        code,
        Code::PortInUse | Code::PortNotPermitted | Code::AddressNotLocal | Code::ListenFailed
    )
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
