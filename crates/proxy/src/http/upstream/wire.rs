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

/// The connection, and what was read of it.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    share: ReadShare,
    last: LastRead,
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
