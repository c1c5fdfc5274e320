//! A client that connects at a fixed rate, whatever became of the connections before: what people
//! notice of a failover is how many of them fail.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::bed::{DEADLINE, LOOK};

/// The longest that a connection may take from its begin to the end of the answer.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Connections in a second. An unoptimized proxy on cores that others use, too, has no time for the
/// thousand of a full run: `LANDFALL_TEST_RATE=1000`.
const RATE: u32 = 200;

/// What became of the connections.
#[derive(Debug, Default)]
struct Seen {
    answered: Vec<Instant>,
    failed: Vec<Instant>,
}

/// A client that runs until it is dropped.
pub struct Load {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

// === impl Load ===

impl Load {
    /// Connects to an address, `LANDFALL_TEST_RATE` times a second or [`RATE`], from a network
    /// namespace.
    pub fn start(namespace: File, to: SocketAddr) -> Self {
        let rate = std::env::var("LANDFALL_TEST_RATE");
        let per_second = rate.map_or(RATE, |it| it.parse().unwrap());
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (noted, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(connect(to, per_second, &noted, &stopped));
        });
        Self {
            seen,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits until so many connections were answered that began after a moment.
    pub async fn answered(&self, count: usize, after: Instant) {
        let began = Instant::now();
        loop {
            let answered = |seen: &Seen| seen.answered.iter().filter(|at| **at > after).count();
            let found = answered(&self.seen.lock().unwrap());
            if found >= count {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{found} of {count} answered");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many of the connections since a moment failed, and from the first of these to the last.
    pub fn failed(&self, since: Instant) -> String {
        let seen = self.seen.lock().unwrap();
        let all = seen.answered.iter().chain(&seen.failed);
        let count = all.filter(|at| **at >= since).count();
        let failed: Vec<&Instant> = seen.failed.iter().filter(|at| **at >= since).collect();
        let (first, last) = (failed.iter().min(), failed.iter().max());
        let time = first
            .zip(last)
            .map_or(Duration::ZERO, |(first, last)| **last - **first);
        format!(
            "{} of {count} connections failed, within {time:?}",
            failed.len()
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it ran into is shown by the counts.
            let _ = thread.join();
        }
    }
}

async fn connect(to: SocketAddr, per_second: u32, seen: &Arc<Mutex<Seen>>, stop: &AtomicBool) {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let seen = Arc::clone(seen);
        tokio::spawn(async move {
            let began = Instant::now();
            let answered = timeout(TIMEOUT, ask(to)).await.is_ok_and(|it| it.is_ok());
            let mut seen = seen.lock().unwrap();
            if answered {
                seen.answered.push(began);
            } else {
                seen.failed.push(began);
            }
        });
    }
}

async fn ask(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(b"?").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
