//! The stream of change numbers (Server-Sent Events) that notifies the status page of changes.
//!
//! Bounded: so many streams and no more; each holds at most one number that was not sent yet.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;

/// More readers than a user has tabs open; the rest of the connections stay free for probes.
const MOST_STREAMS: usize = 64;

/// Changes closer together than this are sent as one.
const PAUSE: Duration = Duration::from_millis(100);

/// So often a quiet stream says that it lives, which also finds readers that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Hands out streams.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    places: Arc<Semaphore>,
    cancel: CancellationToken,
}

struct Stream {
    changed: watch::Receiver<u64>,
    cancel: CancellationToken,
    first: bool,
    _place: OwnedSemaphorePermit,
}

// === impl Events ===

impl Events {
    pub(crate) fn new(cancel: CancellationToken) -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST_STREAMS)),
            cancel,
        }
    }

    /// A stream that begins with the present number.
    pub(crate) fn stream(
        &self,
        changed: watch::Receiver<u64>,
    ) -> Result<impl IntoResponse + use<>, ApiError> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| ApiError::busy("too many event streams are open; poll instead"))?;
        let stream = Stream {
            changed,
            cancel: self.cancel.clone(),
            first: true,
            _place: place,
        };
        let events = stream::unfold(stream, |mut stream| async move {
            let event = stream.next().await?;
            Some((Ok::<_, Infallible>(event), stream))
        });
        Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
    }
}

// === impl Stream ===

impl Stream {
    /// The next event; `None` when the endpoint closes or the instance is gone.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::take(&mut self.first) {
            // Cancel-safe: `changed` marks nothing as seen before it returns.
            tokio::select! {
                () = self.cancel.cancelled() => return None,
                changed = self.changed.changed() => changed.ok()?,
            }
            tokio::select! {
                () = self.cancel.cancelled() => return None,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        let change = *self.changed.borrow_and_update();
        Some(
            Event::default()
                .event("change")
                .data(format!("{{\"change\":{change}}}")),
        )
    }
}
