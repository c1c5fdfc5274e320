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
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.given.is_empty() && !self.closed {
            return Poll::Pending;
        }
        let count = self.part.min(buffer.remaining()).min(self.given.len());
        buffer.put_slice(&self.given[..count]);
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
    if write > 50 {
        transfer = transfer.merging();
    }
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
async fn it_reports_which_end_it_waits_for() {
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
            .block_on(pass(Framing::Length(body.len() as u64), Recode::Raw, body.as_bytes(), (read,
                write)))
            .unwrap();
        prop_assert_eq!(out, format!("HEAD\r\n\r\n{}", body));
        prop_assert!(left.is_empty());
    }
}
