//! Signals: SIGINT and SIGTERM ask for a stop, a second one ends the process at once, SIGHUP asks
//! for a check of the manifests, SIGUSR2 for a successor. The others that would end a process by
//! default are taken and logged.
//!
//! They are received and obeyed on threads of their own, so that a stop works whatever the rest of
//! the process does; a stop that is not over in time is ended there, too, and so is the end of a
//! process in which a part has failed. tokio's own receivers may miss a signal that comes between
//! the installation of its handler and that of the receiver, and a process that is stopped at its
//! start would go on. Here a microsecond is left of that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::logging;

/// Exit status after a second signal: 128 + SIGINT.
const AT_ONCE: i32 = 130;

/// Exit status of an end that was not over in time.
const OVERDUE: i32 = 1;

/// How long an end may take beyond the time that connections have.
const MARGIN: Duration = Duration::from_secs(25);

/// Signals without a meaning here that would end the process: SIGUSR1, SIGALRM, SIGSTKFLT, SIGXCPU,
/// SIGXFSZ (a write then fails), SIGVTALRM, SIGPROF, SIGIO and SIGPWR of Linux. Not SIGPIPE, which
/// Rust ignores: a line in the log for each would cause the next one where the log is a closed
/// pipe.
const WITHOUT_MEANING: [i32; 9] = [10, 14, 16, 24, 25, 26, 27, 29, 30];

/// Publishes what signals asked for.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: CancellationToken,
    failed: CancellationToken,
    reload: Arc<Notify>,
    successor: Arc<Notify>,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Stop(&'static str),
    Reload,
    Successor,
    Nothing(i32),
}

/// What follows from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// A stop begins.
    Begin(&'static str),
    /// The process ends.
    End,
    /// Manifests are checked.
    Reload,
    /// Another process is started that takes over.
    Successor,
    /// Only a log line.
    Nothing(i32),
}

// === impl Stop ===

impl Stop {
    /// From now on the first SIGINT or SIGTERM asks for a stop, which has `grace` and a margin, and
    /// a second one ends the process. No other signal does that can be received.
    pub fn watch(grace: Duration) -> io::Result<Self> {
        let stop = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let requests = receive()?;
        let serving = stop.clone();
        // It lives exactly as long as the process.
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let status = runtime.block_on(serving.obey(requests, serving.overdue(grace)));
                logging::finish();
                std::process::exit(status);
            })?;
        Ok(stop)
    }

    /// Returns once a stop was asked for, at once if that is so already.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Does something unless a stop is asked for before it is done.
    pub async fn unless_asked<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.asked.run_until_cancelled(work).await
    }

    /// Returns what is to be cancelled when the process is to end because a part of it has failed:
    /// from then on the end has as long as a stop.
    pub const fn failed(&self) -> &CancellationToken {
        &self.failed
    }

    /// Raised when everything is to be checked again.
    pub fn reload(&self) -> Arc<Notify> {
        self.reload.clone()
    }

    /// Returns when another process is to be started that takes over.
    pub async fn successor(&self) {
        self.successor.notified().await;
    }

    /// Returns once an end that has begun should be over.
    async fn overdue(&self, grace: Duration) {
        tokio::select! {
            () = self.asked() => {}
            () = self.failed.cancelled() => {}
        }
        tokio::time::sleep(grace + MARGIN).await;
    }

    /// Does what is asked for until the process is to end at once. Returns its exit status.
    async fn obey(
        &self,
        mut requests: mpsc::Receiver<Request>,
        overdue: impl Future<Output = ()>,
    ) -> i32 {
        let mut overdue = std::pin::pin!(overdue);
        loop {
            let request = tokio::select! {
                () = &mut overdue => {
                    tracing::error!("the shutdown timed out; the process ends");
                    return OVERDUE;
                }
                Some(request) = requests.recv() => request,
            };
            match effect(request, self.asked.is_cancelled()) {
                Effect::Begin(why) => {
                    tracing::info!("{why}; stopping");
                    self.asked.cancel();
                }
                Effect::End => return AT_ONCE,
                Effect::Reload => {
                    tracing::info!(
                        "SIGHUP: manifests are read now; options and files of --config and \
                        --cloud-config are read only at start"
                    );
                    self.reload.notify_one();
                }
                Effect::Successor => {
                    tracing::info!(
                        "SIGUSR2: an instance that serves manifests is started again and takes over"
                    );
                    self.successor.notify_one();
                }
                Effect::Nothing(signal) => tracing::info!(signal, "this signal has no effect"),
            }
        }
    }
}

fn effect(request: Request, stopping: bool) -> Effect {
    match request {
        Request::Stop(_) if stopping => Effect::End,
        Request::Stop(why) => Effect::Begin(why),
        Request::Reload => Effect::Reload,
        Request::Successor => Effect::Successor,
        Request::Nothing(signal) => Effect::Nothing(signal),
    }
}

/// Receives signals, from now on.
fn receive() -> io::Result<mpsc::Receiver<Request>> {
    let (sender, requests) = mpsc::channel(1);
    let with_meaning = [SIGINT, SIGTERM, SIGHUP, SIGUSR2];
    let mut signals = Signals::new(with_meaning.into_iter().chain(WITHOUT_MEANING))?;
    // It lives exactly as long as the process.
    std::thread::Builder::new()
        .name("signal".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if sender.blocking_send(request(signal)).is_err() {
                    return;
                }
            }
        })?;
    Ok(requests)
}

fn request(signal: i32) -> Request {
    match signal {
        SIGINT => Request::Stop("interrupted"),
        SIGTERM => Request::Stop("shutting down"),
        SIGHUP => Request::Reload,
        SIGUSR2 => Request::Successor,
        other => Request::Nothing(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Request = Request::Stop("interrupted");

    #[test]
    fn no_other_signal_begins_or_ends_a_stop() {
        for stopping in [false, true] {
            assert_eq!(effect(Request::Reload, stopping), Effect::Reload);
            assert_eq!(effect(Request::Successor, stopping), Effect::Successor);
            assert_eq!(effect(Request::Nothing(10), stopping), Effect::Nothing(10));
        }
    }

    #[tokio::test]
    async fn the_first_request_begins_a_stop_and_the_second_ends_the_process_at_once() {
        let stop = Stop::default();
        let (asking, requests) = mpsc::channel(1);
        let asking = async {
            asking.send(STOP).await.unwrap();
            stop.asked().await;
            asking.send(STOP).await.unwrap();
        };
        let (status, ()) = tokio::join!(stop.obey(requests, std::future::pending()), asking);
        assert_eq!(status, 130);
    }

    #[tokio::test]
    async fn a_stop_that_is_overdue_ends_with_a_failure() {
        let stop = Stop::default();
        let (asking, requests) = mpsc::channel(1);
        asking.send(STOP).await.unwrap();
        assert_eq!(stop.obey(requests, stop.asked()).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_because_of_a_failure_has_as_long_as_a_stop() {
        let grace = Duration::from_secs(2);
        let begin: [fn(&Stop); 2] = [|it| it.asked.cancel(), |it| it.failed().cancel()];
        for begin in begin {
            let stop = Stop::default();
            let overdue = stop.overdue(grace);
            let mut overdue = std::pin::pin!(overdue);
            let longest = grace + MARGIN;
            let calm = tokio::time::timeout(longest * 2, &mut overdue).await;
            assert!(calm.is_err(), "nothing ends yet");
            begin(&stop);
            let early = longest.checked_sub(Duration::from_millis(1)).unwrap();
            let early = tokio::time::timeout(early, &mut overdue).await;
            assert!(early.is_err(), "there is time left");
            let in_time = tokio::time::timeout(Duration::from_millis(2), overdue).await;
            assert!(in_time.is_ok(), "it is over");
        }
    }

    #[tokio::test]
    async fn a_hangup_asks_for_a_look_and_not_for_a_stop() {
        let stop = Stop::default();
        let (asking, requests) = mpsc::channel(1);
        asking.send(Request::Reload).await.unwrap();
        tokio::select! {
            status = stop.obey(requests, std::future::pending()) => panic!("ended with {status}"),
            () = async { stop.reload().notified().await } => {}
        }
        assert!(!stop.asked.is_cancelled());
    }
}
