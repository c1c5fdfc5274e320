//! Connecting to members: pick, connect, and on failure try another member. Never reads or writes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::listener::{ListenerConfig, ListenerState};
use crate::pool::Lease;

/// How many members one connection tries before it is refused.
pub const MAX_TRIES: usize = 3;

/// A connection to a member, and the hold on it.
#[derive(Debug)]
pub struct Dialed {
    /// The connection.
    pub stream: TcpStream,
    /// Keep until the connection ends.
    pub lease: Lease,
}

/// Connects to a member for a client, trying at most [`MAX_TRIES`] different ones. Counts what fails;
/// `None` means that no member could be reached, which the caller counts as a refusal.
pub async fn dial(
    state: &ListenerState,
    config: &ListenerConfig,
    client: SocketAddr,
) -> Option<Dialed> {
    let mut tried = Vec::new();
    while tried.len() < MAX_TRIES {
        let lease = state.pool().pick(client, &tried)?;
        let address = lease.address();
        match connect(address, config.listener.timeouts.member_connect).await {
            Ok(stream) => {
                lease.connected();
                return Some(Dialed { stream, lease });
            }
            Err(error) => {
                lease.failed(&error);
                state.counters().mine().connect_failed();
                tracing::debug!(listener = %state.id(), member = %address, %error, "connect failed");
                tried.push(address);
            }
        }
    }
    None
}

/// Connects to a member within a time; failing to is not counted here.
pub async fn connect(member: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let socket = match member {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_nodelay(true)?;
    match timeout(within, socket.connect(member)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
