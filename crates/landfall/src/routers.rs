//! One machine that announces its addresses to routers, as `BGPPeer` manifests say: those of
//! Services that are served. Nothing is announced before all of them are known.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::World;
use landfall_engine::follow::{Follower, receive};
use landfall_engine::report::{Event, Found, OwnKind, OwnObject, OwnReport, ReportError, Version};
use landfall_engine::store::{Snapshot, StateStore};
use landfall_model::ServiceKey;
use landfall_model::Uid;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::view::{AnnouncementView, InstanceView};
use landfall_proxy::Proxy;
use landfall_speaker::machine::{Machine, RESOURCES};
use landfall_speaker::peers::{PeerSpec, router_id};
use landfall_speaker::routing::Routing;
use landfall_speaker::sessions::{Known, Parts, Passwords, Sessions};
use landfall_sys::routes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::lifetime::Lifetime;

/// Changes that are acted upon together.
const TOGETHER: Duration = Duration::from_millis(10);

/// How long routers get at a stop to go over to another machine.
pub const DRAIN: Duration = Duration::from_secs(3);

/// Facts on their way here.
const FACTS: usize = 1024;

/// The sessions, until they are ended.
#[derive(Debug)]
pub struct Routers {
    /// What people see of them.
    pub shown: RoutersView,
    copies: mpsc::Sender<Fact>,
    routing: Arc<watch::Sender<Option<Arc<Routing>>>>,
    task: JoinHandle<()>,
    cancel: CancellationToken,
}

/// What people see of the sessions of a machine.
#[derive(Clone, Debug)]
pub struct RoutersView {
    node: String,
    sessions: Arc<Sessions>,
}

/// The task.
struct Task {
    facts: mpsc::Receiver<Fact>,
    store: Arc<StateStore>,
    proxy: Arc<Proxy>,
    world: Follower,
    machine: Machine,
    node: String,
    /// Where a peer names no router ID; known once there is a peer.
    router_id: Option<Ipv4Addr>,
    passwords: watch::Sender<Arc<Passwords>>,
    routing: Arc<watch::Sender<Option<Arc<Routing>>>>,
}

/// Reports on Services into the log: their status is the engine's.
struct Log;

/// Whether a fact is one of those that are needed here.
pub fn concerns(fact: &Fact) -> bool {
    match fact {
        Fact::Pool(_) | Fact::PoolGone(_) => true,
        Fact::Resource(row) => RESOURCES.contains(&row.kind),
        Fact::ResourceGone(kind, _) => RESOURCES.contains(kind),
        _ => false,
    }
}

/// Returns what is wrong with the resources that describe routers.
pub fn problems(world: &World) -> Vec<Reason> {
    let resources: Vec<_> = world.resources(RESOURCES).cloned().collect();
    let mut machine = Machine::new("");
    machine.take(world.pools(), &resources);
    machine.problems().to_vec()
}

/// The name of this machine.
async fn name() -> String {
    let name = tokio::fs::read_to_string("/proc/sys/kernel/hostname").await;
    let name = name.unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

// === impl Routers ===

impl Routers {
    /// Begins once all Services are known and were handled; `None`: this process serves nothing.
    pub async fn start(
        proxy: Option<&Arc<Proxy>>,
        store: &Arc<StateStore>,
        lifetime: &Lifetime,
    ) -> Option<Self> {
        let proxy = Arc::clone(proxy?);
        let (copies, facts) = mpsc::channel(FACTS);
        let (routing, routed) = watch::channel(None);
        let (passwords, known) = watch::channel(Arc::default());
        let node = name().await;
        let sessions = Sessions::start(Parts {
            node: node.as_str().into(),
            routing: routed,
            passwords: known,
            reporter: Arc::new(Log),
            listen: None,
        });
        let routing = Arc::new(routing);
        let task = Task {
            facts,
            store: Arc::clone(store),
            proxy,
            world: Follower::default(),
            machine: Machine::new(&node),
            router_id: None,
            node: node.clone(),
            passwords,
            routing: Arc::clone(&routing),
        };
        let cancel = lifetime.cancel.child_token();
        let running = cancel.clone().run_until_cancelled_owned(task.run());
        let task = lifetime.tasks.spawn(async move {
            running.await;
        });
        let shown = RoutersView {
            node,
            sessions: Arc::new(sessions),
        };
        Some(Self {
            shown,
            copies,
            routing,
            task,
            cancel,
        })
    }

    /// What takes facts, of those that [`concerns`] names.
    pub fn facts(&self) -> mpsc::Sender<Fact> {
        self.copies.clone()
    }

    /// Ends the sessions while another process of this machine serves on: routers that can keep its
    /// routes do so.
    pub async fn hand_over(mut self) {
        self.freeze().await;
        self.shown.sessions.end(Duration::ZERO).await;
    }

    /// Asks routers to prefer other machines, gives them this time for it, and withdraws all.
    pub async fn stop(mut self, time: Duration) {
        self.freeze().await;
        let known = self.routing.send_if_modified(|routing| {
            let Some(routing) = routing else {
                return false;
            };
            Arc::make_mut(routing).is_leaving = true;
            true
        });
        if known {
            // It ends only with the sessions.
            let mut shown = self.shown.sessions.shown.clone();
            let _ = shown.wait_for(|shown| shown.routing.is_leaving).await;
        }
        self.shown.sessions.end(time).await;
    }

    /// From now on nothing changes what is announced.
    async fn freeze(&mut self) {
        self.cancel.cancel();
        // One that panicked changes nothing any more, either.
        let _ = (&mut self.task).await;
    }
}

// === impl RoutersView ===

impl RoutersView {
    /// Adds the sessions to what is known of an instance.
    pub fn add_to(&self, view: &mut InstanceView) {
        view.peers = self.sessions.peers(&self.node, Instant::now());
        view.routes = self.sessions.routes(&self.node);
        view.problems.extend(self.sessions.problems());
    }

    /// Returns what the machine does for the addresses of a Service.
    pub fn explain(&self, key: &ServiceKey) -> Vec<AnnouncementView> {
        let said = self.sessions.announcements(&self.node, key);
        self.sessions.explain(said)
    }
}

// === impl Task ===

impl Task {
    async fn run(mut self) {
        let mut services = self.store.changes();
        let mut listeners = self.proxy.changes().version();
        let mut is_ready = false;
        loop {
            // At first until all are handled, then while there is something to do about it.
            let follows = !is_ready || self.machine.has_peers();
            // All branches are cancel-safe.
            tokio::select! {
                facts = receive(&mut self.facts) => match facts {
                    Some(facts) => self.take(facts),
                    // It serves on until it is stopped.
                    None => return std::future::pending().await,
                },
                Ok(()) = services.changed(), if follows => {}
                Ok(()) = listeners.changed(), if follows => {}
            }
            // Also at first: of ten thousand Services each changes several times until all are
            // handled, and each change would wake this task.
            tokio::time::sleep(TOGETHER).await;
            services.mark_unchanged();
            listeners.mark_unchanged();
            is_ready = is_ready || self.store.read(Snapshot::ready);
            if is_ready {
                // What was sent before the end of the first read is here by now.
                let mut more = Vec::new();
                while let Ok(fact) = self.facts.try_recv() {
                    more.push(fact);
                }
                if !more.is_empty() {
                    self.take(more);
                }
                self.apply().await;
            }
        }
    }

    fn take(&mut self, facts: Vec<Fact>) {
        self.world.apply_all(facts);
        // What is wrong with pools is reported by the engine.
        let _reported = self.world.settle_pools();
        let resources: Vec<_> = self.world.resources(RESOURCES).cloned().collect();
        let before = self.machine.problems().to_vec();
        self.machine.take(self.world.pools(), &resources);
        let problems = self.machine.problems().iter();
        for reason in problems.filter(|it| !before.contains(it)) {
            warn!(%reason, "a resource is not in force as it is written");
        }
    }

    async fn apply(&mut self) {
        let before = self.routing.borrow().clone();
        let is_silent = !self.machine.has_peers() && self.machine.problems().is_empty();
        if before.is_none() && is_silent {
            return;
        }
        let router_id = match self.router_id {
            Some(known) => known,
            None => *self.router_id.insert(own_id(&self.node).await),
        };
        let open = self.proxy.addresses();
        let served = |pages: &Snapshot| {
            let served = pages.records.values().filter_map(|record| {
                let status = record.status();
                let addresses = status.addresses();
                let addresses = addresses.filter(|it| !it.is_loopback() && open.contains(it));
                let addresses: Vec<IpAddr> = addresses.collect();
                if addresses.is_empty() {
                    return None;
                }
                let row = record.row().filter(|row| !row.deleting)?;
                Some((Arc::new(row), addresses))
            });
            served.collect::<Vec<(Arc<ServiceRow>, _)>>()
        };
        let served = self.store.read(served);
        let before = before.unwrap_or_default();
        let routing = self.machine.routing(&served, router_id, &before);
        self.passwords.send_if_modified(|known| {
            let unknown = unknown_passwords(&routing);
            let is_new = **known != unknown;
            *known = Arc::new(unknown);
            is_new
        });
        self.routing.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&routing);
            *known = Some(Arc::new(routing));
            is_new
        });
    }
}

/// Secrets of manifests are certificates.
fn unknown_passwords(routing: &Routing) -> Passwords {
    let named = routing.peers.values().flat_map(PeerSpec::secrets).cloned();
    let unknown = |key: ServiceKey| {
        let problem = format!(
            "the Secret {key} is not read: without a cluster the password stands in the BGPPeer \
             (spec.password)"
        );
        let known = Known {
            password: None,
            problem: Some(problem),
        };
        (key, known)
    };
    named.map(unknown).collect::<BTreeMap<_, _>>()
}

/// The router ID of this machine: its lowest IPv4 address, else a number made of its name.
async fn own_id(name: &str) -> Ipv4Addr {
    let read = tokio::task::spawn_blocking(routes::local).await;
    let found = read.ok().and_then(Result::ok).unwrap_or_default();
    let own = found.iter().filter(|(address, length)| match address {
        IpAddr::V4(it) => *length == 32 && !it.is_loopback(),
        IpAddr::V6(_) => false,
    });
    let own: Vec<IpAddr> = own.map(|(address, _)| *address).collect();
    router_id(name, &own)
}

// === impl Log ===

impl OwnReport for Log {
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

    async fn own_event(&self, service: &ServiceKey, _uid: &Uid, event: &Event) {
        info!(%service, reason = event.reason, "{}", event.message);
    }
}
