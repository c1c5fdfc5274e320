//! Asynchronous operations: a change is answered by an id or a location, which is asked for its
//! state until it is done, has failed or takes too long.
//!
//! [`Operation`] decides when to ask and when to give up; it takes `now` and does no I/O. A
//! provider keeps it beside the object that is being changed, and calls [`Operation::poll`] when it
//! observes that object, so that no reconcile sleeps.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{ApiError, ErrorKind};

/// When to ask for the state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polling {
    /// Delay before the first request. Later delays grow with the age of the operation.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// The age at which a pending operation is given up.
    pub timeout: Duration,
    /// Transient errors in a row that are tolerated.
    pub max_errors: u32,
}

/// An operation in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    id: String,
    polling: Polling,
    started: Instant,
    due: Instant,
    errors: u32,
}

/// The state of an operation, as the cloud reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationState<T> {
    /// It is not finished.
    Pending,
    /// It succeeded, with this result.
    Done(T),
    /// It ended without success: what can be done about it, and the cloud's words.
    Failed(ErrorKind, String),
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// Its state should be asked for after this delay.
    Pending(Duration),
    /// It succeeded, with this result.
    Done(T),
}

/// A delay grows by this fraction of the operation's age.
const GROWTH: u32 = 16;

impl Default for Polling {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(3),
            longest: Duration::from_secs(60),
            timeout: Duration::from_secs(120),
            max_errors: 4,
        }
    }
}

// === impl Operation ===

impl Operation {
    /// Makes an operation that a change was answered with. `id` is its id, or its location.
    pub fn new(id: impl Into<String>, polling: Polling, now: Instant) -> Self {
        Self {
            id: id.into(),
            polling,
            started: now,
            due: now + polling.first.min(polling.timeout),
            errors: 0,
        }
    }

    /// Returns the id, or the location.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the delay until its state should be asked for; zero: now.
    pub fn due_in(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Asks for the state if that is due, and evaluates the answer.
    pub async fn poll<T, F>(
        &mut self,
        ask: impl FnOnce(String) -> F,
    ) -> Result<Progress<T>, ApiError>
    where
        F: Future<Output = Result<OperationState<T>, ApiError>>,
    {
        let delay = self.due_in(Instant::now());
        if !delay.is_zero() {
            return Ok(Progress::Pending(delay));
        }
        let state = ask(self.id.clone()).await;
        self.on_state(state, Instant::now())
    }

    /// Evaluates a state, or the error of a request for it.
    ///
    /// # Errors
    /// The operation failed; or it is pending for too long, or its state can't be read: then it may
    /// have succeeded, and the object should be read.
    pub fn on_state<T>(
        &mut self,
        state: Result<OperationState<T>, ApiError>,
        now: Instant,
    ) -> Result<Progress<T>, ApiError> {
        let ended = |kind, why| ApiError::ours(kind, &format!("operation {}", self.id), why);
        let age = now.saturating_duration_since(self.started);
        let mut delay = (self.polling.first + age / GROWTH).min(self.polling.longest);
        match state {
            Ok(OperationState::Done(result)) => return Ok(Progress::Done(result)),
            Ok(OperationState::Failed(kind, message)) => return Err(ended(kind, message)),
            Ok(OperationState::Pending) => self.errors = 0,
            Err(error) => {
                self.errors += 1;
                if !error.is_transient() || self.errors > self.polling.max_errors {
                    return Err(error);
                }
                delay = delay.max(error.retry_after.unwrap_or_default());
            }
        }
        let left = self.polling.timeout.saturating_sub(age);
        if left.is_zero() {
            let why = format!("pending after {} s", age.as_secs());
            return Err(ended(ErrorKind::Lost, why));
        }
        // The last request is made when the time is up.
        let delay = delay.min(left);
        self.due = now + delay;
        Ok(Progress::Pending(delay))
    }
}

#[cfg(test)]
mod tests;
