//! BFD, from the first router on that it is to watch.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_bfd::driver::{Config, Monitor, StartError};
use landfall_bfd::table::{Event, Wanted};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

/// From one attempt to start BFD to the next.
const START_AGAIN: Duration = Duration::from_secs(5);

/// Starts BFD.
type Start = fn(Config) -> Result<(Monitor, mpsc::Receiver<Event>), StartError>;

/// BFD as it is wanted. The thread is started once there is something to watch.
pub(super) struct Watcher {
    monitor: Arc<Mutex<Option<Monitor>>>,
    start: Start,
    /// Of the monitor, once there is one.
    events: Option<mpsc::Receiver<Event>>,
    wanted: Wanted,
    /// Why it does not run though it is wanted, and when it is attempted again.
    blind: Option<(String, Instant)>,
}

// === impl Watcher ===

impl Watcher {
    /// Nothing is watched yet.
    pub(super) fn new(monitor: Arc<Mutex<Option<Monitor>>>, start: Start) -> Self {
        Self {
            monitor,
            start,
            events: None,
            wanted: Wanted::new(),
            blind: None,
        }
    }

    /// Lets BFD watch what is wanted.
    pub(super) fn set(&mut self, wanted: Wanted, now: Instant) {
        if wanted == self.wanted {
            self.blind = None;
            return;
        }
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        if monitor.is_none() && self.blind.as_ref().is_none_or(|(_, at)| *at <= now) {
            match (self.start)(Config::default()) {
                Ok((started, events)) => {
                    *monitor = Some(started);
                    self.events = Some(events);
                    self.blind = None;
                }
                Err(error) => {
                    let cause = error.source().map(|cause| format!(": {cause}"));
                    let cause = format!("{error}{}", cause.unwrap_or_default());
                    warn!(cause, "BFD does not run");
                    self.blind = Some((cause, now + START_AGAIN));
                }
            }
        }
        if let Some(monitor) = &*monitor {
            monitor.set(wanted.clone());
            self.wanted = wanted;
        }
    }

    /// Attempts no longer to start it, because the sessions end.
    pub(super) fn give_up(&mut self) {
        self.blind = None;
    }

    /// Returns why BFD does not run though it is wanted.
    pub(super) fn problem(&self) -> Option<&str> {
        self.blind.as_ref().map(|(cause, _)| &**cause)
    }

    /// Waits for what BFD notices. `None`: BFD is to be attempted again, by [`Self::set`].
    pub(super) async fn next(&mut self) -> Option<Event> {
        let retry_at = self.blind.as_ref().map(|(_, at)| *at);
        let retry = async {
            match retry_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let events = &mut self.events;
        let event = async {
            match events {
                Some(events) => events.recv().await,
                None => None,
            }
        };
        // Both branches are cancel-safe.
        tokio::select! {
            biased;
            Some(event) = event => Some(event),
            () = retry => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use landfall_bfd::session::Settings;
    use landfall_bfd::table::{Hops, Path};

    use super::*;

    /// Whether descriptors are exhausted.
    static EXHAUSTED: AtomicBool = AtomicBool::new(true);

    fn start(config: Config) -> Result<(Monitor, mpsc::Receiver<Event>), StartError> {
        if EXHAUSTED.load(Ordering::Relaxed) {
            let error = io::Error::other("too many open files");
            return Err(StartError::Wake(error));
        }
        Monitor::start(config)
    }

    /// One router that is to be watched.
    fn wanted() -> Wanted {
        let path = Path {
            peer: [127, 0, 0, 1].into(),
            hops: Hops::Single,
            interface: None,
            vrf: None,
            local: None,
        };
        [(path, Settings::default())].into()
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_bfd_from_running_is_said_and_it_is_attempted_again() {
        let monitor = Arc::default();
        let mut watcher = Watcher::new(Arc::clone(&monitor), start);
        watcher.set(wanted(), Instant::now());
        let problem = "the thread of BFD cannot be woken: too many open files";
        assert_eq!(watcher.problem(), Some(problem));

        // Not with each change of anything else, and no longer once nothing is to be watched.
        EXHAUSTED.store(false, Ordering::Relaxed);
        watcher.set(wanted(), Instant::now());
        assert_eq!(watcher.problem(), Some(problem));
        watcher.set(Wanted::new(), Instant::now());
        assert_eq!(watcher.problem(), None);

        // Nor once the sessions end: an attempt that is due would come at once, again and again.
        EXHAUSTED.store(true, Ordering::Relaxed);
        watcher.set(wanted(), Instant::now());
        watcher.give_up();
        let long = Duration::from_secs(600);
        assert!(tokio::time::timeout(long, watcher.next()).await.is_err());

        watcher.set(wanted(), Instant::now());
        EXHAUSTED.store(false, Ordering::Relaxed);
        let began = Instant::now();
        assert!(watcher.next().await.is_none());
        assert!(began.elapsed() >= START_AGAIN);
        watcher.set(wanted(), Instant::now());
        assert_eq!(watcher.problem(), None);
        let monitor = monitor.lock().unwrap().take();
        monitor.expect("BFD runs").stop();
    }
}
