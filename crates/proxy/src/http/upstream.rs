//! Connections to members: idle ones kept for the next request, and new ones. One set of idle
//! connections per listener and worker; one per client where members get each client's
//! PROXY header, because such a connection carries requests of that client alone.

mod driver;
#[cfg(test)]
mod fuzz;
mod links;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::links::{Link, Links, NoLink};
use crate::budget::{Account, Extra};
use crate::tls::{MemberStream, TowardMembers};

/// Idle connections kept per member; more are closed. A bound on descriptors, not a target.
const MAX_IDLE: usize = 512;

/// An idle connection is closed after this. Members' own limits are mostly longer; those that are
/// shorter show, because a connection that its member closed is noticed before it is used.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);

/// Requests that must not be sent twice only use connections that were idle for less than this: the
/// member is then most unlikely to be closing just now.
const SURELY_OPEN: Duration = Duration::from_secs(1);

/// Idle connections kept in all that speak for one client: as many as it uses at a time, mostly.
const MAX_OWN: usize = 8;

/// Idle connections by member.
#[derive(Debug, Default)]
pub(super) struct Idle {
    lists: Mutex<BTreeMap<SocketAddr, Vec<Rested>>>,
}

/// Idle connections that speak for one client.
#[derive(Debug, Default)]
pub(super) struct Own(Idle);

/// What a request needs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Any that is open.
    Open,
    /// One that will not close under it, as far as is known.
    SurelyOpen,
}

#[derive(Debug)]
struct Rested {
    stream: MemberStream,
    since: Instant,
    _hold: Option<Extra>,
}

// === impl Idle ===

impl Idle {
    /// Takes the connection to a member that was used last, if it is still open.
    pub(super) fn take(
        &self,
        member: SocketAddr,
        need: Need,
        tls: Option<&Arc<TowardMembers>>,
    ) -> Option<MemberStream> {
        let mut lists = self.lists();
        let list = lists.get_mut(&member)?;
        let most = match need {
            Need::Open => MAX_IDLE_TIME,
            Need::SurelyOpen => SURELY_OPEN,
        };
        let now = Instant::now();
        while let Some(mut rested) = list.pop() {
            if now.duration_since(rested.since) > most {
                // All others have rested longer still.
                list.push(rested);
                return None;
            }
            if rested.stream.is_by(tls) && rested.stream.is_quiet() {
                return Some(rested.stream);
            }
        }
        None
    }

    /// Keeps a connection for later, with its hold on a descriptor. Returns whether it is the first
    /// one kept.
    pub(super) fn put(
        &self,
        member: SocketAddr,
        stream: MemberStream,
        hold: Option<Extra>,
    ) -> bool {
        let mut lists = self.lists();
        let first = lists.is_empty();
        let list = lists.entry(member).or_default();
        if list.len() < MAX_IDLE {
            list.push(Rested {
                stream,
                since: Instant::now(),
                _hold: hold,
            });
        }
        first
    }

    /// Closes connections that rested too long, that their member closed, and those to members that
    /// are not `usable`. Returns whether any are left.
    pub(super) fn sweep(&self, usable: impl Fn(SocketAddr) -> bool) -> bool {
        let mut lists = self.lists();
        let now = Instant::now();
        lists.retain(|&member, list| {
            let usable = usable(member);
            list.retain_mut(|rested| {
                usable
                    && now.duration_since(rested.since) < MAX_IDLE_TIME
                    && rested.stream.seems_quiet()
            });
            !list.is_empty()
        });
        !lists.is_empty()
    }

    /// Closes everything.
    pub(super) fn clear(&self) {
        self.lists().clear();
    }

    /// Closes the connection that has rested longest, if there are more than so many. Returns
    /// whether there were.
    pub(super) fn close_beyond(&self, most: usize) -> bool {
        let mut lists = self.lists();
        if lists.values().map(Vec::len).sum::<usize>() <= most {
            return false;
        }
        // Each list begins with its oldest.
        let oldest = lists
            .values_mut()
            .filter(|list| !list.is_empty())
            .min_by_key(|list| list.first().map(|rested| rested.since));
        if let Some(list) = oldest {
            list.remove(0);
        }
        true
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Vec<Rested>>> {
        // Each operation leaves the lists valid at every step.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Own ===

impl Own {
    /// Those that are kept.
    pub(super) fn idle(&self) -> &Idle {
        &self.0
    }

    /// Keeps a connection for later, unless descriptors are scarce, and closes what is too old or
    /// too much.
    pub(super) fn put(&self, member: SocketAddr, stream: MemberStream, account: &Arc<Account>) {
        self.0.sweep(|_| true);
        let hold = account.spare();
        if hold.is_some() {
            self.0.put(member, stream, hold);
            self.0.close_beyond(MAX_OWN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn plain(stream: &MemberStream) -> &TcpStream {
        stream.socket()
    }

    async fn pair() -> (MemberStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = listener.local_addr().unwrap();
        let near = TcpStream::connect(member).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (MemberStream::plain(near), far, member)
    }

    #[tokio::test]
    async fn the_connection_used_last_is_used_next() {
        let idle = Idle::default();
        let (first, _first_far, member) = pair().await;
        let (second, _second_far, _) = pair().await;
        let ports = (
            plain(&first).local_addr().unwrap(),
            plain(&second).local_addr().unwrap(),
        );
        assert!(idle.put(member, first, None));
        assert!(!idle.put(member, second, None));
        assert_eq!(
            plain(&idle.take(member, Need::Open, None).unwrap())
                .local_addr()
                .unwrap(),
            ports.1
        );
        assert_eq!(
            plain(&idle.take(member, Need::Open, None).unwrap())
                .local_addr()
                .unwrap(),
            ports.0
        );
        assert!(idle.take(member, Need::Open, None).is_none());
        assert!(
            idle.take("127.0.0.1:9".parse().unwrap(), Need::Open, None)
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_connection_that_its_member_closed_or_spoke_on_is_not_used() {
        let idle = Idle::default();
        let (near, far, member) = pair().await;
        drop(far);
        plain(&near).readable().await.unwrap();
        idle.put(member, near, None);
        assert!(idle.take(member, Need::Open, None).is_none());

        let (near, mut far, member) = pair().await;
        far.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            .await
            .unwrap();
        plain(&near).readable().await.unwrap();
        idle.put(member, near, None);
        assert!(!idle.sweep(|_| true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_sent_twice_wants_a_connection_of_late() {
        let idle = Idle::default();
        let (near, _far, member) = pair().await;
        idle.put(member, near, None);
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert!(idle.take(member, Need::SurelyOpen, None).is_none());
        assert!(idle.take(member, Need::Open, None).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_keeps_few_connections() {
        let (own, account) = (Own::default(), Account::unlimited());
        let mut pairs = Vec::new();
        for _ in 0..2 * MAX_OWN {
            let (near, far, member) = pair().await;
            own.put(member, near, &account);
            tokio::time::advance(Duration::from_millis(1)).await;
            pairs.push((far, member));
        }
        let kept: Vec<_> = pairs
            .iter()
            .map(|&(_, member)| own.idle().take(member, Need::Open, None).is_some())
            .collect();
        assert_eq!(kept, [[false; MAX_OWN], [true; MAX_OWN]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_closes_the_old_and_the_unwanted() {
        let idle = Idle::default();
        let (old, mut old_far, member) = pair().await;
        idle.put(member, old, None);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(idle.sweep(|_| true));
        let (young, mut young_far, other) = pair().await;
        idle.put(other, young, None);
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
