//! A listener, live: its configuration (swapped in place), pool, counters and the gate that holds its
//! connection limit. Shared by all workers. Never owns a socket: those belong to the workers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use landfall_model::listener::{AllowedSources, Listener, Mode};
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::counters::{ListenerCounters, Shards};
use crate::inbound::Inbound;
use crate::pool::{Leaving, PoolState};
use crate::sources::SourceSet;
use crate::tls::{CertificateError, Termination};

/// What tells listeners apart: the address and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    /// The address that clients connect to.
    pub address: IpAddr,
    /// Protocol and port.
    pub key: ListenerKey,
}

/// The Service that a listener belongs to. Its identity decides who may change and close the
/// listener; its name is for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its identity.
    pub uid: Uid,
    /// Its name.
    pub service: ServiceKey,
}

/// Why a listener cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another socket holds the port.
    #[error("{id} is in use by another process")]
    InUse {
        /// What was to be opened.
        id: ListenerId,
    },
    /// The process may not bind this port.
    #[error("no permission to bind {id}")]
    Permission {
        /// What was to be opened.
        id: ListenerId,
    },
    /// The address belongs to no interface of this machine.
    #[error("{id} cannot be bound: the address is not on this machine")]
    AddressNotHere {
        /// What was to be opened.
        id: ListenerId,
    },
    /// SCTP is not carried.
    #[error("{id} cannot be served: this data plane does not carry SCTP")]
    Sctp {
        /// What was to be opened.
        id: ListenerId,
    },
    /// The configuration asks for what the protocol cannot have.
    #[error("{id} cannot be served: {mode} needs TCP")]
    NeedsTcp {
        /// What was to be opened.
        id: ListenerId,
        /// The listener's mode.
        mode: &'static str,
    },
    /// A certificate cannot be used.
    #[error("{id} cannot end TLS")]
    Certificate {
        /// What was to be opened.
        id: ListenerId,
        /// Which, and why.
        #[source]
        source: CertificateError,
    },
    /// Another failure of the operating system.
    #[error("{id} cannot be opened")]
    Other {
        /// What was to be opened.
        id: ListenerId,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The proxy is shutting down.
    #[error("{id} cannot be opened: the data plane is shutting down")]
    ShuttingDown {
        /// What was to be opened.
        id: ListenerId,
    },
}

/// A listener's configuration with everything that can be worked out once.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The configuration itself.
    pub listener: Listener,
    /// What ends TLS, for modes that do.
    pub termination: Option<Arc<Termination>>,
    allowed: Option<SourceSet>,
    trusted: SourceSet,
}

/// A listener as the workers see it.
#[derive(Debug)]
pub struct ListenerState {
    id: ListenerId,
    owner: Owner,
    config: ArcSwap<ListenerConfig>,
    revision: watch::Sender<u64>,
    pool: PoolState,
    counters: Shards<ListenerCounters>,
    gate: Arc<Gate>,
    closing: CancellationToken,
    cut: CancellationToken,
}

/// Counts what is open, and holds the connection limit.
#[derive(Debug)]
pub struct Gate {
    open: AtomicU32,
    limit: AtomicU32,
    waiting: AtomicUsize,
    freed: Notify,
}

/// One open connection's place; given back when dropped.
#[derive(Debug)]
pub struct Place(Arc<Gate>);

// === impl ListenerId ===

impl ListenerId {
    /// Address and port.
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.key.port.get())
    }
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.socket_address(), self.key.protocol)
    }
}

// === impl Owner ===

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.fmt(f)
    }
}

// === impl ListenError ===

impl ListenError {
    /// What a failed bind of `id` means.
    pub fn from_bind(id: ListenerId, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { id },
            io::ErrorKind::PermissionDenied => Self::Permission { id },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotHere { id },
            _ => Self::Other { id, source },
        }
    }

    /// The metric label and event reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "PortInUse",
            Self::Permission { .. } => "PortNotPermitted",
            Self::AddressNotHere { .. } => "AddressNotHere",
            Self::Sctp { .. } => "SctpUnsupported",
            Self::NeedsTcp { .. } => "ModeNeedsTcp",
            Self::Certificate { .. } => "CertificateUnusable",
            Self::Other { .. } => "ListenFailed",
            Self::ShuttingDown { .. } => "ShuttingDown",
        }
    }
}

// === impl ListenerConfig ===

impl ListenerConfig {
    /// Works out what connections will need.
    pub fn new(id: ListenerId, listener: &Listener) -> Result<Self, ListenError> {
        Self::after(None, id, listener)
    }

    /// As [`Self::new`], keeping of the configuration before what did not change.
    pub fn after(
        before: Option<&Self>,
        id: ListenerId,
        listener: &Listener,
    ) -> Result<Self, ListenError> {
        let stream = matches!(listener.mode, Mode::Stream);
        match listener.key.protocol {
            Protocol::Sctp => return Err(ListenError::Sctp { id }),
            Protocol::Udp if !stream => {
                return Err(ListenError::NeedsTcp {
                    id,
                    mode: listener.mode.as_str(),
                });
            }
            Protocol::Udp | Protocol::Tcp => {}
        }
        let allowed = match &listener.allowed {
            AllowedSources::All => None,
            AllowedSources::Only(prefixes) => Some(SourceSet::new(prefixes)),
        };
        let trusted = SourceSet::new(&listener.accept_proxy_from);
        let before = before.and_then(|before| before.termination.as_ref());
        let termination = Termination::of_mode(&listener.mode, before)
            .map_err(|source| ListenError::Certificate { id, source })?;
        Ok(Self {
            listener: listener.clone(),
            termination,
            allowed,
            trusted,
        })
    }

    /// Whether a client may connect.
    pub fn allows(&self, client: IpAddr) -> bool {
        self.allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(client))
    }

    /// Whether a peer must begin with a PROXY protocol header, which is then believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        !self.trusted.is_empty() && self.trusted.contains(peer)
    }
}

// === impl ListenerState ===

impl ListenerState {
    /// A listener with its first configuration. `changes` is raised on changes of health and pool.
    pub fn new(
        id: ListenerId,
        owner: Owner,
        config: ListenerConfig,
        workers: usize,
        changes: watch::Sender<u64>,
    ) -> Self {
        let pool = PoolState::new(workers, changes);
        let _nobody_can_be_leaving_yet = pool.update(&config.listener.pool);
        Self {
            id,
            owner,
            gate: Arc::new(Gate::new(config.listener.connection_limit)),
            config: ArcSwap::from_pointee(config),
            revision: watch::Sender::new(0),
            pool,
            counters: Shards::new(workers),
            closing: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Address, protocol and port.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The Service that it belongs to.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The configuration in force. Hold it only briefly; for longer use [`Self::config_full`].
    pub fn config(&self) -> Guard<Arc<ListenerConfig>> {
        self.config.load()
    }

    /// The configuration in force, to keep.
    pub fn config_full(&self) -> Arc<ListenerConfig> {
        self.config.load_full()
    }

    /// Raised after each change of the configuration.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Who serves.
    pub fn pool(&self) -> &PoolState {
        &self.pool
    }

    /// Its counters.
    pub fn counters(&self) -> &Shards<ListenerCounters> {
        &self.counters
    }

    /// Its connection limit.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Fires when the listener stops accepting: connections may finish what they are doing.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Fires when what is still open must end at once.
    pub fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// What is known of a connection before a byte is read.
    pub fn inbound(&self, peer: SocketAddr) -> Inbound {
        Inbound::direct(peer, self.id.socket_address())
    }

    /// Swaps the configuration. Connections that are open go on; new ones see the new one at once.
    /// Returns members that began to leave, or `None` when nothing differed.
    pub(crate) fn apply(&self, config: ListenerConfig) -> Option<Vec<Leaving>> {
        let before = self.config.load();
        if before.listener == config.listener {
            return None;
        }
        self.gate.set_limit(config.listener.connection_limit);
        let pool_differs = before.listener.pool != config.listener.pool;
        let config = Arc::new(config);
        self.config.store(config.clone());
        let leaving = if pool_differs {
            self.pool.update(&config.listener.pool)
        } else {
            Vec::new()
        };
        self.revision.send_modify(|revision| *revision += 1);
        Some(leaving)
    }
}

// === impl Gate ===

impl Gate {
    fn new(limit: Option<u32>) -> Self {
        Self {
            open: AtomicU32::new(0),
            limit: AtomicU32::new(limit.unwrap_or(u32::MAX)),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    /// How many places are taken.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes a place unless all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let limit = self.limit.load(Ordering::SeqCst);
        // Not "add, and take back if too many": that would wake others who wait, for nothing.
        let taken = self
            .open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
                (open < limit).then_some(open + 1)
            });
        taken.ok().map(|_| Place(self.clone()))
    }

    /// Waits until nothing is open. Only for listeners that take nothing new.
    pub async fn drained(&self) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(self);
            freed.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Waits until a place may be free; take it with [`Self::enter`].
    pub async fn freed(&self) {
        let mut freed = std::pin::pin!(self.freed.notified());
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        freed.as_mut().enable();
        if self.open.load(Ordering::SeqCst) < self.limit.load(Ordering::SeqCst) {
            return;
        }
        freed.await;
    }

    fn set_limit(&self, limit: Option<u32>) {
        self.limit
            .store(limit.unwrap_or(u32::MAX), Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Keeps the number of waiters right even when a wait is given up.
struct Waiting<'a>(&'a Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
