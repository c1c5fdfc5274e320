//! An epoll instance of our own inside tokio's. Where a task serves thousands of sockets, one
//! registration per socket with tokio costs an allocation, two system calls and a lock each; here a
//! socket costs one system call when it is added, and its end costs none.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::check;

/// How many events one look fetches.
const BATCH: u16 = 256;

/// What happened to sockets since the last check. Edge-triggered: every change is reported once.
#[derive(Debug)]
pub struct Epoll {
    fd: AsyncFd<OwnedFd>,
}

/// Room for the events of one look.
#[derive(Debug)]
pub struct Events {
    room: Box<[libc::epoll_event; BATCH as usize]>,
    count: usize,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The number given when the socket was added.
    pub token: u64,
    flags: u32,
}

/// The events to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Bytes, connections or the end of a stream arrived.
    Reading,
    /// As `Reading`, and when writing becomes possible.
    Both,
}

// === impl Epoll ===

impl Epoll {
    /// A new instance, registered with the tokio runtime that the caller runs in.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call just returned this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the `AsyncFd` owns the descriptor, which stays open and the same until it is
        // dropped; nothing here takes it out or replaces it.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd })
    }

    /// Adds a socket. Its events carry `token`. Closing the socket takes it out.
    pub fn add(&self, socket: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        self.control(
            libc::EPOLL_CTL_ADD,
            socket.as_fd().as_raw_fd(),
            token,
            watch,
        )
    }

    /// Changes what a socket is watched for; what is already so is reported again.
    pub fn change(&self, socket: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        self.control(
            libc::EPOLL_CTL_MOD,
            socket.as_fd().as_raw_fd(),
            token,
            watch,
        )
    }

    /// Takes a socket out that stays open.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        self.control(
            libc::EPOLL_CTL_DEL,
            socket.as_fd().as_raw_fd(),
            0,
            Watch::Reading,
        )
    }

    /// Fetches what happened, without waiting. `true`: there may be more.
    pub fn look(&self, events: &mut Events) -> io::Result<bool> {
        let epoll = self.fd.get_ref().as_raw_fd();
        // SAFETY: `room` has space for BATCH events, and both live across the call.
        let count = unsafe {
            libc::epoll_wait(epoll, events.room.as_mut_ptr(), libc::c_int::from(BATCH), 0)
        };
        events.count = 0;
        events.count = check(count)?.cast_unsigned() as usize;
        Ok(events.count == usize::from(BATCH))
    }

    /// As [`Self::look`], waiting for the first event. Before it is called again, everything that
    /// was reported must have been dealt with or noted.
    pub fn poll_look(&self, cx: &mut Context<'_>, events: &mut Events) -> Poll<io::Result<()>> {
        loop {
            let mut ready = match self.fd.poll_read_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Poll::Pending,
            };
            // A full batch may have left events behind, for which there will be no new edge.
            if !self.look(events)? {
                ready.clear_ready();
            }
            if events.count > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn control(&self, what: libc::c_int, fd: RawFd, token: u64, watch: Watch) -> io::Result<()> {
        let mut flags = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET;
        if watch == Watch::Both {
            flags |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event {
            events: flags.cast_unsigned(),
            u64: token,
        };
        let epoll = self.fd.get_ref().as_raw_fd();
        // SAFETY: `event` lives across the call; the kernel copies it.
        check(unsafe { libc::epoll_ctl(epoll, what, fd, &raw mut event) }).map(drop)
    }
}

// === impl Events ===

impl Default for Events {
    fn default() -> Self {
        Self {
            room: Box::new([libc::epoll_event { events: 0, u64: 0 }; BATCH as usize]),
            count: 0,
        }
    }
}

impl Events {
    /// How many events the last look fetched.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the last look fetched none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The event at a place, below [`Self::len`].
    pub fn get(&self, place: usize) -> Option<Event> {
        let event = self.room.get(..self.count)?.get(place)?;
        Some(Event {
            token: event.u64,
            flags: event.events,
        })
    }
}

// === impl Event ===

impl Event {
    /// Reading will not block: there are bytes, connections, an end or an error.
    pub fn is_readable(self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// Writing will not block, or will fail at once.
    pub fn is_writable(self) -> bool {
        self.has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// The peer will send nothing more than what is there already.
    pub fn is_read_closed(self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// Something may be behind what the next read returns, which then is no sign that all is read:
    /// the end, or bytes after a mark of urgent data, at which reads stop.
    pub fn has_more_behind(self) -> bool {
        self.is_read_closed() || self.has(libc::EPOLLPRI)
    }

    /// The socket has an error to report.
    pub fn is_error(self) -> bool {
        self.has(libc::EPOLLERR)
    }

    fn has(self, flags: libc::c_int) -> bool {
        self.flags & flags.cast_unsigned() != 0
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::clock::coarse_millis;
    use crate::timer::Timer;

    async fn tokens(epoll: &Epoll, events: &mut Events) -> Vec<u64> {
        let look = poll_fn(|cx| epoll.poll_look(cx, events));
        let looked = tokio::time::timeout(Duration::from_secs(5), look).await;
        looked.expect("no event").unwrap();
        (0..events.len())
            .filter_map(|place| events.get(place))
            .map(|event| event.token)
            .collect()
    }

    #[tokio::test]
    async fn an_event_of_a_socket_is_reported_once_and_again_when_it_recurs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, _) = listener.accept().unwrap();
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::default());
        epoll.add(&served, 7, Watch::Reading).unwrap();
        assert!(!epoll.look(&mut events).unwrap() && events.is_empty());
        for _ in 0..2 {
            client.write_all(b"x").unwrap();
            assert_eq!(tokens(&epoll, &mut events).await, [7]);
            let event = events.get(0).unwrap();
            assert!(event.is_readable() && !event.is_writable() && !event.is_read_closed());
            assert!(!epoll.look(&mut events).unwrap() && events.is_empty());
        }
        epoll.change(&served, 8, Watch::Both).unwrap();
        assert_eq!(tokens(&epoll, &mut events).await, [8]);
        assert!(events.get(0).unwrap().is_writable());
        drop(client);
        assert_eq!(tokens(&epoll, &mut events).await, [8]);
        assert!(events.get(0).unwrap().is_read_closed());
        epoll.remove(&served).unwrap();
        assert!(epoll.remove(&served).is_err());
    }

    #[tokio::test]
    async fn more_events_than_fit_are_reported_in_several_calls() {
        const COUNT: u64 = 600;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::default());
        let mut keep = Vec::new();
        for token in 0..COUNT {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (served, _) = listener.accept().unwrap();
            (&client).write_all(b"x").unwrap();
            epoll.add(&served, token, Watch::Reading).unwrap();
            keep.push((client, served));
        }
        let mut reported = Vec::new();
        while reported.len() < COUNT as usize {
            reported.extend(tokens(&epoll, &mut events).await);
        }
        reported.sort_unstable();
        assert_eq!(reported, (0..COUNT).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_timer_fires_each_time_it_is_set() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::default());
        let timer = Timer::new().unwrap();
        epoll.add(&timer, 1, Watch::Reading).unwrap();
        assert!(!epoll.look(&mut events).unwrap() && events.is_empty());
        for wait in [20, 0] {
            let at = coarse_millis() + wait;
            timer.set(at).unwrap();
            assert_eq!(tokens(&epoll, &mut events).await, [1]);
            // The coarse clock may be some milliseconds behind.
            assert!(coarse_millis() + 10 >= at);
        }
    }
}
