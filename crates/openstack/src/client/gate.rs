//! The gate that every request passes: so many at once, and none while the cloud has asked for
//! quiet.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::error::LONGEST_QUIET;

/// Requests in flight at once.
const AT_ONCE: usize = 16;

pub(super) struct Gate {
    permits: Semaphore,
    quiet_until: Mutex<Option<Instant>>,
}

// === impl Gate ===

impl Gate {
    pub fn new() -> Self {
        Self {
            permits: Semaphore::new(AT_ONCE),
            quiet_until: Mutex::new(None),
        }
    }

    /// Waits for a turn. `None` never comes: the semaphore is never closed.
    pub async fn pass(&self) -> Option<SemaphorePermit<'_>> {
        loop {
            let permit = self.permits.acquire().await.ok();
            let Some(until) = self.quiet() else {
                return permit;
            };
            drop(permit);
            sleep_until(until).await;
        }
    }

    /// Lets nobody pass for so long.
    pub fn throttle_for(&self, time: Duration) {
        let until = Instant::now() + time.min(LONGEST_QUIET);
        let mut quiet = self.lock();
        if quiet.is_none_or(|old| old < until) {
            *quiet = Some(until);
        }
    }

    fn quiet(&self) -> Option<Instant> {
        let mut quiet = self.lock();
        if quiet.is_some_and(|until| until <= Instant::now()) {
            *quiet = None;
        }
        *quiet
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.quiet_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
