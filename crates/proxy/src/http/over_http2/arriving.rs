//! The body of a member's response as it arrives. What has arrived is taken from the HTTP/2 library
//! at once, whether the client takes it or not, and its window opens only as the client does: the
//! library counts frames that wait in it against a connection that others share, and each takes
//! some hundred bytes beside its own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::{FlowControl, RecvStream};
use http::HeaderMap;
use hyper::body::Frame;
use tokio_util::task::AbortOnDropHandle;

use crate::http::CHUNK;
use crate::http::content::BodyFailed;

/// Shorter frames are joined. A longer one keeps the buffer that it was read into, which may hold
/// several times as much.
const JOINED: usize = 4 * 1024;

/// A body, of which no more than a window waits for its client.
#[derive(Debug)]
pub(super) struct Arriving {
    arrived: Arc<Mutex<Arrived>>,
    /// What opens the window, and what reads while the client takes nothing; `None`: all has
    /// arrived.
    rest: Option<(FlowControl, AbortOnDropHandle<()>)>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// Where the rest comes from.
    stream: Option<RecvStream>,
    /// What waits, in order, and short frames after that.
    chunks: VecDeque<Bytes>,
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    /// How it ended.
    end: Option<Result<(), BodyFailed>>,
    /// Nothing waits, and what the client is served by is woken by the next that comes.
    is_awaited: bool,
    /// Wakes what reads while the client takes nothing.
    reader: Option<Waker>,
}

// === impl Arriving ===

impl Arriving {
    /// The body of a response whose head has arrived.
    pub(super) fn new(mut stream: RecvStream) -> Self {
        let window = stream.flow_control().clone();
        let mut arrived = Arrived {
            stream: Some(stream),
            ..Arrived::default()
        };
        // Most are here as a whole by now.
        let ends = arrived.poll_fill(&mut Context::from_waker(Waker::noop()));
        let arrived = Arc::new(Mutex::new(arrived));
        let rest = ends.is_pending().then(|| {
            let filled = arrived.clone();
            let reader = tokio::spawn(poll_fn(move |context| lock(&filled).poll_read(context)));
            (window, AbortOnDropHandle::new(reader))
        });
        Self { arrived, rest }
    }

    /// The next part for the client, which makes room for as much.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let mut arrived = lock(&self.arrived);
        let Some(data) = arrived.poll_chunk(context) else {
            if let Some(trailers) = arrived.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            return match arrived.end {
                Some(end) => Poll::Ready(end.err().map(Err)),
                None => Poll::Pending,
            };
        };
        drop(arrived);
        if let Some((window, _)) = &mut self.rest {
            // Fails for streams that have ended, whose windows are of no use.
            let _ = window.release_capacity(data.len());
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Whether nothing more comes for the client.
    pub(super) fn is_end(&self) -> bool {
        let arrived = lock(&self.arrived);
        let waits = !arrived.chunks.is_empty() || !arrived.joined.is_empty();
        !waits && arrived.trailers.is_none() && arrived.end == Some(Ok(()))
    }
}

impl Drop for Arriving {
    /// Resets the stream now, if it goes on, and not when the reader is gone.
    fn drop(&mut self) {
        lock(&self.arrived).stream = None;
    }
}

fn lock(arrived: &Mutex<Arrived>) -> MutexGuard<'_, Arrived> {
    // Each operation leaves it valid at every step.
    arrived.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Arrived ===

impl Arrived {
    /// The next chunk for the client; if there is none, the next that comes wakes this task.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        if let Some(chunk) = self.next_chunk() {
            return Some(chunk);
        }
        self.is_awaited = self.poll_fill(context).is_pending();
        let chunk = self.next_chunk()?;
        if self.is_awaited {
            // The client may not ask again for long.
            self.is_awaited = false;
            if let Some(reader) = self.reader.clone() {
                let _ = self.poll_fill(&mut Context::from_waker(&reader));
            }
        }
        Some(chunk)
    }

    /// Reads for a client that takes nothing. Ready when there is nothing more to read.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.reader {
            Some(reader) => reader.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        if self.is_awaited {
            // What waits for it is not to lose its place.
            return Poll::Pending;
        }
        self.poll_fill(context)
    }

    /// Takes all that is here from the library. Ready when all of the body is.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.end.is_none() {
            let Some(stream) = &mut self.stream else {
                break;
            };
            match ready!(stream.poll_data(context)) {
                Some(Ok(data)) => self.push(data),
                Some(Err(_)) => self.end = Some(Err(BodyFailed::Member)),
                None => {
                    self.end = match ready!(stream.poll_trailers(context)) {
                        Ok(trailers) => {
                            self.trailers = trailers;
                            Some(Ok(()))
                        }
                        Err(_) => Some(Err(BodyFailed::Member)),
                    };
                }
            }
        }
        Poll::Ready(())
    }

    fn push(&mut self, data: Bytes) {
        if data.len() < JOINED {
            self.joined.extend_from_slice(&data);
            if self.joined.len() < CHUNK {
                return;
            }
        }
        if !self.joined.is_empty() {
            self.chunks.push_back(self.joined.split().freeze());
        }
        if data.len() >= JOINED {
            self.chunks.push_back(data);
        }
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        let next = self.chunks.pop_front();
        next.or_else(|| (!self.joined.is_empty()).then(|| self.joined.split().freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_are_joined_and_all_stay_in_order() {
        let mut arrived = Arrived::default();
        let lengths = [1, 2, JOINED, JOINED - 1, JOINED - 1, 3, JOINED + 1, 7];
        let counted = (0..=250).cycle().take(lengths.iter().sum());
        let sent: Vec<u8> = counted.collect();
        let mut rest = Bytes::from(sent.clone());
        for length in lengths {
            arrived.push(rest.split_to(length));
        }
        let chunks: Vec<_> = std::iter::from_fn(|| arrived.next_chunk()).collect();
        let lengths: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [3, JOINED, 2 * JOINED + 1, JOINED + 1, 7]);
        assert_eq!(chunks.concat(), sent);
    }

    #[test]
    fn joined_frames_are_no_longer_than_a_chunk_and_a_frame() {
        let mut arrived = Arrived::default();
        for _ in 0..64 * 1024 {
            arrived.push(Bytes::from_static(b"x"));
        }
        let chunks: Vec<_> = std::iter::from_fn(|| arrived.next_chunk()).collect();
        let lengths: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [CHUNK; 4]);
    }
}
