//! The tasks of an instance, and their end.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the tasks of an instance live: until cancelled, and then until they have ended.
#[derive(Clone, Debug, Default)]
pub struct Lifetime {
    /// The tasks.
    pub tasks: TaskTracker,
    /// Ends them.
    pub cancel: CancellationToken,
}

// === impl Lifetime ===

impl Lifetime {
    /// Ends the tasks, and returns once they have ended.
    pub async fn end(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
