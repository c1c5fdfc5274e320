//! A connection that gives up on a peer which does not read: a write that makes no progress for a
//! while fails, so that no client holds a place for ever by asking and not reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail after a pause without progress. Reads pass as they are.
#[derive(Debug)]
pub(crate) struct Stall<T> {
    stream: T,
    time_limit: Duration,
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
}

// === impl Stall ===

impl<T> Stall<T> {
    pub(crate) fn new(stream: T, time_limit: Duration) -> Self {
        Self {
            stream,
            time_limit,
            deadline: Box::pin(tokio::time::sleep(time_limit)),
            waiting: false,
        }
    }

    fn validate<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.waiting = false;
            return outcome;
        }
        if !self.waiting {
            self.waiting = true;
            self.deadline
                .as_mut()
                .reset(Instant::now() + self.time_limit);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read",
        )))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stall<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stall<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.validate(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.validate(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.validate(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_peer_that_does_not_read_fails_after_the_timeout() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let mut stall = Stall::new(ours, TIMEOUT);
        let began = Instant::now();
        let error = stall.write_all(b"too much for it").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_served_as_long_as_it_reads() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut stall = Stall::new(ours, TIMEOUT);
        let reader = async {
            let mut read = Vec::new();
            let mut part = [0; 4];
            while read.len() < 16 {
                tokio::time::sleep(TIMEOUT.mul_f32(0.9)).await;
                let count = theirs.read(&mut part).await.unwrap();
                read.extend_from_slice(&part[..count]);
            }
            read
        };
        let (written, read) = tokio::join!(stall.write_all(b"sixteen letters!"), reader);
        written.unwrap();
        assert_eq!(read, b"sixteen letters!");
    }
}
