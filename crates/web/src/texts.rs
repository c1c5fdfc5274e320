//! Large answers: made one at a time, and shared by all clients that asked before the making began.
//!
//! With some thousand members a text has megabytes, and clients decide how many ask and how fast
//! they read. So there is room for so many bytes of texts and no more: where it is full, clients
//! get a text of the last seconds, and for a newer one the oldest is taken away from those that
//! have not read it to the end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::answering::on_a_thread;
use crate::error::ApiError;
use crate::metrics::{Format, Scope};

/// Bytes of all texts that are read at some time.
const ROOM: usize = 64 * 1024 * 1024;

/// A text of this age is good enough where the room is full.
const FRESH: Duration = Duration::from_secs(5);

/// How long to wait for one's turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that a connection gets at once. They are copied, or a reader that stands still would hold
/// the whole text.
const PART: usize = 16 * 1024;

/// What a text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Metrics(Scope, Format),
    Instance,
    Services,
}

/// Makes texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held while a text is made; others wait for it.
    shelf: Arc<tokio::sync::Mutex<Shelf>>,
    waiting: AtomicUsize,
}

/// A client that waits for a turn, until dropped.
struct Waiting<'s>(&'s Shared);

/// The texts that are read or waited for, oldest first.
#[derive(Debug, Default)]
struct Shelf {
    texts: VecDeque<Row>,
    /// Keeps the newest for clients that wait.
    newest: Option<Text>,
}

#[derive(Clone, Debug)]
struct Row {
    about: About,
    text: Weak<Mutex<Bytes>>,
}

/// What is known of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct About {
    subject: Subject,
    /// When writing it began: its content is at least as new.
    began: Instant,
    bytes: usize,
}

/// What to do for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Share the text at this place.
    Share(usize),
    /// Make one, after so many of the oldest were taken away.
    Make { without: usize },
}

/// A text as clients share it. Empty once it was taken away.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    bytes: Arc<Mutex<Bytes>>,
    length: usize,
}

/// A client that reads a text.
#[derive(Debug)]
pub(crate) struct Reader {
    text: Text,
    at: usize,
}

/// Decides about a client that asked at some time.
fn decide(subject: Subject, asked: Instant, now: Instant, texts: &[About]) -> Verdict {
    let newest = texts.iter().rposition(|text| text.subject == subject);
    let newest = newest.and_then(|place| Some((place, texts.get(place)?)));
    let mut held: usize = texts.iter().map(|text| text.bytes).sum();
    if let Some((place, text)) = newest {
        let is_fresh = now.saturating_duration_since(text.began) < FRESH;
        if text.began >= asked || (held >= ROOM && is_fresh) {
            return Verdict::Share(place);
        }
    }
    let mut without = 0;
    for text in texts {
        if held < ROOM {
            break;
        }
        held -= text.bytes;
        without += 1;
    }
    Verdict::Make { without }
}

fn locked(bytes: &Mutex<Bytes>) -> MutexGuard<'_, Bytes> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Texts ===

impl Texts {
    /// Returns a text about the subject that contains nothing older than this call, or where the
    /// room is full than some seconds. `write` is called on a thread that may be kept busy.
    pub(crate) async fn get(
        &self,
        subject: Subject,
        write: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Result<Text, ApiError> {
        let asked = Instant::now();
        let waiting = Waiting::new(&self.0);
        let turn = self.0.shelf.clone().lock_owned();
        let turn = tokio::time::timeout(TURN_TIMEOUT, turn).await;
        drop(waiting);
        let Ok(mut turn) = turn else {
            return Err(ApiError::busy("others are answered; try again in a moment"));
        };
        let found = turn.find(subject, asked, Instant::now());
        if !self.0.is_awaited() {
            turn.newest = None;
        }
        if let Some(text) = found {
            return Ok(text);
        }
        // The turn goes along: a client that leaves must not let another begin meanwhile.
        let shared = self.0.clone();
        let text = on_a_thread(move || {
            let began = Instant::now();
            let text = Text::new(write()?);
            turn.put(subject, began, &text);
            turn.newest = shared.is_awaited().then(|| text.clone());
            Ok(text)
        });
        let text = text.await.map_err(|error| error.to_string());
        text.and_then(|text| text).map_err(ApiError::failed)
    }
}

impl Shared {
    fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl<'s> Waiting<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shelf {
    /// Returns a text to share, or makes room for a new one.
    fn find(&mut self, subject: Subject, asked: Instant, now: Instant) -> Option<Text> {
        self.texts.retain(|row| row.text.strong_count() > 0);
        let about: Vec<About> = self.texts.iter().map(|row| row.about).collect();
        match decide(subject, asked, now, &about) {
            Verdict::Share(place) => self.texts.get(place).and_then(Row::text),
            Verdict::Make { without } => {
                for row in self.texts.drain(..without) {
                    if let Some(bytes) = row.text.upgrade() {
                        *locked(&bytes) = Bytes::new();
                    }
                }
                None
            }
        }
    }

    fn put(&mut self, subject: Subject, began: Instant, text: &Text) {
        self.texts.push_back(Row {
            about: About {
                subject,
                began,
                bytes: text.length,
            },
            text: Arc::downgrade(&text.bytes),
        });
    }
}

impl Row {
    fn text(&self) -> Option<Text> {
        self.text.upgrade().map(|bytes| Text {
            bytes,
            length: self.about.bytes,
        })
    }
}

// === impl Text ===

impl Text {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            length: bytes.len(),
            bytes: Arc::new(Mutex::new(bytes.into())),
        }
    }

    /// Returns it as the body of a response.
    pub(crate) fn into_body(self) -> axum::body::Body {
        axum::body::Body::new(Reader { text: self, at: 0 })
    }
}

// === impl Reader ===

impl Body for Reader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let end = self.text.length.min(self.at + PART);
        let part = locked(&self.text.bytes)
            .get(self.at..end)
            .map(Bytes::copy_from_slice);
        let Some(part) = part else {
            let error = "read too slowly: the text was taken away";
            return Poll::Ready(Some(Err(io::Error::other(error))));
        };
        self.at = end;
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.text.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.text.length - self.at) as u64)
    }
}

#[cfg(test)]
mod tests;
