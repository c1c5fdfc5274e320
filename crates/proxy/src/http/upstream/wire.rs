//! A connection to a member as the HTTP/2 library sees it: read a part at a time, so that what came
//! is taken from the library before more is, and with the time of the last of it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http::share::ReadShare;

/// Bytes that are read in a row. In frames of a byte, which take some 300 in the library, those are
/// 2 MiB there.
const SHARE: usize = 64 * 1024;

/// Bytes of the head of a frame, and which of them is its type.
const HEAD: u8 = 9;
const TYPE: u8 = 3;

/// The type of a promised push.
const PUSH_PROMISE: u8 = 5;

/// The connection, and what was read of it.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    share: ReadShare,
    last: LastRead,
    frames: Frames,
}

/// Where in a member's frames the next byte is.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes of a payload that are still to come.
    payload: usize,
    /// Bytes of a head that have come, and the length in it as far as that is here.
    head: u8,
    length: usize,
}

/// When a connection was read last.
#[derive(Clone, Debug)]
pub(super) struct LastRead(Arc<Mutex<Instant>>);

// === impl LastRead ===

impl LastRead {
    pub(super) fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

// === impl Wire ===

impl<S> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            share: ReadShare::new(SHARE),
            last: LastRead(Arc::new(Mutex::new(Instant::now()))),
            frames: Frames::default(),
        }
    }

    /// When it was read last, to be asked after it was given away.
    pub(super) fn last_read(&self) -> LastRead {
        self.last.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.share.poll(context));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            this.share.took(count);
            this.last.set(Instant::now());
            let read = buffer.filled().get(before..).unwrap_or_default();
            if this.frames.promise_push(read) {
                let why = "a push was promised, and none may be";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

// === impl Frames ===

impl Frames {
    /// Whether one of the frames that go on with these bytes promises a push. No member may do
    /// so, which ends the connection (RFC 9113 section 8.4). The library resets the promised
    /// stream where that of the request was reset, and a debug build of it panics.
    fn promise_push(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if self.head < TYPE {
                self.length = self.length << 8 | usize::from(byte);
            } else if self.head == TYPE && byte == PUSH_PROMISE {
                return true;
            }
            self.head += 1;
            if self.head == HEAD {
                self.payload = std::mem::take(&mut self.length);
                self.head = 0;
            }
            bytes = rest;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [length[1], length[2], length[3], kind, 4, 0, 0, 0, 1];
        [&head[..], payload].concat()
    }

    #[test]
    fn a_promised_push_is_found_however_the_bytes_come() {
        let others = [
            frame(0, &[PUSH_PROMISE; 300]),
            frame(4, b""),
            frame(1, &vec![0; 70_000]),
        ];
        let others = others.concat();
        let all = [&others[..], &frame(PUSH_PROMISE, &[0, 0, 0, 2])].concat();
        for part in [1, 2, 3, 9, 100, 4_096, all.len()] {
            let mut frames = Frames::default();
            assert!(!others.chunks(part).any(|bytes| frames.promise_push(bytes)));
            let mut frames = Frames::default();
            assert!(all.chunks(part).any(|bytes| frames.promise_push(bytes)));
        }
    }
}
