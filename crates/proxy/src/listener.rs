//! A listener, live: its configuration (swapped in place), pool, counters and the gate that holds
//! its connection limit. Shared by all workers. Never owns a socket: those belong to the workers.

mod gate;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use landfall_model::Protocol;
use landfall_model::listener::{AllowedSources, Listener, Member, Mode};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access_log::{AccessLog, Note};
use crate::budget::{self, Account};
use crate::changes::Changes;
use crate::clients::Clients;
use crate::counters::{ListenerCounters, Refusal, Shards};
use crate::identity::{ListenerId, Owner};
use crate::inbound::Inbound;
use crate::pool::{HashKey, Leaving, PoolState};
use crate::sources::SourceSet;
use crate::tls::{CertificateError, Termination, TowardMembers};

pub use gate::{Gate, Place};

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
    #[error("{id} cannot be served: this data plane does not support SCTP")]
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
    #[error("{id} cannot speak TLS")]
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
    /// The process has too few descriptors for its sockets.
    #[error("{id} cannot be opened: too few file descriptors would be left for other Services")]
    Descriptors {
        /// What was to be opened.
        id: ListenerId,
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
    /// TLS toward members, where there is any.
    pub toward_members: Option<Arc<TowardMembers>>,
    allowed: Option<SourceSet>,
    trusted: SourceSet,
    /// Of UDP: where its members answer, in order.
    answering: Vec<(IpAddr, u16)>,
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
    clients: Arc<Clients>,
    closing: CancellationToken,
    cut: CancellationToken,
    /// Where what ends is noted, if it is.
    access_log: Option<Arc<AccessLog>>,
    /// The descriptors of its sockets, while it is open.
    sockets: Mutex<Option<budget::Sockets>>,
}

/// What follows from a change of the configuration.
#[derive(Debug)]
pub(crate) struct Change {
    /// Members that began to leave.
    pub(crate) leaving: Vec<Leaving>,
    /// Whether other sources are allowed now.
    pub(crate) ranges: bool,
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
            Self::Descriptors { .. } | Self::Other { .. } => "ListenFailed",
            Self::ShuttingDown { .. } => "ShuttingDown",
        }
    }
}

fn place(member: &Member) -> (IpAddr, u16) {
    (member.address.ip(), member.address.port())
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
        let unusable = |source| ListenError::Certificate { id, source };
        let termination = before.and_then(|before| before.termination.as_ref());
        let termination = Termination::of_listener(listener, termination).map_err(unusable)?;
        let toward_members = before.and_then(|before| before.toward_members.as_ref());
        let toward_members =
            TowardMembers::of_listener(listener, toward_members).map_err(unusable)?;
        let mut answering: Vec<_> = match listener.key.protocol {
            Protocol::Udp => listener.pool.members.iter().map(place).collect(),
            Protocol::Tcp | Protocol::Sctp => Vec::new(),
        };
        answering.sort_unstable();
        Ok(Self {
            answering,
            listener: listener.clone(),
            termination,
            toward_members,
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

    /// Whether what is sent to a peer may be answered for ever: a member takes it for a question,
    /// and its answer comes from where a client would be.
    pub(crate) fn would_go_round(&self, peer: SocketAddr) -> bool {
        let peer = (peer.ip(), peer.port());
        self.answering.binary_search(&peer).is_ok()
    }

    /// Whether a peer must begin with a PROXY protocol header, which is then believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        !self.trusted.is_empty() && self.trusted.contains(peer)
    }
}

// === impl ListenerState ===

#[cfg(test)]
impl ListenerState {
    /// A listener of the Service `shop/web` for tests, at an address of its own.
    pub(crate) fn of_test(address: IpAddr, listener: &Listener) -> Arc<Self> {
        let id = ListenerId {
            address,
            key: listener.key,
        };
        let config = ListenerConfig::new(id, listener).unwrap();
        let owner = Owner {
            uid: landfall_model::Uid::new("uid-of-shop/web"),
            service: landfall_model::ServiceKey::new("shop", "web"),
        };
        Arc::new(Self::new(id, owner, config, 1, &Changes::default()))
    }
}

impl ListenerState {
    /// A listener with its first configuration. `changes` is noted on changes of health and pool.
    pub fn new(
        id: ListenerId,
        owner: Owner,
        config: ListenerConfig,
        workers: usize,
        changes: &Changes,
    ) -> Self {
        let key = HashKey::new([0; 16], &owner.uid);
        Self::with_account(
            id,
            owner,
            config,
            workers,
            changes,
            Account::unlimited(),
            key,
        )
    }

    /// As [`Self::new`], drawing on the account of its Service, and with a key for clients' hashes.
    pub(crate) fn with_account(
        id: ListenerId,
        owner: Owner,
        config: ListenerConfig,
        workers: usize,
        changes: &Changes,
        account: Arc<Account>,
        key: HashKey,
    ) -> Self {
        let cut = CancellationToken::new();
        let pool = PoolState::new(workers, key, changes.of(&owner.uid), account.clone());
        let _no_member_can_be_leaving_yet = pool.update(&config.listener.pool);
        Self {
            id,
            owner,
            clients: Clients::new(account.clone()),
            gate: Arc::new(Gate::new(config.listener.connection_limit, account)),
            config: ArcSwap::from_pointee(config),
            revision: watch::Sender::new(0),
            pool,
            counters: Shards::new(workers),
            closing: CancellationToken::new(),
            cut,
            access_log: None,
            sockets: Mutex::default(),
        }
    }

    /// With an access log.
    pub(crate) fn logging_to(mut self, access_log: Option<Arc<AccessLog>>) -> Self {
        self.access_log = access_log;
        self
    }

    /// What will be a line of the access log, where there is one.
    pub(crate) fn note(&self, client: SocketAddr) -> Option<Box<Note>> {
        let log = self.access_log.as_ref()?;
        Some(Box::new(Note::new(
            log,
            self.account(),
            &self.owner.service,
            self.id,
            client,
        )))
    }

    /// Counts and notes a connection or flow that is turned away.
    pub(crate) fn refuse(&self, client: SocketAddr, refusal: Refusal) {
        self.counters.mine().refused(refusal);
        if let Some(mut note) = self.note(client) {
            note.facts().end = refusal.as_str();
        }
    }

    /// What its Service holds of the process's descriptors.
    pub fn account(&self) -> &Arc<Account> {
        &self.gate.account
    }

    /// Keeps the hold on descriptors of its sockets; `None`: they are closed.
    pub(crate) fn hold_sockets(&self, sockets: Option<budget::Sockets>) {
        // Valid at every step.
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = sockets;
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

    /// The pool and its options.
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

    /// Its clients, as far as they have limits.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
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
    /// What its clients may be counts for open ones, too. Returns what follows, or `None` when
    /// nothing differed.
    pub(crate) fn apply(&self, config: ListenerConfig) -> Option<Change> {
        let before = self.config.load();
        if before.listener == config.listener {
            return None;
        }
        self.gate.set_limit(config.listener.connection_limit);
        let ranges = before.listener.allowed != config.listener.allowed;
        let pool_differs = before.listener.pool != config.listener.pool;
        let config = Arc::new(config);
        self.config.store(config.clone());
        let leaving = if pool_differs {
            self.pool.update(&config.listener.pool)
        } else {
            Vec::new()
        };
        self.revision.send_modify(|revision| *revision += 1);
        Some(Change { leaving, ranges })
    }
}
