//! Connecting to members: pick, connect, introduce the client, shake hands, and on failure try
//! another
//! member. Never reads or writes what is the client's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::ProxyProtocol;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::counters::Refusal;
use crate::inbound::Inbound;
use crate::listener::{ListenerConfig, ListenerState};
use crate::pool::Lease;
use crate::ports;
use crate::proxy_protocol::Header;
use crate::tls::{Inside, MemberStream, TowardMembers};

/// How many members one connection tries before it is refused.
pub const MAX_TRIES: usize = 3;

/// A connection to a member, and the hold on it.
#[derive(Debug)]
pub struct Dialed {
    /// The connection.
    pub stream: MemberStream,
    /// Keep until the connection ends.
    pub lease: Lease,
}

/// Connects to a member for a client, trying at most [`MAX_TRIES`] different ones. Waits where each
/// has as much as it may. Counts what fails, but for the refusal in the end.
pub async fn dial(
    state: &ListenerState,
    config: &ListenerConfig,
    inbound: &Inbound,
) -> Result<Dialed, Refusal> {
    let introduce = config.listener.pool.proxy_protocol;
    let within = config.listener.timeouts.member_connect;
    let tls = (config.toward_members.as_ref(), Inside::Bytes);
    let mut tried = Vec::new();
    while tried.len() < MAX_TRIES {
        let lease = state.pool().take(inbound.client, &tried).await?;
        let address = lease.address();
        match reach(address, within, introduce, tls, inbound).await {
            Ok(stream) => {
                lease.connected();
                lease.succeeded();
                return Ok(Dialed { stream, lease });
            }
            Err(error) => {
                lease.failed(&error);
                state.counters().mine().connect_failed(&error);
                tracing::debug!(listener = %state.id(), member = %address, %error,
                    "connect failed");
                tried.push(address);
            }
        }
    }
    Err(Refusal::NoMember)
}

/// Connects to a member within a time; failing to is not counted here.
pub async fn connect(member: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    match timeout(within, open(member)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Connects to a member, however long it takes.
pub(crate) async fn open(member: SocketAddr) -> io::Result<TcpStream> {
    let mut attempt = 0;
    loop {
        let socket = match member {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_nodelay(true)?;
        ports::ready(&socket, member.is_ipv6(), attempt)?;
        attempt += 1;
        match socket.connect(member).await {
            Err(error) if ports::is_shortage(&error) && attempt < ports::ATTEMPTS => {}
            outcome => return outcome,
        }
    }
}

/// Connects to a member, sends it a PROXY header where one is wanted, and shakes hands
/// where TLS is.
pub async fn reach(
    member: SocketAddr,
    within: Duration,
    introduce: Option<ProxyProtocol>,
    (tls, inside): (Option<&Arc<TowardMembers>>, Inside),
    inbound: &Inbound,
) -> io::Result<MemberStream> {
    let deadline = Instant::now() + within;
    let mut stream = connect(member, within).await?;
    if let Some(version) = introduce {
        let header = Header::new(version, Protocol::Tcp, inbound.client, inbound.local);
        // Fits any socket's buffer, so that this does not wait; but a promise is better than a
        // hope.
        match timeout_at(deadline, stream.write_all(header.as_bytes())).await {
            Ok(written) => written?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    let Some(tls) = tls else {
        return Ok(MemberStream::plain(stream));
    };
    let handshake = Box::pin(tls.connect(stream, inside));
    match timeout_at(deadline, handshake).await {
        Ok(secured) => secured,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
