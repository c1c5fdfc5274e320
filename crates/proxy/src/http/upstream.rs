//! Connections to members: idle ones kept for the next request, and new ones. One set of idle
//! connections per listener and worker; one per client where members are told about each client by a
//! PROXY header, because such a connection speaks for nobody else.

mod links;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::ProxyProtocol;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

pub(super) use self::links::{Link, Links};
use crate::dial;
use crate::inbound::Inbound;
use crate::proxy_protocol::Header;

/// Idle connections kept per member; more are closed. A bound on descriptors, not a target.
const MAX_IDLE: usize = 512;

/// An idle connection is closed after this. Members' own limits are mostly longer; those that are
/// shorter show, because a connection that its member closed is noticed before it is used.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);

/// Requests that must not be sent twice only use connections that were idle for less than this: the
/// member is then most unlikely to be closing just now.
const SURELY_OPEN: Duration = Duration::from_secs(1);

/// Idle connections by member.
#[derive(Debug, Default)]
pub(super) struct Idle {
    lists: Mutex<HashMap<SocketAddr, Vec<Rested>>>,
}

/// What a request needs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Any that is open.
    Open,
    /// One that will not close under it, as far as can be told.
    SurelyOpen,
}

#[derive(Debug)]
struct Rested {
    stream: TcpStream,
    since: Instant,
}

// === impl Idle ===

impl Idle {
    /// Takes the connection to a member that was used last, if it is still open.
    pub(super) fn take(&self, member: SocketAddr, need: Need) -> Option<TcpStream> {
        let mut lists = self.lists();
        let list = lists.get_mut(&member)?;
        let most = match need {
            Need::Open => MAX_IDLE_TIME,
            Need::SurelyOpen => SURELY_OPEN,
        };
        let now = Instant::now();
        while let Some(rested) = list.pop() {
            if now.duration_since(rested.since) > most {
                // All others have rested longer still.
                list.push(rested);
                return None;
            }
            if is_quiet(&rested.stream) {
                return Some(rested.stream);
            }
        }
        None
    }

    /// Keeps a connection for later. Tells whether it is the first one kept.
    pub(super) fn put(&self, member: SocketAddr, stream: TcpStream) -> bool {
        let mut lists = self.lists();
        let first = lists.is_empty();
        let list = lists.entry(member).or_default();
        if list.len() < MAX_IDLE {
            list.push(Rested {
                stream,
                since: Instant::now(),
            });
        }
        first
    }

    /// Closes connections that rested too long, that their member closed, and those to members that
    /// are not `usable`. Tells whether any are left.
    pub(super) fn sweep(&self, usable: impl Fn(SocketAddr) -> bool) -> bool {
        let mut lists = self.lists();
        let now = Instant::now();
        lists.retain(|&member, list| {
            let usable = usable(member);
            list.retain(|rested| {
                usable
                    && now.duration_since(rested.since) < MAX_IDLE_TIME
                    && is_quiet(&rested.stream)
            });
            !list.is_empty()
        });
        !lists.is_empty()
    }

    /// Closes everything.
    pub(super) fn clear(&self) {
        self.lists().clear();
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<Rested>>> {
        // Each operation leaves the lists valid at every step.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an idle connection is open and the member has said nothing on it. Costs no system call
/// unless something happened.
fn is_quiet(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Connects to a member, and tells it about the client where a PROXY header is wanted.
pub(super) async fn connect(
    member: SocketAddr,
    within: Duration,
    introduce: Option<ProxyProtocol>,
    inbound: &Inbound,
) -> io::Result<TcpStream> {
    let mut stream = dial::connect(member, within).await?;
    if let Some(version) = introduce {
        let header = Header::new(version, Protocol::Tcp, inbound.client, inbound.local);
        // Fits any socket's buffer, so that this does not wait; but a promise is better than a hope.
        match timeout(within, stream.write_all(header.as_bytes())).await {
            Ok(written) => written?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = listener.local_addr().unwrap();
        let near = TcpStream::connect(member).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (near, far, member)
    }

    #[tokio::test]
    async fn the_connection_used_last_is_used_next() {
        let idle = Idle::default();
        let (first, _first_far, member) = pair().await;
        let (second, _second_far, _) = pair().await;
        let ports = (first.local_addr().unwrap(), second.local_addr().unwrap());
        assert!(idle.put(member, first));
        assert!(!idle.put(member, second));
        assert_eq!(
            idle.take(member, Need::Open).unwrap().local_addr().unwrap(),
            ports.1
        );
        assert_eq!(
            idle.take(member, Need::Open).unwrap().local_addr().unwrap(),
            ports.0
        );
        assert!(idle.take(member, Need::Open).is_none());
        assert!(
            idle.take("127.0.0.1:9".parse().unwrap(), Need::Open)
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_connection_that_its_member_closed_or_spoke_on_is_not_used() {
        let idle = Idle::default();
        let (near, far, member) = pair().await;
        drop(far);
        near.readable().await.unwrap();
        idle.put(member, near);
        assert!(idle.take(member, Need::Open).is_none());

        let (near, mut far, member) = pair().await;
        far.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            .await
            .unwrap();
        near.readable().await.unwrap();
        idle.put(member, near);
        assert!(!idle.sweep(|_| true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_sent_twice_wants_a_connection_of_late() {
        let idle = Idle::default();
        let (near, _far, member) = pair().await;
        idle.put(member, near);
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert!(idle.take(member, Need::SurelyOpen).is_none());
        assert!(idle.take(member, Need::Open).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_closes_the_old_and_the_unwanted() {
        let idle = Idle::default();
        let (old, mut old_far, member) = pair().await;
        idle.put(member, old);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(idle.sweep(|_| true));
        let (young, mut young_far, other) = pair().await;
        idle.put(other, young);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(idle.sweep(|_| true));
        assert_eq!(
            old_far.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert!(!idle.sweep(|_| false));
        assert_eq!(
            young_far.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
