//! Clients beside the router that ping: threads in other namespaces.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::bench::pause;

/// The time between two requests of one client.
const EVERY: Duration = Duration::from_millis(1);

/// How long the last answers may take.
const LATEST: Duration = Duration::from_secs(1);

const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// What a client counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests.
    pub asked: u64,
    /// Those without an answer.
    pub failed: u64,
}

/// A client that runs until it is asked to end.
pub struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Counted>>,
}

/// Moves this thread into a network namespace.
pub fn enter(namespace: i32) -> anyhow::Result<()> {
    let namespace = std::fs::File::open(format!("/proc/{namespace}/ns/net"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Waits for a thread.
pub fn join<T>(thread: JoinHandle<T>) -> anyhow::Result<T> {
    let ended = thread.join();
    ended.map_err(|_panic| anyhow::anyhow!("a thread ended too early"))
}

// === impl Counted ===

impl Counted {
    /// Adds what another client counted.
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.failed += other.failed;
    }
}

// === impl Client ===

impl Client {
    /// Begins to ping an address from a namespace, a thousand times a second.
    pub fn ping(namespace: i32, address: Ipv4Addr) -> Self {
        Self::start(move |stop| {
            enter(namespace)?;
            ping(address, stop)
        })
    }

    fn start(asking: impl FnOnce(&AtomicBool) -> anyhow::Result<Counted> + Send + 'static) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || asking(&stopped));
        Self { stop, thread }
    }

    /// Ends it.
    pub fn end(self) -> anyhow::Result<Counted> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread)?
    }
}

fn ping(address: Ipv4Addr, stop: &AtomicBool) -> anyhow::Result<Counted> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP));
    let socket: OwnedFd = socket.context("no socket for pings")?;
    let socket = UdpSocket::from(socket);
    socket.connect(SocketAddrV4::new(address, 0))?;
    socket.set_nonblocking(true)?;
    let mut is_answered: Vec<bool> = Vec::new();
    let (mut next, mut ended) = (Instant::now(), None);
    while ended.is_none_or(|at: Instant| at.elapsed() < LATEST) {
        if stop.load(Ordering::Relaxed) {
            ended = ended.or(Some(Instant::now()));
        } else {
            let [.., high, low] = is_answered.len().to_be_bytes();
            is_answered.push(false);
            // Without a route there is an error, and so no answer.
            let _ = socket.send(&[ECHO, 0, 0, 0, 0, 0, high, low]);
        }
        let mut room = [0; 64];
        while let Ok(length) = socket.recv(&mut room) {
            if let [ECHO_REPLY, _, _, _, _, _, high, low] = room[..length.min(8)] {
                note(&mut is_answered, u16::from_be_bytes([high, low]));
            }
        }
        next += EVERY;
        pause(next.saturating_duration_since(Instant::now()));
    }
    Ok(Counted {
        asked: is_answered.len() as u64,
        failed: is_answered.iter().filter(|it| !**it).count() as u64,
    })
}

/// Notes the answer to the last request with a number, of which only the end is known.
fn note(is_answered: &mut [bool], number: u16) {
    let rounds = 1 << 16;
    let of_number = is_answered.iter_mut().skip(number.into()).step_by(rounds);
    if let Some(last) = of_number.last() {
        *last = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_to_the_last_request_with_its_number() {
        let mut is_answered = vec![false; 65_540];
        note(&mut is_answered, 2);
        note(&mut is_answered, 9);
        let answered = is_answered.iter().enumerate().filter(|(_, it)| **it);
        let answered: Vec<usize> = answered.map(|(at, _)| at).collect();
        assert_eq!(answered, [9, 65_538]);
    }
}
