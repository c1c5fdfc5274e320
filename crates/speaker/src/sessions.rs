//! The sessions with routers: carries out what is to be announced, and reports what became of it.

mod settling;
mod shown;
#[cfg(test)]
mod tests;
mod wanted;
mod watcher;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_bfd::driver::{Monitor, Snapshot};
use landfall_bfd::table::{Event as BfdEvent, Path};
use landfall_bgp::driver::{Refusals, Speaker as Bgp, Statuses, Wanted, configured};
use landfall_bgp::shared::Change;
use landfall_engine::report::{Event, OwnReport};
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::decide::Announces;
use crate::routing::Routing;
use watcher::Watcher;

pub use wanted::{Known, Passwords};

/// Of so many Services at most it is said that the session with a router is down.
const SAID: usize = 16;

/// What the task is connected to.
#[derive(Debug)]
pub struct Parts<R> {
    /// The name of the node.
    pub node: Arc<str>,
    /// What is to be announced; `None` while not everything is known.
    pub routing: watch::Receiver<Option<Arc<Routing>>>,
    /// What Secrets hold.
    pub passwords: watch::Receiver<Arc<Passwords>>,
    /// Where events go.
    pub reporter: Arc<R>,
    /// The port at which routers may begin sessions; `None`: only this side does.
    pub listen: Option<u16>,
}

/// What people see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// What is to be announced.
    pub routing: Arc<Routing>,
    /// Why there is no session with a router, or what is wrong with one.
    pub problems: BTreeMap<Arc<str>, Reason>,
    /// How the loss of routers is noticed.
    pub bfd: BTreeMap<Arc<str>, Path>,
    /// Since when it is known what to announce; `None`: it is not yet.
    pub begun: Option<Instant>,
}

/// The sessions of a node.
#[derive(Debug)]
pub struct Sessions {
    /// What people see.
    pub shown: watch::Receiver<Arc<Shown>>,
    /// The sessions themselves.
    pub statuses: watch::Receiver<Arc<Statuses>>,
    /// They go on until they are ended, also where the task panics.
    _bgp: Bgp,
    monitor: Arc<Mutex<Option<Monitor>>>,
    stopping: watch::Sender<bool>,
    stop: CancellationToken,
    tracker: TaskTracker,
    started: Instant,
}

/// The task.
struct Task<R> {
    parts: Parts<R>,
    bgp: Bgp,
    statuses: watch::Receiver<Arc<Statuses>>,
    refusals: watch::Receiver<Refusals>,
    stopping: watch::Receiver<bool>,
    routing: Arc<Routing>,
    /// When the first routing was taken.
    begun: Option<Instant>,
    watched: BTreeMap<Arc<str>, Path>,
    bfd: Watcher,
    unusable: BTreeMap<Arc<str>, Reason>,
    problems: BTreeMap<Arc<str>, Reason>,
    shown: watch::Sender<Arc<Shown>>,
}

/// What woke the task.
enum Woken {
    Wanted,
    Statuses,
    /// `None`: it is to be attempted again.
    Bfd(Option<BfdEvent>),
    Stop,
}

// === impl Sessions ===

impl Sessions {
    /// Starts a task that carries out what is to be announced. It begins with no session.
    pub fn start<R: OwnReport>(parts: Parts<R>) -> Self {
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let wanted = Wanted {
            listen: parts.listen,
            ..Wanted::default()
        };
        let bgp = Bgp::start(wanted, &tracker, stop.clone());
        let statuses = bgp.statuses();
        let (stopping, is_stopping) = watch::channel(false);
        let (shown, seen) = watch::channel(Arc::default());
        let monitor = Arc::default();
        let task = Task {
            parts,
            refusals: bgp.refusals(),
            bgp: bgp.clone(),
            statuses: statuses.clone(),
            stopping: is_stopping,
            routing: Arc::default(),
            begun: None,
            watched: BTreeMap::new(),
            bfd: Watcher::new(Arc::clone(&monitor), Monitor::start),
            unusable: BTreeMap::new(),
            problems: BTreeMap::new(),
            shown,
        };
        tracker.spawn(task.run(stop.clone()));
        Self {
            shown: seen,
            statuses,
            _bgp: bgp,
            monitor,
            stopping,
            stop,
            tracker,
            started: Instant::now(),
        }
    }

    /// Returns the routers that a speaker which just started is still to meet, before the next one
    /// may be replaced.
    pub fn unmet(&self, now: Instant) -> Vec<Arc<str>> {
        let (shown, statuses) = (self.shown.borrow().clone(), self.statuses.borrow().clone());
        settling::unmet(&shown, &statuses, self.started, now)
    }

    /// Returns whether it may still become known what routers are to be sent. A node that serves
    /// addresses itself sends them nothing before its listeners are open. `since`: when the cluster
    /// was known.
    pub fn is_beginning(&self, since: Instant, now: Instant) -> bool {
        settling::is_beginning(&self.shown.borrow(), since, now)
    }

    /// Returns what is known of BFD; `None`: no router is watched so.
    pub fn bfd(&self) -> Option<Arc<Snapshot>> {
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.as_ref().map(Monitor::snapshot)
    }

    /// Ends all sessions. Routers that do not keep the routes of a speaker that restarts are asked
    /// to prefer other nodes first, and get this time for it.
    pub async fn end(&self, time: Duration) {
        self.stopping.send_replace(true);
        let is_to_wait = {
            let (shown, statuses) = (self.shown.borrow(), self.statuses.borrow());
            wanted::is_to_wait(&shown.routing, &statuses)
        };
        if is_to_wait {
            info!(?time, "routers are asked to prefer other nodes");
            tokio::time::sleep(time).await;
        }
        // Routers must not take the end of BFD for the loss of this node (RFC 5882, 4.3).
        let monitor = {
            let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
            monitor.take()
        };
        if let Some(monitor) = monitor
            && let Err(error) = tokio::task::spawn_blocking(|| monitor.stop()).await
        {
            warn!(%error, "BFD did not end");
        }
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

// === impl Task ===

impl<R: OwnReport> Task<R> {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            // All branches are cancel-safe. What ends a session comes first.
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => Woken::Stop,
                event = self.bfd.next() => Woken::Bfd(event),
                Ok(()) = self.stopping.changed() => Woken::Wanted,
                Ok(()) = self.parts.routing.changed() => Woken::Wanted,
                Ok(()) = self.parts.passwords.changed() => Woken::Wanted,
                Ok(()) = self.statuses.changed() => Woken::Statuses,
                Ok(()) = self.refusals.changed() => Woken::Statuses,
            };
            match woken {
                Woken::Stop => return,
                Woken::Wanted => self.take_wanted().await,
                Woken::Statuses | Woken::Bfd(None) => {}
                Woken::Bfd(Some(event)) => self.take_bfd(&event).await,
            }
            self.watch_paths();
            self.report().await;
            self.publish();
        }
    }

    /// Carries out what is to be announced.
    async fn take_wanted(&mut self) {
        let Some(routing) = self.parts.routing.borrow_and_update().clone() else {
            return;
        };
        let passwords = Arc::clone(&self.parts.passwords.borrow_and_update());
        let is_stopping = *self.stopping.borrow_and_update();
        let before = std::mem::replace(&mut self.routing, routing);
        let made = wanted::neighbors(&self.routing, &passwords);
        self.unusable = made.unusable;
        for (name, desired) in &self.routing.peers {
            let key = desired.bfd_key.as_ref();
            let key = key.map(|spec| wanted::bfd_key(name, spec, &passwords));
            if let Some(Err(problem)) = key {
                add(&mut self.unusable, name, *problem);
            }
        }
        if self.parts.listen.is_none() {
            for (name, problem) in wanted::unheard(&self.routing) {
                add(&mut self.unusable, &name, problem);
            }
        }
        let drain = wanted::drain(&self.routing, is_stopping);
        self.bgp.update(|wanted| {
            wanted.peers = made.peers;
            wanted.reserved = made.reserved;
            wanted.drain = drain;
        });
        if self.begun.is_some() {
            self.announce_new(&before).await;
        }
        self.begun.get_or_insert_with(Instant::now);
    }

    /// Says of Services that this node announces them from now on.
    async fn announce_new(&self, before: &Routing) {
        let sent = &self.routing.union.sent;
        for Change { key, before, now } in sent.changes(&before.union.sent) {
            let (None, Some(sent)) = (before, now) else {
                continue;
            };
            let node = &self.parts.node;
            let event = Event {
                reason: "nodeAssigned",
                warning: false,
                message: format!("announced by node {node:?}, protocol \"bgp\""),
            };
            let reporter = &self.parts.reporter;
            reporter.own_event(key, &sent.uid, &event).await;
        }
    }

    /// Ends the session with a router that is lost.
    async fn take_bfd(&mut self, event: &BfdEvent) {
        let (change, peer) = (event.change, event.path.peer);
        if !change.is_failure() {
            info!(%peer, to = ?change.to, cause = %change.cause, "BFD");
            return;
        }
        let lost = self
            .watched
            .iter()
            .filter(|(_, path)| **path == *event.path);
        for (name, _) in lost {
            warn!(router = %name, %peer, cause = %change.cause, "BFD: the router is lost");
            self.bgp.bfd_down(name).await;
        }
    }

    /// Lets BFD watch the routers that are to be watched.
    fn watch_paths(&mut self) {
        let statuses = self.statuses.borrow_and_update().clone();
        let passwords = Arc::clone(&self.parts.passwords.borrow());
        let (wanted, watched) = wanted::paths(&self.routing, &statuses, &passwords);
        self.watched = watched;
        if *self.stopping.borrow() {
            self.bfd.give_up();
        } else {
            self.bfd.set(wanted, Instant::now().into());
        }
    }

    /// Reports what is wrong with sessions, once for each change.
    async fn report(&mut self) {
        let statuses = self.statuses.borrow().clone();
        let mut problems = wanted::problems(&self.routing, &statuses, &self.unusable);
        if let Some(cause) = self.bfd.problem() {
            for name in self.watched.keys() {
                add(&mut problems, name, unwatched(name, cause));
            }
        }
        let refusals = self.refusals.borrow_and_update().clone();
        wanted::add_refusals(&mut problems, &self.routing, &refusals);
        let before = std::mem::replace(&mut self.problems, problems);
        for name in before.keys().filter(|it| !self.problems.contains_key(*it)) {
            let peer = configured(name);
            // A router of a range may be forgotten, which is no session.
            let is_known = peer == &**name || statuses.contains_key(name);
            if is_known && self.routing.peers.contains_key(peer) {
                info!(router = %name, "the session with the router is up again");
            }
        }
        for (name, problem) in &self.problems {
            if before.get(name) == Some(problem) {
                continue;
            }
            warn!(router = %name, remedy = problem.remedy, "{}", problem.message);
            let event = Event {
                reason: "bgpSessionFailed",
                warning: true,
                message: format!(
                    "node {:?}: {}: {}",
                    self.parts.node, problem.message, problem.remedy
                ),
            };
            let sent = self.routing.union.sent.entries();
            let concerned = sent.filter(|(_, sent)| sent.peers.contains(configured(name)));
            for (key, sent) in concerned.take(SAID) {
                let reporter = &self.parts.reporter;
                reporter.own_event(key, &sent.uid, &event).await;
            }
        }
    }

    fn publish(&self) {
        let shown = Shown {
            routing: Arc::clone(&self.routing),
            problems: self.problems.clone(),
            bfd: self.watched.clone(),
            begun: self.begun,
        };
        self.shown.send_if_modified(|seen| {
            let is_new = **seen != shown;
            *seen = Arc::new(shown);
            is_new
        });
    }
}

/// Returns to which routers this node announces each Service.
pub fn announces(routing: &Routing) -> BTreeMap<ServiceKey, Announces> {
    let sent = routing.union.sent.entries();
    let announces = sent.map(|(key, sent)| {
        let announces = Announces {
            through: sent.peers.iter().map(ToString::to_string).collect(),
            took_over: false,
        };
        (key.clone(), announces)
    });
    announces.collect()
}

/// Adds a reason about a router to one that is there.
fn add(problems: &mut BTreeMap<Arc<str>, Reason>, name: &Arc<str>, problem: Reason) {
    let Some(first) = problems.get_mut(name) else {
        problems.insert(Arc::clone(name), problem);
        return;
    };
    for (text, more) in [
        (&mut first.message, problem.message),
        (&mut first.remedy, problem.remedy),
    ] {
        text.push_str("; ");
        text.push_str(&more);
    }
}

/// Returns the reason why a router is not watched by BFD.
fn unwatched(name: &str, cause: &str) -> Reason {
    let message = format!("BGPPeer {name}: BFD does not run on this node: {cause}");
    let remedy = "free descriptors or threads on the node; until then only the hold time notices \
                  that the router is lost";
    Reason::warning(Code::Overloaded, message).remedy(remedy)
}

/// Returns an invalid-resource reason about a router.
fn about(name: &str, message: &str, remedy: &str) -> Reason {
    let message = format!("BGPPeer {name}: {message}");
    Reason::error(Code::InvalidResource, message).remedy(remedy)
}
