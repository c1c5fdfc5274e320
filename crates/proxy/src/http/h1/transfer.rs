//! One direction of one message: a head that was rewritten, then the body, passed on from the
//! buffer that it was read into. Knows framing, no timers and no members.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::body::{BadBody, Decoder, Framing, Kind};
use crate::http::buffer::{Buffer, Outgoing};

/// Bodies up to this many bytes are worth copying.
const SMALL_BODY: usize = 2048;

/// How a body changes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recode {
    /// Not at all; chunks stay as they are.
    Raw,
    /// Chunks are taken apart, for clients that do not know them.
    Dechunk,
    /// A body that ends with its connection is put in chunks, so that the client can distinguish
    /// its end from an accident.
    Enchunk,
}

/// A message on its way from a source to a sink.
#[derive(Debug)]
pub(super) struct Transfer {
    framing: Framing,
    decoder: Decoder,
    recode: Recode,
    /// Goes first.
    head: Outgoing,
    /// Bytes of the input that go next, and then bytes of it that go nowhere.
    approved: usize,
    skipped: usize,
    /// Goes after those.
    tail: Outgoing,
    /// Small bodies are copied behind the head.
    merges: bool,
    stage: Stage,
    waits_for: End,
    read: u64,
    written: u64,
}

/// Which end of a transfer something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Sink,
}

/// Why a transfer can't go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("reading failed")]
    Read(#[source] io::Error),
    #[error("the connection ended before the body did")]
    Ended,
    #[error("the body is broken")]
    Body(#[from] BadBody),
    #[error("writing failed")]
    Write(#[source] io::Error),
    #[error("there is no memory for what the sink does not take")]
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Body,
    /// Everything is in `head`, `approved` and `tail`.
    Last,
    Flush,
    Done,
}

// === impl Transfer ===

impl Transfer {
    /// A message with this head, whose body is framed like this where it comes from.
    pub(super) fn new(head: Vec<u8>, framing: Framing, recode: Recode) -> Self {
        Self {
            framing,
            decoder: Decoder::new(framing),
            recode,
            head: Outgoing::from(head),
            approved: 0,
            skipped: 0,
            tail: Outgoing::default(),
            merges: false,
            stage: Stage::Body,
            waits_for: End::Sink,
            read: 0,
            written: 0,
        }
    }

    /// Copies a small body behind its head: a plain write of both costs less than a gathering one.
    /// The head does not come back intact then.
    pub(super) fn merging(mut self) -> Self {
        self.merges = true;
        self
    }

    /// Moves all that can be moved at present. Ready when the sink has everything.
    pub(super) fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        source: &mut R,
        input: &mut Buffer,
        sink: &mut W,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        loop {
            match self.stage {
                Stage::Done => return Poll::Ready(Ok(())),
                Stage::Body if !input.is_empty() && self.approved + self.skipped == 0 => {
                    self.approve(input)?;
                }
                Stage::Body if self.decoder.is_done() => self.stage = Stage::Last,
                Stage::Body | Stage::Last | Stage::Flush => {}
            }
            ready!(self.poll_write(input, sink, context))?;
            match self.stage {
                Stage::Body if self.decoder.is_done() => {}
                Stage::Body => ready!(self.poll_read(source, input, sink, context))?,
                Stage::Last => self.stage = Stage::Flush,
                Stage::Flush => {
                    self.waits_for = End::Sink;
                    ready!(Pin::new(&mut *sink).poll_flush(context)).map_err(Broken::Write)?;
                    self.stage = Stage::Done;
                }
                Stage::Done => {}
            }
        }
    }

    /// Which end keeps it waiting.
    pub(super) fn waits_for(&self) -> End {
        self.waits_for
    }

    /// Whether the sink has everything.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Bytes read for the body so far. Those that were in the buffer before do not count.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Bytes written so far, with the head.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The head's storage, to be used again.
    pub(super) fn into_head(self) -> Vec<u8> {
        self.head.into_storage()
    }

    /// Decodes what was read, up to the end of the body or of the buffer.
    fn approve(&mut self, input: &mut Buffer) -> Result<(), BadBody> {
        let (mut at, mut kept) = (0, 0);
        while !self.decoder.is_done() {
            let Some(rest @ [_, ..]) = input.bytes().get(at..) else {
                break;
            };
            let piece = self.decoder.next(rest)?;
            let passes = match piece.kind {
                Kind::Data => true,
                Kind::Frame => self.recode == Recode::Raw,
                Kind::Trailer => false,
            };
            if passes {
                input.move_down(at, kept, piece.length);
                kept += piece.length;
            }
            at += piece.length;
        }
        (self.approved, self.skipped) = (kept, at - kept);
        if self.recode == Recode::Enchunk && kept > 0 {
            self.head.push(format!("{kept:x}\r\n").as_bytes());
            self.tail.push(b"\r\n");
        }
        if self.decoder.is_done() {
            self.finish()?;
        }
        Ok(())
    }

    /// Adds what ends the body.
    fn finish(&mut self) -> Result<(), BadBody> {
        match self.recode {
            Recode::Raw if self.framing == Framing::Chunked => {
                self.tail.push(&self.decoder.trailer_section()?);
            }
            Recode::Enchunk => self.tail.push(b"0\r\n\r\n"),
            Recode::Raw | Recode::Dechunk => {}
        }
        self.stage = Stage::Last;
        Ok(())
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        input: &mut Buffer,
        sink: &mut W,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        if self.merges && !self.head.rest().is_empty() && self.approved <= SMALL_BODY {
            let body = input.bytes().get(..self.approved).unwrap_or_default();
            self.head.push(body);
            input.consume(self.approved);
            self.approved = 0;
            self.head.push(self.tail.rest());
            self.tail = Outgoing::default();
        }
        loop {
            let head = self.head.rest();
            let body = input.bytes().get(..self.approved).unwrap_or_default();
            let tail = self.tail.rest();
            let polled = match (head, body, tail) {
                ([], [], []) => break,
                (only, [], []) | ([], only, []) | ([], [], only) => {
                    Pin::new(&mut *sink).poll_write(context, only)
                }
                parts => {
                    let parts = [
                        IoSlice::new(parts.0),
                        IoSlice::new(parts.1),
                        IoSlice::new(parts.2),
                    ];
                    Pin::new(&mut *sink).poll_write_vectored(context, &parts)
                }
            };
            self.waits_for = End::Sink;
            let Poll::Ready(wrote) = polled else {
                let rests = input.rest().map_err(|_| Broken::Share);
                return rests.map_or_else(|why| Poll::Ready(Err(why)), |()| Poll::Pending);
            };
            let count = match wrote {
                Ok(0) => return Poll::Ready(Err(Broken::Write(io::ErrorKind::WriteZero.into()))),
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(Broken::Write(error))),
            };
            self.written += count as u64;
            let from_head = count.min(head.len());
            let from_body = (count - from_head).min(body.len());
            self.head.advance(from_head);
            self.tail.advance(count - from_head - from_body);
            self.approved -= from_body;
            input.consume(from_body);
        }
        input.consume(std::mem::take(&mut self.skipped));
        Poll::Ready(Ok(()))
    }

    fn poll_read<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        source: &mut R,
        input: &mut Buffer,
        sink: &mut W,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        match input.poll_fill(source, context) {
            Poll::Ready(Ok(0)) if self.decoder.may_end() => {
                self.finish()?;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Broken::Ended)),
            Poll::Ready(Ok(count)) => {
                self.read += count as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Broken::Read(error))),
            Poll::Pending => {
                // What was written must not sit in TLS's buffers while the source takes its time.
                self.waits_for = match Pin::new(sink).poll_flush(context) {
                    Poll::Pending => End::Sink,
                    Poll::Ready(Ok(())) => End::Source,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Write(error))),
                };
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;
