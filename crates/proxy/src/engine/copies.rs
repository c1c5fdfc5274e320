//! Copies of the sockets of listeners, for another process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::identity::ListenerId;

/// Copies of the sockets of listeners.
pub(crate) type Copies = Vec<(ListenerId, io::Result<OwnedFd>)>;

/// Copies one socket of a listener.
pub(super) fn copy(id: ListenerId, socket: impl AsFd) -> (ListenerId, io::Result<OwnedFd>) {
    (id, socket.as_fd().try_clone_to_owned())
}
