//! The handle of the data plane: opens, changes and closes listeners, runs drain times, and reports
//! what goes on. Changes of one listener never touch another; changes of a listener that is open
//! never close its socket nor its connections.

mod closing;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_model::listener::Listener;
use landfall_model::{Protocol, Uid};
use landfall_sys::listen::Addresses;
use landfall_sys::{limits, local_port};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access_log::AccessLog;
use crate::budget::{Budget, Pressure, units};
use crate::changes::Changes;
use crate::counters::ListenerTotals;
use crate::engine::{Capacity, Command};
use crate::identity::{ListenerId, Owner};
use crate::listener::{Change, ListenError, ListenerConfig, ListenerState};
use crate::monitor::{Counts, Monitors};
use crate::pool::{HashKey, Leaving, MemberStatus};
use crate::worker::Worker;
use crate::{overload, worker_check};

use closing::sweep;
use handover::Adopted;
pub use handover::Sockets;
use turns::Turns;

mod handover;

/// How a data plane is run.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// How many worker threads serve traffic; `None`: one per processor.
    pub workers: Option<NonZeroUsize>,
    /// How many files the process may open; `None`: as many as the system allows it. Listeners and
    /// connections share what the process does not need for itself.
    pub files: Option<NonZeroUsize>,
    /// How many bytes buffers of connections may take; `None`: half of what the system allows the
    /// process.
    pub memory: Option<u64>,
    /// Whether a port is opened beside a process of the same user that holds it and shares it: the
    /// replica that served before goes on until this one does. Any other holder keeps its port.
    pub beside: bool,
    /// Whether listeners may have addresses that no interface of this machine has (yet).
    pub addresses: Addresses,
    /// Where requests, connections and flows are noted; `None`: nowhere.
    pub access_log: Option<Arc<AccessLog>>,
    /// What clients must not know, so that they can't find out which member their address or port
    /// leads to; zeros where identities of Services can't be guessed. All processes that serve a
    /// Service after or beside each other need the same one.
    pub hash_secret: [u8; 16],
}

/// A running data plane. Dropping it ends all traffic at once; see [`Self::shutdown`].
#[derive(Debug)]
pub struct Proxy {
    workers: Arc<Vec<Worker>>,
    budget: Arc<Budget>,
    beside: bool,
    addresses: Addresses,
    access_log: Option<Arc<AccessLog>>,
    hash_secret: [u8; 16],
    turns: Turns,
    listeners: Mutex<BTreeMap<ListenerId, Arc<ListenerState>>>,
    /// Closed, but connections go on until they end or the drain time passes.
    draining: Arc<Mutex<Vec<Arc<ListenerState>>>>,
    /// Sockets of another process, for listeners that are not open yet.
    adopted: Mutex<BTreeMap<ListenerId, Adopted>>,
    changes: Changes,
    monitors: Monitors,
    tasks: TaskTracker,
    stop: CancellationToken,
    broken: CancellationToken,
    runtime: Handle,
}

/// What applying a listener came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was opened.
    Opened,
    /// It was changed in place.
    Changed,
    /// It was like that already.
    Unchanged,
}

/// A listener's row in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Address, protocol and port.
    pub id: ListenerId,
    /// The Service that it belongs to.
    pub owner: Owner,
    /// One word: `stream`, `tls`, `http`, `https`.
    pub mode: &'static str,
    /// Whether it is closed and only ends what it has.
    pub draining: bool,
    /// Connections (UDP: flows) that are open.
    pub open: u32,
    /// How many may be open.
    pub limit: Option<u32>,
    /// How many connections and requests wait for a member that may have more.
    pub waiting: usize,
    /// Its counters.
    pub totals: ListenerTotals,
    /// Its members, and those that left with connections still open.
    pub members: Vec<MemberStatus>,
}

// === impl Proxy ===

impl Proxy {
    /// Starts the workers. Must be called inside the control plane's runtime, on which monitors and
    /// drain times run. Raises the process's limit of open files as far as it goes.
    pub fn start(config: ProxyConfig) -> io::Result<Self> {
        let files = limits::raise_open_files()?;
        let workers = match config.workers {
            Some(workers) => workers,
            None => std::thread::available_parallelism()?,
        };
        let files = config.files.map_or(files, |files| files.get() as u64);
        let (first, last) = local_port::range().unwrap_or(local_port::DEFAULT);
        let ports = u32::from(last) - u32::from(first) + 1;
        let memory = config.memory.unwrap_or_else(units::of_process);
        let budget = Budget::with_memory(files, ports / 2, memory);
        let capacity = Capacity {
            // Half of it for pipes of two ends, half for spare sockets of two families.
            pipes: budget.division().pipes as usize / 4 / workers,
            spares: budget.division().pipes as usize / 4 / workers,
        };
        let workers = (0..workers.get()).map(|index| Worker::start(index, capacity));
        let workers = workers.collect::<io::Result<Vec<_>>>()?;
        let stop = CancellationToken::new();
        let runtime = Handle::current();
        let checks = budget.division().checks as usize;
        let (tasks, changes) = (TaskTracker::new(), Changes::default());
        let announced = overload::announce(budget.clone(), changes.clone(), stop.clone());
        tasks.spawn_on(announced, &runtime);
        let (workers, broken) = (Arc::new(workers), CancellationToken::new());
        for number in 0..workers.len() {
            let (workers, stop, broken) = (workers.clone(), stop.clone(), broken.clone());
            let watched = async move {
                let ask = || {
                    let workers = workers.clone();
                    async move {
                        match workers.get(number) {
                            Some(worker) => worker.ask(Command::Answer).await.is_ok(),
                            None => true,
                        }
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    silence = worker_check::watch(ask) => {
                        tracing::error!(worker = number, "a worker {silence}");
                        broken.cancel();
                    }
                }
            };
            tasks.spawn_on(watched, &runtime);
        }
        Ok(Self {
            workers,
            broken,
            budget,
            beside: config.beside,
            addresses: config.addresses,
            access_log: config.access_log,
            hash_secret: config.hash_secret,
            turns: Turns::default(),
            listeners: Mutex::default(),
            draining: Arc::default(),
            adopted: Mutex::default(),
            changes,
            monitors: Monitors::new(runtime.clone(), stop.child_token(), checks),
            tasks,
            stop,
            runtime,
        })
    }

    /// Opens a listener, or changes it in place. After an error it is as it was before. A listener
    /// that passes to another owner is closed and opened again.
    pub async fn apply(
        &self,
        id: ListenerId,
        owner: &Owner,
        listener: &Listener,
    ) -> Result<Applied, ListenError> {
        let _one_at_a_time = self.turns.of(id).await;
        if self.stop.is_cancelled() {
            return Err(ListenError::ShuttingDown { id });
        }
        if let Some(state) = self.find(id) {
            if state.owner().uid == owner.uid {
                let config = ListenerConfig::after(Some(&state.config_full()), id, listener)?;
                return Ok(self.change(&state, config).await);
            }
            // Validated before the old owner's listener is given up.
            ListenerConfig::new(id, listener)?;
            self.close_now(id).await;
        }
        let config = ListenerConfig::new(id, listener)?;
        let workers = self.workers.len();
        let account = self.budget.account(&owner.uid, owner.service.namespace());
        let adopted = self.take_adopted(id);
        // A process with more workers may have left more sockets than there are workers here.
        let count = u32::try_from(workers.max(adopted.len())).unwrap_or(u32::MAX);
        let Some(sockets) = account.sockets(count) else {
            self.keep_adopted(id, adopted);
            return Err(ListenError::Descriptors { id });
        };
        let service = owner.clone();
        let key = HashKey::new(self.hash_secret, &owner.uid);
        let state =
            ListenerState::with_account(id, service, config, workers, &self.changes, account, key)
                .logging_to(self.access_log.clone());
        state.hold_sockets(Some(sockets));
        let state = Arc::new(state);
        self.open(&state, adopted).await?;
        self.listeners().insert(id, state.clone());
        self.monitors.watch(state);
        self.changes.note(&owner.uid);
        tracing::info!(listener = %id, service = %owner, "listener opened");
        Ok(Applied::Opened)
    }

    /// Closes a listener of this owner: nothing new is accepted when this returns, and the port is
    /// free. Open connections go on until they end or the listener's drain time passes. UDP flows
    /// end. `false`: the owner has no such listener; one of another owner stays open.
    pub async fn close(&self, id: ListenerId, owner: &Uid) -> bool {
        let _one_at_a_time = self.turns.of(id).await;
        let listener = self.find(id);
        let is_theirs = listener.is_some_and(|listener| listener.owner().uid == *owner);
        is_theirs && self.close_now(id).await
    }

    /// Closes all listeners, gives connections `grace` to end, and ends the workers. Gives up at
    /// once where a worker is broken, which would not follow.
    pub async fn shutdown(&self, grace: Duration) {
        tokio::select! {
            () = self.broken() => self.stop.cancel(),
            () = self.shut_down(grace) => {}
        }
    }

    /// How scarce descriptors and ports are.
    pub fn pressure(&self) -> Pressure {
        self.budget.pressure()
    }

    /// What the monitors of all listeners did until now.
    pub fn checks(&self) -> Counts {
        self.monitors.counts()
    }

    /// How many threads carry traffic.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Where requests, connections and flows are noted.
    pub fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// Returns once a worker ended or does nothing any more, although nothing asked it to. What it
    /// carried is lost; the process should be started again.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// A row for every listener, in order, and for those that are draining.
    pub fn snapshot(&self) -> Vec<ListenerStatus> {
        let open: Vec<_> = self.listeners().values().cloned().collect();
        let draining = lock(&self.draining).clone();
        let open = open.iter().map(|state| ListenerStatus::of(state, false));
        open.chain(draining.iter().map(|state| ListenerStatus::of(state, true)))
            .collect()
    }

    /// Returns the Services whose listeners, pools or health of members change.
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// A listener, live.
    pub fn find(&self, id: ListenerId) -> Option<Arc<ListenerState>> {
        self.listeners().get(&id).cloned()
    }

    async fn open(
        &self,
        state: &Arc<ListenerState>,
        adopted: Vec<OwnedFd>,
    ) -> Result<(), ListenError> {
        let id = state.id();
        let (address, count) = (id.socket_address(), self.workers.len());
        let failed = |source| ListenError::from_bind(id, source);
        let (listen, missing) = (self.addresses, count.saturating_sub(adopted.len()));
        let commands: Vec<Opening> = match id.key.protocol {
            Protocol::Tcp => {
                let more = match adopted.len() {
                    0 => listen
                        .tcp(address, count)
                        .or_else(|error| self.beside(error, || listen.more_tcp(address, count))),
                    _ => listen.more_tcp(address, missing),
                };
                let adopted = adopted.into_iter().map(|it| Opening::Tcp(it.into(), true));
                let more = more.map_err(failed)?.into_iter();
                adopted
                    .chain(more.map(|it| Opening::Tcp(it, false)))
                    .collect()
            }
            Protocol::Udp => {
                let more = match adopted.len() {
                    0 => listen
                        .udp(address, count)
                        .or_else(|error| self.beside(error, || listen.more_udp(address, count))),
                    _ => listen.more_udp(address, missing),
                };
                let adopted = adopted.into_iter().map(UdpSocket::from);
                let sockets = adopted.chain(more.map_err(failed)?);
                sockets.map(Opening::Udp).collect()
            }
            Protocol::Sctp => return Err(ListenError::Sctp { id }),
        };
        // All workers are asked before the first has answered.
        let mut answers = Vec::with_capacity(commands.len());
        for (worker, opening) in self.workers.iter().cycle().zip(commands) {
            let (done, answer) = oneshot::channel();
            let command = match opening {
                Opening::Tcp(socket, shared) => {
                    Command::OpenTcp(state.clone(), socket, shared, done)
                }
                Opening::Udp(socket) => Command::OpenUdp(state.clone(), socket, done),
            };
            // The answer does not come either if the worker is gone.
            let _ = worker.report(command).await;
            answers.push(answer);
        }
        let mut opened = Ok(());
        for answer in answers {
            let answer = answer.await.map_err(|_| ListenError::ShuttingDown { id });
            opened = opened.and(answer.and_then(|answer| answer.map_err(failed)));
        }
        if opened.is_err() {
            self.report_all(id, Command::Close).await;
        }
        opened
    }

    /// Opens a port that is in use beside its holder, where that is wanted.
    fn beside<T>(&self, error: io::Error, open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.beside && error.kind() == io::ErrorKind::AddrInUse {
            open()
        } else {
            Err(error)
        }
    }

    async fn change(&self, state: &Arc<ListenerState>, config: ListenerConfig) -> Applied {
        let Some(Change { leaving, ranges }) = state.apply(config) else {
            return Applied::Unchanged;
        };
        if ranges {
            sweep(&self.workers, state).await;
        }
        if !leaving.is_empty() {
            self.cut_later(leaving, state.clone());
        }
        self.changes.note(&state.owner().uid);
        tracing::debug!(listener = %state.id(), service = %state.owner(), "listener changed");
        Applied::Changed
    }

    /// Cuts what members that leave still have when the drain time is over.
    fn cut_later(&self, leaving: Vec<Leaving>, state: Arc<ListenerState>) {
        let (workers, stop) = (self.workers.clone(), self.stop.clone());
        let drain = state.config().listener.drain;
        let task = async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(drain) => {}
            }
            if leaving.iter().filter(|member| member.cut()).count() > 0 {
                sweep(&workers, &state).await;
            }
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Returns the addresses at which a listener is open, or is draining.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let draining = lock(&self.draining);
        let draining = draining.iter().map(|state| state.id().address);
        let open = self.listeners();
        open.keys().map(|id| id.address).chain(draining).collect()
    }

    /// Returns the listeners that are open, and whose each is.
    pub fn owners(&self) -> Vec<(ListenerId, Owner)> {
        let listeners = self.listeners();
        let owners = listeners
            .iter()
            .map(|(id, state)| (*id, state.owner().clone()));
        owners.collect()
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, BTreeMap<ListenerId, Arc<ListenerState>>> {
        lock(&self.listeners)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A socket on its way to a worker.
enum Opening {
    /// With whether another process may have it, too.
    Tcp(TcpListener, bool),
    Udp(UdpSocket),
}

// === impl ListenerStatus ===

impl ListenerStatus {
    fn of(state: &ListenerState, draining: bool) -> Self {
        let config = state.config();
        Self {
            id: state.id(),
            owner: state.owner().clone(),
            mode: config.listener.mode.as_str(),
            draining,
            open: state.gate().open(),
            limit: config.listener.connection_limit,
            waiting: state.pool().waiting(),
            totals: state.counters().totals(),
            members: state.pool().status(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic elsewhere leaves these lists valid at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
