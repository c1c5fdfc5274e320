//! One request of an HTTP/2 client, and its response, over an HTTP/1.1 connection to a member. Is
//! the body of the response: driven by its reader, it goes on sending the request
//! meanwhile.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame};
use landfall_model::listener::Timeouts;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::Client;
use crate::budget::Extra;
use crate::http::backpressure::Backpressure;
use crate::http::buffer::{Buffer, Outgoing};
use crate::http::content::{BodyFailed, RequestContent};
use crate::http::h1::body::{Decoder, Framing, Kind};
use crate::http::h1::head::FieldBuffer;
use crate::http::h1::request::RequestFacts;
use crate::http::h1::response::{Interims, ResponseHead};
use crate::http::watchdog::{Side, Watchdog};
use crate::http::{CHUNK, KEPT_WAITING, MAX_HEAD};
use crate::pool::Lease;
use crate::tls::MemberStream;

/// How often a long exchange looks whether its member's drain time is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A request under way, and then the body of its response.
#[derive(Debug)]
pub(super) struct OverHttp1 {
    client: Arc<Client>,
    lease: Lease,
    /// Gone once it is kept for the next request.
    stream: Option<MemberStream>,
    /// The hold on its descriptor.
    hold: Option<Extra>,
    input: Buffer,
    /// How the client takes the response.
    backpressure: Arc<Backpressure>,
    upload: Upload,
    decoder: Decoder,
    /// Trailers may still have to be handed on.
    ending: bool,
    keep: bool,
    interims: Interims,
    timeouts: Timeouts,
    watchdog: Watchdog,
    time_limit: (Side, Side),
    started: Instant,
    read: u64,
    counted: (u64, u64),
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum NoResponse {
    /// The member ended the connection before it answered.
    Ended,
    /// It did so while the client kept it waiting.
    GaveUp,
    /// It answered with what is no response.
    Broken,
    /// Its head takes more memory than there is for its client.
    Share,
    /// A peer took too long, or left.
    Failed(BodyFailed),
}

/// The request on its way to the member.
#[derive(Debug)]
struct Upload {
    content: Option<RequestContent>,
    chunked: bool,
    head: Outgoing,
    data: Bytes,
    tail: Outgoing,
    /// The member takes no more of it. It may have answered before.
    refused: bool,
    /// The client is the one that is waited for.
    waits_for_client: bool,
    written: u64,
}

// === impl OverHttp1 ===

impl OverHttp1 {
    /// Sends a request whose head is written already, over an open connection.
    pub(super) fn new(
        client: Arc<Client>,
        lease: Lease,
        (stream, hold): (MemberStream, Option<Extra>),
        head: Vec<u8>,
        content: RequestContent,
        framing: Framing,
        timeouts: Timeouts,
    ) -> Self {
        let now = Instant::now();
        let input = Buffer::default().paid_by(client.ledger.payer().clone());
        Self {
            client,
            lease,
            stream: Some(stream),
            hold,
            input,
            backpressure: Backpressure::current(),
            upload: Upload {
                content: (!content.is_empty()).then_some(content),
                chunked: framing == Framing::Chunked,
                head: Outgoing::from(head),
                data: Bytes::new(),
                tail: Outgoing::default(),
                refused: false,
                waits_for_client: false,
                written: 0,
            },
            decoder: Decoder::new(Framing::Empty),
            ending: true,
            keep: false,
            interims: Interims::default(),
            timeouts,
            watchdog: Watchdog::default(),
            time_limit: (Side::new(now), Side::new(now)),
            started: now,
            read: 0,
            counted: (0, 0),
        }
    }

    /// Waits for the head of the response, of which this is the body then.
    pub(super) async fn response(
        mut self,
        request: RequestFacts,
    ) -> Result<Response<Self>, (NoResponse, Lease)> {
        match poll_fn(|context| self.poll_head(request, context)).await {
            Ok(head) => Ok(head.map(|()| self)),
            Err(failed) => {
                self.count();
                Err((failed, self.lease))
            }
        }
    }

    fn poll_head(
        &mut self,
        request: RequestFacts,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, NoResponse>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(NoResponse::Ended));
        };
        if let Poll::Ready(Err(failed)) = self.upload.poll(stream, context) {
            return Poll::Ready(Err(NoResponse::Failed(failed)));
        }
        loop {
            if !self.input.is_empty() {
                let mut buffer = FieldBuffer::new();
                let bytes = self.input.bytes();
                match ResponseHead::read(bytes, &mut buffer, request) {
                    Ok(Some(head)) => {
                        let facts = head.facts();
                        let response = (facts.status >= 200).then(|| head.to_response());
                        self.input.consume(facts.length);
                        if let Some(response) = response {
                            self.lease.answered(facts.status);
                            self.decoder = Decoder::new(facts.framing);
                            self.keep = facts.keep_alive;
                            self.finish();
                            return Poll::Ready(Ok(response));
                        }
                        if !self.interims.allow(facts.length) {
                            return Poll::Ready(Err(NoResponse::Broken));
                        }
                        continue;
                    }
                    Ok(None) if bytes.len() < MAX_HEAD => {}
                    Ok(None) | Err(_) => return Poll::Ready(Err(NoResponse::Broken)),
                }
            }
            match self.input.poll_fill(stream, context) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::OutOfMemory => {
                    return Poll::Ready(Err(NoResponse::Share));
                }
                Poll::Ready(Ok(0) | Err(_)) if self.read == 0 => {
                    let waited = self.started.elapsed() >= KEPT_WAITING;
                    return Poll::Ready(Err(if waited && self.upload.waits_for_client {
                        NoResponse::GaveUp
                    } else {
                        NoResponse::Ended
                    }));
                }
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(NoResponse::Broken)),
                Poll::Ready(Ok(count)) => self.read += count as u64,
                Poll::Pending => {
                    let failed = ready!(self.poll_clock(context));
                    return Poll::Ready(Err(NoResponse::Failed(failed)));
                }
            }
        }
    }

    /// The next part of the response's body.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        if let Some(stream) = &mut self.stream
            && let Poll::Ready(Err(failed)) = self.upload.poll(stream, context)
        {
            return Poll::Ready(Some(Err(failed)));
        }
        loop {
            if self.decoder.is_done() {
                let trailers = std::mem::take(&mut self.ending).then(|| self.decoder.trailer_map());
                self.finish();
                return Poll::Ready(match trailers {
                    Some(Ok(trailers)) if !trailers.is_empty() => {
                        Some(Ok(Frame::trailers(trailers)))
                    }
                    Some(Err(_)) => Some(Err(BodyFailed::Member)),
                    Some(Ok(_)) | None => None,
                });
            }
            if !self.input.is_empty() {
                let bytes = self.input.bytes();
                let bytes = bytes.get(..CHUNK).unwrap_or(bytes);
                let Ok(piece) = self.decoder.next(bytes) else {
                    return Poll::Ready(Some(Err(BodyFailed::Member)));
                };
                let data = (piece.kind == Kind::Data)
                    .then(|| self.input.bytes().get(..piece.length))
                    .flatten()
                    .map(Bytes::copy_from_slice);
                self.input.consume(piece.length);
                if let Some(data) = data {
                    if self.decoder.is_done() {
                        self.finish();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                continue;
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(None);
            };
            if !self.backpressure.flows() {
                self.input.stay_small();
            }
            match self.input.poll_fill(stream, context) {
                Poll::Ready(Ok(0)) if self.decoder.may_end() => {
                    self.ending = false;
                    self.stream = None;
                    self.hold = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Poll::Ready(Some(Err(BodyFailed::Member)));
                }
                Poll::Ready(Ok(count)) => self.read += count as u64,
                Poll::Pending => return self.poll_clock(context).map(|failed| Some(Err(failed))),
            }
        }
    }

    /// Keeps the connection for the next request once both messages are whole.
    fn finish(&mut self) {
        if !self.decoder.is_done() {
            return;
        }
        self.count();
        let keep = self.keep && self.upload.is_done() && self.input.is_empty();
        let stream = self.stream.take();
        // One that is kept has a hold of its own.
        self.hold = None;
        if let Some(stream) = stream
            && keep
        {
            self.client.keep(self.lease.address(), stream);
        }
    }

    fn poll_clock(&mut self, context: &mut Context<'_>) -> Poll<BodyFailed> {
        let now = Instant::now();
        let sending = !self.upload.is_done() && !self.upload.refused;
        let client_waits = sending && self.upload.waits_for_client;
        let (client, member) = &mut self.time_limit;
        client.note(self.upload.written, client_waits, now);
        member.note(self.upload.written + self.read, !client_waits, now);
        let client = client.deadline(self.timeouts.client_data);
        let member = member.deadline(self.timeouts.member_data);
        if self.upload.written + self.read >= self.counted.0 + self.counted.1 + (1 << 20) {
            self.count();
        }
        loop {
            if self.lease.is_cut() {
                return Poll::Ready(BodyFailed::Cut);
            }
            let now = Instant::now();
            if client.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(BodyFailed::ClientTimeout);
            }
            if member.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(BodyFailed::MemberTimeout);
            }
            let deadline = [client, member].into_iter().flatten().min();
            let look = now + LOOK_EVERY;
            ready!(
                self.watchdog
                    .poll(deadline.map_or(look, |at| at.min(look)), context)
            );
        }
    }

    fn count(&mut self) {
        let now = (self.upload.written, self.read);
        let moved = (now.0 - self.counted.0, now.1 - self.counted.1);
        self.lease
            .member()
            .counters()
            .mine()
            .passed(moved.0, moved.1);
        self.counted = now;
    }
}

impl Body for OverHttp1 {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        self.poll_body(context)
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_done() && !(self.ending && self.decoder.has_trailers())
    }
}

// === impl NoResponse ===

impl NoResponse {
    /// Whether the request may be sent again, if it is one of those.
    pub(super) fn may_be_stale(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Whether the member failed. One that was `kept` may have closed the connection before it saw
    /// the request.
    pub(super) fn is_of_member(&self, kept: bool) -> bool {
        match self {
            Self::Ended => !kept,
            Self::Broken | Self::Failed(BodyFailed::Member | BodyFailed::MemberTimeout) => true,
            Self::GaveUp
            | Self::Share
            | Self::Failed(
                BodyFailed::Client
                | BodyFailed::ClientTimeout
                | BodyFailed::Cut
                | BodyFailed::Share,
            ) => false,
        }
    }
}

// === impl Upload ===

impl Upload {
    fn is_done(&self) -> bool {
        self.content.is_none()
            && self.head.rest().is_empty()
            && self.data.is_empty()
            && self.tail.rest().is_empty()
    }

    /// Sends all that can be sent at present. Fails only because of the client.
    fn poll(
        &mut self,
        stream: &mut MemberStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BodyFailed>> {
        loop {
            if self.refused {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_write(stream, context)).is_err() {
                self.refused = true;
                return Poll::Ready(Ok(()));
            }
            let Some(body) = &mut self.content else {
                return Poll::Ready(Ok(()));
            };
            self.waits_for_client = true;
            let frame = ready!(body.poll_next(context));
            self.waits_for_client = false;
            match frame.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => {
                    if self.chunked {
                        self.head.push(format!("{:x}\r\n", data.len()).as_bytes());
                        self.tail.push(b"\r\n");
                    }
                    self.data = data;
                }
                Some(Err(frame)) => self.end(frame.trailers_ref()),
                None => self.end(None),
            }
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) {
        self.content = None;
        if !self.chunked {
            return;
        }
        self.tail.push(b"0\r\n");
        for (name, value) in trailers.into_iter().flatten() {
            if crate::http::fields::allowed_in_trailers(name.as_str().as_bytes()) {
                for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    self.tail.push(part);
                }
            }
        }
        self.tail.push(b"\r\n");
    }

    fn poll_write(
        &mut self,
        stream: &mut MemberStream,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            let (head, data, tail) = (self.head.rest(), &self.data[..], self.tail.rest());
            if head.is_empty() && data.is_empty() && tail.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let polled = match (head, data, tail) {
                (only, [], []) | ([], only, []) | ([], [], only) => {
                    Pin::new(&mut *stream).poll_write(context, only)
                }
                parts => {
                    let parts = [parts.0, parts.1, parts.2].map(IoSlice::new);
                    Pin::new(&mut *stream).poll_write_vectored(context, &parts)
                }
            };
            let count = ready!(polled)?;
            if count == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.written += count as u64;
            let from_head = count.min(head.len());
            let from_data = (count - from_head).min(data.len());
            self.head.advance(from_head);
            self.data.advance(from_data);
            self.tail.advance(count - from_head - from_data);
        }
    }
}
