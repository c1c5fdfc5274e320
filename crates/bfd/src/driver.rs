//! Runs the sessions on UDP sockets of a network namespace. It decides nothing.
//!
//! One thread of its own, with real-time priority where that is permitted: it waits for nothing but
//! packets and deadlines, takes no lock that another thread could hold for long, and reads all
//! packets that came before it finds a session silent. What others read (the snapshot) and write
//! (the sessions that are wanted) changes hands by pointers that are swapped.

mod echoes;
mod listeners;
mod senders;
mod thread;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::mpsc;

use self::thread::Thread;
use crate::table::{Discards, Event, Path, Status, Table, Wanted};

/// Events that may wait for their reader.
const EVENTS: usize = 4_096;

/// The real-time priority: above ordinary threads, below those of the kernel.
const PRIORITY: i32 = 10;

/// How the thread runs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The real-time priority (1 to 99) that is asked for; none if left out.
    pub priority: Option<i32>,
}

/// How the kernel schedules the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// As any other.
    #[default]
    Ordinary,
    /// With the largest share of an ordinary thread: real-time priority is not permitted.
    Favoured,
    /// Before all ordinary threads.
    RealTime,
}

/// What is known of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each session that is wanted.
    pub sessions: BTreeMap<Arc<Path>, Status>,
    /// Counts of packets that changed no session.
    pub discards: Discards,
    /// Events for which there was no room.
    pub lost_events: u64,
    /// How the thread is scheduled.
    pub scheduling: Scheduling,
}

/// A running thread. It ends when this is dropped; [`Monitor::stop`] waits for that.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner have in common.
#[derive(Debug)]
struct Shared {
    wanted: ArcSwap<Wanted>,
    snapshot: ArcSwap<Snapshot>,
    stop: AtomicBool,
    wake: rustix::fd::OwnedFd,
}

/// Why no thread could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Descriptors are exhausted.
    #[error("the thread of BFD cannot be woken")]
    Wake(#[source] io::Error),
    /// Threads are exhausted.
    #[error("no thread for BFD")]
    Thread(#[source] io::Error),
    /// Without them, names of sessions could be guessed.
    #[error("the system gives no random numbers")]
    Random,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            priority: Some(PRIORITY),
        }
    }
}

// === impl Monitor ===

impl Monitor {
    /// Starts a thread in the network namespace of the calling one.
    pub fn start(config: Config) -> Result<(Self, mpsc::Receiver<Event>), StartError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(|errno| StartError::Wake(errno.into()))?;
        let mut seed = [0; 8];
        rand::fill(&mut seed).map_err(|_| StartError::Random)?;
        let shared = Arc::new(Shared {
            wanted: ArcSwap::default(),
            snapshot: ArcSwap::default(),
            stop: AtomicBool::new(false),
            wake,
        });
        let (events, there) = mpsc::channel(EVENTS);
        let table = Table::new(u64::from_be_bytes(seed));
        let thread = Thread::new(config, table, Arc::clone(&shared), events);
        let builder = std::thread::Builder::new().name("bfd".to_owned());
        let thread = builder.spawn(|| thread.run()).map_err(StartError::Thread)?;
        let monitor = Self {
            shared,
            thread: Some(thread),
        };
        Ok((monitor, there))
    }

    /// Replaces the sessions that are wanted. Of several calls in a row the thread may see only the
    /// last.
    pub fn set(&self, wanted: Wanted) {
        self.shared.wanted.store(Arc::new(wanted));
        self.shared.wake();
    }

    /// Returns what is known of the sessions: states as they are, counts as of at most a second
    /// ago.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Takes all sessions down, says so to the other sides, and waits for the end of the thread:
    /// some ten milliseconds.
    pub fn stop(mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.end();
    }
}

// === impl Shared ===

impl Shared {
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Fails only if it is awake already.
        let _woken = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes the waking, so that the next one counts.
    fn sleep(&self) {
        let _count = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }
}
