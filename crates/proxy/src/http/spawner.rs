//! Tasks that hyper wants for the streams of an HTTP/2 connection, kept track of by that
//! connection.

use hyper::rt::Executor;
use tokio_util::task::TaskTracker;

/// Spawns into a tracker, so that the owner of the connection can wait for its streams.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(TaskTracker);

// === impl Spawner ===

impl Spawner {
    pub(crate) fn new(tracker: TaskTracker) -> Self {
        Self(tracker)
    }
}

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}
