//! Connections through the router to an address that several nodes announce: how many failed, how,
//! and how long before or after the router took another route.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::requests::{enter, join};
use crate::bench::pause;

/// The time between two connections of one client.
const EVERY: Duration = Duration::from_millis(1);

/// The time between two requests in a connection that is kept.
const KEPT_EVERY: Duration = Duration::from_millis(20);

/// Connections that one client keeps.
const KEPT: usize = 60;

/// How long a connection and an answer may take.
const LATEST: Duration = Duration::from_secs(1);

/// How long a node waits for the next request in a connection.
const IDLE: Duration = Duration::from_secs(10);

/// Where connections go.
const PORT: u16 = 80;

/// The time that a change of the route may be noticed too late.
const NOTICED: Duration = Duration::from_millis(5);

/// Failures that are printed one by one.
const PRINTED: usize = 6;

/// What clients made.
#[derive(Debug, Default)]
pub struct Made {
    /// Connections.
    pub connections: u64,
    /// Those that failed.
    pub failures: Vec<Failure>,
}

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the connection began.
    began: Instant,
    /// When it failed.
    failed: Instant,
    /// What it waited for.
    phase: Phase,
    /// What the client's kernel said.
    kind: io::ErrorKind,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connect,
    FirstByte,
    LaterByte,
}

/// A client that runs until it is asked to end.
pub struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Made>>,
}

/// Answers connections on a node, for as long as this program runs.
pub fn answer(namespace: i32) -> anyhow::Result<()> {
    let bound = std::thread::spawn(move || {
        enter(namespace)?;
        anyhow::Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?)
    });
    let listener = join(bound)??;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_one(stream));
        }
    });
    Ok(())
}

/// Sends a byte, then one for each that comes, and leaves it to the client to end the connection.
fn answer_one(mut stream: TcpStream) {
    if stream.set_read_timeout(Some(IDLE)).is_err() {
        return;
    }
    while stream.write_all(b"!").is_ok() {
        if !matches!(stream.read(&mut [0]), Ok(1)) {
            return;
        }
    }
}

/// Makes one connection; when it began is known to the caller.
fn open(to: SocketAddr) -> Result<TcpStream, (Phase, io::Error)> {
    let at_connect = |error| (Phase::Connect, error);
    let mut stream = TcpStream::connect_timeout(&to, LATEST).map_err(at_connect)?;
    stream.set_read_timeout(Some(LATEST)).map_err(at_connect)?;
    stream.set_nodelay(true).map_err(at_connect)?;
    // Neither side keeps the connection: there are more of them than ports.
    set_socket_linger(&stream, Some(Duration::ZERO)).map_err(|error| at_connect(error.into()))?;
    let answered = stream.read_exact(&mut [0]);
    answered.map_err(|error| (Phase::FirstByte, error))?;
    Ok(stream)
}

fn ask_again(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0])
}

// === impl Client ===

impl Client {
    /// Begins to connect from a namespace, up to a thousand times a second.
    pub fn connect(namespace: i32, address: Ipv4Addr) -> Self {
        Self::start(namespace, move |stop| {
            let (to, mut made) = (SocketAddr::from((address, PORT)), Made::default());
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let opened = open(to);
                made.note(began, opened.map(drop));
                next = (next + EVERY).max(Instant::now());
                pause(next.saturating_duration_since(Instant::now()));
            }
            made
        })
    }

    /// Opens connections from a namespace, and asks for a byte in each of them again and again.
    pub fn keep(namespace: i32, address: Ipv4Addr) -> Self {
        Self::start(namespace, move |stop| {
            let (to, mut made) = (SocketAddr::from((address, PORT)), Made::default());
            let mut kept = Vec::new();
            for _ in 0..KEPT {
                let began = Instant::now();
                let opened = open(to);
                if let Some(stream) = made.note(began, opened) {
                    kept.push((began, stream));
                }
            }
            while !stop.load(Ordering::Relaxed) {
                kept.retain_mut(|(began, stream)| {
                    let asked = ask_again(stream).map_err(|error| (Phase::LaterByte, error));
                    let failure = asked.err().map(|failed| Failure::now(*began, failed));
                    made.failures.extend(failure);
                    failure.is_none()
                });
                pause(KEPT_EVERY);
            }
            made
        })
    }

    fn start(namespace: i32, asking: impl FnOnce(&AtomicBool) -> Made + Send + 'static) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            enter(namespace)?;
            Ok(asking(&stopped))
        });
        Self { stop, thread }
    }

    /// Ends it.
    pub fn end(self) -> anyhow::Result<Made> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread)?
    }
}

// === impl Made ===

impl Made {
    /// Counts a connection.
    fn note<T>(&mut self, began: Instant, opened: Result<T, (Phase, io::Error)>) -> Option<T> {
        self.connections += 1;
        match opened {
            Ok(opened) => Some(opened),
            Err(failed) => {
                self.failures.push(Failure::now(began, failed));
                None
            }
        }
    }

    /// Adds what another client made.
    pub fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.failures.extend(other.failures);
    }

    /// Returns how many of those that failed were open while the router took another route.
    pub fn caught(&self, changes: &[Instant]) -> usize {
        let caught = |it: &&Failure| changes.iter().any(|change| it.was_open(*change));
        self.failures.iter().filter(caught).count()
    }

    /// Says how connections failed, beside when the router took another route.
    pub fn explain(&self, changes: &[Instant]) -> Vec<String> {
        let all = self.failures.iter().take(PRINTED);
        let mut said: Vec<String> = all.map(|it| it.explain(changes)).collect();
        if self.failures.len() > PRINTED {
            said.push(format!("and {} more", self.failures.len() - PRINTED));
        }
        said
    }
}

// === impl Failure ===

impl Failure {
    fn now(began: Instant, (phase, error): (Phase, io::Error)) -> Self {
        Self {
            began,
            failed: Instant::now(),
            phase,
            kind: error.kind(),
        }
    }

    /// Whether it had begun and not failed yet. Changes are noticed a moment later than they are.
    fn was_open(&self, change: Instant) -> bool {
        self.began <= change + NOTICED && change <= self.failed + NOTICED
    }

    fn explain(&self, changes: &[Instant]) -> String {
        let distance = |change: &&Instant| {
            let later = self.failed.saturating_duration_since(**change);
            later.max(change.saturating_duration_since(self.failed))
        };
        let Self { phase, kind, .. } = self;
        match changes.iter().min_by_key(distance) {
            None => format!("{kind} at the {phase}; the route never changed"),
            Some(change) => format!(
                "{kind} at the {phase}; begun at {:+.2} ms, failed at {:+.2} ms of a change of \
                 the route",
                since(*change, self.began),
                since(*change, self.failed)
            ),
        }
    }
}

/// The milliseconds from one time to another one, which may be earlier.
fn since(change: Instant, at: Instant) -> f64 {
    let later = at.saturating_duration_since(change).as_secs_f64();
    (later - change.saturating_duration_since(at).as_secs_f64()) * 1000.0
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Connect => "connect",
            Self::FirstByte => "first byte",
            Self::LaterByte => "later byte",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_put_beside_the_change_of_the_route_that_is_nearest() {
        let far = Instant::now();
        let began = far + Duration::from_secs(3);
        let change = began + Duration::from_millis(2);
        let failure = Failure {
            began,
            failed: change + Duration::from_millis(1),
            phase: Phase::FirstByte,
            kind: io::ErrorKind::ConnectionReset,
        };
        assert_eq!(
            failure.explain(&[far, change]),
            "connection reset at the first byte; begun at -2.00 ms, failed at +1.00 ms of a change \
             of the route"
        );
        assert_eq!(
            failure.explain(&[]),
            "connection reset at the first byte; the route never changed"
        );
        let made = Made {
            connections: 1,
            failures: vec![failure],
        };
        assert_eq!((made.caught(&[far, change]), made.caught(&[far])), (1, 0));
    }
}
