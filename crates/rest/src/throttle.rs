//! The limit on requests to a server: so many in flight, and none while it asks to slow down.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::error::MAX_RETRY_AFTER;

/// Requests in flight at once.
const IN_FLIGHT: usize = 16;

#[derive(Debug)]
pub(super) struct Throttle {
    permits: Semaphore,
    paused_until: Mutex<Option<Instant>>,
}

// === impl Throttle ===

impl Throttle {
    pub fn new() -> Self {
        Self {
            permits: Semaphore::new(IN_FLIGHT),
            paused_until: Mutex::new(None),
        }
    }

    /// Waits until a request may be sent. `None` never comes: the semaphore is never closed.
    pub async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        loop {
            let permit = self.permits.acquire().await.ok();
            let Some(until) = self.paused_until() else {
                return permit;
            };
            drop(permit);
            sleep_until(until).await;
        }
    }

    /// Holds all requests back for so long.
    pub fn pause_for(&self, time: Duration) {
        let until = Instant::now() + time.min(MAX_RETRY_AFTER);
        let mut paused = self.lock();
        if paused.is_none_or(|old| old < until) {
            *paused = Some(until);
        }
    }

    fn paused_until(&self) -> Option<Instant> {
        let mut paused = self.lock();
        if paused.is_some_and(|until| until <= Instant::now()) {
            *paused = None;
        }
        *paused
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paused_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
