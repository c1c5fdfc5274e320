//! One direction of one message: a head that was written anew, then the body, passed on from the buffer
//! that it was read into. Knows framing, no timers and no members.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::body::{BadBody, Decoder, Framing, Kind};
use crate::http::buffer::{Buffer, Outgoing};

/// How a body changes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recode {
    /// Not at all; chunks stay as they are.
    Raw,
    /// Chunks are taken apart, for clients that do not know them.
    Dechunk,
    /// A body that ends with its connection is put in chunks, so that the client can tell its end from
    /// an accident.
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
            stage: Stage::Body,
            waits_for: End::Sink,
            read: 0,
            written: 0,
        }
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
            let count = match ready!(polled) {
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
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Gives bytes in parts of a size, and takes as many at a time.
    struct Slow {
        given: Vec<u8>,
        taken: Vec<u8>,
        part: usize,
        vectored: bool,
        closed: bool,
    }

    impl Slow {
        fn new(given: &[u8], part: usize) -> Self {
            Self {
                given: given.to_vec(),
                taken: Vec::new(),
                part,
                vectored: true,
                closed: true,
            }
        }
    }

    impl AsyncRead for Slow {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.given.is_empty() && !self.closed {
                return Poll::Pending;
            }
            let count = self.part.min(room.remaining()).min(self.given.len());
            room.put_slice(&self.given[..count]);
            self.given.drain(..count);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = self.part.min(bytes.len());
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            if self.vectored {
                return self.poll_write(
                    context,
                    &parts
                        .iter()
                        .flat_map(|part| part.to_vec())
                        .collect::<Vec<_>>(),
                );
            }
            let first = parts.iter().find(|part| !part.is_empty()).unwrap();
            self.part = self.part.max(1);
            self.poll_write(context, first)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// What the sink gets, and what is left for the next message.
    async fn pass(
        framing: Framing,
        recode: Recode,
        body: &[u8],
        (read, write): (usize, usize),
    ) -> Result<(String, Vec<u8>), Broken> {
        let (mut source, mut sink) = (Slow::new(body, read), Slow::new(b"", write));
        sink.vectored = write.is_multiple_of(2);
        let mut input = Buffer::default();
        let mut transfer = Transfer::new(b"HEAD\r\n\r\n".to_vec(), framing, recode);
        poll_fn(|context| transfer.poll(&mut source, &mut input, &mut sink, context)).await?;
        assert!(transfer.is_done());
        assert_eq!(transfer.written(), sink.taken.len() as u64);
        let mut left = input.bytes().to_vec();
        source.read_to_end(&mut left).await.unwrap();
        Ok((String::from_utf8(sink.taken).unwrap(), left))
    }

    const SPEEDS: [(usize, usize); 6] = [(1, 1), (1, 100), (3, 2), (2, 3), (100, 1), (100, 100)];

    #[tokio::test]
    async fn a_counted_body_passes_and_leaves_what_follows() {
        for speeds in SPEEDS {
            let (out, left) = pass(Framing::Length(5), Recode::Raw, b"helloGET", speeds)
                .await
                .unwrap();
            assert_eq!(
                (out.as_str(), &left[..]),
                ("HEAD\r\n\r\nhello", &b"GET"[..])
            );
        }
    }

    #[tokio::test]
    async fn no_body_leaves_everything() {
        let (out, left) = pass(Framing::Empty, Recode::Raw, b"GET", (9, 9))
            .await
            .unwrap();
        assert_eq!((out.as_str(), &left[..]), ("HEAD\r\n\r\n", &b"GET"[..]));
    }

    const CHUNKS: &[u8] = b"5;x\r\nhello\r\n1\r\n!\r\n0\r\nDigest: d\r\nHost: h\r\n\r\nGET";

    #[tokio::test]
    async fn chunks_pass_as_they_are_and_trailers_are_sifted() {
        for speeds in SPEEDS {
            let (out, left) = pass(Framing::Chunked, Recode::Raw, CHUNKS, speeds)
                .await
                .unwrap();
            let wanted = "HEAD\r\n\r\n5;x\r\nhello\r\n1\r\n!\r\n0\r\nDigest: d\r\n\r\n";
            assert_eq!(
                (out.as_str(), &left[..]),
                (wanted, &b"GET"[..]),
                "{speeds:?}"
            );
        }
    }

    #[tokio::test]
    async fn chunks_are_taken_apart() {
        for speeds in SPEEDS {
            let (out, left) = pass(Framing::Chunked, Recode::Dechunk, CHUNKS, speeds)
                .await
                .unwrap();
            assert_eq!(
                (out.as_str(), &left[..]),
                ("HEAD\r\n\r\nhello!", &b"GET"[..])
            );
        }
    }

    #[tokio::test]
    async fn a_body_until_close_is_put_in_chunks() {
        for speeds in SPEEDS {
            let (out, left) = pass(Framing::UntilClose, Recode::Enchunk, b"hello!", speeds)
                .await
                .unwrap();
            let body = out.strip_prefix("HEAD\r\n\r\n").unwrap();
            let mut decoder = Decoder::new(Framing::Chunked);
            let (mut rest, mut content) = (body.as_bytes(), Vec::new());
            while !decoder.is_done() {
                let piece = decoder.next(rest).unwrap();
                if piece.kind == Kind::Data {
                    content.extend_from_slice(&rest[..piece.length]);
                }
                rest = &rest[piece.length..];
            }
            assert_eq!(
                (&content[..], rest, left.len()),
                (&b"hello!"[..], &b""[..], 0)
            );
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        for (framing, body) in [
            (Framing::Length(6), &b"hello"[..]),
            (Framing::Chunked, b"5\r\nhe"),
        ] {
            let broken = pass(framing, Recode::Raw, body, (2, 2)).await.unwrap_err();
            assert!(matches!(broken, Broken::Ended), "{broken}");
        }
        let broken = pass(Framing::Chunked, Recode::Raw, b"xyz", (2, 2))
            .await
            .unwrap_err();
        assert!(matches!(broken, Broken::Body(BadBody::Size)), "{broken}");
    }

    #[tokio::test]
    async fn it_tells_which_end_it_waits_for() {
        let mut source = Slow {
            closed: false,
            ..Slow::new(b"he", 9)
        };
        let (mut sink, _far) = tokio::io::duplex(8);
        let mut input = Buffer::default();
        let mut transfer = Transfer::new(b"HEAD".to_vec(), Framing::Length(9), Recode::Raw);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(
            transfer
                .poll(&mut source, &mut input, &mut sink, &mut context)
                .is_pending()
        );
        assert_eq!(
            (transfer.waits_for(), transfer.read(), transfer.written()),
            (End::Source, 2, 6)
        );
        source.given = b"llo".to_vec();
        assert!(
            transfer
                .poll(&mut source, &mut input, &mut sink, &mut context)
                .is_pending()
        );
        assert_eq!(
            (transfer.waits_for(), transfer.read(), transfer.written()),
            (End::Sink, 5, 8)
        );
    }

    proptest! {
        #[test]
        fn bodies_of_any_size_arrive_whole(
            body in "[a-z]{0,3000}",
            read in 1usize..2000,
            write in 1usize..2000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (out, left) = runtime
                .block_on(pass(Framing::Length(body.len() as u64), Recode::Raw, body.as_bytes(), (read, write)))
                .unwrap();
            prop_assert_eq!(out, format!("HEAD\r\n\r\n{}", body));
            prop_assert!(left.is_empty());
        }
    }
}
