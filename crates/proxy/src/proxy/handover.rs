//! Listening sockets that pass from one process to the next. Both hold the same sockets, with the
//! same queues, so nothing that waits in them is lost while one process ends and the other begins.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use landfall_model::Protocol;
use socket2::SockRef;

use super::{Proxy, lock};
use crate::budget::ReservedDescriptors;
use crate::engine::Command;
use crate::identity::ListenerId;

/// Sockets of listeners, by what they listen on.
pub type Sockets = BTreeMap<ListenerId, Vec<OwnedFd>>;

/// Sockets of another process for a listener that is not open yet.
#[derive(Debug)]
pub(super) struct Adopted {
    sockets: Vec<OwnedFd>,
    _aside: ReservedDescriptors,
}

impl Proxy {
    /// Keeps sockets of another process for the listeners that are opened from now on. What is not
    /// a listening socket of its address is left out.
    pub fn adopt(&self, sockets: Sockets) {
        for (id, sockets) in sockets {
            let sockets = sockets.into_iter().filter(|it| fits(id, it));
            self.keep_adopted(id, sockets.collect());
        }
    }

    pub(super) fn keep_adopted(&self, id: ListenerId, sockets: Vec<OwnedFd>) {
        if sockets.is_empty() {
            return;
        }
        let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        let adopted = Adopted {
            sockets,
            _aside: self.budget.set_aside(count),
        };
        lock(&self.adopted).insert(id, adopted);
    }

    /// Closes adopted sockets for which no listener was opened, but for those that are kept. What
    /// waits in their queues is left to the process that they came from, as long as that accepts.
    /// Returns of how many listeners.
    pub fn drop_adopted(&self, kept: impl Fn(ListenerId) -> bool) -> usize {
        let mut adopted = lock(&self.adopted);
        let before = adopted.len();
        adopted.retain(|id, _| kept(*id));
        before - adopted.len()
    }

    /// Whether there are adopted sockets for which no listener was opened.
    pub fn has_adopted(&self) -> bool {
        !lock(&self.adopted).is_empty()
    }

    pub(super) fn take_adopted(&self, id: ListenerId) -> Vec<OwnedFd> {
        let adopted = lock(&self.adopted).remove(&id);
        adopted.map_or_else(Vec::new, |adopted| adopted.sockets)
    }

    /// Returns copies of the sockets of all open listeners, for another process. Nothing changes
    /// here.
    pub async fn sockets(&self) -> io::Result<Sockets> {
        let _no_change_meanwhile = self.turns.all().await;
        let mut sockets = Sockets::new();
        for worker in self.workers.iter() {
            let copies = worker.ask(Command::Copy).await;
            let gone = |_| io::Error::other("the data plane is shutting down");
            for (id, copy) in copies.map_err(gone)? {
                sockets.entry(id).or_default().push(copy?);
            }
        }
        Ok(sockets)
    }

    /// Leaves all sockets to the process that has copies of them, gives connections `grace` to end,
    /// and ends the workers. Flows of UDP still get their members' replies.
    pub async fn retire(&self, grace: Duration) {
        let ids: Vec<ListenerId> = self.listeners().keys().copied().collect();
        for id in ids {
            let _one_at_a_time = self.turns.of(id).await;
            self.close_by(id, Command::Leave).await;
        }
        self.end(grace).await;
    }
}

/// Whether a socket is what it is said to be.
fn fits(id: ListenerId, socket: &OwnedFd) -> bool {
    let socket = SockRef::from(socket);
    let at = socket.local_addr().ok().and_then(|it| it.as_socket());
    let listens = match id.key.protocol {
        Protocol::Tcp => socket.is_listener().unwrap_or(false),
        Protocol::Udp => socket.r#type().is_ok_and(|it| it == socket2::Type::DGRAM),
        Protocol::Sctp => false,
    };
    listens && at == Some(id.socket_address())
}
