//! The loop of the thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use landfall_sys::schedule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::echoes::Echoes;
use super::listeners::Listeners;
use super::senders::Senders;
use super::{Config, Scheduling, Shared, Snapshot};
use crate::table::{Action, Event, Id, Path, Table, Wanted};

/// When what failed is tried again, and how old counts may become.
const REFRESH: Duration = Duration::from_secs(1);

/// How often the end is announced, and the time between two of that.
const FAREWELLS: usize = 3;
const REPEAT: Duration = Duration::from_millis(10);

/// The thread and all that it owns.
pub(super) struct Thread {
    config: Config,
    table: Table,
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
    wanted: Arc<Wanted>,
    listeners: Listeners,
    senders: Senders,
    echoes: Echoes,
    scheduling: Scheduling,
    lost_events: u64,
    published: u64,
    refreshed: Instant,
}

// === impl Thread ===

impl Thread {
    pub(super) fn new(
        config: Config,
        table: Table,
        shared: Arc<Shared>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            config,
            table,
            shared,
            events,
            wanted: Arc::default(),
            listeners: Listeners::default(),
            senders: Senders::default(),
            echoes: Echoes::default(),
            scheduling: Scheduling::default(),
            lost_events: 0,
            published: 0,
            refreshed: Instant::now(),
        }
    }

    pub(super) fn run(mut self) {
        self.scheduling = scheduling(self.config.priority);
        while !self.shared.stop.load(Ordering::Acquire) {
            self.follow();
            let deadline = self.refreshed + REFRESH;
            let deadline = self
                .table
                .deadline()
                .map_or(deadline, |it| it.min(deadline));
            if let Err(error) = self.wait(deadline.saturating_duration_since(Instant::now())) {
                // Out of memory, and no other cause: the deadlines still hold.
                debug!(%error, "cannot wait for packets");
            }
            self.shared.sleep();
            self.receive();
            self.table.expire(Instant::now());
            self.perform();
            self.refresh();
        }
        for _ in 0..FAREWELLS {
            self.table.farewell(Instant::now());
            self.perform();
            let _waited = wait_for(&mut [], REPEAT);
        }
        self.publish();
    }

    /// Applies what is wanted, if that changed.
    fn follow(&mut self) {
        let wanted = self.shared.wanted.load_full();
        if Arc::ptr_eq(&wanted, &self.wanted) {
            return;
        }
        self.listeners.follow(&wanted);
        self.echoes.follow(has_echoes(&wanted));
        self.table.apply(&wanted, forwards, Instant::now());
        self.wanted = wanted;
        self.perform();
        self.publish();
    }

    fn wait(&self, most: Duration) -> io::Result<()> {
        let mut all = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let sockets = self.listeners.sockets().chain(self.echoes.sockets());
        all.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        wait_for(&mut all, most)
    }

    /// Takes all that came, whether or not it was reported: a session that is silent must be so.
    fn receive(&mut self) {
        let table = &mut self.table;
        self.listeners.receive(|datagram| {
            let taken = table.receive(datagram, Instant::now());
            if let Err(rejection) = taken {
                debug!(from = %datagram.from, %rejection, "a packet was rejected");
            }
        });
        self.echoes.receive(|echo| {
            table.receive_echo(echo, Instant::now());
        });
    }

    /// Does what the table asks for. An event is sent after the snapshot that shows it.
    fn perform(&mut self) {
        let mut events = Vec::new();
        for action in self.table.take() {
            match action {
                Action::Open(id, path) => self.open(id, path),
                Action::Control(id, bytes) => {
                    if self.senders.send(id, &bytes).is_err() {
                        self.table.count_unsent(id);
                    }
                }
                Action::Echo(id, token) => self.echo(id, token),
                Action::Event(event) => events.push(event),
                Action::Close(id) => {
                    self.senders.close(id);
                    self.echoes.forget(id);
                }
            }
        }
        if !events.is_empty() {
            self.publish();
        }
        for event in events {
            if self.events.try_send(event).is_err() {
                self.lost_events += 1;
            }
        }
    }

    fn open(&mut self, id: Id, path: Arc<Path>) {
        let index = self.senders.open(id, path);
        self.table.set_interface(id, index);
    }

    fn echo(&mut self, id: Id, token: u64) {
        let Some((path, way)) = self.table.way(id) else {
            return;
        };
        let sent = self.senders.port(id).ok_or(io::ErrorKind::NotConnected);
        let sent = sent.map_err(io::Error::from);
        if let Err(error) = sent.and_then(|port| self.echoes.send(id, port, token, path, way)) {
            debug!(%path, %error, "an echo was not sent");
            self.table.count_unsent(id);
        }
    }

    /// Tries again what failed, and publishes what changed.
    fn refresh(&mut self) {
        let is_due = self.refreshed.elapsed() >= REFRESH;
        if is_due {
            self.refreshed = Instant::now();
            self.listeners.follow(&self.wanted);
            self.echoes.follow(has_echoes(&self.wanted));
            for (id, index) in self.senders.reopen() {
                self.table.set_interface(id, index);
            }
        }
        if is_due || self.published != self.table.revision() {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.published = self.table.revision();
        let mut sessions = self.table.status();
        let faults: BTreeMap<&Path, String> = self.senders.faults().collect();
        for (path, status) in &mut sessions {
            let fault = faults.get(&**path).cloned();
            let fault = fault.or_else(|| self.listeners.fault(path));
            let wants_echoes = self.wanted.get(path).is_some_and(|it| it.echo.is_some());
            status.fault = fault.or_else(|| self.echoes.fault(path).filter(|_| wants_echoes));
        }
        self.shared.snapshot.store(Arc::new(Snapshot {
            sessions,
            discards: self.table.discards(),
            lost_events: self.lost_events,
            scheduling: self.scheduling,
        }));
    }
}

fn has_echoes(wanted: &Wanted) -> bool {
    wanted.values().any(|it| it.echo.is_some())
}

/// Waits until a descriptor is readable, or for a time.
fn wait_for(all: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match poll(all, Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Asks for priority.
fn scheduling(priority: Option<i32>) -> Scheduling {
    let Some(priority) = priority else {
        return Scheduling::Ordinary;
    };
    let Err(error) = schedule::real_time(priority) else {
        return Scheduling::RealTime;
    };
    warn!(
        %error,
        "BFD has no real-time priority (it takes the capability SYS_NICE): while all cores are \
        busy, short detection times may end sessions that work"
    );
    match schedule::favour() {
        Ok(()) => Scheduling::Favoured,
        Err(_) => Scheduling::Ordinary,
    }
}

/// Returns whether the kernel forwards what it receives on a path, and so returns echoes.
fn forwards(path: &Path) -> bool {
    let of = path.interface.as_deref().unwrap_or("all");
    let file = format!("/proc/sys/net/ipv4/conf/{of}/forwarding");
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_deadline_without_a_descriptor() {
        let start = Instant::now();
        wait_for(&mut [], Duration::from_millis(5)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
