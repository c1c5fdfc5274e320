//! A worker: a thread with a single-threaded tokio runtime that runs one [`Engine`] and the tasks
//! of its connections. The control plane runs elsewhere, so neither can stall the other.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::counters;
use crate::engine::{Capacity, Command, Engine};

/// How many commands may wait. The control plane waits for its turn beyond that.
const COMMANDS: usize = 256;

/// After this many polls of tasks the runtime looks for events of its own. The engine counts as one
/// poll however many connections it served, so this is small.
const EVENT_INTERVAL: u32 = 16;

/// A running worker.
#[derive(Debug)]
pub(crate) struct Worker {
    commands: mpsc::Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The worker is gone, which happens only when the proxy is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerGone;

// === impl Worker ===

impl Worker {
    /// Starts the worker with this number; it may hold so much.
    pub(crate) fn start(index: usize, capacity: Capacity) -> io::Result<Self> {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let resume = commands.clone();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .event_interval(EVENT_INTERVAL)
            .build()?;
        let engine = {
            let _inside = runtime.enter();
            Engine::new(receiver, resume, capacity)?
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                counters::set_worker(index);
                runtime.block_on(engine.run());
                // Tasks were asked to end by the shutdown; the runtime drops what is left.
            })?;
        Ok(Self {
            commands,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Gives a command. Waits while too many are waiting already.
    pub(crate) async fn report(&self, command: Command) -> Result<(), WorkerGone> {
        self.commands.send(command).await.map_err(|_| WorkerGone)
    }

    /// Gives a command that is answered, and waits for the answer.
    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, WorkerGone> {
        let (answer, answered) = oneshot::channel();
        self.report(command(answer)).await?;
        answered.await.map_err(|_| WorkerGone)
    }

    /// The thread, to wait for once it was asked to stop.
    pub(crate) fn take_thread(&self) -> Option<JoinHandle<()>> {
        self.thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ends the engine where nothing shut it down. A full queue is one that is being worked on;
        // its end then comes with the process.
        let _ = self.commands.try_send(Command::Stop);
    }
}
