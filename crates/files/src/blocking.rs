//! Where work that blocks is done: on the runtime's threads for it, or in a model test on the
//! test's own clock.

use tokio::task::JoinHandle;

#[cfg(feature = "memory")]
use crate::sim_delay::SimDelay;

/// A place for such work.
#[derive(Clone, Debug)]
pub(crate) enum Blocking {
    /// The threads of the runtime.
    Threads,
    /// The test's own thread, after a pause: what happens meanwhile is the same in every run.
    #[cfg(feature = "memory")]
    Simulated(SimDelay),
}

// === impl Blocking ===

impl Blocking {
    /// Begins some work, which goes on if the handle is dropped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work),
            #[cfg(feature = "memory")]
            Self::Simulated(delay) => {
                let pause = delay.draw();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    work()
                })
            }
        }
    }
}
